// StatusEvents: what PeerLinks passes on of the messages between nodes that serve only `shoal status`.
#pragma once

#include "actors/role.h"
#include "shoal/bytes.h"

namespace shoal::actors {

// Called on the transport's thread, with the lock of PeerLinks held: no method may call PeerLinks or wait.
class StatusEvents {
 public:
  virtual ~StatusEvents() = default;
  // At the coordinator's node.
  virtual void job_status_requested(NodeId from) = 0;
  virtual void host_status_received(NodeId from, Bytes status) = 0;  // untrusted
  // At any other node, from the coordinator's.
  virtual void host_status_requested() = 0;
  virtual void job_status_received(Bytes status) = 0;  // untrusted
};

}  // namespace shoal::actors
