// CpuModel: the time that a node's processor needs to handle an event and to carry out the effects. Each node
// handles one event at a time (sim/cluster/virtual_cluster.h).
//
// The model counts messages and their bytes, events, entries of shard headers, and the plans that a role
// computes. The ShardWriter that writes by a rank's plan computes it once. The coordinator that checks it
// computes it once per roster.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/role.h"
#include "sim/models/profile.h"

namespace shoal::sim {

class CpuModel {
 public:
  // writers_plan: ShardWriters compute plans; false in mode collective, where ranks receive their plans.
  // copy_bytes_per_s: the rate at which chunks are copied to and from messages; nothing decodes chunks.
  CpuModel(const CpuCosts& costs, bool writers_plan, uint64_t copy_bytes_per_s)
      : costs_(costs), writers_plan_(writers_plan), copy_bytes_per_s_(copy_bytes_per_s) {}

  // Time to receive an event. `wire_bytes`: encoded size of a message from another node; otherwise 0.
  actors::TimeNs to_take(const actors::Event& event, uint64_t wire_bytes) const;
  // Time to carry out the effects that `role` returned for `event`. `sizes`: encoded sizes of its Sends to
  // other nodes.
  actors::TimeNs to_answer(size_t node, actors::RoleKind role, const actors::Event& event,
                           std::span<const actors::Effect> effects, const std::vector<uint64_t>& sizes);
  // Another process has replaced this node's process: it has computed no plans yet.
  void forget(size_t node, const std::vector<Rank>& its_ranks);
  // Time to copy the bytes of a chunk into its message, in addition to the time of the message.
  actors::TimeNs to_copy(uint64_t chunk_bytes) const;
  // Time that `work` takes on a node's processor.
  actors::TimeNs on(bool coordinates, actors::TimeNs work) const;
  // Sets the number of tensors of each rank.
  void set_items(std::vector<uint32_t> of_rank) { items_ = std::move(of_rank); }

 private:
  actors::TimeNs to_begin(size_t node, const actors::Effect& any);  // the part of one effect in to_answer
  // Time to compute this rank's plan; 0 after the first time.
  actors::TimeNs to_plan(std::vector<bool>& planned, Rank rank, actors::TimeNs item_ns);

  const CpuCosts costs_;
  const bool writers_plan_;
  const uint64_t copy_bytes_per_s_;
  std::vector<uint32_t> items_;
  // By rank: whether its plan has been computed, by the ShardWriter of its node, and, per roster, by a node
  // that coordinates.
  std::vector<bool> planned_by_writer_;
  std::map<std::pair<size_t, RosterId>, std::vector<bool>> planned_by_coordinator_;
};

// The size of the chunk that the message carries; otherwise 0.
uint64_t chunk_bytes_of(const actors::WireMessage& message);

// Computes the encoded size of a message, as encode_wire returns it. Keeps the items of every plan that it
// has seen.
class MessageSizes {
 public:
  uint64_t of(const actors::WireMessage& message);

 private:
  // Of the current message: its kind, and the values that its length depends on.
  std::vector<uint64_t> lengths_;
  std::unordered_map<Hash128, uint64_t> known_;
  std::unordered_map<const WriteItem*, SharedVector<WriteItem>> kept_;
};

}  // namespace shoal::sim
