// Shared by tests of the live transport: a handler that records its calls and lets a test wait for them,
// messages with known contents, and options for the nodes of one job.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/live/make_transport.h"
#include "transport/transport.h"

namespace shoal::testing {

constexpr std::chrono::seconds kPatience{20};  // of a loaded machine; a test that passes never waits so long

class RecordingHandler : public transport::TransportHandler {
 public:
  struct Record {
    std::optional<transport::Identity> up;
    std::vector<Bytes> messages;
    size_t sent = 0;
    std::vector<Status> lost;
    std::chrono::steady_clock::time_point lost_at;
  };

  void on_peer_up(transport::PeerId peer, const transport::Identity& identity) override {
    change([&] {
      records_[peer].up = identity;
      last_up_ = peer;
    });
    if (react) react(peer);
  }
  void on_message(transport::PeerId peer, Bytes message) override {
    change([&] {
      records_[peer].messages.push_back(std::move(message));
      ++messages_;
    });
  }
  void on_sent(transport::PeerId peer, size_t messages) override {
    change([&] { records_[peer].sent += messages; });
  }
  void on_peer_lost(transport::PeerId peer, const Status& why) override {
    change([&] {
      records_[peer].lost.push_back(why);
      records_[peer].lost_at = std::chrono::steady_clock::now();
    });
  }

  void on_refused(const std::string& /*address*/, const Status& why) override {
    change([&] { refused_.push_back(why); });
  }

  // False if the condition did not come true in time.
  bool wait(const std::function<bool(RecordingHandler&)>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return condition(*this); });
  }
  bool wait_up(transport::PeerId peer) {
    return wait([peer](auto& self) {
             return self.records_[peer].up.has_value() || !self.records_[peer].lost.empty();
           }) &&
           record(peer).up.has_value();
  }
  // The status that the peer was lost with; OK if it was not lost.
  Status wait_lost(transport::PeerId peer) {
    bool lost = wait([peer](auto& self) { return !self.records_[peer].lost.empty(); });
    return lost ? record(peer).lost.front() : Status();
  }
  bool wait_messages(transport::PeerId peer, size_t count) {
    return wait([=](auto& self) { return self.records_[peer].messages.size() >= count; });
  }
  bool wait_sent(transport::PeerId peer, size_t count) {
    return wait([=](auto& self) { return self.records_[peer].sent >= count; });
  }
  // The peer that came up last, once there were `count` of them.
  transport::PeerId wait_nth_up(size_t count) {
    bool up = wait([=](auto& self) { return self.ups() >= count; });
    std::lock_guard lock(mutex_);
    return up ? last_up_ : 0;
  }
  Record record(transport::PeerId peer) {
    std::lock_guard lock(mutex_);
    return records_[peer];
  }
  // Only within wait's condition.
  size_t ups() const {
    size_t count = 0;
    for (auto& [id, each] : records_) count += each.up.has_value() ? 1 : 0;
    return count;
  }
  size_t messages() const { return messages_; }
  const std::vector<Status>& refused() const { return refused_; }
  std::map<transport::PeerId, Record>& records() { return records_; }

  std::function<void(transport::PeerId)> react;  // on a peer that came up; set before start

 private:
  template <class Change>
  void change(Change&& how) {
    {
      std::lock_guard lock(mutex_);
      how();
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<transport::PeerId, Record> records_;
  transport::PeerId last_up_ = 0;
  size_t messages_ = 0;
  std::vector<Status> refused_;
};

// A framed message of exactly `bytes` (a multiple of 8, at least 8) with contents that depend on `seed`.
Bytes make_message(size_t bytes, uint64_t seed);

// By which those who listen are reached; connectors find out. A test of both kinds sets it first.
inline transport::TransportKind transport_of_listeners = transport::TransportKind::tcp;

// A test for each kind of transport.
class OfEachTransport : public ::testing::TestWithParam<transport::TransportKind> {
 protected:
  OfEachTransport() { transport_of_listeners = GetParam(); }
  ~OfEachTransport() override { transport_of_listeners = transport::TransportKind::tcp; }
};
inline constexpr auto kEachTransport = [] {
  return ::testing::Values(transport::TransportKind::tcp, transport::TransportKind::ucx);
};
inline constexpr auto kNameOfTransport =
    [](const ::testing::TestParamInfo<transport::TransportKind>& tested) {
      return std::string(transport::to_string(tested.param));
    };

// Options of a node of the test's job that listens on a free port of the loopback, or on none.
transport::TransportOptions make_options(bool listens, const std::string& name);

// A started transport with its handler, stopped when it goes.
struct Node {
  explicit Node(transport::TransportOptions options)
      : transport(transport::make_transport(std::move(options))) {}
  ~Node() { transport->stop(0); }
  Status start() { return transport->start(handler); }
  std::string address() const { return transport->listen_address(); }

  RecordingHandler handler;
  std::unique_ptr<transport::Transport> transport;
};

}  // namespace shoal::testing
