// NodeLock: allows one node for each user, host and root.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "local/socket/socket.h"
#include "shoal/status.h"

namespace shoal::actors {

// The process holds it until it ends, in whatever way. The file stays, with the pid as its text, until
// remove_unused_locks.
class NodeLock {
 public:
  // Code::already_exists: another node holds it; the message has its pid.
  static Result<NodeLock> take(const std::string& lock_file, const std::string& root);

 private:
  explicit NodeLock(base::OwnedFd fd) : fd_(std::move(fd)) {}
  base::OwnedFd fd_;
};

// Removes from `folder` the lock files of other nodes that no node has taken since `used_until` and none
// holds, each with its log if that was not changed since then either. `own_lock`: the path of this node's, in
// `folder`. Leaves alone names that no node gives. Appends the paths that were removed. A failure ends the
// work: the error has the path, and the next node tries again.
Status remove_unused_locks(const std::string& folder, const std::string& own_lock,
                           std::chrono::system_clock::time_point used_until,
                           std::vector<std::string>* removed);

}  // namespace shoal::actors
