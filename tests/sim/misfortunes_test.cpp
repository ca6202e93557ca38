// What a node's roles do when clients, peers or disks do not behave as the other tests have them behave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/role.h"
#include "tests/sim/job_layouts.h"
#include "tests/sim/virtual_trainer.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

constexpr TimeNs kPatience = 1000 * kMillisecond;

NodeFacts facts_of(uint32_t generation) {
  NodeFacts facts;
  facts.generation = generation;
  facts.epoch = generation;
  return facts;
}

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
  static constexpr ClientId kClient = 7;

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
    load.targets.push_back({"large", LayoutEntry::Kind::tensor, DType::f32, {600, 1024}, {}});
    load.targets[0].boxes = {Box{{0, 0}, {600, 1024}}};
    from_client(local::Slab{2, uint64_t{4} << 20});
    from_client(load);
    while (!starts_.empty() && !std::get_if<operation::ReadBatch>(&starts_.front().operation)) {
      const effect::Start start = starts_.front();
      starts_.erase(starts_.begin());
      if (std::get_if<operation::ListAttempts>(&start.operation)) {
        done(start, OperationResult(*list_attempts(host_.storage())));
      } else {
        done(start, OperationResult(std::make_shared<const Decision>(
                        *read_decision(host_.storage(), AttemptKey{1, 1, 1}))));
      }
    }
  }

  void handle(const Event& event) {
    Effects effects;
    loader_->handle(0, event, effects);
    for (const Effect& each : effects) {
      if (const auto* start = std::get_if<effect::Start>(&each)) starts_.push_back(*start);
      if (const auto* said = std::get_if<effect::ToClient>(&each)) said_.push_back(said->message);
    }
  }
  void from_client(LocalMessage message) {
    handle(event::FromClient{kClient, std::make_shared<const LocalMessage>(std::move(message))});
  }
  void done(const effect::Start& start, Result<OperationResult> result) {
    handle(event::OperationDone{start.id, std::move(result)});
  }
  template <class T>
  size_t said() const {
    size_t count = 0;
    for (const auto& message : said_) count += std::holds_alternative<T>(*message);
    return count;
  }

  VirtualHost host_;
  std::unique_ptr<Role> loader_ = make_loader(facts_of(2));
  std::vector<effect::Start> starts_;
  std::vector<std::shared_ptr<const LocalMessage>> said_;
};

TEST_F(ALoaderByItself, TellsOfAFailureOnceNothingIsWrittenToTheWindowAnyMore) {
  ASSERT_EQ(starts_.size(), 3u);  // 2.4 MB in parts of 1 MiB, all under way at once
  done(starts_[1], Status(Code::corrupt, "a flipped bit"));
  EXPECT_EQ(said<local::LoadDone>(),
            0u);  // else the next load's window would take the late bytes of this one
  done(starts_[0], OperationResult(operation::Done{}));
  EXPECT_EQ(said<local::LoadDone>(), 0u);
  done(starts_[2], Status(Code::io, "and another fault"));
  ASSERT_EQ(said<local::LoadDone>(), 1u);
  EXPECT_EQ(std::get<local::LoadDone>(*said_.back()).outcome, Status(Code::corrupt, "a flipped bit"));
  EXPECT_EQ(said<local::Loaded>(), 0u);
}

TEST_F(ALoaderByItself, IgnoresPlacedOfABatchThatIsStillBeingRead) {
  for (uint32_t batch : {0u, 1u, 2u, 3u, 4'000'000'000u}) from_client(local::Placed{1, batch});
  EXPECT_EQ(said<local::LoadDone>(), 0u);
  for (size_t i = 0; i < 3; ++i) done(starts_[i], OperationResult(operation::Done{}));
  EXPECT_EQ(said<local::Loaded>(), 3u);
  for (uint32_t batch : {0u, 0u, 1u, 2u}) from_client(local::Placed{1, batch});
  ASSERT_EQ(said<local::LoadDone>(), 1u);
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
  auto coordinator = make_coordinator(facts_of(1));
  LayoutPtr layout = pipeline_job(1, 1, 1)[0];
  std::weak_ptr<const Layout> kept = layout;
  Effects effects;
  coordinator->handle(0, event::Started{}, effects);
  auto body = std::make_shared<const WireBody>(wire::Layouts{{std::move(layout)}});
  coordinator->handle(0, event::Received{kFirstPeerNode, {RoleKind::planner, RoleKind::coordinator, body}},
                      effects);
  body.reset();
  EXPECT_TRUE(kept.expired());
}

}  // namespace
}  // namespace shoal
