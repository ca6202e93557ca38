#include "transport/live/make_transport.h"

#include <fmt/format.h>

#include <future>
#include <mutex>
#include <thread>

#include "base/crash_report.h"
#include "transport/handshake.h"
#include "transport/live/engine.h"

namespace shoal::transport {

namespace {

Status check_options(const TransportOptions& options) {
  auto bad = [](std::string why) { return Status(Code::invalid_argument, std::move(why)); };
  const TransportLimits& limits = options.limits;
  if (options.token.empty()) return bad("the job's token is empty");
  if (options.token.size() > kMaxTokenBytes)
    return bad(fmt::format("a token must have at most {} bytes", kMaxTokenBytes));
  if (options.identity.job_id.size() > base::kMaxJobIdBytes || !is_clean_utf8(options.identity.job_id)) {
    return bad(fmt::format("a job id must be valid UTF-8 without control characters, of at most {} bytes",
                           base::kMaxJobIdBytes));
  }
  if (options.identity.name.size() > kMaxPeerNameBytes || !is_clean_utf8(options.identity.name)) {
    return bad(
        fmt::format("the name of a node must be valid UTF-8 without control characters, of at most {} bytes",
                    kMaxPeerNameBytes));
  }
  if (limits.heartbeat_interval_ms == 0 || limits.peer_lost_after_ms <= 2 * limits.heartbeat_interval_ms) {
    return bad("the timeout for a silent peer must be longer than two heartbeat intervals");
  }
  return ok_status();
}

class LiveTransport final : public Transport {
 public:
  explicit LiveTransport(TransportOptions options)
      : options_(std::move(options)), shared_(options_.identity, options_.limits) {}
  ~LiveTransport() override { Transport::stop(0); }

  Status start(TransportHandler& handler) override {
    SHOAL_RETURN_IF_ERROR(check_options(options_));
    SHOAL_CHECK(!thread_.joinable());
    std::promise<Result<std::string>> opened;
    auto address = opened.get_future();
    thread_ = base::vital_thread([this, &handler, &opened] {
      Engine engine(options_, shared_, handler);
      auto result = engine.open();
      bool is_open = result.ok();
      opened.set_value(std::move(result));
      if (is_open) engine.run();
    });
    auto result = address.get();
    if (!result.ok()) {
      thread_.join();
      return result.status();
    }
    listen_address_ = *result;
    return ok_status();
  }

  void stop(uint32_t drain_ms, const Status& why) override {
    if (!thread_.joinable()) return;
    SHOAL_CHECK(thread_.get_id() != std::this_thread::get_id());
    Command command;
    command.kind = Command::Kind::stop;
    command.drain_ms = drain_ms;
    command.status = why;
    shared_.post(std::move(command));
    thread_.join();
  }

  std::string listen_address() const override { return listen_address_; }
  PeerId connect(const std::string& address) override { return shared_.connect(address); }
  Status send(PeerId peer, Bytes message) override { return shared_.send(peer, std::move(message)); }
  bool has_room(PeerId peer, size_t bytes) const override { return shared_.has_room(peer, bytes); }

  void disconnect(PeerId peer, const Status& why) override {
    Command command;
    command.kind = Command::Kind::disconnect;
    command.peer = peer;
    command.status = why.ok() ? Status(Code::unavailable, "disconnected") : why;
    shared_.post(std::move(command));
  }

  void set_generation(uint32_t generation, uint32_t epoch) override {
    shared_.set_generation(generation, epoch);
  }
  TransportStats stats() const override { return shared_.stats(); }

 private:
  TransportOptions options_;
  Shared shared_;
  std::string listen_address_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Transport> make_transport(TransportOptions options) {
  return std::make_unique<LiveTransport>(std::move(options));
}

}  // namespace shoal::transport
