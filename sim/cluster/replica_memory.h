// ReplicaMemory: what simulated trainers hold in common with other ranks, as the digests that replica_check
// compares (plan/saving/replica_blocks.h). A bit of a trainer's memory may flip. Its digests then show it in
// each save whose window has that byte; the bytes that the simulation stores do not change.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/saving/replica_blocks.h"

namespace shoal::sim {

class ReplicaMemory {
 public:
  // From now on one byte of this rank differs, in a box that other ranks hold too. `place` draws the byte.
  void flip(Rank rank, uint64_t place) { flipped_.try_emplace(rank, place); }

  struct Digested {
    plan::ReplicaDigestsPtr digests;       // null: the window has no block
    std::vector<std::string> differing{};  // names of the tensors in which a flipped byte was digested
  };
  // As client/staging/replica_digester.h does it. `state`: the number of what the save saves.
  Digested digest(const LayoutPtr& layout, Rank rank, ReplicaCheck policy, uint32_t window, uint64_t state);

 private:
  std::map<Rank, uint64_t> flipped_;
  std::map<std::pair<const Layout*, Rank>, plan::ReplicaBlocks> blocks_;
};

}  // namespace shoal::sim
