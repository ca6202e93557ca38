#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <utility>

#include "actors/executor/open_shards.h"
#include "actors/executor/operation_runner.h"
#include "actors/operation_traits.h"
#include "actors/publishing.h"
#include "base/digest/digest.h"
#include "base/visit.h"
#include "sim/bytes/memory_slabs.h"
#include "tests/actors/one_of_each.h"
#include "tests/actors/test_ids.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/shards/planned_shards.h"
#include "tests/storage/test_support.h"

namespace shoal::actors {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kWeightBytes = 3 * base::kDigestBlockBytes / 2;  // a block and a half

// One rank's file of a weight and an object, written from a slab.
class RunnerTest : public ::testing::Test {
 protected:
  RunnerTest() {
    MutableByteView slab = slabs.add(kClient, kSlab, 4 * base::kDigestBlockBytes);
    Bytes bytes = storage::random_bytes(slab.size(), 3);
    std::copy(bytes.begin(), bytes.end(), slab.begin());
    source = bytes;
  }

  template <class Op>
  Result<typename Op::Answer> run(const Op& operation) {
    Result<OperationResult> result = runner.run(operation);
    if (!result.ok()) return result.status();
    return std::get<typename Op::Answer>(*result);
  }

  static operation::WriteShard write_of(Rank rank) {
    operation::WriteShard write;
    write.key = kKey;
    write.rank = rank;
    Box box{{0, 0}, {kWeightBytes / 1024, 256}};
    write.pieces.push_back({"w", "w", DType::f32, false, {4096, 256}, box, kWeightBytes});
    write.pieces.push_back({"rng", "rng", DType::u8, true, {}, {}, 100});
    write.pieces.push_back({"none", "none", DType::u8, true, {}, {}, 0});
    write.data = {{kClient, kSlab, 4096, kWeightBytes}, {kClient, kSlab, 7, 100}, {kClient, kSlab, 0, 0}};
    return write;
  }

  static std::shared_ptr<const operation::PieceRef> ref_of(const operation::WriteShard& write, size_t piece,
                                                           const storage::WrittenShard& written) {
    operation::PieceRef ref;
    ref.key = write.key;
    ref.file_name = shard_file_name(write.rank, write.file);
    ref.file_size = written.size;
    ref.header_digest = written.header_digest;
    ref.rank = write.rank;
    ref.piece_key = ref.fqn = write.pieces[piece].key;
    ref.kind = write.pieces[piece].is_object ? LayoutEntry::Kind::object : LayoutEntry::Kind::tensor;
    ref.dtype = write.pieces[piece].dtype;
    ref.box = write.pieces[piece].box;
    return std::make_shared<const operation::PieceRef>(ref);
  }

  // A whole piece of the file that write_of(0) made.
  operation::ReadRange whole(size_t piece, uint64_t slab_offset) {
    return {ref_of(write, piece, written), 0, write.pieces[piece].bytes, slab_offset};
  }
  void write_one() {
    write = write_of(0);
    Result<storage::WrittenShard> result = run(write);
    ASSERT_OK(result.status());
    written = *result;
  }
  operation::ReadBatch batch_of(std::vector<operation::ReadRange> ranges) {
    target = slabs.add(kClient + 1, 0, 2 * base::kDigestBlockBytes);
    return {kClient + 1, 0, std::move(ranges)};
  }
  Status read_with(const operation::PieceRef& ref) {
    return run(batch_of({{std::make_shared<const operation::PieceRef>(ref), 0, 0, 0}})).status();
  }

  storage::MemoryStorage storage;
  sim::MemorySlabs slabs;
  std::unique_ptr<storage::Catalog> catalog = storage::make_memory_catalog();
  uint64_t nonces = 0;
  OperationRunner runner{
      *storage,
      catalog.get(),
      slabs,
      storage::nonce_of(77),
      {[this] { return storage::nonce_of(1000 + ++nonces); }, [] { return int64_t{12345}; }}};
  Bytes source;
  operation::WriteShard write;
  storage::WrittenShard written;
  MutableByteView target;
};

TEST_F(RunnerTest, ReadsBackWhatItWroteFromASlab) {
  write_one();
  EXPECT_EQ(written.payload_bytes, kWeightBytes + 100);
  ASSERT_OK(run(batch_of({whole(0, 0), whole(1, kWeightBytes), whole(2, 0)})).status());
  ByteView weight = ByteView(source).subspan(4096, kWeightBytes), object = ByteView(source).subspan(7, 100);
  EXPECT_TRUE(std::equal(weight.begin(), weight.end(), target.begin()));
  EXPECT_TRUE(std::equal(object.begin(), object.end(), target.begin() + kWeightBytes));
}

TEST_F(RunnerTest, ReadsSingleBlocksOfAPiece) {
  write_one();
  auto ref = ref_of(write, 0, written);
  ASSERT_OK(run(batch_of({{ref, base::kDigestBlockBytes, kWeightBytes, 64}})).status());
  ByteView second = ByteView(source).subspan(4096 + base::kDigestBlockBytes, base::kDigestBlockBytes / 2);
  EXPECT_TRUE(std::equal(second.begin(), second.end(), target.begin() + 64));
  EXPECT_EQ(target[63], std::byte{0});
}

TEST_F(RunnerTest, MeasuresObjects) {
  write_one();
  auto lengths = run(operation::MeasureObjects{{ref_of(write, 1, written), ref_of(write, 2, written)}});
  ASSERT_OK(lengths.status());
  EXPECT_THAT(*lengths, ::testing::ElementsAre(100, 0));
}

TEST_F(RunnerTest, WritingAgainReportsTheSameFile) {
  write_one();
  Result<storage::WrittenShard> again = run(write);
  ASSERT_OK(again.status());
  EXPECT_EQ(again->header_digest, written.header_digest);
  write.data[1].offset = 8;  // other bytes
  Status other = run(write).status();
  EXPECT_EQ(other.code(), Code::already_exists);
  EXPECT_THAT(other.message(), HasSubstr("rank 0 cannot write rank-00000.safetensors of step 3 (g1a1)"));
}

TEST_F(RunnerTest, RangesOutsideOfTheirSlabAreRefusedByName) {
  write = write_of(7);
  write.data[0].offset = 4 * base::kDigestBlockBytes - kWeightBytes + 1;
  Status outside = run(write).status();
  EXPECT_EQ(outside.code(), Code::invalid_argument);
  EXPECT_THAT(outside.message(), AllOf(HasSubstr("rank 7"), HasSubstr("'w'"), HasSubstr("slab 2")));
  write.data[0].offset = ~uint64_t{0} - 5;
  EXPECT_EQ(run(write).status().code(), Code::invalid_argument) << "no overflow";
  write.data.pop_back();
  EXPECT_EQ(run(write).status().code(), Code::invalid_argument) << "a piece without a range";
  write = write_of(7);
  write.data[1].client = 99;
  Status gone = run(write).status();
  EXPECT_EQ(gone.code(), Code::not_found);
  EXPECT_THAT(gone.message(), AllOf(HasSubstr("rank 7"), HasSubstr("client 99 has no slab 2")));
  EXPECT_EQ(storage->list("").value().size(), 0u) << "nothing was begun";
}

TEST_F(RunnerTest, RefusesRangesThatAreNoBlocksOrDoNotFit) {
  write_one();
  auto ref = ref_of(write, 0, written);
  auto code_of = [&](operation::ReadRange range) { return run(batch_of({range})).status().code(); };
  EXPECT_EQ(code_of({ref, 1, kWeightBytes, 0}), Code::invalid_argument);
  EXPECT_EQ(code_of({ref, 0, base::kDigestBlockBytes + 1, 0}), Code::invalid_argument);
  EXPECT_EQ(code_of({ref, 0, kWeightBytes + 1, 0}), Code::invalid_argument);
  EXPECT_EQ(code_of({ref, base::kDigestBlockBytes, 0, 0}), Code::invalid_argument);
  EXPECT_EQ(code_of({ref, 0, kWeightBytes, base::kDigestBlockBytes}), Code::invalid_argument);
  EXPECT_EQ(code_of({ref, 0, base::kDigestBlockBytes, ~uint64_t{0}}), Code::invalid_argument);
  EXPECT_EQ(code_of({ref, 0, base::kDigestBlockBytes, base::kDigestBlockBytes}), Code::ok);
}

TEST_F(RunnerTest, AFlippedBitIsNamedAndNothingElseFails) {
  write_one();
  // The second block of the weight, which comes first in the file's data.
  uint64_t data_begin = written.size - written.payload_bytes;
  storage.files.flip_bit(kFolder + std::string("rank-00000.safetensors"),
                         8 * (data_begin + base::kDigestBlockBytes + 17));
  auto ref = ref_of(write, 0, written);
  ASSERT_OK(
      run(batch_of({{ref, 0, base::kDigestBlockBytes, 0}, whole(1, base::kDigestBlockBytes)})).status());
  Status damaged = run(batch_of({whole(0, 0)})).status();
  EXPECT_EQ(damaged.code(), Code::corrupt);
  EXPECT_EQ(damaged.message(),
            fmt::format("'w' [0:1536, 0:256], written by rank 0, bytes {} to {} of the file: "
                        "/root/step-00000003/g1a1/rank-00000.safetensors: block 1 of 'w' differs from its "
                        "digest",
                        data_begin + base::kDigestBlockBytes, data_begin + kWeightBytes));
}

TEST_F(RunnerTest, ADamagedHeaderOrAnotherFileIsNamed) {
  write_one();
  operation::PieceRef ref = *ref_of(write, 0, written);
  ref.file_size += 1;
  EXPECT_THAT(read_with(ref).message(), HasSubstr("rank-00000.safetensors: has"));
  ref = *ref_of(write, 0, written);
  ref.header_digest = storage::nonce_of(1);
  EXPECT_THAT(read_with(ref).message(), HasSubstr("the header differs from its digest"));
  // Also when the right file is open already, and the other way round.
  ASSERT_OK(read_with(*ref_of(write, 0, written)));
  EXPECT_EQ(read_with(ref).code(), Code::corrupt);
  ref = *ref_of(write, 0, written);
  ref.file_name = "rank-00001.safetensors";
  EXPECT_EQ(read_with(ref).code(), Code::not_found);
  ref.file_name = "../g1a1/rank-00000.safetensors";
  EXPECT_EQ(read_with(ref).code(), Code::invalid_argument);
}

TEST_F(RunnerTest, WhereRuleAndHeaderDisagreeBothAreNamed) {
  write_one();
  operation::PieceRef ref = *ref_of(write, 0, written);
  ref.dtype = DType::i32;
  Status status = read_with(ref);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_EQ(status.message(),
            "'w' [0:1536, 0:256], written by rank 0: /root/step-00000003/g1a1/rank-00000.safetensors: 'w': "
            "the planning rule expects I32 [0:1536, 0:256], but the header has F32 [0:1536, 0:256]");
  ref = *ref_of(write, 0, written);
  ref.box.offsets[0] = 1;
  EXPECT_THAT(read_with(ref).message(),
              HasSubstr("the planning rule expects F32 [1:1537, 0:256], but the header has F32 [0:1536"));
  ref = *ref_of(write, 0, written);
  ref.kind = LayoutEntry::Kind::object;
  EXPECT_THAT(read_with(ref).message(),
              HasSubstr("the planning rule expects an object, but the header has F32"));
  ref = *ref_of(write, 1, written);
  ref.kind = LayoutEntry::Kind::tensor;
  EXPECT_THAT(read_with(ref).message(),
              HasSubstr("'rng': the planning rule expects U8 [], but the header has an object"));
  ref = *ref_of(write, 0, written);
  ref.piece_key = "v";
  EXPECT_EQ(read_with(ref).code(), Code::corrupt);
  EXPECT_THAT(read_with(ref).message(), HasSubstr("rank-00000.safetensors: 'v': the header lacks this key"));
}

TEST_F(RunnerTest, KeepsABoundedNumberOfShardsOpen) {
  OpenShards shards(*storage);
  std::vector<operation::PieceRef> refs;
  std::vector<std::weak_ptr<const storage::ShardReader>> opened;
  for (Rank rank = 0; rank < kMaxOpenShards + 3; ++rank) {
    operation::WriteShard small = write_of(rank);
    small.pieces.erase(small.pieces.begin());
    small.data.erase(small.data.begin());
    Result<storage::WrittenShard> file = run(small);
    ASSERT_OK(file.status());
    refs.push_back(*ref_of(small, 0, *file));
    opened.push_back(shards.find(refs.back()).value().shard);
    ASSERT_OK(shards.find(refs[0]).status());  // used all the time
  }
  size_t open = 0;
  for (const auto& shard : opened) open += !shard.expired();
  EXPECT_EQ(open, kMaxOpenShards);
  EXPECT_FALSE(opened[0].expired());
  EXPECT_TRUE(opened[1].expired());
  ASSERT_OK(shards.find(refs[1]).status());

  AttemptKey later = kKey;
  later.attempt = kKey.attempt * 10;  // whose folder's name begins alike
  shards.close(later);
  EXPECT_FALSE(opened[0].expired());
  shards.close(kKey);
  for (const auto& shard : opened) EXPECT_TRUE(shard.expired());
  EXPECT_EQ(shards.kept_bytes(), 0u);
  ASSERT_OK(shards.find(refs[0]).status());
}

// However many tensors each file has.
TEST_F(RunnerTest, KeepsABoundedMemoryOfHeaders) {
  const OpenShardBounds bounds{64, 60'000, 2};
  OpenShards shards(*storage, bounds);
  for (Rank rank = 0; rank < 12; ++rank) {
    operation::WriteShard many = write_of(rank);
    many.pieces.clear();
    many.data.clear();
    for (int i = 0; i < 100; ++i) {
      const std::string key = fmt::format("layers.{:05}.state", i);
      many.pieces.push_back({key, key, DType::u8, true, {}, {}, 8});
      many.data.push_back({kClient, kSlab, 0, 8});
    }
    Result<storage::WrittenShard> file = run(many);
    ASSERT_OK(file.status());
    ASSERT_OK(shards.find(*ref_of(many, 7, *file)).status());
    EXPECT_LE(shards.kept_bytes(), bounds.most_bytes);
    EXPECT_GE(shards.kept_bytes(), (rank > 0 ? 2 : 1) * 100 * sizeof(Hash128)) << "and what fits is kept";
  }
}

TEST_F(RunnerTest, ReadsFromManyThreads) {
  write_one();
  std::vector<std::thread> threads;
  std::vector<Status> statuses(4);
  for (uint32_t i = 0; i < statuses.size(); ++i) {
    slabs.add(kClient + 2, i, 2 * base::kDigestBlockBytes);
    threads.emplace_back([this, i, &statuses] {
      for (int round = 0; round < 5 && statuses[i].ok(); ++round) {
        statuses[i] = runner.run(operation::ReadBatch{kClient + 2, i, {whole(0, 0)}}).status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) EXPECT_OK(status);
}

TEST_F(RunnerTest, PublishesDecisionsAndAnswersWithTheOneThatStands) {
  EXPECT_EQ(run(operation::ReadDecision{kKey}).status().code(), Code::not_found);
  auto published = run(abort_of(kKey, GiveUp::rank_ended, "rank 1 is gone"));
  ASSERT_OK(published.status());
  EXPECT_EQ((*published)->nonce, storage::nonce_of(1001));
  EXPECT_EQ((*published)->root_id, storage::nonce_of(77));
  EXPECT_EQ((*published)->unix_time_ns, 12345);
  auto late = run(operation::PublishDecision{
      kKey, std::make_shared<const storage::DecisionBody>(storage::sample_manifest(kKey).manifest())});
  ASSERT_OK(late.status());
  EXPECT_FALSE((*late)->committed());
  EXPECT_EQ((*late)->nonce, storage::nonce_of(1001));
  auto read = run(operation::ReadDecision{kKey});
  ASSERT_OK(read.status());
  EXPECT_EQ((*read)->tombstone().cause, "rank 1 is gone");
  ASSERT_OK(run(operation::RecordDecision{*read}).status());
  EXPECT_EQ(catalog->find(kKey).value()->cause, "rank 1 is gone");
}

TEST_F(RunnerTest, ReadsAManifestInTwoSteps) {
  write_one();
  ASSERT_OK(run(operation::PublishDecision{kKey, std::make_shared<const storage::DecisionBody>(
                                                     storage::sample_manifest(kKey).manifest())})
                .status());
  auto opened = run(operation::ReadDecision{kKey, true});
  ASSERT_OK(opened.status());
  EXPECT_EQ((*opened)->manifest().world, nullptr);
  auto all = run(operation::DecodeDecision{*opened});
  ASSERT_OK(all.status());
  EXPECT_EQ((*all)->manifest().world->roster.id(), storage::sample_world()->roster.id());
}

// Regression: a committed checkpoint whose manifest alone was removed was aborted, and its shards swept.
TEST_F(RunnerTest, WhatTheCatalogHasAsCommittedIsNotAborted) {
  write_one();
  auto committed = run(operation::PublishDecision{
      kKey, std::make_shared<const storage::DecisionBody>(storage::sample_manifest(kKey).manifest())});
  ASSERT_OK(committed.status());
  ASSERT_OK(run(operation::RecordDecision{*committed}).status());
  auto existing = run(abort_of(kKey, GiveUp::unproven, "left undecided"));
  ASSERT_OK(existing.status());
  EXPECT_TRUE((*existing)->committed());
  ASSERT_OK(storage->remove(storage::decision_path(kKey)));
  const Status refused = runner.run(abort_of(kKey, GiveUp::unproven, "left undecided")).status();
  EXPECT_EQ(refused.code(), Code::corrupt);
  EXPECT_THAT(refused.message(), HasSubstr("manifest.shoal is missing, but the catalog lists step 3"));
  EXPECT_EQ(run(operation::SweepAttempt{kKey}).status().code(), Code::refused);
  // Gone with all that lay there, it was deleted.
  ASSERT_OK(storage->remove(storage::shard_path(kKey, 0, 0)));
  EXPECT_OK(runner.run(abort_of(kKey, GiveUp::unproven, "left undecided")).status());
}

// An attempt of four ranks, all of whose shards are durable.
class WholeAttempt : public RunnerTest {
 protected:
  WholeAttempt() {
    const storage::RosterRecord record{storage::sample_world(), {}};
    SHOAL_CHECK(storage::publish_roster(*storage, kKey.generation, record, storage::nonce_of(1)).ok());
    uint64_t payload_bytes = 0;
    for (Rank rank = 0; rank < 4; ++rank) {
      storage::write_planned(*storage, kKey, *record.world, rank, {}, nonces += 10, &payload_bytes);
    }
  }
  Result<std::shared_ptr<const storage::Decision>> abort(GiveUp why, const std::string& cause) {
    return run(abort_of(kKey, why, cause));
  }
};

// Regression: the save of a host that died before its report was aborted, and its shards swept.
TEST_F(WholeAttempt, IsCommittedByWhoGivesUpWhatDidNotCome) {
  auto existing = abort(GiveUp::host_lost, "host b is lost");
  ASSERT_OK(existing.status());
  EXPECT_TRUE((*existing)->committed());
  EXPECT_EQ((*existing)->manifest().files.size(), 4u);
}

TEST_F(WholeAttempt, IsAbortedWhereAReportIsWrong) {
  auto existing = abort(GiveUp::contradiction, "rank 1 wrote by another plan");
  ASSERT_OK(existing.status());
  EXPECT_EQ((*existing)->tombstone().cause, "rank 1 wrote by another plan");
}

// A node that has lost its coordinator may not have heard of the later run.
TEST_F(WholeAttempt, IsNotCommittedByARunThatALaterOneHasPassed) {
  for (uint64_t run : {1, 2}) {
    ASSERT_OK(
        storage::claim_generation(*storage, "job-" + std::to_string(run), storage::nonce_of(run)).status());
  }
  auto existing = abort(GiveUp::no_coordinator, "host a has lost the coordinator");
  ASSERT_OK(existing.status());
  EXPECT_FALSE((*existing)->committed());
}

TEST_F(WholeAttempt, IsAbortedOnceAShardIsMissing) {
  ASSERT_OK(storage->remove(storage::shard_path(kKey, 2, 0)));
  auto existing = abort(GiveUp::host_lost, "host b is lost");
  ASSERT_OK(existing.status());
  EXPECT_EQ((*existing)->tombstone().cause, "host b is lost");
}

TEST_F(WholeAttempt, IsNeitherWhileTheRootCannotBeRead) {
  for (uint64_t call = 0;; ++call) {
    const uint64_t at = storage.files.operations() + call;
    storage.files.fail_at(at, EIO);
    auto existing = abort(GiveUp::host_lost, "host b is lost");
    const bool has_failed = storage.files.operations() > at;
    storage.files.stop_failing();
    EXPECT_TRUE(!existing.ok() || (*existing)->committed()) << "call " << call;
    if (!has_failed) break;
    const Status removed = storage->remove(storage::decision_path(kKey));
    ASSERT_TRUE(removed.ok() || removed.code() == Code::not_found);
  }
}

// Each operation that commits where it finds the attempt whole, in each of its ways.
std::vector<Operation> commits(const AttemptKey& key, const storage::RankManifest& manifest) {
  std::vector<Operation> out;
  for (const Operation& each : one_of_each<Operation>()) {
    if (!traits_of(each).may_commit) continue;
    std::visit(
        base::Overloaded{
            [&](const operation::PublishDecision&) {
              out.push_back(operation::PublishDecision{key, std::make_shared<const storage::DecisionBody>(
                                                                storage::sample_manifest(key).manifest())});
              out.push_back(abort_of(key, GiveUp::host_lost, "host b is lost"));
              out.push_back(abort_of(key, GiveUp::rank_failed, "a full disk"));
            },
            [&](const operation::PublishRankManifest&) {
              out.push_back(
                  operation::PublishRankManifest{std::make_shared<const storage::RankManifest>(manifest)});
            },
            [&](const base::OneOf<operation::CompleteRankLocal, operation::CompleteAttempt> auto& complete) {
              auto of_key = complete;
              of_key.key = key;
              out.push_back(of_key);
            },
            [&](const auto&) { ADD_FAILURE() << "state how to make " << traits_of(each).name; }},
        each);
  }
  return out;
}

// Regression: two of them did not ask, so that a root that had become another's took a manifest.
TEST_F(WholeAttempt, IsCommittedByNoOperationWhileNothingMayBe) {
  storage::RankManifest manifest;
  manifest.key = {kKey.generation, kKey.step + 1, 1};
  manifest.layout = storage::sample_world()->layouts.front();
  manifest.options.mode = SaveMode::rank_local;
  manifest.options.dedupe = Dedupe::none;
  manifest.world_size = 4;
  for (manifest.rank = 0; manifest.rank < 4; ++manifest.rank) {
    ASSERT_TRUE(*storage->create_exclusive(storage::rank_manifest_path(manifest.key, {manifest.rank, 4}),
                                           *storage::encode_rank_manifest(manifest)));
  }
  manifest.rank = 0;
  storage::RankManifest second = manifest;
  second.key.step += 1;
  OperationRunner refused(*storage, nullptr, slabs, storage::nonce_of(77),
                          {[this] { return storage::nonce_of(1000 + ++nonces); }, [] { return int64_t{1}; },
                           [] { return Status(Code::refused, "ROOT_ID is another's"); }});
  for (const AttemptKey& key : {kKey, manifest.key}) {
    const bool is_set = key == manifest.key;
    for (const Operation& each : commits(key, second)) {
      const auto* decision = std::get_if<operation::PublishDecision>(&each);
      const bool is_abort = decision != nullptr &&
                            std::holds_alternative<storage::Tombstone>(*decision->body) &&
                            !decision->looks_first;
      const bool merges = std::holds_alternative<operation::CompleteRankLocal>(each);
      if (!is_set && (is_abort || merges)) continue;  // these commit sets of rank manifests alone
      EXPECT_EQ(refused.run(each).status(), Status(Code::refused, "ROOT_ID is another's"))
          << traits_of(each).name << " of " << to_string(key);
      EXPECT_EQ(storage::read_decision(*storage, key).status().code(), Code::not_found)
          << traits_of(each).name;
      EXPECT_FALSE(storage->list(storage::attempt_folder(second.key)).ok());
    }
  }
}

TEST_F(RunnerTest, WithoutACatalogNothingIsRecorded) {
  OperationRunner other(*storage, nullptr, slabs, storage::nonce_of(77),
                        {[] { return storage::nonce_of(1); }, [] { return 1; }});
  auto decision = std::make_shared<const storage::Decision>(storage::sample_tombstone());
  EXPECT_EQ(other.run(operation::RecordDecision{decision}).status().code(), Code::unavailable);
}

TEST_F(RunnerTest, LooksAfterAttemptsAndTheirFiles) {
  write_one();
  storage::FileEntry file{"rank-00000.safetensors", written.size, written.header_digest, 0, 0u};
  auto check = [this](const storage::FileEntry& each) {
    return run(operation::CheckFiles{kKey, std::make_shared<const std::vector<storage::FileEntry>>(1, each)})
        .status();
  };
  EXPECT_OK(check(file));
  file.size += 1;
  EXPECT_THAT(check(file).message(), HasSubstr("rank-00000.safetensors"));
  auto attempts = run(operation::ListAttempts{});
  ASSERT_OK(attempts.status());
  ASSERT_EQ(attempts->attempts.size(), 1u);
  EXPECT_EQ(attempts->attempts[0].key, kKey);
  EXPECT_EQ(run(operation::InspectAttempt{kKey})->files_bytes, written.size);
  EXPECT_EQ(run(operation::SweepAttempt{kKey}).status().code(), Code::refused);
  ASSERT_OK(runner.run(abort_of(kKey, GiveUp::rank_failed, "swept")).status());
  auto swept = run(operation::SweepAttempt{kKey});
  ASSERT_OK(swept.status());
  EXPECT_EQ(*swept, written.size);
}

TEST_F(RunnerTest, RostersAndLoadChoicesStandAsFirstPublished) {
  EXPECT_EQ(run(operation::ReadRoster{1}).status().code(), Code::not_found);
  SaveOptions first{Dedupe::none, 4096};
  ASSERT_OK(run(operation::PublishRoster{1, {storage::sample_world(), first, 1}}).status());
  auto second = run(operation::PublishRoster{1, {storage::sample_world(), {}, 1}});
  ASSERT_OK(second.status());
  EXPECT_EQ(second->options, first);
  EXPECT_EQ(run(operation::ReadRoster{1})->options, first);
  EXPECT_EQ(run(operation::ReadLoadChoice{1, 0}).status().code(), Code::not_found);
  ASSERT_OK(run(operation::PublishLoadChoice{1, 0, {true, kKey, {}}}).status());
  auto choice = run(operation::PublishLoadChoice{1, 0, {false, {}, {}}});
  ASSERT_OK(choice.status());
  EXPECT_TRUE(choice->found);
  EXPECT_EQ(choice->key, kKey);
  EXPECT_FALSE(choice->nonce.is_zero());
}

// A load that may fall back rests on the difference: damage is passed over, the rest is looked at again.
TEST_F(RunnerTest, ToldToVerifyTellsDamageFromWhatIsNoCheckpoint) {
  const operation::VerifyCheckpoint verify{kKey};
  EXPECT_EQ(run(verify).status().code(), Code::not_found) << "nothing is decided";
  ASSERT_OK(storage->create_exclusive(storage::attempt_folder(kKey) + "/other", as_view("x")).status());
  ASSERT_OK(run(operation::PublishDecision{kKey, std::make_shared<const storage::DecisionBody>(
                                                     storage::sample_manifest(kKey).manifest())})
                .status());
  const Status damaged = run(verify).status();
  EXPECT_EQ(damaged.code(), Code::corrupt) << damaged.to_string();
  EXPECT_THAT(damaged.message(), HasSubstr("rank-0"));
  AttemptKey aborted = kKey;
  ++aborted.step;
  ASSERT_OK(run(abort_of(aborted, GiveUp::rank_failed, "too late")).status());
  EXPECT_EQ(run(operation::VerifyCheckpoint{aborted}).status().code(), Code::not_found);
}

// Every operation that there is: one that is added later is refused until this list names it.
TEST_F(RunnerTest, OfAJobThatOnlyReadsRefusesWhatChangesTheRoot) {
  OperationRunner reader(*storage, nullptr, slabs, {},
                         {[] { return storage::nonce_of(1); }, [] { return 0; }, nullptr, true});
  const std::set<std::string_view> allowed = {
      "ReadDecision",     "CheckFiles",     "ReadRoster",     "ListAttempts",       "InspectAttempt",
      "ReadLoadChoice",   "MeasureObjects", "ReadBatch",      "ListNewestAttempts", "ListAttemptsOfStep",
      "PinAttempt",       "RenewPin",       "RemovePin",      "ReadEpoch",          "ListenToPeers",
      "ReadChunk",        "CheckChunk",     "CopyChunk",      "ReleaseWindow",      "ReadHeader",
      "CheckHeader",      "LocateRanges",   "DecodeDecision", "ListCheckpoints",    "ListMissingManifests",
      "VerifyCheckpoint", "MeasureWrites"};
  for (const Operation& each : one_of_each<Operation>()) {
    const std::string_view name = traits_of(each).name;
    EXPECT_EQ(traits_of(each).root_use != RootUse::writes, allowed.contains(name)) << name;
    if (allowed.contains(name)) continue;
    const Status refused = reader.run(each).status();
    EXPECT_EQ(refused.code(), Code::refused) << name;
    EXPECT_THAT(refused.message(),
                HasSubstr("a job that only reads must not start the operation " + std::string(name)));
  }
  operation::PublishLoadChoice choice{7, 1, {true, kKey, {}}, storage::ChoiceOf::reader};
  ASSERT_OK(reader.run(choice).status());
  EXPECT_EQ(storage->list("readers")->size(), 1u);
  EXPECT_EQ(storage->list("generations").status().code(), Code::not_found);
}

}  // namespace
}  // namespace shoal::actors
