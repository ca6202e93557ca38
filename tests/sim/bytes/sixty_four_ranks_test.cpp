// Sixty-four ranks of the production roles on virtual time: the guarantees of a save and a load, without
// sockets, threads or disks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

class SixtyFourRanks : public ::testing::Test {
 protected:
  SixtyFourRanks() : job_(VirtualJob::start(host_, facts_of(1), 8, 64, pipeline_job(64, 2, 4))) {
    for (auto& trainer : job_.trainers) trainer->declare();
  }

  void expect_committed(uint64_t step) {
    for (Rank rank = 0; rank < job_.trainers.size(); ++rank) {
      const auto& decided = job_.trainers[rank]->decided();
      auto found = decided.find({step, 1});
      ASSERT_NE(found, decided.end()) << "rank " << rank << " was told nothing about step " << step;
      EXPECT_TRUE(found->second.outcome.ok()) << found->second.outcome.to_string();
      EXPECT_EQ(found->second.checkpoint->world_size, 64u);
    }
  }

  VirtualHost host_;
  VirtualJob job_;
};

TEST_F(SixtyFourRanks, CommitTheFirstSaveBeforeAnyRosterIsKnown) {
  for (auto& trainer : job_.trainers) trainer->save(1);
  job_.run(kPatience);
  expect_committed(1);
  for (auto& trainer : job_.trainers) {
    EXPECT_EQ(trainer->slabs_free(), 1u);
    EXPECT_TRUE(trainer->has_roster());
  }
}

TEST_F(SixtyFourRanks, WriteEachByteOnceOnceTheRosterIsKnown) {
  job_.run(kPatience);
  for (auto& trainer : job_.trainers) trainer->save(1);
  job_.run(kPatience);
  expect_committed(1);
  uint64_t staged = 0;
  for (auto& trainer : job_.trainers) staged += trainer->bytes_staged();
  uint64_t state = 0;
  for (uint32_t layer = 0; layer < 4; ++layer) state += 4 * (96 * 40 + 37 * 24 + 50 + 1);
  for (Rank rank = 0; rank < 64; ++rank) state += object_value(rank_fqn("rng", rank), 1).size();
  EXPECT_EQ(staged, state);
  auto decision = storage::read_decision(host_.storage(), {1, 1, 1});
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_EQ(decision->manifest().payload_bytes, state);
}

TEST_F(SixtyFourRanks, SendOneReportAHostAndHearOneDecision) {
  job_.run(kPatience);
  const size_t before = host_.transcript().size();
  for (auto& trainer : job_.trainers) trainer->save(1);
  job_.run(kPatience);
  size_t reports = 0, decisions = 0;
  for (size_t i = before; i < host_.transcript().size(); ++i) {
    if (host_.transcript()[i].find("local::") != std::string::npos) continue;  // within a host
    reports += host_.transcript()[i].find("ShardsWritten") != std::string::npos;
    decisions += host_.transcript()[i].find("Decided") != std::string::npos;
  }
  EXPECT_EQ(reports, 7u);  // and one within the coordinator's own host
  EXPECT_EQ(decisions, 7u);
}

TEST_F(SixtyFourRanks, OverlapTwoSaves) {
  for (auto& trainer : job_.trainers) trainer->save(1);
  for (auto& trainer : job_.trainers) trainer->save(2);
  job_.run(kPatience);
  expect_committed(1);
  expect_committed(2);
}

TEST_F(SixtyFourRanks, LoseNothingWhenATrainerDiesAfterStaging) {
  job_.run(kPatience);
  for (auto& trainer : job_.trainers) trainer->save(1);
  job_.trainers[17]->end();
  job_.run(kPatience);
  auto decision = storage::read_decision(host_.storage(), {1, 1, 1});
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_TRUE(decision->committed());
  EXPECT_TRUE(job_.trainers[3]->decided().at({1, 1}).outcome.ok());
}

TEST_F(SixtyFourRanks, AbortNamingTheRankThatDiedBeforeStaging) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < 64; ++rank) {
    if (rank != 17) job_.trainers[rank]->save(1);
  }
  job_.trainers[17]->end();
  job_.run(kPatience);
  for (Rank rank : {0u, 16u, 63u}) {
    const Status& outcome = job_.trainers[rank]->decided().at({1, 1}).outcome;
    EXPECT_EQ(outcome.code(), Code::aborted);
    EXPECT_THAT(outcome.message(), HasSubstr("rank 17 (host host2): its connection to the node ended"));
  }
}

TEST_F(SixtyFourRanks, AbortAtTheDeadlineNamingRanksThatSaidNothing) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < 64; ++rank) {
    if (rank != 9 && rank != 41) job_.trainers[rank]->save(1);
  }
  host_.run_for(130'000 * actors::kMillisecond);  // the last hosts report some seconds after they staged
  job_.run(kPatience);
  const Status& outcome = job_.trainers[0]->decided().at({1, 1}).outcome;
  EXPECT_EQ(outcome.code(), Code::aborted);
  EXPECT_THAT(outcome.message(), HasSubstr("nothing came from ranks 9, 41 (hosts "));
}

TEST_F(SixtyFourRanks, CommitWhenRanksComeOneAfterTheOtherWithinTheDeadlineEach) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < 64; ++rank) {
    if (rank != 9 && rank != 41) job_.trainers[rank]->save(1);
  }
  for (Rank late : {9u, 41u}) {
    host_.run_for(100'000 * actors::kMillisecond);
    job_.trainers[late]->save(1);
  }
  job_.run(kPatience);
  for (Rank rank : {0u, 9u, 41u, 63u}) {
    EXPECT_TRUE(job_.trainers[rank]->decided().at({1, 1}).outcome.ok()) << rank;
  }
}

TEST_F(SixtyFourRanks, AreAllToldWhenTheCoordinatorIsGoneForGood) {
  job_.run(kPatience);
  host_.kill_node(0);
  for (Rank rank = 8; rank < 64; ++rank) job_.trainers[rank]->save(1);
  host_.run_for(301'000 * actors::kMillisecond);
  job_.run(kPatience);
  for (Rank rank : {8u, 63u}) {
    const Status& outcome = job_.trainers[rank]->decided().at({1, 1}).outcome;
    EXPECT_EQ(outcome.code(), Code::aborted);
    EXPECT_THAT(outcome.message(), HasSubstr("received no decision within 15.00 s"));
    EXPECT_THAT(outcome.message(), HasSubstr("it lost the coordinator"));
  }
}

TEST_F(SixtyFourRanks, CatchUpWhenANodeWasCutOffAndComesBack) {
  job_.run(kPatience);
  host_.cut(5, true);
  for (auto& trainer : job_.trainers) trainer->save(1);
  job_.run(kPatience);
  EXPECT_TRUE(job_.trainers[0]->decided().empty());
  host_.cut(5, false);
  host_.run_for(20'000 * actors::kMillisecond);
  job_.run(kPatience);
  expect_committed(1);
}

TEST_F(SixtyFourRanks, DrainOnlyWhenEverythingStagedIsDecided) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < 63; ++rank) job_.trainers[rank]->save(1);
  host_.run_for(100 * actors::kMillisecond);
  host_.drain(0);
  job_.run(kPatience);
  EXPECT_FALSE(host_.drained(0));
  job_.trainers[63]->save(1);
  job_.run(kPatience);
  EXPECT_TRUE(host_.drained(0));
  expect_committed(1);
}

TEST_F(SixtyFourRanks, AreLoadedByFiveRanksOfAnotherSharding) {
  for (auto& trainer : job_.trainers) trainer->save(1);
  job_.run(kPatience);
  for (auto& trainer : job_.trainers) trainer->save(2);
  job_.run(kPatience);
  expect_committed(2);
  VirtualJob next = VirtualJob::start(host_, facts_of(2), 2, 5, flat_job(5));
  for (auto& trainer : next.trainers) trainer->load(std::nullopt);
  next.run(kPatience);
  for (auto& trainer : next.trainers) {
    ASSERT_TRUE(trainer->load_done().has_value());
    EXPECT_TRUE(trainer->load_done()->outcome.ok()) << trainer->load_done()->outcome.to_string();
    EXPECT_EQ(trainer->found()->checkpoint.key, (AttemptKey{1, 2, 1}));
    EXPECT_EQ(trainer->check_loaded(2), "");
  }
  next.trainers[3]->load(1, 2);
  next.run(kPatience);
  EXPECT_EQ(next.trainers[3]->check_loaded(1), "");
  EXPECT_NE(next.trainers[3]->check_loaded(2), "");
}

TEST_F(SixtyFourRanks, SeeAFlippedBitNamedByTheLoad) {
  job_.run(kPatience);
  for (auto& trainer : job_.trainers) trainer->save(1);
  job_.run(kPatience);
  auto decision = storage::read_decision(host_.storage(), {1, 1, 1});
  ASSERT_TRUE(decision.ok());
  const storage::FileEntry& file = decision->manifest().files.front();
  const std::string path = "step-00000001/g1a1/" + file.name;
  std::byte length[8];
  auto opened = host_.storage().open(path);
  ASSERT_TRUE(opened.ok());
  ASSERT_TRUE((*opened)->read_at(0, length).ok());
  host_.file_system().flip_bit(path, (8 + load_le64(length)) * 8);  // the first byte of its first tensor
  VirtualJob next = VirtualJob::start(host_, facts_of(2), 1, 1, flat_job(1));
  next.trainers[0]->load(std::nullopt);
  next.run(kPatience);
  ASSERT_TRUE(next.trainers[0]->load_done().has_value());
  const Status& outcome = next.trainers[0]->load_done()->outcome;
  EXPECT_EQ(outcome.code(), Code::corrupt);
  EXPECT_THAT(outcome.message(), HasSubstr(file.name));
}

TEST_F(SixtyFourRanks, LeaveAnUndecidedAttemptThatTheNextGenerationVoidsAndSweeps) {
  job_.run(kPatience);
  for (auto& trainer : job_.trainers) trainer->save(1);
  job_.run(kPatience);
  for (Rank rank = 0; rank < 40; ++rank) job_.trainers[rank]->save(2);
  host_.run_for(100 * actors::kMillisecond);
  for (size_t node = 0; node < 8; ++node) host_.kill_node(node);
  VirtualJob next = VirtualJob::start(host_, facts_of(2), 2, 5, flat_job(5));
  for (auto& trainer : next.trainers) trainer->load(std::nullopt);
  host_.run_for(15'000 * actors::kMillisecond);
  next.run(kPatience);
  for (auto& trainer : next.trainers) {
    ASSERT_TRUE(trainer->found().has_value());
    EXPECT_EQ(trainer->found()->checkpoint.key, (AttemptKey{1, 1, 1}));
    EXPECT_EQ(trainer->check_loaded(1), "");
  }
  auto info = storage::inspect_attempt(host_.storage(), {1, 2, 1});
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  EXPECT_EQ(info->state, storage::AttemptInfo::State::aborted);
  EXPECT_EQ(info->leftover_files, 0u);
}

TEST(VirtualHost, GivesTheSameTranscriptForTheSameCalls) {
  auto once = [] {
    VirtualHost host;
    VirtualJob job = VirtualJob::start(host, facts_of(1), 4, 16, pipeline_job(16, 2, 2));
    for (auto& trainer : job.trainers) trainer->declare();
    for (auto& trainer : job.trainers) trainer->save(1);
    job.run(kPatience);
    for (auto& trainer : job.trainers) trainer->save(2);
    job.run(kPatience);
    return host.transcript();
  };
  const auto first = once();
  EXPECT_GT(first.size(), 20u);
  EXPECT_EQ(first, once());
}

TEST(ALoad, ReportsAllThatIsMissingOrDifferent) {
  VirtualHost host;
  VirtualJob job = VirtualJob::start(host, facts_of(1), 1, 4, pipeline_job(4, 1, 2));
  for (auto& trainer : job.trainers) trainer->declare();
  for (auto& trainer : job.trainers) trainer->save(1);
  job.run(kPatience);
  LayoutBuilder builder;
  const Mesh mesh = Mesh::single(0);
  builder.add_tensor("layers.0.mlp.weight", DType::f32, {37, 25}, mesh, {Placement::shard(0)});
  builder.add_tensor("layers.9.mlp.weight", DType::f32, {3}, mesh, {Placement::shard(0)});
  builder.add_tensor("layers.1.norm.weight", DType::u32, {50}, mesh, {Placement::shard(0)});
  auto layout = std::move(builder).build();
  ASSERT_TRUE(layout.ok());
  VirtualJob next = VirtualJob::start(host, facts_of(2), 1, 1, {*layout});
  next.trainers[0]->load(std::nullopt);
  next.run(kPatience);
  const Status& outcome = next.trainers[0]->load_done()->outcome;
  EXPECT_EQ(outcome.code(), Code::key_mismatch);
  EXPECT_THAT(outcome.message(),
              HasSubstr("'layers.0.mlp.weight' is F32[37, 24] in the checkpoint, F32[37, 25] here"));
  EXPECT_THAT(outcome.message(), HasSubstr("missing 'layers.9.mlp.weight'"));
  EXPECT_THAT(outcome.message(), HasSubstr("'layers.1.norm.weight' is F32[50]"));
}

TEST(ALoad, SaysSoWhereThereIsNoCheckpoint) {
  VirtualHost host;
  VirtualJob job = VirtualJob::start(host, facts_of(1), 1, 1, flat_job(1));
  job.trainers[0]->load(std::nullopt);
  job.run(kPatience);
  EXPECT_EQ(job.trainers[0]->found()->outcome.code(), Code::not_found);
}

}  // namespace
}  // namespace shoal::sim
