// A checkpoint of two ranks that tests copy, and whether a root has it undamaged.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "storage/root/verifier.h"
#include "tests/storage/shards/planned_shards.h"
#include "tests/storage/test_support.h"

namespace shoal::admin {

inline const RootId kSourceId = storage::nonce_of(77), kTargetId = storage::nonce_of(78);
inline constexpr uint64_t kRows = 6'000'000;  // 24 MB: files of several windows

inline std::shared_ptr<const World> copied_world(uint64_t rows) {
  const Mesh mesh = Mesh::contiguous({2});
  LayoutBuilder builder;
  builder.add_tensor("weight", DType::u8, {rows, 4}, mesh, {Placement::shard(0)});
  builder.add_tensor("bias", DType::bf16, {8}, mesh, {Placement::shard(0)});
  builder.add_tensor("empty", DType::f16, {0, 4}, mesh, {Placement::shard(1)});
  builder.add_object("loader", mesh, true);
  LayoutPtr layout = std::move(builder).build().value();
  const std::vector<LayoutId> ids(2, layout->id());
  return std::make_shared<World>(
      World{Roster::make(ids, std::vector<uint32_t>{7, 9}).value(), {std::move(layout)}});
}

// A checkpoint of two ranks with a file each.
inline storage::Decision commit_copied(storage::Storage& storage, const AttemptKey& key, uint64_t rows,
                                       const UserMetadata& user = {}) {
  storage::Manifest manifest;
  manifest.world = copied_world(rows);
  for (Rank rank : {0u, 1u}) {
    const auto files =
        storage::write_planned(storage, key, *manifest.world, rank, {}, rank, &manifest.payload_bytes);
    manifest.files.insert(manifest.files.end(), files.begin(), files.end());
  }
  manifest.user = user;
  auto published = storage::publish_decision(
      storage, {key, storage::nonce_of(1), kSourceId, 1'700'000'000'000'000'000, manifest});
  SHOAL_CHECK(published.ok() && published->committed());
  return std::move(*published);
}

inline bool is_sound(storage::Storage& storage, const AttemptKey& key) {
  auto decision = storage::read_decision(storage, key);
  if (!decision.ok() || !decision->committed()) return false;
  storage::RateLimit no_limit(0);
  std::atomic<uint64_t> bytes{0};
  return storage::verify_checkpoint(storage, *decision, 1, no_limit, &bytes).ok();
}

}  // namespace shoal::admin
