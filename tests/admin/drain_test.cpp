// Drain: the target gets what its rules keep, the newest first, whatever fails meanwhile.
#include "admin/drain.h"

#include <gmock/gmock.h>

#include "tests/admin/copied_checkpoint.h"
#include "tests/storage/decisions/decision_samples.h"

namespace shoal::admin {
namespace {

using storage::MemoryStorage;
using storage::nonce_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = CopyResult::Outcome;

constexpr int64_t kSecond = 1'000'000'000;

class DrainTest : public ::testing::Test {
 protected:
  DrainTest() {
    SHOAL_CHECK(storage::open_root(*source_, true, kSourceId).ok());
    SHOAL_CHECK(storage::open_root(*target_, true, kTargetId).ok());
  }
  static AttemptKey key_of(uint64_t step) { return {1, step, 1}; }
  void commit(uint64_t step) { commit_copied(*source_, key_of(step), 8); }
  void delete_at_source(uint64_t step) {
    SHOAL_CHECK(storage::delete_checkpoint(*source_, {key_of(step), "gc", kSourceId, nonce_of(5)}).ok());
  }
  // A process that begins.
  Drain begin(DrainOptions options = {}) {
    options.now_ns = [this] { return now_ns_; };
    return Drain([this] { return open(source_, is_source_down_, kSourceId); },
                 [this] { return open(target_, is_target_down_, target_id_); }, std::move(options));
  }
  Result<OpenRoot> open(MemoryStorage& memory, const bool& is_down, const RootId& id) {
    if (is_down) return Status(Code::unavailable, "connection refused");
    return OpenRoot{nullptr, memory.opened(++processes_), id};
  }
  // Copies as long as there is something to copy, and returns the steps in this order.
  std::vector<uint64_t> run(Drain& drain) {
    std::vector<uint64_t> steps;
    for (;;) {
      auto news = drain.look();
      EXPECT_OK(news.status());
      if (!news.ok()) return steps;
      passed_over_ += news->passed_over;
      for (const AttemptKey& key : news->lost) lost_.push_back(key.step);
      const auto key = drain.next();
      if (!key) return steps;
      last_ = drain.copy(*key, &bytes_done_);
      steps.push_back(key->step);
      if (last_.outcome == Outcome::failed) return steps;
      Collected collected;
      EXPECT_OK(drain.apply_rules(&collected));
      EXPECT_THAT(collected.failed, IsEmpty());
    }
  }
  std::vector<uint64_t> at_target() {
    std::vector<uint64_t> steps;
    const auto listed = storage::list_attempts(*target_);
    for (const auto& info : listed->attempts) {
      EXPECT_TRUE(is_sound(*target_, info.key)) << info.key.step;
      steps.push_back(info.key.step);
    }
    return steps;
  }

  MemoryStorage source_, target_;
  RootId target_id_ = kTargetId;
  bool is_source_down_ = false, is_target_down_ = false;
  int64_t now_ns_ = 5 * kSecond;
  uint64_t processes_ = 10, passed_over_ = 0;
  std::vector<uint64_t> lost_;
  CopyResult last_;
  std::atomic<uint64_t> bytes_done_{0};
};

TEST_F(DrainTest, CopiesTheNewestFirstAndThenWhatIsCommittedLater) {
  for (uint64_t step : {1, 2, 3}) commit(step);
  Drain drain = begin();
  EXPECT_THAT(run(drain), ElementsAre(3, 2, 1));
  EXPECT_THAT(run(drain), IsEmpty());
  commit(4);
  EXPECT_THAT(run(drain), ElementsAre(4));
  EXPECT_THAT(at_target(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(DrainTest, ACommitDuringACopyIsCopiedBeforeOlderOnes) {
  for (uint64_t step : {1, 2}) commit(step);
  bool is_saved = false;
  Drain drain = begin({.keeps_going = [&] {
    if (!std::exchange(is_saved, true)) commit(3);
    return true;
  }});
  EXPECT_THAT(run(drain), ElementsAre(2, 3, 1));
}

TEST_F(DrainTest, EachRootHasItsOwnRetention) {
  for (uint64_t step : {1, 2, 3, 4, 5}) commit(step);
  Drain drain = begin({.retention = {.keep_last = 2, .keep_every = 3}});
  EXPECT_THAT(run(drain), ElementsAre(5, 4, 3));
  EXPECT_EQ(passed_over_, 2u) << "the rules would delete them at once";
  commit(6);
  EXPECT_THAT(run(drain), ElementsAre(6));
  EXPECT_THAT(at_target(), ElementsAre(3, 5, 6));
  EXPECT_EQ(storage::list_attempts(*source_)->attempts.size(), 6u);
  for (uint64_t step : {1, 2, 3, 4, 5}) delete_at_source(step);
  EXPECT_THAT(run(drain), IsEmpty());
  EXPECT_THAT(at_target(), ElementsAre(3, 5, 6)) << "the rules of the source do not count here";
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(DrainTest, ARuleByAgeCountsFromTheCommit) {
  for (uint64_t step : {1, 2}) commit(step);  // in 2023
  Drain drain = begin({.retention = {.keep_for_s = 3600}});
  EXPECT_THAT(run(drain), ElementsAre(2)) << "the newest stays always";
  Drain longer = begin({.retention = {.keep_for_s = 100ull * 365 * 24 * 3600}});
  EXPECT_THAT(run(longer), ElementsAre(2, 1)) << "2 is present";
}

TEST_F(DrainTest, AProcessThatBeginsAgainDoesNotCopyWhatItsRulesHaveDeleted) {
  commit(1);
  const DrainOptions options{.retention = {.keep_last = 1}};
  Drain first = begin(options);
  EXPECT_THAT(run(first), ElementsAre(1));
  commit(2);
  EXPECT_THAT(run(first), ElementsAre(2));
  ASSERT_THAT(at_target(), ElementsAre(2));
  Drain second = begin(options);
  EXPECT_THAT(run(second), ElementsAre(2));
  EXPECT_EQ(last_.outcome, Outcome::present);
}

// An object store keeps the tombstone.
TEST_F(DrainTest, DoesNotTryAgainWhatTheTargetHasDeletedForEver) {
  for (uint64_t step : {1, 2}) commit(step);
  commit_copied(*target_, key_of(2), 8);
  const storage::Tombstone gone{storage::Tombstone::Reason::deleted, "old"};
  ASSERT_OK(storage::mark_deleted(*target_, {key_of(2), nonce_of(2), kTargetId, 1, gone}).status());
  Drain drain = begin();
  ASSERT_OK(drain.look().status());
  EXPECT_EQ(drain.copy(key_of(2), &bytes_done_).outcome, Outcome::deleted_there);
  EXPECT_THAT(run(drain), ElementsAre(1));
  EXPECT_EQ(drain.pending(), 0u);
}

TEST_F(DrainTest, ReportsWhatTheSourceHasDeletedBeforeItWasCopied) {
  for (uint64_t step : {1, 2}) commit(step);
  Drain drain = begin();
  ASSERT_OK(drain.look().status());
  ASSERT_EQ(drain.copy(key_of(2), &bytes_done_).outcome, Outcome::copied);
  delete_at_source(1);
  EXPECT_THAT(run(drain), IsEmpty());
  EXPECT_THAT(lost_, ElementsAre(1));
}

TEST_F(DrainTest, WhatTheRulesOfTheTargetWouldNotKeepIsNotReportedAsLost) {
  commit(1);
  Drain drain = begin({.retention = {.keep_last = 1}});
  ASSERT_OK(drain.look().status());
  commit(2);
  delete_at_source(1);
  EXPECT_THAT(run(drain), ElementsAre(2));
  EXPECT_THAT(lost_, IsEmpty());
  EXPECT_EQ(passed_over_, 1u);
}

TEST_F(DrainTest, TriesARootThatCannotBeReachedAgainAfterPausesThatDouble) {
  commit(1);
  is_target_down_ = true;
  Drain drain = begin();
  for (int64_t pause : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_EQ(drain.look().status().code(), Code::unavailable);
    EXPECT_EQ(drain.next(), std::nullopt);
    EXPECT_EQ(drain.resumes_at_ns() - now_ns_, pause * kSecond);
    now_ns_ = drain.resumes_at_ns();
  }
  is_target_down_ = false;
  EXPECT_THAT(run(drain), ElementsAre(1));
  is_source_down_ = true;
  EXPECT_EQ(drain.look().status().code(), Code::unavailable);
  EXPECT_EQ(drain.resumes_at_ns() - now_ns_, kSecond) << "a copy has succeeded since";
  is_source_down_ = false;
  commit(2);
  EXPECT_THAT(run(drain), ElementsAre(2));
}

// A fast root in memory, which was lost and made again while the drain ran.
TEST_F(DrainTest, FollowsANewSourceInThePlaceOfTheOld) {
  MemoryStorage made_again;
  MemoryStorage* source = &source_;
  RootId id = kSourceId;
  Drain drain([&] { return open(*source, is_source_down_, id); },
              [&] { return open(target_, is_target_down_, kTargetId); });
  commit(1);
  EXPECT_THAT(run(drain), ElementsAre(1));
  commit(2);
  ASSERT_OK(drain.look().status());
  source = &made_again;
  id = nonce_of(80);
  ASSERT_OK(storage::open_root(*made_again, true, id).status());
  commit_copied(*made_again, key_of(1), 16);
  commit_copied(*made_again, key_of(3), 8);
  EXPECT_THAT(run(drain), ElementsAre(3, 1)) << "1 is not what was copied under this name";
  EXPECT_EQ(last_.status.code(), Code::already_exists);
  EXPECT_THAT(lost_, ElementsAre(2));
}

TEST_F(DrainTest, AFullTargetEndsNothingAndTheCopyIsContinued) {
  commit_copied(*source_, key_of(1), kRows);
  target_.files.set_capacity(20'000'000);
  Drain drain = begin({.jobs = 1});
  EXPECT_THAT(run(drain), ElementsAre(1));
  EXPECT_EQ(last_.status.code(), Code::no_space);
  EXPECT_EQ(drain.pending(), 1u);
  EXPECT_THAT(run(drain), IsEmpty()) << "it pauses";
  target_.files.set_capacity(~uint64_t{0});
  now_ns_ += 2 * kSecond;
  EXPECT_THAT(run(drain), ElementsAre(1));
  EXPECT_EQ(last_.outcome, Outcome::copied);
  EXPECT_EQ(last_.work.files_kept, 1u);
  EXPECT_THAT(at_target(), ElementsAre(1));
}

TEST_F(DrainTest, ADamagedCheckpointDoesNotHoldOthersUp) {
  for (uint64_t step : {1, 2}) commit(step);
  source_.files.flip_bit(storage::shard_path(key_of(2), 0, 0), 8 * 1000);
  Drain drain = begin();
  EXPECT_THAT(run(drain), ElementsAre(2));
  EXPECT_EQ(last_.status.code(), Code::corrupt);
  EXPECT_EQ(drain.untried(), 1u);
  EXPECT_THAT(run(drain), ElementsAre(1));
  EXPECT_EQ(drain.untried(), 0u);
  EXPECT_EQ(drain.pending(), 1u);
  drain.forget_failures();
  EXPECT_EQ(drain.untried(), 1u);
  EXPECT_EQ(drain.next(), key_of(2));
}

// An unmounted mount point is an empty folder, in which another root could be made.
TEST_F(DrainTest, DoesNotTakeAnotherRootForTheTargetAfterAFailure) {
  commit(1);
  target_.files.set_capacity(1);
  Drain drain = begin();
  EXPECT_THAT(run(drain), ElementsAre(1));
  target_.files.set_capacity(~uint64_t{0});
  target_id_ = nonce_of(99);
  now_ns_ += kSecond;
  const Status looked = drain.look().status();
  EXPECT_EQ(looked.code(), Code::refused);
  EXPECT_THAT(looked.message(), HasSubstr("is the storage mounted?"));
}

TEST_F(DrainTest, EndsTheLeaseOfAProcessThatWasKilled) {
  commit(1);
  const DrainOptions options{.retention = {.keep_last = 1}, .lease_ttl_ms = 60'000};
  Drain drain = begin(options);
  EXPECT_THAT(run(drain), ElementsAre(1));
  ASSERT_TRUE(
      storage::create_mark(*target_, storage::MarkKind::pin,
                           {storage::pin_name(nonce_of(3)), key_of(1), true, 1, "shoal copy", 1, nonce_of(3)})
          .ok());
  commit(2);
  EXPECT_THAT(run(drain), ElementsAre(2));
  EXPECT_THAT(at_target(), ElementsAre(1, 2)) << "somebody may read it";
  now_ns_ += 61 * kSecond;
  for (uint64_t step : {3, 4}) {  // the plan after the one that ends the lease
    commit(step);
    EXPECT_THAT(run(drain), ElementsAre(step));
  }
  EXPECT_THAT(at_target(), ElementsAre(4));
}

// Regression: the time of the lease was that of the begin of a copy, so that a lease seen at its end was as
// old as the copy was long.
TEST_F(DrainTest, KeepsALeaseThatBeganDuringALongCopy) {
  commit(1);
  bool is_slow = false;
  Drain drain = begin({.retention = {.keep_last = 1}, .jobs = 1, .lease_ttl_ms = 60'000, .keeps_going = [&] {
                         if (is_slow) now_ns_ += 300 * kSecond;
                         return true;
                       }});
  EXPECT_THAT(run(drain), ElementsAre(1));
  commit(2);
  is_slow = true;
  ASSERT_OK(drain.look().status());
  ASSERT_EQ(drain.copy(key_of(2), &bytes_done_).outcome, Outcome::copied);
  is_slow = false;
  ASSERT_TRUE(
      storage::create_mark(*target_, storage::MarkKind::pin,
                           {storage::pin_name(nonce_of(3)), key_of(1), true, 1, "a load", 1, nonce_of(3)})
          .ok());
  Collected collected;
  EXPECT_OK(drain.apply_rules(&collected));
  now_ns_ += kSecond;
  commit(3);
  EXPECT_THAT(run(drain), ElementsAre(3));
  EXPECT_EQ(storage::list_marks(*target_, storage::MarkKind::pin)->marks.size(), 1u);
}

TEST_F(DrainTest, ThePauseAfterALongCopyThatFailedBeginsAtItsEnd) {
  commit(1);
  bool is_full = false;
  Drain drain = begin({.jobs = 1, .keeps_going = [&] {
                         if (!std::exchange(is_full, true)) now_ns_ += 300 * kSecond;
                         target_.files.set_capacity(target_.files.used_bytes());
                         return true;
                       }});
  ASSERT_OK(drain.look().status());
  ASSERT_EQ(drain.copy(key_of(1), &bytes_done_).outcome, Outcome::failed);
  target_.files.stop_failing();
  EXPECT_EQ(drain.resumes_at_ns(), now_ns_ + kSecond);
  ASSERT_OK(drain.look().status());
  EXPECT_EQ(drain.next(), std::nullopt);
  now_ns_ += kSecond;
  EXPECT_EQ(drain.next(), key_of(1));
}

TEST_F(DrainTest, WhatCouldNotBeReadForAWhileIsCopiedLater) {
  commit(1);
  const std::string manifest = storage::decision_path(key_of(1));
  source_.files.flip_bit(manifest, 0);
  Drain drain = begin();
  auto news = drain.look();
  ASSERT_OK(news.status());
  EXPECT_EQ(news->unreadable.size(), 1u);
  EXPECT_EQ(news->unreadable_now, 1u);
  news = drain.look();
  EXPECT_EQ(news->unreadable.size(), 0u) << "it is reported once";
  EXPECT_EQ(news->unreadable_now, 1u);
  source_.files.flip_bit(manifest, 0);
  news = drain.look();
  EXPECT_EQ(news->unreadable_now, 0u);
  EXPECT_THAT(run(drain), ElementsAre(1));
}

}  // namespace
}  // namespace shoal::admin
