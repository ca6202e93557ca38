// State shared by the transport's thread and its users, behind one lock: commands, peers by address,
// counters.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/limits.h"
#include "transport/outgoing_queues.h"
#include "transport/tcp/resolver.h"
#include "transport/transport.h"

namespace shoal::transport {

struct Command {
  enum class Kind { connect, resolved, disconnect, stop };
  Kind kind = Kind::stop;
  PeerId peer = 0;
  std::string address;    // connect
  Status status;          // resolved: not OK if it failed; disconnect, stop: the reason
  SocketAddress socket;   // resolved
  uint32_t drain_ms = 0;  // stop
};

class Shared {
 public:
  Shared(Identity identity, const TransportLimits& limits)
      : queues_(limits), identity_(std::move(identity)) {}

  // Called by users, on any thread.
  PeerId connect(const std::string& address);
  Status send(PeerId peer, Bytes message);
  bool has_room(PeerId peer, size_t bytes) const { return queues_.has_room(peer, bytes); }
  void post(Command command);
  void set_generation(uint32_t generation, uint32_t epoch);
  TransportStats stats() const;

  // Called by the transport's thread.
  void set_wake(std::function<void()> wake);  // empty: there is no thread to wake
  std::vector<Command> take_commands();
  std::vector<OutgoingQueues::Batch> take_messages() { return queues_.take(); }
  PeerId add_peer();
  void remove_peer(PeerId peer, const std::string& address);
  void refuse_new();  // rejects new messages and connections; queued messages stay
  void refuse_all();  // also drops queued messages
  void sent(PeerId peer, size_t bytes) { queues_.sent(peer, bytes); }
  Identity identity() const;
  template <class Change>
  void count(Change&& change) {
    std::lock_guard lock(mutex_);
    change(stats_);
  }

 private:
  void wake_locked() {
    if (wake_) wake_();
  }

  OutgoingQueues queues_;
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<Command> commands_;
  std::unordered_map<std::string, PeerId> by_address_;
  PeerId last_peer_ = 0;
  std::atomic<bool> refuses_ = false;
  Identity identity_;
  TransportStats stats_;
};

}  // namespace shoal::transport
