// NodeLock: allows one node for each user, host and root.
#pragma once

#include <string>

#include "base/owned_fd.h"
#include "local/socket/socket.h"
#include "shoal/status.h"

namespace shoal::actors {

// The process holds it until it ends, in whatever way. The file stays, with the pid as its text.
class NodeLock {
 public:
  // Code::already_exists: another node holds it; the message has its pid.
  static Result<NodeLock> take(const std::string& lock_file, const std::string& root);

 private:
  explicit NodeLock(base::OwnedFd fd) : fd_(std::move(fd)) {}
  base::OwnedFd fd_;
};

}  // namespace shoal::actors
