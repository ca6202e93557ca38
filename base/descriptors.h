// File descriptors of this process: their limit, and how to answer a connection when none is left.
#pragma once

#include <cstdint>

#include "base/owned_fd.h"
#include "shoal/status.h"

namespace shoal::base {

inline constexpr const char* kDescriptorRemedy = "ulimit -n, or LimitNOFILE= of a systemd unit, raises it";

struct DescriptorLimit {
  uint64_t soft = 0;  // how many this process may have
  uint64_t hard = 0;  // what it may raise the soft limit to
};
Result<DescriptorLimit> descriptor_limit();

// Raises the soft limit to `needed`, or to the hard limit if that is less. Never lowers the soft limit.
// Returns the limits afterwards.
Result<DescriptorLimit> raise_descriptor_limit(uint64_t needed);

bool is_out_of_descriptors(int error);  // `error`: errno of a call that creates a descriptor
// The error to send to a new connection in that case: Code::busy, with the limit and the remedy.
Status out_of_descriptors();

// Keeps one descriptor in reserve. When none is left, the owner of a listener uses it to accept, answer and
// close a new connection. If the connection were left waiting, the listener would stay readable and poll
// would spin. One thread may use it.
class SpareDescriptor {
 public:
  SpareDescriptor() { refill(); }

  // Closes the spare descriptor and accepts the next connection of `listener`, as a non-blocking descriptor.
  // It owns none if no connection waits or there is still no descriptor. The caller closes it and then calls
  // refill.
  OwnedFd accept_in_place(int listener);
  void refill();

 private:
  OwnedFd fd_;
};

}  // namespace shoal::base
