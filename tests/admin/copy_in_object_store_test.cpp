// Copies between roots of which one or both are in an object store, whose requests may fail.
#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "admin/checkpoint_copy.h"
#include "storage/retention/retention.h"
#include "storage/retention/unfinished_copies.h"
#include "storage/root/attempt_marks.h"
#include "storage/s3/s3_storage.h"
#include "tests/admin/copied_checkpoint.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/s3/object_store.h"

namespace shoal::admin {
namespace {

using storage::kKey;
using storage::MemoryStorage;
using storage::nonce_of;
using storage::S3Storage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = CopyResult::Outcome;

constexpr uint64_t kLargeRows = 10'000'000;  // 20 MB a file: uploads of more than one part
constexpr const char* kBucketA = "s3://bucket/a";
constexpr const char* kBucketB = "s3://bucket/b";

// Lets another process act before one of its calls.
class HookedStorage final : public storage::Storage {
 public:
  HookedStorage(storage::Storage& real, int call, std::function<void()> other)
      : real_(real), left_(call), other_(std::move(other)) {}
  bool was_reached() const { return left_ < 0; }

  std::string describe() const override { return real_.describe(); }
  bool has_files() const override { return real_.has_files(); }
  bool moves_folders() const override { return real_.moves_folders(); }
  Result<bool> create_exclusive(const std::string& path, ByteView data) override {
    return step().create_exclusive(path, data);
  }
  Result<bool> create_in_folder(const std::string& path, ByteView data) override {
    return step().create_in_folder(path, data);
  }
  Status replace(const std::string& path, ByteView data) override { return step().replace(path, data); }
  Result<Bytes> read(const std::string& path, uint64_t most) override { return step().read(path, most); }
  Result<std::unique_ptr<storage::ReadFile>> open(const std::string& path) override {
    return step().open(path);
  }
  Result<std::unique_ptr<storage::WriteFile>> create(const std::string& path, const Nonce& nonce,
                                                     uint64_t bytes) override {
    return step().create(path, nonce, bytes);
  }
  Result<std::vector<storage::ObjectInfo>> list(const std::string& folder) override {
    return step().list(folder);
  }
  Status remove(const std::string& path) override { return step().remove(path); }
  Status remove_folder(const std::string& path) override { return step().remove_folder(path); }
  Status move_folder(const std::string& path, const std::string& name) override {
    return step().move_folder(path, name);
  }
  Status sync_folder(const std::string& folder) override { return step().sync_folder(folder); }

 private:
  storage::Storage& step() {
    if (left_-- == 0) other_();
    return real_;
  }
  storage::Storage& real_;
  int left_;
  const std::function<void()> other_;
};

class CopyInObjectStore : public ::testing::Test {
 protected:
  void start(std::vector<std::string> arguments = {}) {
    store_ = testing::ObjectStore::start(std::move(arguments));
    SHOAL_NEEDS_OBJECT_STORE(store_);
    bucket_a_ = opened(kBucketA);
    bucket_b_ = opened(kBucketB);
    SHOAL_CHECK(storage::open_root(*folder_, true, kSourceId).ok());
    SHOAL_CHECK(storage::open_root(*bucket_a_, true, kSourceId).ok());
    SHOAL_CHECK(storage::open_root(*bucket_b_, true, kTargetId).ok());
  }
  std::unique_ptr<S3Storage> opened(const std::string& root) {
    storage::S3Retries retries;
    retries.tries_max = 30;
    retries.pause = [](int64_t) {};
    auto storage = S3Storage::open(*storage::find_s3_settings(root, store_->variables()), retries);
    SHOAL_CHECK(storage.ok());
    return std::move(*storage);
  }
  CopyResult copy(storage::Storage& from, storage::Storage& to, CopyOptions options = {.jobs = 2}) {
    return CheckpointCopier(from, to, kTargetId, std::move(options)).copy(kKey, &bytes_done_);
  }
  std::vector<std::string> files_of_copy(storage::Storage& root) {
    std::vector<std::string> names;
    auto listed = root.list(storage::attempt_folder(kKey));
    if (!listed.ok()) return names;
    for (const storage::ObjectInfo& object : *listed) names.push_back(object.name);
    return names;
  }
  // Ends when one of the two files is complete.
  CopyResult interrupted_copy(storage::Storage& from, storage::Storage& to) {
    const auto keeps_going = [&] {
      return std::ranges::none_of(files_of_copy(to),
                                  [](const auto& name) { return name.ends_with("tensors"); });
    };
    return copy(from, to, {.jobs = 1, .keeps_going = keeps_going});
  }

  std::unique_ptr<testing::ObjectStore> store_;
  MemoryStorage folder_;
  std::unique_ptr<S3Storage> bucket_a_, bucket_b_;
  std::atomic<uint64_t> bytes_done_{0};
};

#define START_STORES(...) \
  start(__VA_ARGS__);     \
  if (HasFatalFailure() || IsSkipped()) return

TEST_F(CopyInObjectStore, GoesFromAFolderToABucketToABucketAndBackWithEveryByte) {
  START_STORES();
  const storage::Decision committed = commit_copied(*folder_, kKey, kLargeRows, {{"loss", "0.5"}});
  MemoryStorage back;
  ASSERT_TRUE(storage::open_root(*back, true, nonce_of(5)).ok());
  const std::pair<storage::Storage*, storage::Storage*> hops[] = {
      {&*folder_, bucket_a_.get()}, {bucket_a_.get(), bucket_b_.get()}, {bucket_b_.get(), &*back}};
  for (const auto& [from, to] : hops) {
    bytes_done_ = 0;
    const CopyResult result = copy(*from, *to);
    ASSERT_EQ(result.outcome, Outcome::copied) << to->describe() << ": " << result.status.to_string();
    EXPECT_EQ(bytes_done_.load(), file_bytes_of(committed.manifest()));
    EXPECT_TRUE(is_sound(*to, kKey)) << to->describe();
    EXPECT_THAT(storage::list_marks(*from, storage::MarkKind::pin)->marks, IsEmpty());
    EXPECT_THAT(storage::list_marks(*to, storage::MarkKind::pin)->marks, IsEmpty());
    EXPECT_EQ(copy(*from, *to).outcome, Outcome::present);
  }
  EXPECT_THAT(files_of_copy(*bucket_b_),
              ElementsAre("manifest.shoal", "rank-00000.safetensors", "rank-00001.safetensors"));
  for (const storage::FileEntry& file : committed.manifest().files) {
    const std::string path = storage::attempt_folder(kKey) + "/" + file.name;
    EXPECT_EQ(folder_->read(path, 1 << 30).value(), back->read(path, 1 << 30).value());
  }
}

TEST_F(CopyInObjectStore, LosesNothingIfRequestsFailAndAnswersAreLost) {
  for (const char* seed : {"1", "2"}) {
    START_STORES({"--seed", seed, "--faults", "0.1"});
    MemoryStorage from;
    ASSERT_TRUE(storage::open_root(*from, true, kSourceId).ok());
    commit_copied(*from, kKey, kLargeRows);
    CopyResult result = copy(*from, *bucket_a_);
    ASSERT_EQ(result.outcome, Outcome::copied) << result.status.to_string();
    result = copy(*bucket_a_, *bucket_b_);
    ASSERT_EQ(result.outcome, Outcome::copied) << result.status.to_string();
    EXPECT_TRUE(is_sound(*bucket_b_, kKey));
  }
}

TEST_F(CopyInObjectStore, IsNoAttemptUntilItIsCompleteAndThenIsContinued) {
  START_STORES();
  const storage::Decision committed = commit_copied(*folder_, kKey, kRows);
  ASSERT_EQ(interrupted_copy(*folder_, *bucket_b_).outcome, Outcome::failed);
  const std::vector<std::string> left = files_of_copy(*bucket_b_);
  ASSERT_EQ(std::ranges::count(left, storage::kCopyMarkName), 1);
  ASSERT_EQ(std::ranges::count(left, "manifest.shoal"), 0);
  ASSERT_GT(
      std::ranges::count_if(left, [](const std::string& name) { return name.ends_with("safetensors"); }), 0);
  auto listed = storage::list_attempts(*bucket_b_);
  ASSERT_TRUE(listed.ok());
  EXPECT_THAT(listed->attempts, IsEmpty());

  // A job that begins meanwhile neither completes nor aborts it.
  ASSERT_TRUE(storage::claim_generation(*bucket_b_, "job", nonce_of(4)).ok());
  auto plan = storage::plan_retention(*bucket_b_, {}, 1, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->undecided, IsEmpty());
  EXPECT_THAT(plan->remains, IsEmpty());
  EXPECT_EQ(files_of_copy(*bucket_b_), left);
  EXPECT_TRUE(storage::list_newest_attempts(*bucket_b_)->attempts.empty());
}

TEST_F(CopyInObjectStore, KeepsWhatAnInterruptedCopyHasCompleted) {
  START_STORES();
  const storage::Decision committed = commit_copied(*folder_, kKey, kRows);
  ASSERT_EQ(interrupted_copy(*folder_, *bucket_b_).outcome, Outcome::failed);
  CheckpointCopier copier(*folder_, *bucket_b_, kTargetId);
  auto forecast = copier.forecast(committed);
  ASSERT_TRUE(forecast.ok()) << forecast.status().to_string();
  ASSERT_EQ(forecast->files_kept, 1u);
  bytes_done_ = 0;
  const CopyResult result = copy(*folder_, *bucket_b_);
  ASSERT_EQ(result.outcome, Outcome::copied) << result.status.to_string();
  EXPECT_EQ(result.work.files_kept, 1u);
  EXPECT_EQ(bytes_done_.load(), forecast->bytes - forecast->bytes_kept);
  EXPECT_TRUE(is_sound(*bucket_b_, kKey));
  EXPECT_EQ(files_of_copy(*bucket_b_).size(), 3u) << "mark and notes are gone";
}

TEST_F(CopyInObjectStore, ThatWasInterruptedCanBeRemovedUnlessOneRuns) {
  START_STORES();
  commit_copied(*folder_, kKey, kRows);
  ASSERT_EQ(interrupted_copy(*folder_, *bucket_b_).outcome, Outcome::failed);
  auto copies = storage::list_unfinished_copies(*bucket_b_);
  ASSERT_TRUE(copies.ok());
  ASSERT_EQ(copies->size(), 1u);
  EXPECT_EQ(copies->front().key, kKey);
  EXPECT_GE(copies->front().files, 1u);
  EXPECT_FALSE(copies->front().is_leased);

  const storage::Mark lease{
      .name = storage::pin_name(nonce_of(7)), .key = kKey, .is_lease = true, .nonce = nonce_of(7)};
  ASSERT_TRUE(storage::create_mark(*bucket_b_, storage::MarkKind::pin, lease).value());
  EXPECT_TRUE(storage::list_unfinished_copies(*bucket_b_)->front().is_leased);
  EXPECT_EQ(storage::remove_unfinished_copy(*bucket_b_, kKey).status().code(), Code::busy);
  ASSERT_TRUE(storage::remove_mark(*bucket_b_, storage::MarkKind::pin, lease.name).ok());

  EXPECT_TRUE(storage::remove_unfinished_copy(*bucket_b_, kKey).ok());
  EXPECT_THAT(files_of_copy(*bucket_b_), IsEmpty());
  EXPECT_EQ(storage::remove_unfinished_copy(*bucket_b_, kKey).status().code(), Code::not_found);
  EXPECT_EQ(copy(*folder_, *bucket_b_).outcome, Outcome::copied);
  EXPECT_EQ(storage::remove_unfinished_copy(*bucket_b_, kKey).status().code(), Code::busy)
      << "it is complete";
  EXPECT_TRUE(storage::list_unfinished_copies(*bucket_b_)->empty());
  EXPECT_TRUE(is_sound(*bucket_b_, kKey));
}

// The copy had read the mark before the removal changed it.
TEST_F(CopyInObjectStore, CanGoOnAfterARemovalThatGaveUp) {
  START_STORES();
  commit_copied(*folder_, kKey, kRows);
  ASSERT_EQ(interrupted_copy(*folder_, *bucket_b_).outcome, Outcome::failed);
  const std::string mark = storage::attempt_folder(kKey) + "/" + std::string(storage::kCopyMarkName);
  const Bytes before = bucket_b_->read(mark, 100).value();
  const storage::Mark lease{
      .name = storage::pin_name(nonce_of(7)), .key = kKey, .is_lease = true, .nonce = nonce_of(7)};
  size_t gave_up = 0;
  for (int call = 0; call < 20; ++call) {
    HookedStorage hooked(*bucket_b_, call, [&] {
      ASSERT_TRUE(storage::create_mark(*bucket_b_, storage::MarkKind::pin, lease).value());
    });
    const auto removed = storage::remove_unfinished_copy(hooked, kKey);
    if (!hooked.was_reached() || removed.ok()) break;
    ++gave_up;
    EXPECT_EQ(removed.status().code(), Code::busy) << call;
    EXPECT_EQ(bucket_b_->read(mark, 100).value(), before) << call;
    ASSERT_TRUE(storage::remove_mark(*bucket_b_, storage::MarkKind::pin, lease.name).ok());
  }
  EXPECT_GE(gave_up, 4u);
}

// Regression: a copy that continued and ended meanwhile was committed, and then lost its files.
TEST_F(CopyInObjectStore, LosesNoFileToTheRemovalOfWhatItContinues) {
  START_STORES();
  for (int call = 0;; ++call) {
    const AttemptKey key{kKey.generation, kKey.step + static_cast<uint64_t>(call), kKey.attempt};
    commit_copied(*folder_, key, 8);
    const auto copied = [&](CopyOptions options) {
      return CheckpointCopier(*folder_, *bucket_b_, kTargetId, std::move(options)).copy(key, &bytes_done_);
    };
    const auto has_no_file = [&] {
      const auto listed = bucket_b_->list(storage::attempt_folder(key));
      return !listed.ok() || std::ranges::none_of(*listed, [](const storage::ObjectInfo& object) {
        return object.name.ends_with(".safetensors");
      });
    };
    ASSERT_EQ(copied({.jobs = 1, .keeps_going = has_no_file}).outcome, Outcome::failed);
    ASSERT_FALSE(has_no_file());
    CopyResult result;
    HookedStorage hooked(*bucket_b_, call, [&] { result = copied({.jobs = 1}); });
    const auto removed = storage::remove_unfinished_copy(hooked, key);
    if (!hooked.was_reached()) break;
    const auto there = storage::read_decision(*bucket_b_, key);
    EXPECT_TRUE(!there.ok() || is_sound(*bucket_b_, key)) << call;
    EXPECT_EQ(there.ok(), result.outcome == Outcome::copied) << call << ": " << result.status.to_string();
    EXPECT_NE(removed.ok(), there.ok()) << call << ": " << removed.status().to_string();
    if (there.ok()) continue;
    EXPECT_EQ(result.status.code(), Code::busy) << call << ": " << result.status.to_string();
    EXPECT_FALSE(result.ends_all);
    EXPECT_EQ(copied({.jobs = 1}).outcome, Outcome::copied) << call;
  }
}

TEST_F(CopyInObjectStore, WritesADamagedFileOfAnInterruptedCopyAgain) {
  START_STORES();
  commit_copied(*folder_, kKey, kRows);
  ASSERT_EQ(interrupted_copy(*folder_, *bucket_b_).outcome, Outcome::failed);
  for (Rank rank : {0u, 1u}) {
    ASSERT_TRUE(bucket_b_->replace(storage::shard_path(kKey, rank, 0), as_view("no shard")).ok());
  }
  const CopyResult result = copy(*folder_, *bucket_b_);
  ASSERT_EQ(result.outcome, Outcome::copied) << result.status.to_string();
  EXPECT_EQ(result.work.files_kept, 0u);
  EXPECT_TRUE(is_sound(*bucket_b_, kKey));
}

TEST_F(CopyInObjectStore, SharesTheFilesWithAnotherCopyAtTheSameTime) {
  START_STORES();
  commit_copied(*folder_, kKey, kRows);
  std::vector<CopyResult> results(3);
  std::vector<std::thread> threads;
  for (CopyResult& result : results) {
    threads.emplace_back([&] {
      auto to = opened(kBucketB);
      std::atomic<uint64_t> bytes{0};
      result = CheckpointCopier(*folder_, *to, kTargetId, {.jobs = 1}).copy(kKey, &bytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const CopyResult& result : results) {
    EXPECT_TRUE(result.outcome == Outcome::copied || result.outcome == Outcome::present)
        << result.status.to_string();
  }
  EXPECT_TRUE(is_sound(*bucket_b_, kKey));
}

TEST_F(CopyInObjectStore, DoesNotMixWithAnUnfinishedCopyOfAnotherCheckpoint) {
  START_STORES();
  commit_copied(*folder_, kKey, kRows);
  ASSERT_EQ(interrupted_copy(*folder_, *bucket_b_).outcome, Outcome::failed);
  commit_copied(*bucket_a_, kKey, 8);
  const CopyResult result = copy(*bucket_a_, *bucket_b_);
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_THAT(result.status.message(), HasSubstr("unfinished copy of another checkpoint"));
  EXPECT_EQ(copy(*folder_, *bucket_b_).outcome, Outcome::copied);
  EXPECT_TRUE(is_sound(*bucket_b_, kKey));
}

TEST_F(CopyInObjectStore, IsNotCommittedIfTheAttemptWasAborted) {
  START_STORES();
  commit_copied(*folder_, kKey, 8);
  const storage::Decision tombstone{kKey, nonce_of(3), kTargetId, 1,
                                    storage::Tombstone{storage::Tombstone::Reason::aborted, "a test"}};
  ASSERT_TRUE(storage::publish_decision(*bucket_b_, tombstone).ok());
  const CopyResult result = copy(*folder_, *bucket_b_);
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_EQ(result.status.code(), Code::refused);
}

TEST_F(CopyInObjectStore, NamesADamagedBlockAndCommitsNothing) {
  START_STORES();
  commit_copied(*bucket_a_, kKey, kRows);
  const std::string path = storage::shard_path(kKey, 1, 0);
  Bytes shard = bucket_a_->read(path, 1 << 30).value();
  shard[shard.size() - 20] ^= std::byte{1};
  ASSERT_TRUE(bucket_a_->replace(path, shard).ok());
  const CopyResult result = copy(*bucket_a_, *bucket_b_);
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_FALSE(result.ends_all);
  EXPECT_EQ(result.status.code(), Code::corrupt);
  EXPECT_THAT(result.status.message(), HasSubstr(std::string(kBucketA) + "/" + path));
  EXPECT_EQ(std::ranges::count(files_of_copy(*bucket_b_), "manifest.shoal"), 0);
}

TEST_F(CopyInObjectStore, IsVerifiedByAboutAsManyRequestsAsForecast) {
  START_STORES();
  const storage::Decision committed = commit_copied(*bucket_a_, kKey, kLargeRows);
  const uint64_t forecast = storage::requests_to_verify(committed.manifest());
  for (unsigned jobs : {1u, 16u}) {
    storage::RateLimit no_limit(0);
    std::atomic<uint64_t> bytes{0};
    const uint64_t before = bucket_a_->requests();
    EXPECT_TRUE(storage::verify_checkpoint(*bucket_a_, committed, jobs, no_limit, &bytes).ok());
    const uint64_t requests = bucket_a_->requests() - before;
    EXPECT_LE(requests, forecast + 2) << jobs;
    EXPECT_GE(requests, forecast - 2) << jobs;
  }
}

}  // namespace
}  // namespace shoal::admin
