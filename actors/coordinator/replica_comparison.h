// ReplicaComparison: what the ranks of one attempt digested for replica_check, and which replicas differ.
// plan/saving/replica_blocks.h states which blocks a rank digests.
//
// Ranks that digested the same blocks with the same result are one class, and only one rank of each class is
// examined. So memory and time grow with the distinct contents of a save, not with its ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/saving/replica_blocks.h"
#include "shoal/roster.h"

namespace shoal::actors {

class ReplicaComparison {
 public:
  // The digests of a rank. A repetition of what the rank sent before changes nothing. Null: the rank compares
  // nothing.
  void take(Rank rank, const plan::ReplicaDigestsPtr& digests);
  bool empty() const { return classes_.empty(); }
  ReplicaCheck policy() const { return policy_; }  // the strictest of these ranks; off: there are none

  // A block of which some replicas differ.
  struct Difference {
    std::string fqn;
    Box box;
    uint64_t begin = 0, end = 0;  // bytes of the row-major bytes of `box`
    uint64_t box_bytes = 0;
    // The ranks that hold equal bytes, each list ascending; the longest list first, then by first rank.
    std::vector<std::vector<Rank>> groups;
    size_t further = 0;  // number of further blocks that differ
  };
  // The first difference by (fqn, box, begin). nullopt: nothing that was digested differs. An error: a rank
  // digested other blocks than its layout in `world` gives it. The world must contain all ranks taken.
  Result<std::optional<Difference>> compare(const World& world) const;
  // A rank whose window differs from that of another one, so that they cannot be compared, in words.
  const std::string& unequal_windows() const { return unequal_windows_; }

 private:
  struct Class {
    plan::ReplicaDigestsPtr digests;
    std::vector<Rank> ranks;
  };
  struct Sighting;

  ReplicaCheck policy_ = ReplicaCheck::off;
  std::optional<std::pair<Rank, uint32_t>> first_window_;  // and the first rank that sent it
  std::string unequal_windows_;
  std::map<std::pair<Hash128, Hash128>, Class> classes_;  // by the hash of the blocks and of their digests
};

// "replicas differ: 'w' [0:4, 0:8], block 0 (bytes 0 to 128 of 1024): rank 3 holds other bytes than ranks 0,
// 1, 2". Without a majority it names all groups. `name_ranks` names a list of ranks.
std::string describe(const ReplicaComparison::Difference& difference,
                     const std::function<std::string(const std::vector<Rank>&)>& name_ranks);

}  // namespace shoal::actors
