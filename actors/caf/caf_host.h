// CafHost: runs roles live, each as one actor of the C++ Actor Framework (CAF). CAF provides mailboxes and
// scheduling over cores. Timers, operations and everything outside of the process come in as interfaces.
//
// Live it has worker threads, one timer thread, and bounded pools for operations. On virtual time (tests) it
// uses CAF's testing scheduler: all events, timers and operations pass through VirtualTime, one at a time and
// in its order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/operation_traits.h"
#include "actors/role.h"
#include "shoal/status.h"

namespace shoal::actors {

// Bound for each role. At the bound, messages of peers are dropped and clients wait.
inline constexpr size_t kMaxQueuedEvents = 16'384;
// Bound of the encoded size of queued messages, of all roles together.
inline constexpr size_t kMaxQueuedWireBytes = size_t{1} << 30;
inline constexpr size_t kMaxQueuedOperations = 65'536;  // at the bound, a start fails with Code::busy

// What effects reach outside of the host. Called on any thread, concurrently. Only run() may block for long.
class HostServices {
 public:
  virtual ~HostServices() = default;
  virtual TimeNs now() = 0;
  // Sends to another node, never to this one. May drop the message: roles resend. If id is not 0, the caller
  // posts event::SendDone to the role that sends.
  virtual void send(NodeId to, const WireMessage& message, SendId id) = 0;
  virtual void send_to(const std::string& address, const WireMessage& message) = 0;  // likewise
  virtual void to_client(ClientId client, const std::shared_ptr<const local::LocalMessage>& message) = 0;
  virtual void forget_client(ClientId client) = 0;
  virtual Result<OperationResult> run(const Operation& operation) = 0;  // on a thread of the pool
  virtual void redirect(const effect::Redirect& to) = 0;
  virtual void end_session(NodeId node, const Status& why) = 0;
  // The coordinator here has retired; from now on kCoordinatorNode is another node.
  virtual void retired(const storage::EpochRecord& by) = 0;
  virtual void drained(RoleKind role) = 0;
  virtual void log(RoleKind role, const effect::Log& log) = 0;
};

// The event queue of a simulated world. Several hosts may share one. Used by one thread.
class VirtualTime {
 public:
  virtual ~VirtualTime() = default;
  virtual TimeNs now() = 0;
  // Runs `action` at that time, after everything scheduled earlier for the same time.
  virtual void schedule(TimeNs at, std::function<void()> action) = 0;
};

struct CafHostOptions {
  size_t workers = 3;
  // By ThreadClass (actors/operation_traits.h).
  size_t bulk_threads = kBulkThreads;
  size_t duty_threads = kDutyThreads;
  size_t background_threads = kBackgroundThreads;
  size_t queued_events_max = kMaxQueuedEvents;
  size_t queued_wire_bytes_max = kMaxQueuedWireBytes;
  bool coordinator_is_here = false;     // then kCoordinatorNode is this node, until the role retires
  VirtualTime* virtual_time = nullptr;  // null: live; outlives the host
};

struct CafHostStats {
  uint64_t events = 0;
  uint64_t wire_dropped = 0;      // messages of peers, because a mailbox was full
  uint64_t messages_to_none = 0;  // messages for a role that this host does not have
};

class CafHost {
 public:
  // `services` outlives the host. The kinds of the roles differ. Each role receives Started before anything
  // else.
  CafHost(CafHostOptions options, std::vector<std::unique_ptr<Role>> roles, HostServices& services);
  // Waits for running operations, and drops queued ones.
  ~CafHost();

  // The methods below may be called on any thread.
  void post(RoleKind role, Event event);
  void post_all(const Event& event);
  // Posts a message of another node, of this encoded size. False: dropped, because a bound is reached.
  bool post_received(NodeId from, WireMessage message, size_t encoded_bytes);
  // For threads that read from clients: blocks while the role's mailbox is full, at most timeout_ms. False:
  // still full.
  bool wait_for_room(RoleKind role, int timeout_ms);
  CafHostStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::actors
