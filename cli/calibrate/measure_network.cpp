#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/calibrate/measure.h"
#include "shoal/hash.h"
#include "transport/live/make_transport.h"
#include "transport/message_check.h"

namespace shoal::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSmallBytes = 256;
constexpr size_t kBulkBytes = size_t{8} << 20;
constexpr size_t kBulkInProgress = 4;
constexpr int kWarmUp = 100, kNetworkRoundTrips = 5000, kBulkMessages = 64;
constexpr double kNetworkSeconds = 3.0;  // seconds, for the round trips and for the bulk transfer each
constexpr std::chrono::seconds kPatience{15};

// One end. The serving end answers each small message with the same message, and each bulk message with a
// small one.
class End final : public transport::TransportHandler {
 public:
  End(const std::string& listen, const std::string& secret, bool serves) : serves_(serves) {
    transport::TransportOptions options;
    options.listen = listen;
    options.identity.job_id = "shoal calibrate";
    options.identity.incarnation = random_128();
    options.identity.name = "calibrate";
    options.token.assign(as_view(secret).begin(), as_view(secret).end());
    transport_ = transport::make_transport(std::move(options));
  }
  ~End() override { transport_->stop(0); }
  Status start() { return transport_->start(*this); }
  transport::Transport& transport() { return *transport_; }

  void on_peer_up(transport::PeerId, const transport::Identity&) override {
    change([&] { is_up_ = true; });
  }
  void on_message(transport::PeerId peer, Bytes message) override {
    if (serves_) {
      // An error ends the session, and the other end notices that.
      (void)transport_->send(peer, message.size() <= kSmallBytes ? std::move(message)
                                                                 : transport::message_of_zeros(kSmallBytes));
    } else {
      change([&] { ++received_; });
    }
  }
  void on_peer_lost(transport::PeerId, const Status& why) override {
    change([&] { lost_ = why; });
  }

  Status wait_up() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return is_up_ || !lost_.ok(); });
    if (!lost_.ok()) return lost_;
    return is_up_ ? ok_status() : Status(Code::deadline_exceeded, "no answer");
  }
  // Waits until this number of messages has arrived since the start.
  Status wait_received(uint64_t count) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, kPatience, [&] { return received_ >= count || !lost_.ok(); });
    if (!lost_.ok()) return lost_;
    return came ? ok_status() : Status(Code::deadline_exceeded, "no answer");
  }
  uint64_t received() {
    std::lock_guard lock(mutex_);
    return received_;
  }

 private:
  template <class Act>
  void change(Act&& act) {
    std::lock_guard lock(mutex_);
    act();
    changed_.notify_all();
  }
  const bool serves_;
  std::unique_ptr<transport::Transport> transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_up_ = false;
  uint64_t received_ = 0;
  Status lost_;
};

struct Figures {
  double round_trip = 0;      // seconds
  double processor_time = 0;  // processor time of this process per round trip
  double bulk_bytes_per_s = 0;
};

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

Result<Figures> measure(End& end, transport::PeerId peer) {
  Figures figures;
  const Bytes small = transport::message_of_zeros(kSmallBytes);
  int counted = 0;
  Clock::time_point begun;
  double processor_before = 0;
  for (int i = 0; i < kWarmUp + kNetworkRoundTrips; ++i) {
    if (i == kWarmUp) {
      begun = Clock::now();
      processor_before = processor_seconds();
    }
    const uint64_t before = end.received();
    SHOAL_RETURN_IF_ERROR(end.transport().send(peer, small));
    SHOAL_RETURN_IF_ERROR(end.wait_received(before + 1));
    if (i < kWarmUp) continue;
    ++counted;
    if (seconds_since(begun) > kNetworkSeconds) break;
  }
  figures.round_trip = seconds_since(begun) / counted;
  figures.processor_time = (processor_seconds() - processor_before) / counted;

  std::vector<Bytes> prepared(kBulkMessages, transport::message_of_zeros(kBulkBytes));
  const uint64_t first = end.received();
  begun = Clock::now();
  size_t sent = 0;
  for (; sent < prepared.size() && seconds_since(begun) < kNetworkSeconds; ++sent) {
    if (sent >= kBulkInProgress) SHOAL_RETURN_IF_ERROR(end.wait_received(first + sent + 1 - kBulkInProgress));
    SHOAL_RETURN_IF_ERROR(end.transport().send(peer, std::move(prepared[sent])));
  }
  SHOAL_RETURN_IF_ERROR(end.wait_received(first + sent));
  figures.bulk_bytes_per_s = static_cast<double>(sent * kBulkBytes) / seconds_since(begun);
  return figures;
}

}  // namespace

Result<MeasuredNumbers> measure_network(const std::string& peer, const std::string& secret) {
  const bool is_here = peer.empty();
  std::optional<End> other;
  if (is_here) {
    other.emplace("127.0.0.1:0", secret, true);
    SHOAL_RETURN_IF_ERROR(other->start());
  }
  End end("", secret, false);
  SHOAL_RETURN_IF_ERROR(end.start());
  const std::string address = is_here ? other->transport().listen_address() : peer;
  const transport::PeerId session = end.transport().connect(address);
  if (Status up = end.wait_up(); !up.ok()) return up.with_context(address);
  Result<Figures> measured = measure(end, session);
  if (!measured.ok()) return measured.status().with_context(address);
  // A round trip sends two messages and receives two. With a peer, this process does one of each.
  const double message = measured->processor_time / (is_here ? 4 : 2);
  const double latency = std::max(measured->round_trip / 2 - 2 * message, measured->round_trip / 20);
  const std::string where = is_here ? "within one process, over the loopback" : "to " + peer;
  return MeasuredNumbers{
      {"network.latency_ns", static_cast<int64_t>(latency * 1e9), true,
       fmt::format("half of a round trip of {:.1f} us, {}, minus the processor time",
                   measured->round_trip * 1e6, where)},
      {"network.message_ns", 1000, false, "these messages cannot separate it from cpu.message_ns"},
      {"network.bytes_per_s", static_cast<int64_t>(measured->bulk_bytes_per_s), true,
       fmt::format("messages of 8 MiB, {} in flight, {}", kBulkInProgress, where)},
      {"cpu.message_ns", std::max<int64_t>(1, static_cast<int64_t>(message * 1e9)), true,
       fmt::format("processor time of round trips of 256 bytes, {}", where)},
  };
}

Status serve_measurements(const std::string& listen, const std::string& secret, const std::atomic<bool>& stop,
                          void (*listening)(const std::string& address)) {
  End end(listen, secret, true);
  SHOAL_RETURN_IF_ERROR(end.start());
  listening(end.transport().listen_address());
  while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return ok_status();
}

}  // namespace shoal::cli
