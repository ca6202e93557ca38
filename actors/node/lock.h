// NodeLock: one node a user, host and root.
#pragma once

#include <string>

#include "local/socket/socket.h"
#include "shoal/status.h"

namespace shoal::actors {

// Held by the process for its life, let go by its end however it comes; the file stays, with the pid as text.
class NodeLock {
 public:
  // Code::already_exists names the pid of the node that holds it.
  static Result<NodeLock> take(const std::string& lock_file, const std::string& root);

 private:
  explicit NodeLock(local::OwnedFd fd) : fd_(std::move(fd)) {}
  local::OwnedFd fd_;
};

}  // namespace shoal::actors
