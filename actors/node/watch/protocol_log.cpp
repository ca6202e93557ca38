#include "actors/node/watch/protocol_log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/rotating_file_sink.h>

#include <map>
#include <mutex>
#include <utility>

namespace shoal::actors {

struct ProtocolLog::Impl {
  spdlog::logger logger;
  TimeNs began;
  std::mutex mutex;
  std::map<NodeId, std::string> names;  // of peers that are up

  std::string name_of(NodeId node) {
    if (node == kCoordinatorNode) return "coordinator";
    std::lock_guard lock(mutex);
    auto found = names.find(node);
    return found == names.end() ? fmt::format("node {}", node) : found->second;
  }

  void write(TimeNs now, const std::string& text) {
    const TimeNs since = now - began;
    logger.info(spdlog::string_view_t(
        fmt::format("{}.{:09} {}", since / 1'000'000'000, since % 1'000'000'000, text)));
  }
};

ProtocolLog::ProtocolLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProtocolLog::~ProtocolLog() = default;

Result<std::unique_ptr<ProtocolLog>> ProtocolLog::open(const std::string& file, TimeNs now) {
  try {
    auto sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(file, kMaxProtocolLogBytes, 1);
    std::unique_ptr<Impl> impl(new Impl{spdlog::logger("protocol", std::move(sink)), now, {}, {}});
    impl->logger.set_pattern("%v");
    impl->logger.flush_on(spdlog::level::info);
    return std::unique_ptr<ProtocolLog>(new ProtocolLog(std::move(impl)));
  } catch (const spdlog::spdlog_ex& error) {
    return Status(Code::io, error.what());
  }
}

void ProtocolLog::peer_up(TimeNs now, NodeId node, const std::string& name) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->names[node] = name;
  }
  impl_->write(now, fmt::format("up {}", impl_->name_of(node)));
}

void ProtocolLog::peer_lost(TimeNs now, NodeId node, const Status& why) {
  impl_->write(now, fmt::format("lost {}: {}", impl_->name_of(node), why.to_string()));
  std::lock_guard lock(impl_->mutex);
  impl_->names.erase(node);
}

void ProtocolLog::sent(TimeNs now, NodeId to, const WireMessage& message) {
  impl_->write(now, fmt::format("to {}: {}", impl_->name_of(to), describe(*message.body)));
}

void ProtocolLog::sent_to(TimeNs now, const std::string& address, const WireMessage& message) {
  impl_->write(now, fmt::format("to {}: {}", address, describe(*message.body)));
}

void ProtocolLog::received(TimeNs now, NodeId from, const WireMessage& message) {
  impl_->write(now, fmt::format("from {}: {}", impl_->name_of(from), describe(*message.body)));
}

}  // namespace shoal::actors
