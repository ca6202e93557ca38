// ReplicaDigester: digests the blocks of the caller's memory that a save compares with its replicas
// (SaveOptions::replica_check, plan/saving/replica_blocks.h).
#pragma once

#include <cstdint>
#include <vector>

#include "client/state_dict.h"
#include "plan/saving/replica_blocks.h"
#include "shoal/bytes.h"

namespace shoal::client {

// Made once for each layout; every save with that layout uses it. One thread.
class ReplicaDigester {
 public:
  ReplicaDigester(LayoutPtr layout, Rank rank) : blocks_(std::move(layout), rank) {}

  const LayoutPtr& layout() const { return blocks_.layout_ptr(); }
  // Digests window `window` of the state, which has this layout. nullptr: the window has no block. Adds the
  // bytes that it read to `*bytes`. Code::invalid_argument names a value that lies on a device.
  Result<plan::ReplicaDigestsPtr> digest(const BoundState& state, ReplicaCheck policy, uint32_t window,
                                         uint64_t* bytes);

 private:
  uint64_t digest_of(const BoundState& state, const plan::ReplicaBlock& block);

  plan::ReplicaBlocks blocks_;
  Bytes gathered_;  // a block whose bytes are not contiguous in the caller's memory
};

}  // namespace shoal::client
