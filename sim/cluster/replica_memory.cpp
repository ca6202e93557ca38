#include "sim/cluster/replica_memory.h"

#include <algorithm>
#include <memory>

#include "sim/basics/integer_math.h"

namespace shoal::sim {

ReplicaMemory::Digested ReplicaMemory::digest(const LayoutPtr& layout, Rank rank, ReplicaCheck policy,
                                              uint32_t window, uint64_t state) {
  const std::pair place(layout.get(), rank);
  auto known = blocks_.find(place);
  if (known == blocks_.end()) known = blocks_.emplace(place, plan::ReplicaBlocks(layout, rank)).first;
  const plan::ReplicaBlocks& blocks = known->second;
  const std::vector<plan::ReplicaBlock> all = blocks.window(window);
  Digested out;
  if (all.empty()) return out;
  auto digests = std::make_shared<plan::ReplicaDigests>();
  digests->policy = policy;
  digests->window = window;
  digests->blocks = blocks.hash_of(all);
  const auto flipped = flipped_.find(rank);
  const uint64_t drawn = flipped == flipped_.end() ? 0 : flipped->second;
  const uint64_t box = drawn % blocks.held().size();
  const uint64_t byte = drawn / blocks.held().size() % std::max<uint64_t>(1, blocks.held()[box].bytes);
  for (const plan::ReplicaBlock& block : all) {
    const Hash128 id = blocks.id_of(block);
    uint64_t digest = mix64(load_le64(id.bytes.data()) ^ state) | 1;
    const bool is_flipped =
        flipped != flipped_.end() && block.held == box && block.begin <= byte && byte < block.end;
    if (is_flipped) {
      digest ^= 2;
      out.differing.push_back(blocks.fqn_of(block));
    }
    digests->digests.push_back(digest);
  }
  out.digests = std::move(digests);
  return out;
}

}  // namespace shoal::sim
