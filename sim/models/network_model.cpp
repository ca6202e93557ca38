#include "sim/models/network_model.h"

#include <algorithm>
#include <utility>

#include "sim/basics/integer_math.h"

namespace shoal::sim {

NetworkModel::NetworkModel(EventHeap& events, const NetworkCosts& costs, size_t nodes)
    : events_(events),
      costs_(costs),
      uplink_bytes_per_s_(costs.hosts_per_rack == 0 ? 0 : costs.uplink_bytes_per_s()),
      interfaces_(nodes),
      slowness_(nodes, 1000),
      racks_(costs.hosts_per_rack == 0 ? 0 : nodes / costs.hosts_per_rack + 1) {}

actors::TimeNs NetworkModel::holds(size_t node, uint64_t bytes) const {
  const actors::TimeNs time = costs_.message_ns + transfer_ns(bytes, costs_.bytes_per_s);
  return slowness_[node] == 1000 ? time : time * slowness_[node] / 1000;
}

// Cut-through: a message occupies each link from the arrival of its first byte. So in an empty network a
// message costs one transfer time, that of the slowest link.
void NetworkModel::send(size_t from, size_t to, uint64_t bytes, std::function<void()> arrived) {
  actors::TimeNs& out_free = interfaces_[from].out_free;
  const actors::TimeNs begins = std::max(events_.now(), out_free);
  out_free = begins + holds(from, bytes);
  // The last byte arrives no earlier than a slow sender has sent it.
  Message* message = messages_.take();
  *message = {from, to, bytes, slowness_[from] == 1000 ? 0 : out_free + costs_.latency_ns,
              std::move(arrived)};
  const bool climbs = !racks_.empty() && rack_of(from) != rack_of(to);
  const actors::TimeNs first_byte = begins + costs_.latency_ns + (climbs ? costs_.rack_latency_ns : 0);
  events_.schedule(
      first_byte, [this, climbs, message] { climbs ? climb(message) : enter(message); }, message);
}

void NetworkModel::climb(Message* message) {
  actors::TimeNs& free = racks_[rack_of(message->from)].out_free;
  const actors::TimeNs begins = std::max(events_.now(), free);
  free = begins + transfer_ns(message->bytes, uplink_bytes_per_s_);
  message->passed = std::max(message->passed, free);
  events_.schedule(
      begins, [this, message] { descend(message); }, message);
}

void NetworkModel::descend(Message* message) {
  actors::TimeNs& free = racks_[rack_of(message->to)].in_free;
  const actors::TimeNs begins = std::max(events_.now(), free);
  free = begins + transfer_ns(message->bytes, uplink_bytes_per_s_);
  message->passed = std::max(message->passed, free);
  events_.schedule(
      begins, [this, message] { enter(message); }, message);
}

void NetworkModel::enter(Message* message) {
  const actors::TimeNs takes = holds(message->to, message->bytes);
  actors::TimeNs& in_free = interfaces_[message->to].in_free;
  in_free = std::max({events_.now() + takes, in_free + takes, message->passed});
  events_.schedule(in_free, std::move(message->arrived));
  messages_.give_back(message);
}

}  // namespace shoal::sim
