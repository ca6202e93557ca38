#include "actors/node/watch/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace shoal::actors {

struct NodeLog::Impl {
  spdlog::logger logger;
};

NodeLog::NodeLog(const std::string& name)
    : impl_(new Impl{spdlog::logger(name, std::make_shared<spdlog::sinks::stderr_sink_mt>())}) {
  impl_->logger.set_pattern("%Y-%m-%d %H:%M:%S.%e %n %L %v");
  impl_->logger.flush_on(spdlog::level::info);
}

NodeLog::~NodeLog() = default;

void NodeLog::info(const std::string& line) {
  impl_->logger.info(spdlog::string_view_t(line));
}

void NodeLog::warning(const std::string& line) {
  impl_->logger.warn(spdlog::string_view_t(line));
}

}  // namespace shoal::actors
