// ReplicaBlocks: which bytes of a rank replica_check compares with other ranks in one save.
//
// A layout proves which ranks hold the same box of the same tensor: those that differ only in mesh dimensions
// that replicate, or declared `replicated`. Each save digests a window of these bytes, one twentieth. Twenty
// saves in a row digest all of them once. Ranks that hold the same box cut the same windows from it without
// a message, because a window follows from the layout and the number of the save alone.
//
// Boxes with the same replicas follow each other in a stream, ascending by (fqn, box). Window k of a stream
// of T bytes is [T * k / 20, T * (k + 1) / 20). It is cut at the ends of boxes, and in each box at multiples
// of kDigestBlockBytes. Objects are in no window: their lengths are in no layout, and equal objects may have
// different bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shoal/layout.h"
#include "shoal/save_plan.h"

namespace shoal::plan {

inline constexpr uint32_t kReplicaWindows = 20;  // a save digests at most 5 % of what has replicas
// Of one rank in one save. A window of more blocks is cut short: the further ones are not compared.
inline constexpr size_t kMaxReplicaBlocks = size_t{1} << 20;

// What a rank digested in one save.
struct ReplicaDigests {
  ReplicaCheck policy = ReplicaCheck::warn;  // never off
  uint32_t window = 0;                       // below kReplicaWindows
  Hash128 blocks;  // ReplicaBlocks::hash_of the window: ranks with the same hash digested the same blocks
  std::vector<uint64_t> digests;  // base::block_digest of each block of the window; 0: not digested
  friend bool operator==(const ReplicaDigests&, const ReplicaDigests&) = default;
};
using ReplicaDigestsPtr = std::shared_ptr<const ReplicaDigests>;  // null: this rank compares nothing

struct ReplicaBlock {
  uint32_t held = 0;            // index into ReplicaBlocks::held
  uint64_t begin = 0, end = 0;  // bytes [begin, end) of the row-major bytes of that box
  friend bool operator==(const ReplicaBlock&, const ReplicaBlock&) = default;
};

class ReplicaBlocks {
 public:
  struct HeldBox {  // a box that other ranks hold too
    uint32_t entry = 0;
    uint32_t local_box = 0;  // index into shards_of(entry, rank).boxes
    uint64_t bytes = 0;
    uint64_t element_bytes = 1;
    Box box;
    Hash128 id;  // of fqn, sharding and box: equal on the ranks that provably hold the same bytes
  };

  ReplicaBlocks(LayoutPtr layout, Rank rank);

  const Layout& layout() const { return *layout_; }
  const LayoutPtr& layout_ptr() const { return layout_; }
  const std::vector<HeldBox>& held() const { return held_; }
  uint64_t bytes() const;  // of all windows together
  // The blocks of window `number` modulo kReplicaWindows. Begins and ends at whole elements.
  std::vector<ReplicaBlock> window(uint64_t number) const;
  // Ranks for which it is equal hold, by their layouts, the same bytes in this block.
  Hash128 id_of(const ReplicaBlock& block) const;
  Hash128 hash_of(const std::vector<ReplicaBlock>& window) const;  // of the ids of its blocks, in order
  const std::string& fqn_of(const ReplicaBlock& block) const {
    return layout_->entries()[held_[block.held].entry].fqn;
  }

 private:
  struct Stream {
    std::vector<uint32_t> held;  // indices into held_
    uint64_t bytes = 0;
  };
  struct Gathering;
  void gather(Gathering& gathering, uint32_t entry, Rank rank);

  LayoutPtr layout_;
  std::vector<HeldBox> held_;
  std::vector<Stream> streams_;
};

// The window of the save that is number `call` of its rank, counted from 1, in a generation. Successive
// generations begin with different windows, so that jobs that start again often compare everything too.
constexpr uint32_t replica_window_of(uint32_t generation, uint32_t call) {
  constexpr uint32_t kStride = 7;  // shares no factor with kReplicaWindows
  static_assert(kReplicaWindows % kStride != 0 && kStride % 2 != 0 && kStride % 5 != 0);
  return static_cast<uint32_t>((uint64_t{generation} * kStride + call) % kReplicaWindows);
}

}  // namespace shoal::plan
