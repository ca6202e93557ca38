#include "plan/saving/replica_blocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/digest/digest.h"
#include "plan/layout/canonical_bytes.h"
#include "plan/layout/holdings.h"

namespace shoal::plan {

namespace {

// Where window `number` of a stream begins: bytes * number / kReplicaWindows, without overflow.
uint64_t window_begin(uint64_t bytes, uint64_t number) {
  return bytes / kReplicaWindows * number + bytes % kReplicaWindows * number / kReplicaWindows;
}

// The mesh dimensions that shard; nullopt: no other rank provably holds the same boxes. Not for explicit
// boxes.
std::optional<std::vector<bool>> sharded_of_replicated(const LayoutEntry& entry, const Mesh& mesh) {
  const std::span<const Placement> placements = placements_of(entry, mesh);
  if (placements.empty()) {  // a group
    if (!entry.replicated || mesh.size() < 2) return std::nullopt;
    return std::vector<bool>(mesh.dims(), false);
  }
  std::vector<bool> sharded(mesh.dims(), false);
  uint64_t replicas = 1;
  for (size_t i = 0; i < placements.size(); ++i) {
    sharded[i] = placements[i].kind != Placement::Kind::replicate;
    if (!sharded[i]) replicas *= mesh.shape()[i];
  }
  return replicas > 1 ? std::optional(std::move(sharded)) : std::nullopt;
}

}  // namespace

struct ReplicaBlocks::Gathering {
  std::map<std::pair<uint32_t, std::vector<bool>>, size_t> streams;  // by mesh and sharded dimensions
  std::map<uint32_t, Hash128> mesh_hashes;

  const Hash128& hash_of(const Layout& layout, uint32_t mesh) {
    const auto [found, is_new] = mesh_hashes.try_emplace(mesh);
    if (is_new) found->second = hash_mesh(layout.meshes()[mesh]);
    return found->second;
  }
};

ReplicaBlocks::ReplicaBlocks(LayoutPtr layout, Rank rank) : layout_(std::move(layout)) {
  Gathering gathering;
  for (uint32_t entry = 0; entry < layout_->entries().size(); ++entry) gather(gathering, entry, rank);
}

void ReplicaBlocks::gather(Gathering& gathering, uint32_t number, Rank rank) {
  const LayoutEntry& entry = layout_->entries()[number];
  if (entry.kind == LayoutEntry::Kind::object) return;
  // A stream of its own for each box: explicit boxes, and tiles, whose replicas differ from tile to tile.
  bool is_alone = true;
  Hash128 sharding;
  std::vector<bool> sharded;
  const std::optional<uint32_t> mesh = mesh_of(entry);
  if (mesh) {
    std::optional<std::vector<bool>> dims = sharded_of_replicated(entry, layout_->meshes()[*mesh]);
    if (!dims) return;
    sharded = std::move(*dims);
    is_alone = devices_per_rank(entry) > 1;
    sharding = hash_sharding(entry, gathering.hash_of(*layout_, *mesh));
  } else if (!entry.replicated) {
    return;
  }
  const std::vector<Box> boxes = layout_->shards_of(entry, rank).boxes;
  const uint64_t element_bytes = *dtype_bytes(entry.dtype);
  for (uint32_t i = 0; i < boxes.size(); ++i) {
    if (boxes[i].empty()) continue;
    size_t stream = streams_.size();
    if (!is_alone) stream = gathering.streams.try_emplace({*mesh, sharded}, stream).first->second;
    if (stream == streams_.size()) streams_.emplace_back();
    CanonicalBytes id;
    id.hash(xxh3_128(std::as_bytes(std::span(entry.fqn))));
    id.hash(sharding);
    for (uint64_t offset : boxes[i].offsets) id.u64(offset);
    for (uint64_t size : boxes[i].sizes) id.u64(size);
    const uint64_t bytes = boxes[i].elements() * element_bytes;
    streams_[stream].held.push_back(static_cast<uint32_t>(held_.size()));
    streams_[stream].bytes += bytes;
    held_.push_back({number, i, bytes, element_bytes, boxes[i], id.hash_128()});
  }
}

uint64_t ReplicaBlocks::bytes() const {
  uint64_t sum = 0;
  for (const Stream& stream : streams_) sum += stream.bytes;
  return sum;
}

std::vector<ReplicaBlock> ReplicaBlocks::window(uint64_t number) const {
  number %= kReplicaWindows;
  std::vector<ReplicaBlock> blocks;
  for (const Stream& stream : streams_) {
    const uint64_t from = window_begin(stream.bytes, number);
    const uint64_t to = window_begin(stream.bytes, number + 1);
    uint64_t start = 0;
    for (uint32_t i : stream.held) {
      const HeldBox& held = held_[i];
      const auto within = [&](uint64_t at) {
        const uint64_t byte = std::clamp(at, start, start + held.bytes) - start;
        return byte / held.element_bytes * held.element_bytes;
      };
      const uint64_t end = within(to);
      for (uint64_t begin = within(from); begin < end;) {
        const uint64_t next_block = (begin / base::kDigestBlockBytes + 1) * base::kDigestBlockBytes;
        if (blocks.size() == kMaxReplicaBlocks) return blocks;
        blocks.push_back({i, begin, std::min(next_block, end)});
        begin = blocks.back().end;
      }
      start += held.bytes;
    }
  }
  return blocks;
}

Hash128 ReplicaBlocks::id_of(const ReplicaBlock& block) const {
  CanonicalBytes id;
  id.hash(held_[block.held].id);
  id.u64(block.begin);
  id.u64(block.end);
  return id.hash_128();
}

Hash128 ReplicaBlocks::hash_of(const std::vector<ReplicaBlock>& window) const {
  CanonicalBytes ids;
  ids.reserve(window.size() * sizeof(Hash128));
  for (const ReplicaBlock& block : window) ids.hash(id_of(block));
  return ids.hash_128();
}

}  // namespace shoal::plan
