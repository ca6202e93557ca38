#include "sim/models/relay_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/bytes/virtual_host.h"

namespace shoal::sim {

namespace {

// Size of the envelope of a message between a relay and the coordinator.
constexpr uint64_t kEnvelopeBytes = 100;

Nonce incarnation_of(size_t node) {
  std::byte number[8];
  store_le64(number, node);
  return xxh3_128(number);
}

// The relay of each node; 0: none.
std::vector<uint32_t> place_nodes(size_t nodes, size_t direct_max) {
  std::vector<uint32_t> relay_of(nodes);
  if (nodes <= direct_max + 1) return relay_of;
  actors::RelayTree tree(direct_max);
  uint64_t children = 0;
  for (size_t node = 1; node < nodes; ++node) {
    const actors::NodeId id = actors::kFirstPeerNode + node;
    actors::RelayTree::Answer answer = tree.came(id, incarnation_of(node));
    if (answer.is_direct) continue;
    if (answer.asks) {
      tree.serves(*answer.asks, std::to_string(*answer.asks - actors::kFirstPeerNode), direct_max);
      if (answer.go_by.empty()) answer = tree.came(id, incarnation_of(node));
    }
    SHOAL_CHECK(!answer.go_by.empty());
    relay_of[node] = static_cast<uint32_t>(std::stoul(answer.go_by));
    SHOAL_CHECK(tree.child_up(actors::kFirstPeerNode + relay_of[node], ++children, id, incarnation_of(node)));
  }
  return relay_of;
}

}  // namespace

RelayModel::RelayModel(EventHeap& events, NetworkModel& network, const CpuCosts& cpu, size_t nodes,
                       size_t direct_max)
    : events_(events),
      network_(network),
      passing_ns_(2 * cpu.message_ns),
      relay_of_(place_nodes(nodes, direct_max)),
      free_(nodes),
      dead_(nodes) {
  std::vector<bool> serves(nodes);
  for (uint32_t relay : relay_of_) serves[relay] = true;
  relays_ = static_cast<size_t>(std::count(serves.begin() + 1, serves.end(), true));
}

void RelayModel::send(size_t from, size_t to, uint64_t bytes, std::function<void()> arrived) {
  const size_t relay = relay_of_[from == 0 ? to : from];
  if (relay == 0 || (from != 0 && to != 0)) return network_.send(from, to, bytes, std::move(arrived));
  const uint64_t enveloped = bytes + kEnvelopeBytes;
  Passing* passing = passing_.take();
  *passing = {relay, to, to == 0 ? enveloped : bytes, std::move(arrived)};
  network_.send(from, relay, from == 0 ? enveloped : bytes, [this, passing] { pass_on(passing); });
}

void RelayModel::pass_on(Passing* passing) {
  actors::TimeNs& free = free_[passing->relay];
  if (dead_[passing->relay]) {
    passing->arrived = nullptr;
    return passing_.give_back(passing);
  }
  free = std::max(events_.now(), free) + passing_ns_;
  events_.schedule(free, [this, passing] {
    network_.send(passing->relay, passing->to, passing->bytes, std::move(passing->arrived));
    passing_.give_back(passing);
  });
}

void RelayModel::kill(size_t dead) {
  dead_[dead] = true;
  if (dead == 0 || std::find(relay_of_.begin(), relay_of_.end(), dead) == relay_of_.end()) return;
  events_.schedule(events_.now() + kSilenceNs, [this, dead] {
    // Its nodes move to the next living relay. If there is none, they connect to the coordinator directly.
    const auto next = std::find_if(relay_of_.begin(), relay_of_.end(),
                                   [&](uint32_t relay) { return relay != 0 && !dead_[relay]; });
    const uint32_t taken = next == relay_of_.end() ? 0 : *next;
    std::replace(relay_of_.begin(), relay_of_.end(), static_cast<uint32_t>(dead), taken);
  });
}

}  // namespace shoal::sim
