// CheckpointCopier: a reader of the target finds a checkpoint wholly or not at all, whatever stops the copy.
#include "admin/checkpoint_copy.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "storage/retention/retention.h"
#include "storage/root/run_claims.h"
#include "storage/root/verifier.h"
#include "tests/admin/copied_checkpoint.h"
#include "tests/golden_copy.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/interrupted_storage.h"

namespace shoal::admin {
namespace {

using storage::kKey;
using storage::MemoryStorage;
using storage::nonce_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Fate = sim::MemoryFileSystem::Unsynced::Fate;
using Outcome = CopyResult::Outcome;

namespace fs = std::filesystem;

std::string first_file(const AttemptKey& key) {
  return storage::shard_path(key, 0, 0);
}

class CheckpointCopy : public ::testing::Test {
 protected:
  CheckpointCopy() {
    SHOAL_CHECK(storage::open_root(*source_, true, kSourceId).ok());
    SHOAL_CHECK(storage::open_root(*target_, true, kTargetId).ok());
  }
  CopyResult copy(const AttemptKey& key = kKey, CopyOptions options = {.jobs = 2}) {
    return CheckpointCopier(*source_, *target_, kTargetId, std::move(options)).copy(key, &bytes_done_);
  }
  std::vector<AttemptKey> at_target() {
    std::vector<AttemptKey> keys;
    auto listed = storage::list_attempts(*target_);
    EXPECT_TRUE(listed.ok() && listed->damaged.empty());
    for (const auto& info : listed->attempts) keys.push_back(info.key);
    return keys;
  }
  // Folders of unfinished copies.
  std::vector<std::string> unfinished() { return storage::list_attempt_names(*target_)->remains; }

  MemoryStorage source_, target_;
  std::atomic<uint64_t> bytes_done_{0};
};

// Regression: after a read error the claim had another nonce than the run, so compare_newest took the roots
// for those of two runs, and no job with --drain-to could start there any more.
TEST_F(CheckpointCopy, ClaimsForTheRunOfTheSourceOrNotAtAll) {
  commit_copied(*source_, kKey, 8);
  const Nonce run = nonce_of(77);
  ASSERT_OK(storage::claim_for_copies(*source_, kKey.generation, run));
  for (uint64_t call = 0;; ++call) {
    MemoryStorage target;
    ASSERT_OK(storage::open_root(*target, true, kTargetId).status());
    const uint64_t failing = source_.files.operations() + call;
    source_.files.fail_at(failing, EIO);
    const CopyResult result =
        CheckpointCopier(*source_, *target, kTargetId, {.jobs = 1}).copy(kKey, &bytes_done_);
    const bool was_hit = source_.files.operations() > failing;
    source_.files.stop_failing();
    const auto claims = storage::list_generations(*target);
    ASSERT_OK(claims.status());
    for (const auto& claim : *claims) EXPECT_EQ(claim.nonce, run) << "call " << call;
    if (was_hit) continue;
    EXPECT_EQ(result.outcome, Outcome::copied);
    EXPECT_EQ(claims->size(), 1u);
    break;
  }
}

TEST_F(CheckpointCopy, HasEveryByteAndTheIdOfItsOwnRoot) {
  const storage::Decision committed = commit_copied(*source_, kKey, kRows, {{"loss", "0.5"}});
  const CopyResult result = copy();
  ASSERT_EQ(result.outcome, Outcome::copied) << result.status.to_string();
  EXPECT_EQ(result.work.files, 2u);
  EXPECT_EQ(result.work.bytes, file_bytes_of(committed.manifest()));
  EXPECT_EQ(bytes_done_.load(), result.work.bytes);
  EXPECT_TRUE(is_sound(*target_, kKey));
  auto decision = storage::read_decision(*target_, kKey);
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->root_id, kTargetId);
  EXPECT_EQ(decision->unix_time_ns, committed.unix_time_ns);
  EXPECT_EQ(decision->manifest().user, committed.manifest().user);
  for (const storage::FileEntry& file : committed.manifest().files) {
    const std::string path = storage::attempt_folder(kKey) + "/" + file.name;
    EXPECT_EQ(source_->read(path, 1 << 30).value(), target_->read(path, 1 << 30).value());
  }
  EXPECT_THAT(unfinished(), IsEmpty());
  EXPECT_THAT(storage::list_marks(*source_, storage::MarkKind::pin)->marks, IsEmpty());
  EXPECT_THAT(storage::list_marks(*target_, storage::MarkKind::pin)->marks, IsEmpty());
}

TEST_F(CheckpointCopy, PassesOverACheckpointThatIsPresent) {
  commit_copied(*source_, kKey, 8);
  ASSERT_EQ(copy().outcome, Outcome::copied);
  const uint64_t bytes = bytes_done_;
  EXPECT_EQ(copy().outcome, Outcome::present);
  EXPECT_EQ(bytes_done_, bytes);
}

TEST_F(CheckpointCopy, RejectsOtherContentUnderTheSameName) {
  commit_copied(*source_, kKey, 8);
  commit_copied(*target_, kKey, 16);
  const CopyResult result = copy();
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_EQ(result.status.code(), Code::already_exists);
  EXPECT_THAT(result.status.message(), HasSubstr("other content"));
  EXPECT_FALSE(result.ends_all) << "other checkpoints may still be copied";
}

TEST_F(CheckpointCopy, NamesADamagedBlockWithFileAndOffsetAndCommitsNothing) {
  const storage::Decision committed = commit_copied(*source_, kKey, kRows);
  const uint64_t size = committed.manifest().files[0].size;
  source_.files.flip_bit(first_file(kKey), (size - 1) * 8);
  const CopyResult result = copy();
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_EQ(result.status.code(), Code::corrupt);
  EXPECT_THAT(result.status.message(),
              AllOf(HasSubstr("/root/" + first_file(kKey)), HasSubstr("to " + std::to_string(size))));
  EXPECT_FALSE(result.ends_all);
  EXPECT_THAT(at_target(), IsEmpty());
}

TEST_F(CheckpointCopy, KeepsTheCompleteFilesOfAnEarlierCopy) {
  const storage::Decision committed = commit_copied(*source_, kKey, kRows);
  const std::string second = storage::shard_path(kKey, 1, 0);
  const uint64_t last_bit = committed.manifest().files[1].size * 8 - 1;
  source_.files.flip_bit(second, last_bit);
  ASSERT_EQ(copy(kKey, {.jobs = 1}).outcome, Outcome::failed);
  source_.files.flip_bit(second, last_bit);
  bytes_done_ = 0;
  auto forecast = CheckpointCopier(*source_, *target_, kTargetId).forecast(committed);
  ASSERT_TRUE(forecast.ok());
  EXPECT_EQ(forecast->bytes_kept, committed.manifest().files[0].size);
  const CopyResult result = copy();
  ASSERT_EQ(result.outcome, Outcome::copied) << result.status.to_string();
  EXPECT_EQ(result.work.files_kept, 1u);
  EXPECT_EQ(bytes_done_, committed.manifest().files[1].size);
  EXPECT_TRUE(is_sound(*target_, kKey));
}

TEST_F(CheckpointCopy, WritesAFileOfAnEarlierCopyAgainIfItsHeaderIsDamaged) {
  const storage::Decision committed = commit_copied(*source_, kKey, 8);
  const std::string second = storage::shard_path(kKey, 1, 0);
  const uint64_t last_bit = committed.manifest().files[1].size * 8 - 1;
  source_.files.flip_bit(second, last_bit);
  ASSERT_EQ(copy(kKey, {.jobs = 1}).outcome, Outcome::failed);
  source_.files.flip_bit(second, last_bit);
  ASSERT_THAT(unfinished(), SizeIs(1));
  target_.files.flip_bit(unfinished()[0] + "/" + committed.manifest().files[0].name, 100);
  const CopyResult result = copy();
  ASSERT_EQ(result.outcome, Outcome::copied) << result.status.to_string();
  EXPECT_EQ(result.work.files_kept, 0u);
  EXPECT_TRUE(is_sound(*target_, kKey));
}

TEST_F(CheckpointCopy, ThatIsInterruptedIsContinued) {
  commit_copied(*source_, kKey, kRows);
  int windows = 0;
  const CopyResult stopped = copy(kKey, {.jobs = 1, .keeps_going = [&] { return ++windows < 5; }});
  EXPECT_EQ(stopped.status.code(), Code::aborted);
  EXPECT_TRUE(stopped.ends_all);
  EXPECT_THAT(at_target(), IsEmpty());
  EXPECT_EQ(copy().outcome, Outcome::copied);
  EXPECT_TRUE(is_sound(*target_, kKey));
}

TEST_F(CheckpointCopy, ReportsACheckpointThatWasDeletedMeanwhile) {
  commit_copied(*source_, kKey, 8);
  ASSERT_TRUE(storage::mark_deleted(*source_, {kKey, nonce_of(2), kSourceId, 1,
                                               storage::Tombstone{storage::Tombstone::Reason::deleted, "gc"}})
                  .ok());
  const CopyResult result = copy();
  EXPECT_EQ(result.outcome, Outcome::deleted);
  EXPECT_THAT(result.status.message(), HasSubstr("gc"));
  EXPECT_THAT(at_target(), IsEmpty());
}

TEST_F(CheckpointCopy, IsNoneOfACheckpointThatTheTargetHasDeleted) {
  commit_copied(*source_, kKey, 8);
  commit_copied(*target_, kKey, 8);
  ASSERT_TRUE(
      storage::mark_deleted(*target_, {kKey, nonce_of(2), kTargetId, 1,
                                       storage::Tombstone{storage::Tombstone::Reason::deleted, "old"}})
          .ok());
  const CopyResult result = copy();
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_EQ(result.status.code(), Code::refused);
  EXPECT_THAT(result.status.message(), HasSubstr("was deleted and is never committed again: old"));
}

// A run saves under the number that it has claimed. What is above it would stay the latest for ever.
TEST_F(CheckpointCopy, RejectsATargetWhoseRunIsNotNewer) {
  commit_copied(*source_, kKey, 8);
  for (uint32_t generation = 1; generation <= kKey.generation; ++generation) {
    ASSERT_TRUE(storage::claim_generation(*target_, "other", nonce_of(10 + generation)).ok());
  }
  const CopyResult result = copy();
  EXPECT_EQ(result.status.code(), Code::refused);
  EXPECT_THAT(result.status.message(), HasSubstr("run 3 of job other has begun"));
  ASSERT_TRUE(storage::claim_generation(*target_, "other", nonce_of(20)).ok());
  EXPECT_EQ(copy().outcome, Outcome::copied) << "older than what run 4 saves";
}

TEST_F(CheckpointCopy, EndsAllIfTheTargetIsFull) {
  commit_copied(*source_, kKey, kRows);
  target_.files.set_capacity(15'000'000);
  const CopyResult result = copy(kKey, {.jobs = 1});
  EXPECT_EQ(result.status.code(), Code::no_space) << result.status.to_string();
  EXPECT_TRUE(result.ends_all);
  EXPECT_THAT(at_target(), IsEmpty());
}

TEST_F(CheckpointCopy, KeepsRetentionAwayFromWhatItWrites) {
  commit_copied(*source_, kKey, 8);
  std::vector<std::string> during;
  auto look = [&] {
    auto plan = storage::plan_retention(*target_, {}, 1, nullptr);
    EXPECT_TRUE(plan.ok());
    EXPECT_THAT(plan->remains, IsEmpty());
    during = unfinished();
    return true;
  };
  ASSERT_EQ(copy(kKey, {.jobs = 1, .keeps_going = look}).outcome, Outcome::copied);
  EXPECT_THAT(during, SizeIs(1));
}

TEST_F(CheckpointCopy, ThatRunsTwiceAtOnceMakesOneCheckpoint) {
  commit_copied(*source_, kKey, kRows);
  for (int at = 1; at <= 9; at += 2) {
    MemoryStorage target;
    SHOAL_CHECK(storage::open_root(*target, true, kTargetId).ok());
    const auto second = target.opened(2);
    int windows = 0;
    Outcome other = Outcome::failed;
    const auto run_other = [&] {
      if (++windows == at) {
        other = CheckpointCopier(*source_, *second, kTargetId, {.jobs = 1}).copy(kKey, &bytes_done_).outcome;
      }
      return true;
    };
    const CopyResult result =
        CheckpointCopier(*source_, *target, kTargetId, {.jobs = 1, .keeps_going = run_other})
            .copy(kKey, &bytes_done_);
    EXPECT_EQ(other, Outcome::copied) << at;
    EXPECT_EQ(result.outcome, Outcome::present) << at << ": " << result.status.to_string();
    EXPECT_TRUE(is_sound(*target, kKey)) << at;
    EXPECT_THAT(storage::list_attempt_names(*target)->remains, IsEmpty()) << at;
  }
}

TEST_F(CheckpointCopy, LeavesWhatRetentionRemovesIfItIsNotContinued) {
  const storage::Decision committed = commit_copied(*source_, kKey, 8);
  source_.files.flip_bit(storage::shard_path(kKey, 1, 0), committed.manifest().files[1].size * 8 - 1);
  ASSERT_EQ(copy().outcome, Outcome::failed);
  auto plan = storage::plan_retention(*target_, {}, 1, nullptr);
  ASSERT_TRUE(plan.ok());
  ASSERT_THAT(plan->remains, SizeIs(1));
  EXPECT_TRUE(storage::remove_remains(*target_, plan->remains[0]).ok());
  EXPECT_EQ(target_->list("step-00001000").status().code(), Code::not_found);
}

// The copy is stopped at each of its calls at the target, by the end of the process or of the machine.
class StoppedCopy : public ::testing::Test {
 protected:
  static constexpr uint64_t kFewRows = 8;

  void SetUp() override {
    SHOAL_CHECK(storage::open_root(*source_, true, kSourceId).ok());
    commit_copied(*source_, kKey, kFewRows);
  }
  CopyResult copy_to(storage::Storage& target) {
    return CheckpointCopier(*source_, target, kTargetId, {.jobs = 1}).copy(kKey, &bytes_done_);
  }
  static void make_root(MemoryStorage& target) {
    SHOAL_CHECK(storage::open_root(*target, true, kTargetId).ok());
  }
  uint64_t count_calls() {
    MemoryStorage target;
    make_root(target);
    const uint64_t before = target.files.operations();
    SHOAL_CHECK(copy_to(*target).outcome == Outcome::copied);
    return target.files.operations() - before;
  }
  // Wholly or not at all; then a second copy completes it. `is_mixed`: the fake may have kept both names of a
  // folder that was renamed, which no file system does.
  void expect_whole(MemoryStorage& target, bool must_be_there, bool is_mixed, const std::string& where) {
    auto opened = target.opened(2);
    auto listed = storage::list_attempts(*opened);
    ASSERT_TRUE(listed.ok()) << where;
    EXPECT_THAT(listed->damaged, IsEmpty()) << where;
    EXPECT_GE(listed->attempts.size(), must_be_there ? 1u : 0u) << where;
    for (const auto& info : listed->attempts) {
      EXPECT_EQ(info.state, storage::AttemptInfo::State::committed) << where;
      EXPECT_TRUE(is_sound(*opened, info.key)) << where;
    }
    const CopyResult again = copy_to(*opened);
    EXPECT_TRUE(again.outcome == Outcome::copied || again.outcome == Outcome::present)
        << where << ": " << again.status.to_string();
    EXPECT_TRUE(is_sound(*opened, kKey)) << where;
    EXPECT_LE(storage::list_attempt_names(*opened)->remains.size(), is_mixed ? 1u : 0u) << where;
    auto files = opened->list(storage::attempt_folder(kKey));
    EXPECT_THAT(*files, SizeIs(3)) << where << ": two shards and the manifest";
  }

  MemoryStorage source_;
  std::atomic<uint64_t> bytes_done_{0};
};

TEST_F(StoppedCopy, LeavesACheckpointWhollyOrNotAtAllAndIsContinued) {
  const uint64_t calls = count_calls();
  EXPECT_GT(calls, 50u);
  for (uint64_t call = 0; call <= calls; ++call) {
    for (uint64_t fate = 0; fate < 5; ++fate) {
      MemoryStorage target;
      make_root(target);
      target.files.die_at(target.files.operations() + call);
      const bool was_told = copy_to(*target).outcome == Outcome::copied;
      if (fate == 4) {
        target.files.restart();
      } else {
        const Fate kind = fate == 0 ? Fate::lost : fate == 1 ? Fate::kept : Fate::mixed;
        target.files.crash({kind, call * 10 + fate});
      }
      expect_whole(target, was_told, fate == 2 || fate == 3,
                   "call " + std::to_string(call) + ", fate " + std::to_string(fate));
    }
  }
}

TEST_F(StoppedCopy, ReportsAnErrorAtEachCallAndIsDoneAgain) {
  const uint64_t calls = count_calls();
  for (uint64_t call = 0; call < calls; ++call) {
    MemoryStorage target;
    make_root(target);
    target.files.fail_at(target.files.operations() + call, EIO);
    const bool was_told = copy_to(*target).outcome == Outcome::copied;
    target.files.restart();
    expect_whole(target, was_told, false, "call " + std::to_string(call));
  }
}

// Between any two calls of the copy, another process removes what it finds of unfinished copies.
TEST_F(StoppedCopy, IsWholeOrReportsThatItsFilesWereTaken) {
  size_t taken = 0;
  const uint64_t calls = count_calls();
  for (uint64_t call = 0; call <= calls; ++call) {
    MemoryStorage target;
    make_root(target);
    CopyResult result;
    storage::InterruptedStorage::run(
        target, call, [&](storage::Storage& mine) { result = copy_to(mine); },
        [](storage::Storage& other) {
          const auto names = storage::list_attempt_names(other);
          for (const std::string& folder : names->remains) {
            EXPECT_TRUE(storage::remove_remains(other, folder).ok());
          }
        });
    const std::string where = "call " + std::to_string(call);
    const bool is_there = !storage::list_attempts(*target)->attempts.empty();
    EXPECT_EQ(is_there, result.outcome == Outcome::copied) << where << ": " << result.status.to_string();
    EXPECT_EQ(is_sound(*target, kKey), is_there) << where;
    EXPECT_EQ(result.status.code(), is_there ? Code::ok : Code::busy) << where;
    taken += result.outcome == Outcome::failed;
    expect_whole(target, false, false, where);
  }
  EXPECT_GT(taken, 0u);
}

// A removal of what an earlier copy left, between any two calls of which another copy runs.
TEST_F(StoppedCopy, IsWholeThoughARemovalHasBegun) {
  for (uint64_t call = 0; call <= 60; ++call) {
    MemoryStorage target;
    make_root(target);
    target.files.fail_at(target.files.operations() + count_calls() * 2 / 3, EIO);
    ASSERT_EQ(copy_to(*target).outcome, Outcome::failed);
    target.files.restart();
    const auto opened = target.opened(3);
    const std::vector<std::string> left = storage::list_attempt_names(*opened)->remains;
    ASSERT_THAT(left, SizeIs(1));
    CopyResult result;
    storage::InterruptedStorage::run(
        target, call, [&](storage::Storage& mine) { (void)storage::remove_remains(mine, left[0]); },
        [&](storage::Storage& other) { result = copy_to(other); });
    const std::string where = "call " + std::to_string(call);
    EXPECT_EQ(result.outcome, Outcome::copied) << where << ": " << result.status.to_string();
    EXPECT_TRUE(is_sound(*opened, kKey)) << where;
  }
}

// Between any two calls of the copy, a run begins in the other root.
TEST_F(StoppedCopy, SharesNoGenerationWithARunThatBeginsMeanwhile) {
  size_t refused = 0;
  for (uint64_t call = 0; call <= count_calls(); ++call) {
    MemoryStorage target;
    make_root(target);
    CopyResult result;
    uint32_t run = 0;
    storage::InterruptedStorage::run(
        target, call, [&](storage::Storage& mine) { result = copy_to(mine); },
        [&](storage::Storage& other) {
          run = storage::claim_generation(other, "job", nonce_of(5))->generation;
        });
    const std::string where = "call " + std::to_string(call);
    const bool is_copied = result.outcome == Outcome::copied;
    EXPECT_TRUE(!is_copied || run > kKey.generation) << where;
    EXPECT_EQ(result.status.code(), is_copied ? Code::ok : Code::refused) << where;
    refused += result.outcome == Outcome::failed;
  }
  EXPECT_GT(refused, 0u);
}

class CopyTarget : public ::testing::Test {
 protected:
  CopyTarget() {
    auto opened = open_root_for_reading(golden_.root());
    EXPECT_TRUE(opened.ok());
    source_ = std::move(*opened);
    fs::create_directory(other());
  }
  std::string other() const { return golden_.beside("other"); }

  GoldenCopy golden_;
  OpenRoot source_;
};

TEST_F(CopyTarget, OfAnEmptyFolderIsANewRoot) {
  std::ofstream(other() + "/shoal.toml") << "keep-last = 5\n";
  auto looked = open_copy_target(source_, other(), false);
  ASSERT_TRUE(looked.ok()) << looked.status().to_string();
  EXPECT_FALSE(fs::exists(other() + "/ROOT_ID")) << "looking changes nothing";
  auto opened = open_copy_target(source_, other(), true);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_NE(opened->id, source_.id);
  auto again = open_copy_target(source_, other(), true);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->id, opened->id);
}

TEST_F(CopyTarget, MustBeAnotherFolder) {
  fs::create_symlink(golden_.root(), golden_.beside("link"));
  auto opened = open_copy_target(source_, golden_.beside("link"), true);
  EXPECT_EQ(opened.status().code(), Code::invalid_argument);
  EXPECT_THAT(opened.status().message(), HasSubstr("the same folder"));
}

TEST_F(CopyTarget, MustNotLieInTheRootNorHoldIt) {
  const std::string inside = golden_.root() + "/pins/copies";
  const auto opened = open_copy_target(source_, inside, true);
  EXPECT_EQ(opened.status().code(), Code::invalid_argument);
  EXPECT_THAT(opened.status().message(), HasSubstr("lies inside " + golden_.root()));
  const std::string above = fs::path(golden_.root()).parent_path();
  EXPECT_EQ(open_copy_target(source_, above, true).status().code(), Code::invalid_argument);
  EXPECT_TRUE(check_lies_outside(golden_.root(), golden_.root() + "-2").ok());
}

TEST_F(CopyTarget, MustHoldNothingElse) {
  std::ofstream(other() + "/notes.txt") << "mine\n";
  auto opened = open_copy_target(source_, other(), true);
  EXPECT_EQ(opened.status().code(), Code::refused);
  EXPECT_THAT(opened.status().message(), HasSubstr("holds notes.txt and no run"));
  EXPECT_EQ(open_copy_target(source_, golden_.beside("missing"), true).status().code(), Code::not_found);
}

// Files that list their pieces, files that follow from the plan, and every type of element.
TEST_F(CopyTarget, TakesTheCheckpointsOfTheGoldenRoot) {
  auto target = open_copy_target(source_, other(), true);
  ASSERT_TRUE(target.ok());
  auto views = choose_attempts(source_, {});
  ASSERT_TRUE(views.ok());
  std::atomic<uint64_t> bytes{0};
  size_t copied = 0;
  for (const storage::AttemptView& view : *views) {
    if (!view.committed()) continue;
    const CopyResult result =
        CheckpointCopier(*source_.storage, *target->storage, target->id).copy(view.key, &bytes);
    EXPECT_EQ(result.outcome, Outcome::copied) << result.status.to_string();
    EXPECT_TRUE(is_sound(*target->storage, view.key));
    ++copied;
  }
  EXPECT_GE(copied, 2u);
}

}  // namespace
}  // namespace shoal::admin
