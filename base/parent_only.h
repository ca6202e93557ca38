// ParentOnly: keeps a descriptor from the child processes that fork makes. FD_CLOEXEC does this for exec; but
// a child that executes nothing, such as a worker that loads data, would hold the socket of its parent open.
// Its other end would not see that the parent has died.
#pragma once

namespace shoal::base {

// From its construction to its destruction, a child finds /dev/null in place of the descriptor, which must
// stay open so long. At most 256 at once; further ones are kept by children. Any thread.
class ParentOnly {
 public:
  explicit ParentOnly(int fd);
  ~ParentOnly();
  ParentOnly(const ParentOnly&) = delete;
  ParentOnly& operator=(const ParentOnly&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace shoal::base
