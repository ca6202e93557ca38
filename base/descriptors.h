// File descriptors of this process: how many it may have, and what to do when none is left.
#pragma once

#include <cstdint>

#include "shoal/status.h"

namespace shoal::base {

inline constexpr const char* kDescriptorRemedy = "ulimit -n, or LimitNOFILE= of a systemd unit, raises it";

struct DescriptorLimit {
  uint64_t soft = 0;  // how many this process may have
  uint64_t hard = 0;  // what it may raise the soft limit to
};
Result<DescriptorLimit> descriptor_limit();

// Raises the soft limit to `needed`, or to the hard one where that is less; it is never lowered. What stands
// then.
Result<DescriptorLimit> raise_descriptor_limit(uint64_t needed);

bool is_out_of_descriptors(int error);  // errno of a call that would have made one
// What whoever comes is told then. Code::busy; names the limit and the remedy.
Status out_of_descriptors();

// One descriptor held back, so that those who come when there is none left can be told so and closed. Who
// only waits for the next one leaves the listener readable, and turns in a loop. One thread.
class SpareDescriptor {
 public:
  SpareDescriptor();
  ~SpareDescriptor();
  SpareDescriptor(const SpareDescriptor&) = delete;
  SpareDescriptor& operator=(const SpareDescriptor&) = delete;

  // The next one who waits at this listener, accepted in place of the spare one, non-blocking. -1: nobody
  // waits, or there is still no descriptor. The caller closes it, then calls refill.
  int accept_in_place(int listener);
  void refill();

 private:
  int fd_ = -1;
};

}  // namespace shoal::base
