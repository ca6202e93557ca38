// The behavior of a node's roles if clients, peers or disks misbehave in ways that no other test covers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/role.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

LayoutPtr large_layout() {
  LayoutBuilder builder;
  builder.add_tensor("large", DType::f32, {600, 1024}, Mesh::single(0), {Placement::shard(0)});
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  return *layout;
}

// A Loader by itself: the test carries out its operations, in the order that it likes.
class ALoaderByItself : public ::testing::Test {
 protected:
  static constexpr actors::ClientId kClient = 7;

  ALoaderByItself() {
    VirtualJob job = VirtualJob::start(host_, facts_of(1), 1, 1, {large_layout()});
    job.trainers[0]->declare();
    job.trainers[0]->save(1);
    job.run(kPatience);
    local::Load load;
    load.request_id = 1;
    load.latest = false;
    load.step = 1;
    load.slab_id = 2;
    load.targets.push_back(
        {"large", LayoutEntry::Kind::tensor, DType::f32, {600, 1024}, {Box{{0, 0}, {600, 1024}}}});
    from_client(local::Slab{2, uint64_t{4} << 20});
    from_client(load);
    while (!starts_.empty() && !std::get_if<actors::operation::ReadBatch>(&starts_.front().operation)) {
      const actors::effect::Start start = starts_.front();
      starts_.erase(starts_.begin());
      if (std::get_if<actors::operation::ListAttemptsOfStep>(&start.operation)) {
        done(start, actors::OperationResult(*storage::list_attempts(host_.storage())));
      } else if (const auto* pin = std::get_if<actors::operation::PinAttempt>(&start.operation)) {
        done(start, actors::OperationResult(std::make_shared<const storage::Mark>(
                        storage::Mark{"a pin", pin->key, true, 0, "", 0, {}})));
      } else {
        done(start, actors::OperationResult(std::make_shared<const storage::Decision>(
                        *storage::read_decision(host_.storage(), AttemptKey{1, 1, 1}))));
      }
    }
  }

  void handle(const actors::Event& event) {
    actors::Effects effects;
    loader_->handle(0, event, effects);
    for (const actors::Effect& each : effects) {
      if (const auto* start = std::get_if<actors::effect::Start>(&each)) starts_.push_back(*start);
      if (const auto* received = std::get_if<actors::effect::ToClient>(&each))
        said_.push_back(received->message);
    }
  }
  void from_client(local::LocalMessage message) {
    handle(
        actors::event::FromClient{kClient, std::make_shared<const local::LocalMessage>(std::move(message))});
  }
  void done(const actors::effect::Start& start, Result<actors::OperationResult> result) {
    handle(actors::event::OperationDone{start.id, std::move(result)});
  }
  template <class T>
  size_t received() const {
    size_t count = 0;
    for (const auto& message : said_) count += std::holds_alternative<T>(*message);
    return count;
  }

  VirtualHost host_;
  std::unique_ptr<actors::Role> loader_ = actors::make_loader(facts_of(2));
  std::vector<actors::effect::Start> starts_;
  std::vector<std::shared_ptr<const local::LocalMessage>> said_;
};

TEST_F(ALoaderByItself, TellsOfAFailureOnceNothingIsWrittenToTheWindowAnyMore) {
  ASSERT_EQ(starts_.size(), 3u);  // 2.4 MB in parts of 1 MiB, all under way at once
  done(starts_[1], Status(Code::corrupt, "a flipped bit"));
  EXPECT_EQ(received<local::LoadDone>(),
            0u);  // else the next load's window would take the late bytes of this one
  done(starts_[0], actors::OperationResult(DamageList{}));
  EXPECT_EQ(received<local::LoadDone>(), 0u);
  done(starts_[2], Status(Code::io, "and another failure"));
  ASSERT_EQ(received<local::LoadDone>(), 1u);
  EXPECT_EQ(std::get<local::LoadDone>(*said_.back()).outcome, Status(Code::corrupt, "a flipped bit"));
  EXPECT_EQ(received<local::Loaded>(), 0u);
}

TEST_F(ALoaderByItself, IgnoresPlacedOfABatchThatIsStillBeingRead) {
  for (uint32_t batch : {0u, 1u, 2u, 3u, 4'000'000'000u}) from_client(local::Placed{1, batch});
  EXPECT_EQ(received<local::LoadDone>(), 0u);
  for (size_t i = 0; i < 3; ++i) done(starts_[i], actors::OperationResult(DamageList{}));
  EXPECT_EQ(received<local::Loaded>(), 3u);
  for (uint32_t batch : {0u, 0u, 1u, 2u}) from_client(local::Placed{1, batch});
  ASSERT_EQ(received<local::LoadDone>(), 1u);
  EXPECT_TRUE(std::get<local::LoadDone>(*said_.back()).outcome.ok());
}

// Four ranks on two hosts, with a roster.
class FourRanks : public ::testing::Test {
 protected:
  explicit FourRanks(const SaveOptions& options = {})
      : job_(VirtualJob::start(host_, facts_of(1), 2, 4, pipeline_job(4, 1, 2))) {
    for (auto& trainer : job_.trainers) trainer->declare(options);
    job_.run(kPatience);
  }

  // A trainer of this rank, beside what is left of the one before.
  VirtualTrainer& another(Rank rank) {
    job_.trainers.push_back(
        std::make_unique<VirtualTrainer>(host_, rank / 2, rank, 4, pipeline_job(4, 1, 2)[rank]));
    job_.trainers.back()->declare();
    return *job_.trainers.back();
  }

  VirtualHost host_;
  VirtualJob job_;
};

TEST_F(FourRanks, TellATrainerThatStagesWhatItsPredecessorHadStaged) {
  for (Rank rank : {0u, 1u, 2u}) job_.trainers[rank]->save(1);
  job_.trainers[2]->end();
  job_.run(kPatience);
  VirtualTrainer& again = another(2);
  job_.run(kPatience);
  again.save(1);
  job_.run(kPatience);
  ASSERT_TRUE(again.refused().has_value());
  EXPECT_EQ(again.refused()->why.code(), Code::already_exists);
  EXPECT_EQ(again.slabs_free(),
            0u);  // Refused says that already: said twice, it would free the slab's next use
  job_.trainers[3]->save(1);
  job_.run(kPatience);
  EXPECT_TRUE(job_.trainers[0]->decided().at({1, 1}).outcome.ok());
  another(2).save(1);  // now it is committed
  job_.run(kPatience);
  EXPECT_THAT(job_.trainers.back()->decided().at({1, 1}).outcome.message(), HasSubstr("is committed"));
}

TEST_F(FourRanks, GoOnWhenARankComesBackBeforeItsOldConnectionIsLost) {
  job_.trainers[0]->save(1);
  job_.trainers[1]->save(1);
  job_.trainers[2]->save(1);
  VirtualTrainer& again = another(3);
  job_.run(kPatience);
  job_.trainers[3]->end();
  job_.run(kPatience);
  again.save(1);
  job_.run(kPatience);
  EXPECT_TRUE(again.decided().at({1, 1}).outcome.ok());
}

TEST(ACoordinator, KeepsNoLayoutThatNobodyNamed) {
  auto coordinator = actors::make_coordinator(facts_of(1));
  LayoutPtr layout = pipeline_job(1, 1, 1)[0];
  std::weak_ptr<const Layout> kept = layout;
  actors::Effects effects;
  coordinator->handle(0, actors::event::Started{}, effects);
  auto body = std::make_shared<const actors::WireBody>(actors::wire::Layouts{{std::move(layout)}});
  coordinator->handle(
      0,
      actors::event::Received{actors::kFirstPeerNode,
                              {actors::RoleKind::planner, actors::RoleKind::coordinator, body}},
      effects);
  body.reset();
  EXPECT_TRUE(kept.expired());
}

class EveryDedupe : public ::testing::TestWithParam<Dedupe> {};

TEST_P(EveryDedupe, LoadsTheSameOnOtherRanks) {
  VirtualHost host;
  SaveOptions options;
  options.dedupe = GetParam();
  options.unit_bytes = 1024;
  VirtualJob job = VirtualJob::start(host, facts_of(1), 4, 8, pipeline_job(8, 2, 2));
  for (auto& trainer : job.trainers) trainer->declare(options);
  for (auto& trainer : job.trainers) trainer->save(1);
  job.run(kPatience);
  for (auto& trainer : job.trainers) trainer->save(2);
  job.run(kPatience);
  for (uint64_t step : {1, 2}) {
    for (uint32_t world_size : {1u, 3u}) {
      VirtualJob next = VirtualJob::start(host, facts_of(2), 1, world_size, flat_job(world_size, 7));
      for (auto& trainer : next.trainers) trainer->load(step);
      next.run(kPatience);
      for (auto& trainer : next.trainers) {
        ASSERT_TRUE(trainer->load_done().has_value());
        EXPECT_EQ(trainer->load_done()->outcome, ok_status());
        EXPECT_EQ(trainer->check_loaded(step), "");
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, EveryDedupe,
                         ::testing::Values(Dedupe::balanced, Dedupe::lowest_rank, Dedupe::none));

TEST_F(FourRanks, CommitUnderACoordinatorThatComesAfterTheyReported) {
  for (Rank rank : {2u, 3u}) job_.trainers[rank]->save(1);
  job_.run(kPatience);
  host_.kill_node(0);
  actors::NodeConfig facts = facts_of(1);
  facts.epoch = 2;
  facts.host = "host0";
  const size_t node = host_.add_node(facts, true);
  const auto layouts = pipeline_job(4, 1, 2);
  for (Rank rank : {0u, 1u}) {
    job_.trainers[rank] = std::make_unique<VirtualTrainer>(host_, node, rank, 4, layouts[rank]);
    job_.trainers[rank]->declare();
  }
  job_.run(kPatience);
  EXPECT_TRUE(job_.trainers[0]->has_roster());
  for (Rank rank : {0u, 1u}) job_.trainers[rank]->save(1);
  host_.run_for(15'000 * actors::kMillisecond);
  job_.run(kPatience);
  for (auto& trainer : job_.trainers) {
    ASSERT_TRUE(trainer->decided().contains({1, 1}));
    EXPECT_EQ(trainer->decided().at({1, 1}).outcome, ok_status());
  }
}

TEST_F(FourRanks, LoadTheOlderAttemptOfAStepWhoseNewestWasAborted) {
  for (auto& trainer : job_.trainers) trainer->save(5);
  job_.run(kPatience);
  for (auto& trainer : job_.trainers) trainer->save(3);  // rolled back
  job_.run(kPatience);
  for (Rank rank : {0u, 1u, 2u}) job_.trainers[rank]->save(5, 2);
  job_.run(kPatience);
  job_.trainers[3]->end();
  job_.run(kPatience);
  EXPECT_EQ(job_.trainers[0]->decided().at({5, 2}).outcome.code(), Code::aborted);
  EXPECT_EQ(job_.trainers[0]->decided().at({5, 1}).outcome, ok_status());
  EXPECT_EQ(job_.trainers[0]->decided().at({3, 1}).outcome, ok_status());
  VirtualJob next = VirtualJob::start(host_, facts_of(2), 1, 1, flat_job(1, 3));
  next.trainers[0]->load(5);
  next.run(kPatience);
  EXPECT_EQ(next.trainers[0]->found()->checkpoint.key, (AttemptKey{1, 5, 1}));
  EXPECT_EQ(next.trainers[0]->check_loaded(5), "");
  next.trainers[0]->load(std::nullopt);
  next.run(kPatience);
  EXPECT_EQ(next.trainers[0]->found()->checkpoint.key, (AttemptKey{1, 5, 1}));
}

TEST_F(FourRanks, DecideASaveThatWasAbortedWhileOthersWere) {
  job_.trainers[0]->save(1);
  job_.trainers[1]->save(1);
  job_.trainers[3]->end();
  job_.run(kPatience);
  job_.trainers[2]->save(1);
  job_.run(kPatience);
  for (Rank rank : {0u, 1u, 2u}) {
    ASSERT_TRUE(job_.trainers[rank]->decided().contains({1, 1})) << rank;
    EXPECT_EQ(job_.trainers[rank]->decided().at({1, 1}).outcome.code(), Code::aborted);
    EXPECT_THAT(job_.trainers[rank]->decided().at({1, 1}).outcome.message(), HasSubstr("rank 3"));
    EXPECT_EQ(job_.trainers[rank]->slabs_free(), 1u);
  }
}

TEST_F(FourRanks, LoadObjectsWithoutBytesAndOnesLargerThanTheWindow) {
  const uint64_t many = 900'000;  // an object of this step has 7 bytes a step
  for (uint64_t step : {uint64_t{0}, many}) {
    for (auto& trainer : job_.trainers) trainer->save(step);
    job_.run(kPatience);
    EXPECT_EQ(job_.trainers[0]->decided().at({step, 1}).outcome, ok_status());
  }
  uint32_t generation = 2;
  for (uint64_t tp : {1, 2, 4}) {
    VirtualJob next = VirtualJob::start(host_, facts_of(generation++), 1, 4, pipeline_job(4, 1, tp));
    for (uint64_t step : {uint64_t{0}, many}) {
      for (auto& trainer : next.trainers) trainer->load(step, static_cast<uint32_t>(step) + 1);
      next.run(kPatience);
      for (auto& trainer : next.trainers) {
        ASSERT_TRUE(trainer->load_done().has_value());
        EXPECT_EQ(trainer->load_done()->outcome, ok_status());
        EXPECT_EQ(trainer->check_loaded(step), "");
      }
    }
  }
}

TEST_F(FourRanks, LeaveSeveralAttemptsThatALoadSeesDecidedAtOnce) {
  for (auto& trainer : job_.trainers) trainer->save(1);
  job_.run(kPatience);
  for (uint64_t step : {2, 3, 4, 5}) {
    for (Rank rank : {0u, 1u, 2u}) job_.trainers[rank]->save(step);
  }
  host_.run_for(100 * actors::kMillisecond);
  host_.kill_node(0);
  host_.kill_node(1);
  actors::NodeConfig facts = facts_of(2);
  facts.host = "host0";
  const size_t node = host_.add_node(facts, false);  // no coordinator cleans up
  VirtualTrainer trainer(host_, node, 0, 1, flat_job(1, 3)[0]);
  trainer.load(std::nullopt);
  host_.run_for(12'000 *
                actors::kMillisecond);  // one attempt after the other would take four times ten seconds
  trainer.listen();
  ASSERT_TRUE(trainer.found().has_value());
  while (trainer.listen()) host_.run_until_quiet(kPatience);
  host_.run_until_quiet(kPatience);
  trainer.listen();
  ASSERT_TRUE(trainer.load_done().has_value());
  EXPECT_EQ(trainer.found()->checkpoint.key, (AttemptKey{1, 1, 1}));
  EXPECT_EQ(trainer.check_loaded(1), "");
}

TEST(ARestartedCoordinator, HoldsToTheRosterOfTheRootWhateverAHostSaysFirst) {
  VirtualHost host;
  VirtualJob job = VirtualJob::start(host, facts_of(1), 1, 2, pipeline_job(2, 1, 1));
  for (auto& trainer : job.trainers) trainer->declare();
  job.run(kPatience);
  host.kill_node(0);
  VirtualJob again = VirtualJob::start(host, facts_of(1), 2, 2, pipeline_job(2, 1, 1));
  SaveOptions other;
  other.dedupe = Dedupe::none;
  again.trainers[0]->declare();
  again.trainers[1]->declare(other);
  again.run(kPatience);
  ASSERT_TRUE(again.trainers[1]->failed().has_value());
  EXPECT_FALSE(again.trainers[0]->failed().has_value()) << again.trainers[0]->failed()->why.to_string();
  EXPECT_TRUE(again.trainers[0]->has_roster());
}

}  // namespace
}  // namespace shoal::sim
