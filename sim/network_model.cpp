#include "sim/network_model.h"

#include <algorithm>
#include <utility>

#include "sim/integer_math.h"

namespace shoal {

// Cut through: the receiving interface is taken from when the first byte comes, so that an empty network
// costs a message's transfer once.
void NetworkModel::send(size_t from, size_t to, uint64_t bytes, std::function<void()> arrived) {
  const TimeNs holds = costs_.message_ns + transfer_ns(bytes, costs_.bytes_per_s);
  TimeNs& out_free = interfaces_[from].out_free;
  const TimeNs begins = std::max(events_.now(), out_free);
  out_free = begins + holds;
  events_.schedule(begins + costs_.latency_ns, [this, to, holds, arrived = std::move(arrived)]() mutable {
    TimeNs& in_free = interfaces_[to].in_free;
    in_free = std::max(events_.now(), in_free) + holds;
    events_.schedule(in_free, std::move(arrived));
  });
}

}  // namespace shoal
