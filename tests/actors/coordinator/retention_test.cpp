// Retention beside saves and loads, on virtual time: what is deleted, what a load keeps, and until when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "actors/coordinator/retention_duty.h"
#include "actors/role.h"
#include "storage/retention/retention.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::actors {
namespace {

using sim::kPatience;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayoutPtr two_ranks() {
  LayoutBuilder builder;
  builder.add_tensor("weight", DType::f32, {64, 8}, Mesh::contiguous({2}), {Placement::shard(0)});
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  return *layout;
}

bool is_only_tombstone(const storage::AttemptInfo& info) {
  return info.state == storage::AttemptInfo::State::deleted && info.leftover_files == 0;
}

class RetainedJob : public ::testing::Test {
 protected:
  RetainedJob() {
    config_.generation = config_.epoch = 1;
    config_.retention.keep_last = 1;
    job_ = std::make_unique<sim::VirtualJob>(
        sim::VirtualJob::start(host_, config_, 2, 2, {two_ranks(), two_ranks()}));
    for (auto& trainer : job_->trainers) trainer->declare();
    job_->run(kPatience);
  }
  void save(uint64_t step) {
    for (auto& trainer : job_->trainers) trainer->save(step);
  }
  std::vector<uint64_t> committed() {
    std::vector<uint64_t> steps;
    auto listed = storage::list_attempts(host_.storage());
    SHOAL_CHECK(listed.ok() && listed->damaged.empty());
    for (const storage::AttemptInfo& info : listed->attempts) {
      if (info.state == storage::AttemptInfo::State::committed) steps.push_back(info.key.step);
    }
    return steps;
  }
  std::vector<storage::AttemptInfo> attempts() { return storage::list_attempts(host_.storage())->attempts; }
  std::vector<storage::Mark> pins() {
    return storage::list_marks(host_.storage(), storage::MarkKind::pin)->marks;
  }
  TimeNs lease_ttl() const { return config_.timeouts.lease_ttl_ms * kMillisecond; }
  // Rank 1 begins to load step 1 and takes nothing in yet; then step 2 commits.
  void load_while_another_commits() {
    save(1);
    job_->run(kPatience);
    job_->trainers[1]->load(1);
    host_.run_for(10 * kMillisecond);
    ASSERT_EQ(pins().size(), 1u);
    save(2);
    host_.run_for(500 * kMillisecond);
  }

  NodeConfig config_;
  sim::VirtualHost host_;
  std::unique_ptr<sim::VirtualJob> job_;
};

TEST_F(RetainedJob, KeepsWhatItsRulesSayAndTellsTheCatalog) {
  for (uint64_t step = 1; step <= 5; ++step) {
    save(step);
    job_->run(kPatience);
    EXPECT_THAT(committed(), ElementsAre(step));
  }
  for (const storage::AttemptInfo& info : attempts()) {
    EXPECT_TRUE(info.key.step == 5 || is_only_tombstone(info)) << info.key.step;
  }
  auto listed = host_.catalog().list();
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->size(), 1u) << "nor in the catalog";
  EXPECT_EQ(listed->back().state, storage::AttemptInfo::State::committed);
}

TEST_F(RetainedJob, KeepsWhatIsBeingLoadedUntilTheLoadHasEnded) {
  load_while_another_commits();
  EXPECT_THAT(committed(), ElementsAre(1, 2));
  host_.run_for(3 * lease_ttl());
  EXPECT_THAT(committed(), ElementsAre(1, 2)) << "the lease is renewed";
  job_->run(kPatience);
  ASSERT_TRUE(job_->trainers[1]->load_done().has_value());
  EXPECT_EQ(job_->trainers[1]->check_loaded(1), "");
  EXPECT_TRUE(pins().empty());
  host_.run_for(lease_ttl());
  EXPECT_THAT(committed(), ElementsAre(2));
}

TEST_F(RetainedJob, DeletesWhatADeadNodeWasLoadingOnceItsLeaseHasEnded) {
  load_while_another_commits();
  host_.kill_node(1);
  host_.run_for(lease_ttl() / 2);
  EXPECT_THAT(committed(), ElementsAre(1, 2));
  host_.run_for(3 * lease_ttl());
  EXPECT_THAT(committed(), ElementsAre(2));
  EXPECT_TRUE(pins().empty());
}

TEST_F(RetainedJob, ALoadWhoseLeaseWasEndedFailsByName) {
  load_while_another_commits();
  ASSERT_TRUE(storage::remove_mark(host_.storage(), storage::MarkKind::pin, pins()[0].name).ok());
  host_.run_for(2 * config_.timeouts.lease_renew_ms * kMillisecond);
  job_->run(kPatience);
  ASSERT_TRUE(job_->trainers[1]->load_done().has_value());
  EXPECT_THAT(job_->trainers[1]->load_done()->outcome.to_string(),
              HasSubstr("its pin lease on step 1 (g1a1) has ended"));
  EXPECT_TRUE(pins().empty());
}

TEST_F(RetainedJob, ATrainerThatEndsWhileItLoadsLetsGo) {
  load_while_another_commits();
  job_->trainers[1]->end();
  host_.run_for(lease_ttl());
  EXPECT_TRUE(pins().empty());
  EXPECT_THAT(committed(), ElementsAre(2));
}

TEST_F(RetainedJob, ADeletionThatStoppedHalfWayIsFinishedByTheNextCoordinator) {
  save(1);
  job_->run(kPatience);
  save(2);
  job_->run(kPatience);
  const AttemptKey key = {1, 2, 1};
  storage::Decision tombstone{
      key, {}, host_.root_id(), 0, storage::Tombstone{storage::Tombstone::Reason::deleted, "a test"}};
  ASSERT_TRUE(*storage::mark_deleted(host_.storage(), tombstone));
  NodeConfig next = config_;
  next.generation = next.epoch = 2;
  next.retention = {};
  host_.add_node(next, true);
  host_.run_for(kPatience);
  EXPECT_TRUE(std::ranges::all_of(attempts(), is_only_tombstone));
}

// A rank whose node died after the commit asks the next node, which knows the root alone.
TEST_F(RetainedJob, KeepsTheTombstonesOfTheLastDeletedCheckpoints) {
  for (uint64_t step = 1; step <= kTombstonesKept + 4; ++step) {
    save(step);
    job_->run(kPatience);
  }
  std::vector<uint64_t> deleted;
  for (const storage::AttemptInfo& info : attempts()) {
    if (is_only_tombstone(info)) deleted.push_back(info.key.step);
  }
  // A pass counts those that existed before it. It has deleted one more.
  ASSERT_EQ(deleted.size(), size_t{kTombstonesKept} + 1);
  EXPECT_EQ(deleted.front(), 3u);
  EXPECT_TRUE(storage::read_decision(host_.storage(), {1, deleted.front(), 1})->was_committed());
  EXPECT_FALSE(storage::read_decision(host_.storage(), {1, 2, 1}).ok());
}

}  // namespace
}  // namespace shoal::actors
