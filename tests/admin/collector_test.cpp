// The Collector carries out a retention plan, and reports what became of each attempt.
#include "admin/collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden_copy.h"

namespace shoal::admin {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace fs = std::filesystem;

constexpr AttemptKey kFirst{1, 1, 1}, kAborted{1, 2, 1}, kNewest{2, 4, 1}, kUndecided{2, 5, 2};
const std::vector<storage::RetentionPlan::Item> kDeletesFirst{{kFirst, "keep_last"}};

// The golden root: checkpoints at steps 1 and 4, step 2 aborted with a leftover, step 3 deleted, step 5
// undecided.
class ACollector : public ::testing::Test {
 protected:
  ACollector() {
    auto opened = open_root_for_reading(copy_.root());
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    root_ = std::move(*opened);
  }
  storage::RetentionPlan plan() {
    auto made = storage::plan_retention(*root_.storage, {}, unix_time_now_ns(), nullptr);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return *made;
  }
  Collector collector(bool wait = true) { return Collector(root_, {2, 300, 10, wait}); }
  std::string state(const AttemptKey& key) {
    auto view = choose_attempts(root_, {.step = key.step, .attempt = attempt_name(key)});
    return view.ok() ? std::string((*view)[0].state_name()) : "gone";
  }
  void pin(const AttemptKey& key, const std::string& name, bool is_lease) {
    storage::Mark mark;
    mark.name = name;
    mark.key = key;
    mark.is_lease = is_lease;
    ASSERT_TRUE(storage::create_mark(*root_.storage, storage::MarkKind::pin, mark).ok());
  }

  GoldenCopy copy_;
  OpenRoot root_;
  Collected out_;
};

TEST_F(ACollector, DeletesCheckpointsAndCountsTheBytes) {
  collector().delete_all(kDeletesFirst, &out_);
  ASSERT_THAT(out_.deleted, SizeIs(1));
  EXPECT_EQ(out_.deleted[0].key, kFirst);
  EXPECT_GT(out_.deleted[0].bytes, 0u);
  EXPECT_EQ(out_.freed_bytes(), out_.deleted[0].bytes);
  EXPECT_EQ(out_.deleted[0].why, "keep_last");
  EXPECT_EQ(state(kFirst), "gone");
  EXPECT_EQ(state(kNewest), "committed");
  EXPECT_FALSE(fs::exists(copy_.path("step-00000001/g1a1/rank-00000.safetensors")));
}

TEST_F(ACollector, DeletesNothingTwice) {
  collector().delete_all(kDeletesFirst, &out_);
  Collected again;
  collector().delete_all(kDeletesFirst, &again);
  EXPECT_EQ(again.freed_bytes(), 0u);
  EXPECT_EQ(state(kNewest), "committed");
}

TEST_F(ACollector, KeepsACheckpointThatWasPinnedAfterThePlanWasMade) {
  pin(kFirst, std::string(32, 'a'), false);
  collector().delete_all(kDeletesFirst, &out_);
  EXPECT_THAT(out_.deleted, IsEmpty());
  ASSERT_EQ(out_.kept.size() + out_.held.size(), 1u);
  EXPECT_EQ(state(kFirst), "committed");
  EXPECT_EQ(out_.freed_bytes(), 0u);
}

TEST_F(ACollector, ReportsWhatItCannotDeleteAndGoesOn) {
  collector().delete_all({{{1, 99, 1}, "no such checkpoint"}, {kFirst, "test"}}, &out_);
  EXPECT_EQ(state(kFirst), "gone");
  EXPECT_EQ(out_.deleted.size() + out_.failed.size() + out_.kept.size(), 2u) << "each is reported";
}

TEST_F(ACollector, SweepsLeftoversOfAnAbort) {
  ASSERT_TRUE(fs::exists(copy_.path("step-00000002/g1a1/rank-00001.safetensors")));
  collector().sweep_all(plan().sweep, &out_);
  ASSERT_THAT(out_.swept, SizeIs(1));
  EXPECT_EQ(out_.swept[0].key, kAborted);
  EXPECT_GT(out_.freed_bytes(), 0u);
  EXPECT_FALSE(fs::exists(copy_.path("step-00000002/g1a1/rank-00001.safetensors")));
  EXPECT_EQ(state(kAborted), "aborted") << "the tombstone stays";
}

// Its generation is the highest, so that a job may still write it; a plan of a later generation names it.
TEST_F(ACollector, AbortsAnAbandonedAttemptThatTheRootDoesNotProveComplete) {
  auto info = storage::inspect_attempt(*root_.storage, kUndecided);
  ASSERT_TRUE(info.ok());
  fs::remove(copy_.path("step-00000005/g2a2/rank-00000.safetensors"));
  info = storage::inspect_attempt(*root_.storage, kUndecided);
  ASSERT_TRUE(info.ok());
  storage::RetentionPlan made;
  made.undecided = {*info};
  ASSERT_TRUE(collector().settle(made, &out_).ok());
  EXPECT_THAT(out_.failed, IsEmpty());
  EXPECT_EQ(state(kUndecided), "aborted");
  auto view = choose_attempts(root_, {.step = 5});
  ASSERT_TRUE(view.ok());
  EXPECT_THAT((*view)[0].decision->tombstone().cause, HasSubstr("its generation left it undecided"));
}

TEST_F(ACollector, LeavesAnAttemptThatIsStillWritten) {
  auto info = storage::inspect_attempt(*root_.storage, kUndecided);
  ASSERT_TRUE(info.ok());
  info->fingerprint ^= 1;  // what the folder had when the plan was made
  storage::RetentionPlan made;
  made.undecided = {*info};
  ASSERT_TRUE(collector().settle(made, &out_).ok());
  ASSERT_THAT(out_.undecided, SizeIs(1));
  EXPECT_THAT(out_.undecided[0].why, HasSubstr("still being written"));
  EXPECT_EQ(state(kUndecided), "undecided");
}

TEST_F(ACollector, DecidesNothingIfItMayNotWait) {
  storage::RetentionPlan made;
  made.undecided = {*storage::inspect_attempt(*root_.storage, kUndecided)};
  ASSERT_TRUE(collector(false).settle(made, &out_).ok());
  ASSERT_THAT(out_.undecided, SizeIs(1));
  EXPECT_EQ(state(kUndecided), "undecided");
}

TEST_F(ACollector, EndsALeaseThatNobodyRenews) {
  pin(kFirst, std::string(32, 'b'), true);
  pin(kNewest, std::string(32, 'c'), false);
  const storage::RetentionPlan made = plan();
  ASSERT_THAT(made.leases, SizeIs(1));
  ASSERT_TRUE(collector().settle({.leases = made.leases}, &out_).ok());
  auto left = storage::list_marks(*root_.storage, storage::MarkKind::pin);
  ASSERT_TRUE(left.ok());
  ASSERT_THAT(left->marks, SizeIs(1));
  EXPECT_EQ(left->marks[0].name, std::string(32, 'c')) << "a permanent pin is no lease";
}

}  // namespace
}  // namespace shoal::admin
