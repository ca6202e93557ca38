// Worlds and decisions for tests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shoal/layout.h"
#include "shoal/roster.h"
#include "storage/decisions/decision.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {

constexpr AttemptKey kKey = {3, 1000, 1};

// Four ranks on two hosts: a sharded weight, a replicated bias, a scalar, an empty tensor and an object.
inline std::shared_ptr<const World> sample_world() {
  Mesh mesh = Mesh::contiguous({4});
  LayoutBuilder builder;
  builder.add_tensor("weight", DType::f32, {8, 3}, mesh, {Placement::shard(0)});
  builder.add_tensor("bias", DType::bf16, {8}, mesh, {Placement::replicate()});
  builder.add_value("step", DType::i64, {}, mesh, true);
  builder.add_tensor("empty", DType::f16, {0, 4}, mesh, {Placement::shard(1)});
  builder.add_object("loader", mesh, true);
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  std::vector<LayoutId> ids(4, (*layout)->id());
  std::vector<uint32_t> hosts = {7, 7, 9, 9};
  auto roster = Roster::make(ids, hosts);
  SHOAL_CHECK(roster.ok());
  return std::make_shared<World>(World{std::move(roster).value(), {*layout}});
}

inline Decision sample_manifest(AttemptKey key = kKey, uint64_t nonce = 1) {
  Manifest manifest;
  manifest.world = sample_world();
  for (Rank rank = 0; rank < 3; ++rank) {
    manifest.files.push_back({shard_file_name(rank, 0), 4096 + 10 * rank, nonce_of(100 + rank), rank, 0u});
  }
  std::vector<FilePiece> pieces = {{"weight", "weight", {{6, 0}, {2, 3}}}, {"loader", "loader", {}}};
  manifest.files.push_back({"takeover-00003.safetensors", 5000, nonce_of(200), 3, std::move(pieces)});
  manifest.payload_bytes = 1234;
  return {key, nonce_of(nonce), nonce_of(77), 1'700'000'000'000'000'000, std::move(manifest)};
}

inline Decision sample_tombstone(AttemptKey key = {3, 1000, 1}, uint64_t nonce = 2,
                                 Tombstone::Reason reason = Tombstone::Reason::aborted) {
  return {key, nonce_of(nonce), nonce_of(77), 1'700'000'000'000'000'001,
          Tombstone{reason, "rank 2: the disk is full"}};
}

}  // namespace shoal::storage
