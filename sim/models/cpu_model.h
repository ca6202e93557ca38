// CpuModel: what a node's processor takes to handle an event and to carry out what came of it. Each node
// handles one event at a time (sim/cluster/virtual_cluster.h).
//
// Counted: messages and their bytes, events, entries of shard headers, and the plans that a role works out:
// each rank's, once by the writer that writes by it, and once under each roster by the coordinator that
// checks it.
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
  // writers_plan: but in mode collective, where ranks are told their plans.
  // copy_bytes_per_s: of chunks, which are copied to and from messages and not looked at.
  CpuModel(const CpuCosts& costs, bool writers_plan, uint64_t copy_bytes_per_s)
      : costs_(costs), writers_plan_(writers_plan), copy_bytes_per_s_(copy_bytes_per_s) {}

  // To take an event in. `wire_bytes`: of a message of another node, as it is encoded; else 0.
  actors::TimeNs to_take(const actors::Event& event, uint64_t wire_bytes) const;
  // To do what `role` answered to `event`. `sizes`: of its Sends to other nodes, encoded.
  actors::TimeNs to_answer(size_t node, actors::RoleKind role, const actors::Event& event,
                           std::span<const actors::Effect> effects, const std::vector<uint64_t>& sizes);
  // Another process has taken this node's place: it has planned nothing.
  void forget(size_t node, const std::vector<Rank>& its_ranks);
  // To copy the bytes of a chunk into its message, beside what the message takes otherwise.
  actors::TimeNs to_copy(uint64_t chunk_bytes) const;
  // What that much work takes of a node's processor.
  actors::TimeNs on(bool coordinates, actors::TimeNs work) const;
  // How many tensors a rank holds.
  void set_items(std::vector<uint32_t> of_rank) { items_ = std::move(of_rank); }

 private:
  // To work out this rank's plan, the first time.
  actors::TimeNs to_plan(std::vector<bool>& planned, Rank rank, actors::TimeNs item_ns);

  const CpuCosts costs_;
  const bool writers_plan_;
  const uint64_t copy_bytes_per_s_;
  std::vector<uint32_t> items_;
  // By rank: whether its plan has been worked out, by the writer of its node; by a node that coordinates,
  // under each roster.
  std::vector<bool> planned_by_writer_;
  std::map<std::pair<size_t, RosterId>, std::vector<bool>> planned_by_coordinator_;
};

// Of a message that carries a chunk; else 0.
uint64_t chunk_bytes_of(const actors::WireMessage& message);

// The encoded size of a message: what encode_wire gives. Keeps the items of every plan it has met.
class MessageSizes {
 public:
  uint64_t of(const actors::WireMessage& message);

 private:
  std::vector<uint64_t> lengths_;  // of the message at hand: its kind, and what the length depends on
  std::unordered_map<Hash128, uint64_t> known_;
  std::unordered_map<const WriteItem*, SharedVector<WriteItem>> kept_;
};

}  // namespace shoal::sim
