#include "client/staging/replica_digester.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/digest/digest.h"

namespace shoal::client {

Result<plan::ReplicaDigestsPtr> ReplicaDigester::digest(const BoundState& state, ReplicaCheck policy,
                                                        uint32_t window, uint64_t* bytes) {
  for (const plan::ReplicaBlocks::HeldBox& held : blocks_.held()) {  // in every save, whatever its window
    if (!state.uses_devices()) break;
    if (!state.memory_of(held.entry, held.local_box).is_on_device()) continue;
    return Status(Code::invalid_argument,
                  fmt::format("'{}' lies on a device, and replica_check compares host memory only: set "
                              "replica_check to off",
                              state.fqn_of(held.entry)));
  }
  const std::vector<plan::ReplicaBlock> blocks = blocks_.window(window);
  if (blocks.empty()) return plan::ReplicaDigestsPtr();
  auto out = std::make_shared<plan::ReplicaDigests>();
  out->policy = policy;
  out->window = window;
  out->blocks = blocks_.hash_of(blocks);
  out->digests.reserve(blocks.size());
  for (const plan::ReplicaBlock& block : blocks) {
    out->digests.push_back(digest_of(state, block));
    *bytes += block.end - block.begin;
  }
  return plan::ReplicaDigestsPtr(std::move(out));
}

// 0 means that a block was not digested.
uint64_t ReplicaDigester::digest_of(const BoundState& state, const plan::ReplicaBlock& block) {
  const plan::ReplicaBlocks::HeldBox& held = blocks_.held()[block.held];
  const BoundState::Home home = state.home_of(held.entry, held.local_box);
  if (home.data == nullptr) return 0;  // a planner gives no memory for it
  const uint64_t size = block.end - block.begin;
  const auto digest = [](ByteView bytes) { return std::max<uint64_t>(base::block_digest(bytes), 1); };
  if (const auto start = contiguous_offset(home.whole, home.box)) {
    return digest(ByteView(home.data + *start * held.element_bytes + block.begin, size));
  }
  gathered_.resize(base::kDigestBlockBytes);
  uint64_t done = 0;
  for (Box part : boxes_of_range(whole(home.box.sizes), block.begin / held.element_bytes,
                                 block.end / held.element_bytes)) {
    for (size_t d = 0; d < part.dims(); ++d) part.offsets[d] += home.box.offsets[d];
    for_each_run(part, home.whole, [&](uint64_t, uint64_t in_buffer, uint64_t count) {
      std::memcpy(gathered_.data() + done, home.data + in_buffer * held.element_bytes,
                  count * held.element_bytes);
      done += count * held.element_bytes;
    });
  }
  SHOAL_CHECK(done == size);
  return digest(ByteView(gathered_.data(), size));
}

}  // namespace shoal::client
