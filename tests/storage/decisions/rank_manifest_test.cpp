#include "storage/decisions/rank_manifest.h"

#include <gmock/gmock.h>

#include "storage/decisions/rank_manifest_set.h"
#include "storage/root/run_root.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/shards/shard_samples.h"

namespace shoal::storage {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kWorld = 4;

RankManifest manifest_of(Rank rank) {
  RankManifest manifest;
  manifest.key = kKey;
  manifest.rank = rank;
  manifest.world_size = kWorld;
  manifest.nonce = nonce_of(rank + 1);
  manifest.root_id = nonce_of(77);
  manifest.layout = sample_world()->layouts.front();
  manifest.options.mode = SaveMode::rank_local;
  manifest.options.dedupe = Dedupe::none;
  manifest.files = {{shard_file_name(rank, 0), 4096 + rank, nonce_of(100 + rank), rank, 0u}};
  manifest.payload_bytes = 100;
  return manifest;
}

class RankManifests : public ::testing::Test {
 protected:
  // The manifest, and files of the sizes that it lists.
  void put(const RankManifest& manifest, RankManifestName name) {
    for (const FileEntry& file : manifest.files) {
      const std::string path = attempt_folder(kKey) + "/" + file.name;
      ASSERT_OK(memory_->create_exclusive(path, Bytes(file.size)).status());
    }
    ASSERT_TRUE(*memory_->create_exclusive(rank_manifest_path(kKey, name), *encode_rank_manifest(manifest)));
  }
  void put_all_but(Rank but) {
    for (Rank rank = 0; rank < kWorld; ++rank) {
      if (rank != but) put(manifest_of(rank), {rank, kWorld});
    }
  }
  // Whatever replaces the manifest of rank 2 of a set that is else whole: no checkpoint comes of it.
  void expect_damaged(const RankManifest& manifest, const std::string& what) {
    put_all_but(2);
    put(manifest, {2, kWorld});
    const Status status = complete_rank_local(*memory_, kKey, {}).status();
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_EQ(read_decision(*memory_, kKey).status().code(), Code::not_found);
  }
  MemoryStorage memory_;
};

TEST(RankManifestName, IsReadBackAndNothingElseIs) {
  EXPECT_EQ(rank_manifest_name(7, 16), "rank-00007-of-00016.manifest.shoal");
  auto name = parse_rank_manifest_name("rank-123456-of-1000000.manifest.shoal");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->rank, 123456u);
  EXPECT_EQ(name->world_size, 1'000'000u);
  for (const char* bad : {"", "manifest.shoal", "rank-00007.safetensors", "rank-7-of-16.manifest.shoal",
                          "rank-00016-of-00016.manifest.shoal", "rank-00007-of-.manifest.shoal",
                          "rank-00007-of-00016.manifest.shoal.00000000000000000000000000000001.partial",
                          "rank-+0007-of-00016.manifest.shoal", "rank-00007-of-4294967297.manifest.shoal",
                          "rank-00007-of-00016-of-00016.manifest.shoal"}) {
    EXPECT_FALSE(parse_rank_manifest_name(bad).has_value()) << bad;
  }
}

TEST(RankManifest, IsReadBackAsItWasWritten) {
  const RankManifest manifest = manifest_of(2);
  const Bytes bytes = encode_rank_manifest(manifest).value();
  const RankManifest read = decode_rank_manifest(bytes, "there").value();
  EXPECT_EQ(read.key, kKey);
  EXPECT_EQ(read.rank, 2u);
  EXPECT_EQ(read.world_size, kWorld);
  EXPECT_EQ(read.layout->id(), manifest.layout->id());
  EXPECT_EQ(read.options, manifest.options);
  EXPECT_EQ(read.payload_bytes, 100u);
  EXPECT_EQ(*encode_rank_manifest(read), bytes);
}

TEST(RankManifest, CarriesTheMetadataOfTheSave) {
  RankManifest manifest = manifest_of(2);
  manifest.user = {{"run", "a"}, {"note", ""}};
  EXPECT_EQ(decode_rank_manifest(encode_rank_manifest(manifest).value(), "there")->user, manifest.user);
}

TEST_F(RankManifests, GiveTheirMetadataToTheCheckpoint) {
  for (Rank rank = 0; rank < kWorld; ++rank) {
    RankManifest manifest = manifest_of(rank);
    manifest.user = {{"run", "a"}};
    put(manifest, {rank, kWorld});
  }
  auto decision = complete_rank_local(*memory_, kKey, {});
  ASSERT_OK(decision.status());
  EXPECT_EQ(decision->manifest().user, (UserMetadata{{"run", "a"}}));
}

TEST_F(RankManifests, OfDifferentMetadataAreNone) {
  RankManifest other = manifest_of(2);
  other.user = {{"run", "b"}};
  expect_damaged(other, "'run' is missing on rank 0 and 'b' on rank 2");
}

TEST(RankManifest, EveryBitThatFlipsIsNoticed) {
  const Bytes bytes = encode_rank_manifest(manifest_of(2)).value();
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 7) {
    Bytes flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_rank_manifest(flipped, "there").ok()) << bit;
  }
  for (size_t size = 0; size < bytes.size(); size += 13) {
    EXPECT_FALSE(decode_rank_manifest(ByteView(bytes).first(size), "there").ok()) << size;
  }
}

TEST(RankManifest, OfWhatNoRankWritesIsRefused) {
  auto refusal = [](auto change) {
    RankManifest manifest = manifest_of(2);
    change(manifest);
    return encode_rank_manifest(manifest).status().message();
  };
  EXPECT_THAT(refusal([](auto& m) { m.world_size = 2; }), HasSubstr("rank 2 is outside a world of 2 ranks"));
  EXPECT_THAT(refusal([](auto& m) { m.files[0].rank = 1; }), HasSubstr("is not number 0 of rank 2"));
  EXPECT_THAT(refusal([](auto& m) { m.options.mode = SaveMode::collective_free; }),
              HasSubstr("not those of a rank-local save"));
  EXPECT_THAT(refusal([](auto& m) { m.options.dedupe = Dedupe::balanced; }), HasSubstr("set dedupe to none"));
  EXPECT_THAT(refusal([](auto& m) { m.payload_bytes = 1 << 20; }), HasSubstr("its payload is larger"));
}

TEST_F(RankManifests, AreACheckpointOnceAllAreThere) {
  put_all_but(2);
  const Status early = complete_rank_local(*memory_, kKey, {}).status();
  EXPECT_EQ(early.code(), Code::not_found);
  EXPECT_EQ(early.message(), "/root/step-00001000/g3a1: the manifest of rank 2 of 4 is missing");
  EXPECT_FALSE(inspect_attempt(*memory_, kKey)->is_complete_set());
  put(manifest_of(2), {2, kWorld});
  EXPECT_TRUE(inspect_attempt(*memory_, kKey)->is_complete_set());
  auto decision = complete_rank_local(*memory_, kKey, {nonce_of(5), nonce_of(77), 9});
  ASSERT_OK(decision.status());
  EXPECT_EQ(decision->manifest().files.size(), kWorld);
  EXPECT_EQ(decision->manifest().payload_bytes, 400u);
  EXPECT_EQ(read_decision(*memory_, kKey)->nonce, nonce_of(5));
  EXPECT_EQ(complete_rank_local(*memory_, kKey, {nonce_of(6), nonce_of(77), 9})->nonce, nonce_of(5));
  EXPECT_FALSE(inspect_attempt(*memory_, kKey)->is_complete_set());
}

TEST_F(RankManifests, AreVoidedByATombstoneThatCameFirst) {
  put_all_but(2);
  ASSERT_OK(publish_decision(*memory_, sample_tombstone(kKey)).status());
  put(manifest_of(2), {2, kWorld});
  EXPECT_FALSE(complete_rank_local(*memory_, kKey, {})->committed());
}

TEST_F(RankManifests, AreNotVoidedOnceTheyAreComplete) {
  put_all_but(kWorld);
  auto existing = abort_attempt(*memory_, kKey, {nonce_of(5), nonce_of(77), 9}, "nobody came back");
  ASSERT_OK(existing.status());
  EXPECT_TRUE(existing->committed());
}

// Regression: a node that had not yet seen the commit created the folder of the deleted checkpoint again,
// with a tombstone.
TEST_F(RankManifests, OfADeletedCheckpointAreNotVoided) {
  put_all_but(kWorld);
  ASSERT_TRUE(complete_rank_local(*memory_, kKey, {})->committed());
  ASSERT_OK(memory_->move_folder(attempt_folder(kKey), partial_name("removed", nonce_of(3))));
  auto existing = abort_attempt(*memory_, kKey, {nonce_of(5), nonce_of(77), 9}, "no decision came",
                                FolderOfAttempt::exists);
  ASSERT_OK(existing.status());
  EXPECT_TRUE(is_folder_gone(*existing));
  EXPECT_EQ(memory_->list(attempt_folder(kKey)).status().code(), Code::not_found);
}

TEST_F(RankManifests, AreVoidedWhereTheFolderExists) {
  put_all_but(2);
  auto existing = abort_attempt(*memory_, kKey, {nonce_of(5), nonce_of(77), 9}, "no decision came",
                                FolderOfAttempt::exists);
  ASSERT_OK(existing.status());
  EXPECT_EQ(existing->tombstone().cause, "no decision came");
}

TEST_F(RankManifests, AreVoidedWhereOneIsMissingOrDamaged) {
  put_all_but(2);
  RankManifest other = manifest_of(2);
  other.options.unit_bytes = 4096;
  put(other, {2, kWorld});
  auto existing = abort_attempt(*memory_, kKey, {nonce_of(5), nonce_of(77), 9}, "nobody came back");
  ASSERT_OK(existing.status());
  EXPECT_EQ(existing->tombstone().cause, "nobody came back");
}

// Regression: an older program voided the set of a newer one.
TEST_F(RankManifests, AreNotVoidedByAProgramThatIsTooOldForThem) {
  put_all_but(kWorld);
  const std::string path = rank_manifest_path(kKey, {2, kWorld});
  Bytes bytes = memory_->read(path, 1 << 20).value();
  store_le32(bytes.data() + 8, 99);
  store_le64(bytes.data() + 24, xxh3_64(ByteView(bytes).first(24)));
  ASSERT_OK(memory_->replace(path, bytes));
  auto existing = abort_attempt(*memory_, kKey, {nonce_of(5), nonce_of(77), 9}, "nobody came back");
  EXPECT_EQ(existing.status().code(), Code::version);
  EXPECT_EQ(read_decision(*memory_, kKey).status().code(), Code::not_found);
}

// Regression: a set of which one file could not be read just then was voided.
TEST_F(RankManifests, AreNotVoidedByADiskThatFailsForAMoment) {
  put_all_but(kWorld);
  for (uint64_t call = 0;; ++call) {
    const uint64_t at = memory_.files.operations() + call;
    memory_.files.fail_at(at, EIO);
    auto existing = abort_attempt(*memory_, kKey, {nonce_of(5), nonce_of(77), 9}, "nobody came back");
    const bool has_failed = memory_.files.operations() > at;
    memory_.files.stop_failing();
    EXPECT_TRUE(!existing.ok() || existing->committed()) << "the call " << call;
    ASSERT_TRUE(complete_rank_local(*memory_, kKey, {nonce_of(6), nonce_of(77), 9})->committed());
    if (!has_failed) break;
    ASSERT_OK(memory_->remove(decision_path(kKey)));
  }
}

TEST_F(RankManifests, OfTwoWorldSizesAreNone) {
  put_all_but(kWorld);
  RankManifest other = manifest_of(2);
  other.world_size = 8;
  put(other, {2, 8});
  const Status status = complete_rank_local(*memory_, kKey, {}).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("manifests of two worlds, of 4 and of 8 ranks"));
  EXPECT_FALSE(inspect_attempt(*memory_, kKey)->is_complete_set());
}

TEST_F(RankManifests, WithOneOfAnotherRankUnderItsNameAreNone) {
  expect_damaged(manifest_of(1), "rank-00002-of-00004.manifest.shoal: it holds the manifest of rank 1 of 4");
}

TEST_F(RankManifests, WithOneOfAnotherGenerationAreNone) {
  RankManifest other = manifest_of(2);
  other.key.generation = 2;
  expect_damaged(other, "holds the manifest of rank 2 of 4 in step 1000 (g2a1)");
}

TEST_F(RankManifests, WithOneOfAnotherStepAreNone) {
  RankManifest other = manifest_of(2);
  other.key.step = 999;
  expect_damaged(other, "in step 999 (g3a1)");
}

TEST_F(RankManifests, OfDifferentOptionsAreNone) {
  RankManifest other = manifest_of(2);
  other.options.unit_bytes = 4096;
  expect_damaged(other, "the manifests of ranks 0 and 2 are of different save options");
}

TEST_F(RankManifests, ThatLeaveAPartOfAValueToNobodyAreNone) {
  RankManifest other = manifest_of(2);
  LayoutBuilder builder;
  builder.add_value("step", DType::i64, {}, Mesh::contiguous({4}), true);
  other.layout = std::move(builder).build().value();
  expect_damaged(other, "the files of its ranks do not make a checkpoint");
}

TEST_F(RankManifests, ThatContradictEachOtherAreNone) {
  RankManifest other = manifest_of(2);
  LayoutBuilder builder;
  builder.add_tensor("weight", DType::f32, {9, 3}, Mesh::contiguous({4}), {Placement::shard(0)});
  other.layout = std::move(builder).build().value();
  expect_damaged(other, "'weight' has different shapes on different ranks");
}

// Regression: a rank publishes its manifest before it looks at its files again. A set was merged although a
// file of it had vanished by then.
TEST_F(RankManifests, AreNoCheckpointWhileAFileIsMissingOrShort) {
  put_all_but(kWorld);
  const std::string path = shard_path(kKey, 2, 0);
  ASSERT_OK(memory_->remove(path));
  Status why = complete_rank_local(*memory_, kKey, {}).status();
  EXPECT_EQ(why.code(), Code::not_found);
  EXPECT_THAT(why.message(),
              HasSubstr("rank-00002.safetensors does not exist: rank 2 reported 4.00 KiB there"));
  ASSERT_TRUE(*memory_->create_exclusive(path, Bytes(17)));
  why = complete_rank_local(*memory_, kKey, {}).status();
  EXPECT_EQ(why.code(), Code::not_found);
  EXPECT_THAT(why.message(), HasSubstr("rank-00002.safetensors has 17 bytes, but 4098 were reported"));
  auto decision = abort_attempt(*memory_, kKey, {nonce_of(5), nonce_of(77), 9}, "nobody came back");
  ASSERT_OK(decision.status());
  EXPECT_FALSE(decision->committed());
}

TEST_F(RankManifests, ArePublishedOnlyForFilesThatAreThere) {
  const SampleShard shard = SampleShard().whole_tensor("weight", DType::f32, {3});
  RankManifest manifest = manifest_of(2);
  EXPECT_EQ(publish_rank_manifest(*memory_, manifest).code(), Code::not_found);
  auto written = write_shard(*memory_, shard_path(kKey, 2, 0), nonce_of(1), shard.pieces, shard.views());
  ASSERT_OK(written.status());
  manifest.files[0].size = written->size;
  manifest.files[0].header_digest = written->header_digest;
  manifest.payload_bytes = written->payload_bytes;
  ASSERT_OK(publish_rank_manifest(*memory_, manifest));
  manifest.nonce = nonce_of(99);  // a node that was started again says the same
  ASSERT_OK(publish_rank_manifest(*memory_, manifest));
  manifest.files[0].header_digest = nonce_of(3);
  EXPECT_EQ(publish_rank_manifest(*memory_, manifest).code(), Code::already_exists);
}

}  // namespace
}  // namespace shoal::storage
