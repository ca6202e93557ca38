// CafHost: runs roles live, each as one actor of the C++ Actor Framework. Mailboxes and scheduling over cores
// are CAF's; timers, operations and everything outside the process come in as interfaces.
//
// Live: worker threads, one timer thread, a bounded pool for operations. On virtual time (tests): CAF's
// testing scheduler; every event, timer and operation passes through VirtualTime, one at a time, in its
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/role.h"
#include "shoal/status.h"

namespace shoal::actors {

inline constexpr size_t kMaxQueuedEvents =
    16'384;  // of a role; then messages of peers are dropped and clients wait
inline constexpr size_t kMaxQueuedWireBytes = size_t{1} << 30;  // encoded size of queued messages, all roles
inline constexpr size_t kMaxQueuedOperations = 65'536;          // then a start fails with Code::busy

// What effects reach beyond the host. Any thread, concurrently; nothing here may block for long, but run.
class HostServices {
 public:
  virtual ~HostServices() = default;
  virtual TimeNs now() = 0;
  // To another node, never to this one. May drop it: roles resend. Of an id that is not 0 the role that sends
  // hears event::SendDone.
  virtual void send(NodeId to, const WireMessage& message, SendId id) = 0;
  virtual void send_to(const std::string& address, const WireMessage& message) = 0;  // likewise
  virtual void to_client(ClientId client, const std::shared_ptr<const local::LocalMessage>& message) = 0;
  virtual void forget_client(ClientId client) = 0;
  virtual Result<OperationResult> run(const Operation& operation) = 0;  // on a thread of the pool
  virtual void redirect(const effect::Redirect& to) = 0;
  virtual void end_session(NodeId node, const Status& why) = 0;
  virtual void retired(
      const storage::EpochRecord& by) = 0;  // the coordinator here; kCoordinatorNode is elsewhere now
  virtual void drained(RoleKind role) = 0;
  virtual void log(RoleKind role, const effect::Log& log) = 0;
};

// The event queue of a simulated world; several hosts may share one. One thread.
class VirtualTime {
 public:
  virtual ~VirtualTime() = default;
  virtual TimeNs now() = 0;
  // Runs `action` at that time, after everything scheduled before for the same time.
  virtual void schedule(TimeNs at, std::function<void()> action) = 0;
};

struct CafHostOptions {
  size_t workers = 3;
  size_t bulk_threads = 4;        // for operations that move a checkpoint's bytes, or remove them
  size_t duty_threads = 2;        // for the others, so that no decision waits behind a shard
  size_t background_threads = 2;  // for retention, which nobody waits for
  size_t queued_events_max = kMaxQueuedEvents;
  size_t queued_wire_bytes_max = kMaxQueuedWireBytes;
  bool coordinator_is_here = false;     // kCoordinatorNode is then this node, until the role retires
  VirtualTime* virtual_time = nullptr;  // null: live; outlives the host
};

struct CafHostStats {
  uint64_t events = 0;
  uint64_t wire_dropped = 0;      // messages of peers that found a full mailbox
  uint64_t messages_to_none = 0;  // for a role that is not here
};

class CafHost {
 public:
  // `services` outlives the host. Each role receives Started before anything else. Roles of distinct kinds.
  CafHost(CafHostOptions options, std::vector<std::unique_ptr<Role>> roles, HostServices& services);
  // Waits for the operations that run; what is queued is dropped.
  ~CafHost();

  // Any thread.
  void post(RoleKind role, Event event);
  void post_all(const Event& event);
  // A message of another node, of this encoded size. False: dropped, a bound is reached.
  bool post_received(NodeId from, WireMessage message, size_t encoded_bytes);
  // For who reads from clients: blocks while the role's mailbox is full, at most that long. False: still
  // full.
  bool wait_for_room(RoleKind role, int timeout_ms);
  CafHostStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::actors
