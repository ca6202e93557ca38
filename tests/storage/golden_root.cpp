#include "tests/storage/golden_root.h"

#include <algorithm>
#include <map>

#include "shoal/layout.h"
#include "storage/decisions/decision.h"
#include "storage/decisions/staged_record.h"
#include "storage/root/run_root.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {

namespace {

constexpr int64_t kTime = 1'700'000'000'000'000'000;

Nonce golden_nonce(std::string_view name) {
  return xxh3_128(as_view(name));
}

std::shared_ptr<const World> make_world(LayoutBuilder builder, size_t ranks) {
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  std::vector<LayoutId> ids(ranks, (*layout)->id());
  std::vector<uint32_t> hosts;
  for (size_t rank = 0; rank < ranks; ++rank) hosts.push_back(static_cast<uint32_t>(rank / 2));
  auto roster = Roster::make(ids, hosts);
  SHOAL_CHECK(roster.ok());
  auto world = std::make_shared<World>(World{std::move(roster).value(), {*layout}});
  SHOAL_CHECK(validate_world(*world).ok());
  return world;
}

ShardPiece piece_of(const LayoutEntry& entry, const WriteItem& item, const std::string& key) {
  ShardPiece piece;
  piece.key = key;
  piece.fqn = entry.fqn;
  piece.dtype = entry.dtype;
  piece.is_object = entry.kind == LayoutEntry::Kind::object;
  piece.global_shape = entry.shape;
  piece.box = item.box;
  piece.bytes = piece.is_object ? golden_object_bytes(entry.fqn) : item.bytes;
  return piece;
}

// The bytes of a piece: of a tensor each element by its place in the whole.
Bytes data_of_piece(const ShardPiece& piece) {
  Bytes out(piece.bytes);
  if (piece.is_object) {
    for (uint64_t k = 0; k < out.size(); ++k) out[k] = golden_byte(piece.fqn, piece.dtype, 0, k);
    return out;
  }
  uint64_t element_bytes = *dtype_bytes(piece.dtype);
  for_each_run(whole(piece.global_shape), piece.box, [&](uint64_t in_whole, uint64_t in_box, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      for (uint64_t k = 0; k < element_bytes; ++k) {
        out[(in_box + i) * element_bytes + k] = golden_byte(piece.fqn, piece.dtype, in_whole + i, k);
      }
    }
  });
  return out;
}

// Every rank's files under an attempt, as a save would write them.
Result<Manifest> write_shards(Storage& storage, const AttemptKey& key, std::shared_ptr<const World> world) {
  Manifest manifest;
  manifest.world = world;
  manifest.options = kGoldenOptions;
  for (Rank rank = 0; rank < world->roster.world_size(); ++rank) {
    const Layout& layout = world->layout_of(rank);
    SHOAL_ASSIGN_OR_RETURN(SavePlan plan, plan_save(*world, rank, kGoldenOptions));
    std::vector<std::string> keys = item_keys(layout, plan);
    for (uint32_t file = 0; file < plan.files; ++file) {
      std::vector<ShardPiece> pieces;
      std::vector<Bytes> data;
      for (size_t i = 0; i < plan.items.size(); ++i) {
        if (plan.items[i].file != file) continue;
        pieces.push_back(piece_of(layout.entries()[plan.items[i].entry], plan.items[i], keys[i]));
        data.push_back(data_of_piece(pieces.back()));
      }
      std::vector<ByteView> views(data.begin(), data.end());
      SHOAL_ASSIGN_OR_RETURN(WrittenShard written, write_shard(storage, shard_path(key, rank, file),
                                                               golden_nonce("shard"), pieces, views));
      manifest.files.push_back(
          {shard_file_name(rank, file), written.size, written.header_digest, rank, file});
      manifest.payload_bytes += written.payload_bytes;
    }
  }
  return manifest;
}

Status commit(Storage& storage, const AttemptKey& key, std::shared_ptr<const World> world) {
  SHOAL_ASSIGN_OR_RETURN(Manifest manifest, write_shards(storage, key, std::move(world)));
  Decision decision{key, golden_nonce("coordinator"), golden_nonce("root"), kTime, std::move(manifest)};
  return publish_decision(storage, decision).status();
}

Status bury(Storage& storage, const AttemptKey& key, Tombstone::Reason reason, std::string cause) {
  Decision decision{key, golden_nonce("coordinator"), golden_nonce("root"), kTime,
                    Tombstone{reason, std::move(cause)}};
  return publish_decision(storage, decision).status();
}

}  // namespace

std::shared_ptr<const World> golden_world() {
  Mesh flat = Mesh::contiguous({4}), square = Mesh::contiguous({2, 2});
  LayoutBuilder builder;
  for (DType dtype : {DType::boolean, DType::u8, DType::i8, DType::i16, DType::u16, DType::f16, DType::bf16,
                      DType::i32, DType::u32, DType::f32, DType::f64, DType::i64, DType::u64, DType::f8_e4m3,
                      DType::f8_e5m2, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz, DType::c64}) {
    builder.add_tensor("types." + std::string(dtype_name(dtype)), dtype, {5, 3}, flat, {Placement::shard(0)});
  }
  builder.add_tensor("replicated", DType::f32, {40, 20}, flat, {Placement::replicate()});
  builder.add_tensor("tensor_parallel", DType::bf16, {6, 9}, square,
                     {Placement::replicate(), Placement::shard(1)});
  builder.add_tensor("strided", DType::f32, {11, 2}, square,
                     {Placement::strided_shard(0, 2), Placement::shard(0)});
  builder.add_tensor("empty", DType::f32, {0, 4}, flat, {Placement::shard(0)});
  builder.add_tensor_boxes("explicit", DType::i32, {4, 4},
                           {{1, {{{0, 0}, {4, 1}}, {{0, 3}, {4, 1}}}}, {2, {{{0, 1}, {4, 2}}}}});
  builder.add_value("step", DType::i64, {}, flat, true);
  builder.add_value("buffer", DType::f32, {3}, flat);
  builder.add_object("\xc3\xa9poch \"state\"", flat, true);
  for (Rank rank = 0; rank < 4; ++rank) builder.add_rank_object("rng", rank);
  return make_world(std::move(builder), 4);
}

std::shared_ptr<const World> golden_rare_world() {
  LayoutBuilder builder;
  builder.add_value("scales", DType::f8_e8m0, {4, 2}, Mesh::single(0));
  return make_world(std::move(builder), 1);
}

Status write_golden_root(Storage& storage) {
  SHOAL_RETURN_IF_ERROR(open_root(storage, true, golden_nonce("root")).status());
  for (uint32_t epoch : {1u, 2u}) {
    EpochRecord record{epoch, "host-1:4000" + std::to_string(epoch), "job-" + std::to_string(epoch),
                       golden_nonce("epoch")};
    SHOAL_RETURN_IF_ERROR(claim_epoch(storage, record).status());
  }
  for (uint32_t generation : {1u, 2u}) {
    std::string job = "job-" + std::to_string(generation);
    SHOAL_RETURN_IF_ERROR(claim_generation(storage, job, golden_nonce("generation")).status());
    RosterRecord roster{generation == 1 ? golden_world() : golden_rare_world(), kGoldenOptions, kRuleVersion};
    SHOAL_RETURN_IF_ERROR(publish_roster(storage, generation, roster, golden_nonce("roster")).status());
  }
  SHOAL_RETURN_IF_ERROR(publish_load_choice(storage, 1, 0, {false, {}, golden_nonce("load")}).status());
  SHOAL_RETURN_IF_ERROR(publish_load_choice(storage, 2, 0, {true, {1, 1, 1}, golden_nonce("load")}).status());

  SHOAL_RETURN_IF_ERROR(commit(storage, {1, 1, 1}, golden_world()));
  AttemptKey aborted{1, 2, 1};
  SHOAL_RETURN_IF_ERROR(
      bury(storage, aborted, Tombstone::Reason::aborted, "rank 2: host-2 was not heard for 60 s"));
  SHOAL_RETURN_IF_ERROR(
      storage.create_exclusive(attempt_folder(aborted) + "/rank-00001.safetensors", as_view("leftover"))
          .status());
  SHOAL_RETURN_IF_ERROR(bury(storage, {1, 3, 1}, Tombstone::Reason::deleted, "retention"));
  SHOAL_RETURN_IF_ERROR(commit(storage, {2, 4, 1}, golden_rare_world()));
  const AttemptKey undecided{2, 5, 2};
  SHOAL_RETURN_IF_ERROR(write_shards(storage, undecided, golden_rare_world()).status());
  return write_staged_record(
      storage, {undecided, 1, golden_nonce("layout"), golden_nonce("share"), {{"run", "golden"}}});
}

}  // namespace shoal::storage
