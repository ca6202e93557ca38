// S3Storage against a store that checks every signature and condition.
#include "storage/s3/s3_storage.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "storage/retention/retention.h"
#include "storage/root/run_root.h"
#include "storage/s3/s3_credentials.h"
#include "storage/shards/shard_file.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/s3/object_store.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using shoal::testing::ObjectStore;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

S3Retries without_pauses() {
  S3Retries retries;
  retries.tries_max = 30;
  retries.pause = [](int64_t) {};
  return retries;
}

class OnObjectStore : public ::testing::Test {
 protected:
  void start(std::vector<std::string> arguments = {}) {
    storage_.reset();
    store_.reset();  // it may have to give its bucket back
    store_ = ObjectStore::start(std::move(arguments));
    SHOAL_NEEDS_OBJECT_STORE(store_);
    storage_ = opened("s3://bucket/runs/7");
    ASSERT_NE(storage_, nullptr);
  }
  std::unique_ptr<S3Storage> opened(const std::string& root) {
    auto settings = find_s3_settings(root, store_->variables());
    SHOAL_CHECK(settings.ok());
    auto storage = S3Storage::open(std::move(*settings), without_pauses());
    EXPECT_OK(storage.status());
    return storage.ok() ? std::move(*storage) : nullptr;
  }
  std::vector<std::string> names(const std::string& folder) {
    auto listed = storage_->list(folder);
    EXPECT_OK(listed.status());
    std::vector<std::string> out;
    for (const ObjectInfo& object : *listed) out.push_back(object.name + (object.is_folder ? "/" : ""));
    return out;
  }
  // Writes an object of `bytes` as a shard is written: a header that is patched last, then kept bytes.
  Result<bool> write(Storage& storage, const std::string& path, const Bytes& header, const Bytes& data) {
    SHOAL_ASSIGN_OR_RETURN(auto file, storage.create(path, nonce_of(1), header.size() + data.size()));
    SHOAL_RETURN_IF_ERROR(file->append(Bytes(header.size())));
    for (size_t at = 0; at < data.size(); at += size_t{1} << 20) {
      SHOAL_RETURN_IF_ERROR(
          file->append_kept(ByteView(data).subspan(at, std::min(data.size() - at, size_t{1} << 20))));
    }
    SHOAL_RETURN_IF_ERROR(file->patch(0, header));
    return file->publish();
  }

  std::unique_ptr<ObjectStore> store_;
  std::unique_ptr<S3Storage> storage_;
};

#define START_STORE(...) \
  start(__VA_ARGS__);    \
  if (HasFatalFailure() || IsSkipped()) return

TEST_F(OnObjectStore, CreatesOnceAndThenKeepsTheFirst) {
  START_STORE();
  EXPECT_TRUE(storage_->create_exclusive("a/b/c", as_view("one")).value());
  EXPECT_FALSE(storage_->create_exclusive("a/b/c", as_view("two")).value());
  EXPECT_EQ(as_text(storage_->read("a/b/c", 100).value()), "one");
  EXPECT_TRUE(storage_->create_exclusive("a/empty", {}).value());
  EXPECT_EQ(storage_->read("a/empty", 100)->size(), 0u);
  EXPECT_THAT(names("a"), ElementsAre("b/", "empty"));
  EXPECT_THAT(names(""), ElementsAre("a/"));
}

TEST_F(OnObjectStore, MayHaveTheBucketInTheHostName) {
  START_STORE();
  auto settings = find_s3_settings("s3://bucket/x", store_->variables());
  ASSERT_OK(settings.status());
  settings->is_path_style = false;
  const std::string endpoint = store_->endpoint();
  settings->endpoint = "http://localhost" + endpoint.substr(endpoint.rfind(':'));
  auto storage = S3Storage::open(std::move(*settings), without_pauses());
  ASSERT_OK(storage.status());
  EXPECT_OK(probe_storage(**storage, random_128()));
}

TEST_F(OnObjectStore, KnowsWhichFoldersExist) {
  START_STORE();
  EXPECT_THAT(names(""), ElementsAre());
  EXPECT_EQ(storage_->list("a").status().code(), Code::not_found);
  EXPECT_EQ(storage_->create_in_folder("a/b", as_view("x")).status().code(), Code::not_found);
  EXPECT_TRUE(storage_->create_exclusive("a/c", as_view("x")).value());
  EXPECT_TRUE(storage_->create_in_folder("a/b", as_view("y")).value());
  EXPECT_EQ(storage_->remove_folder("a").code(), Code::busy);
  EXPECT_OK(storage_->remove("a/b"));
  EXPECT_OK(storage_->remove("a/c"));
  EXPECT_OK(storage_->remove("a/c"));
  EXPECT_OK(storage_->remove_folder("a"));
  EXPECT_EQ(storage_->list("a").status().code(), Code::not_found);
  EXPECT_EQ(storage_->open("a/b").status().code(), Code::not_found);
  EXPECT_EQ(storage_->move_folder("a", "b").code(), Code::refused);
}

// Regression: a folder that somebody made in the console of a store was an object without a name.
TEST_F(OnObjectStore, DoesNotTakeTheObjectOfAFolderForAnEntryOfIt) {
  START_STORE();
  S3Client client(*find_s3_settings("s3://bucket/runs/7", store_->variables()));
  for (const char* key : {"runs/7/", "runs/7/a/", "runs/7/step-00000005/", "runs/7/step-00000005/g1a1/"}) {
    auto made = client.send({.method = "PUT", .key = key});
    ASSERT_OK(made.status());
    ASSERT_TRUE(made->ok()) << key;
  }
  EXPECT_EQ(storage_->list("a").status().code(), Code::not_found);
  EXPECT_TRUE(storage_->list_tree("", TreeDepth::objects, 0)->empty());
  EXPECT_TRUE(list_attempt_names(*storage_)->keys.empty());
  EXPECT_TRUE(storage_->create_exclusive("a/b", as_view("x")).value());
  EXPECT_THAT(names("a"), ElementsAre("b"));
}

TEST_F(OnObjectStore, ListsMoreThanOnePage) {
  START_STORE();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 1100; i += 4) {
        SHOAL_CHECK(storage_->create_exclusive("many/" + std::to_string(10'000 + i), {}).value());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(names("many").size(), 1100u);
}

TEST_F(OnObjectStore, ReplacesAndReadsNoMoreThanTheBound) {
  START_STORE();
  EXPECT_OK(storage_->replace("m/x", as_view("first")));
  EXPECT_OK(storage_->replace("m/x", as_view("second")));
  EXPECT_EQ(as_text(storage_->read("m/x", 6).value()), "second");
  const Status status = storage_->read("m/x", 5).status();
  EXPECT_EQ(status.code(), Code::too_large);
  EXPECT_THAT(status.message(), HasSubstr("s3://bucket/runs/7/m/x"));
}

TEST_F(OnObjectStore, WritesLargeObjectsInPartsAndReadsThemByRanges) {
  START_STORE();
  const Bytes header = random_bytes(4096, 1), data = random_bytes((size_t{40} << 20) + 12345, 2);
  EXPECT_TRUE(write(*storage_, "step/shard", header, data).value());
  EXPECT_FALSE(write(*storage_, "step/shard", header, Bytes(data.size())).value());
  auto file = storage_->open("step/shard");
  ASSERT_OK(file.status());
  ASSERT_EQ((*file)->size(), header.size() + data.size());
  Bytes read((*file)->size());
  ASSERT_OK((*file)->read_at(0, read));
  EXPECT_TRUE(std::equal(header.begin(), header.end(), read.begin()));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), read.begin() + header.size()));
  Bytes middle(1000);
  ASSERT_OK((*file)->read_at(65'000, middle));
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), read.begin() + 65'000));
  EXPECT_EQ((*file)->read_at(read.size() - 1, middle).code(), Code::corrupt);
  ASSERT_OK(storage_->replace("step/shard", data));
  EXPECT_EQ((*file)->read_at(100'000, middle).code(), Code::busy) << "it was replaced";
}

TEST_F(OnObjectStore, ReadsRightBytesInAnyOrderBySeveralThreads) {
  START_STORE();
  const Bytes data = random_bytes((size_t{20} << 20) + 77, 5);
  ASSERT_OK(storage_->replace("x", data));
  auto file = storage_->open("x");
  ASSERT_OK(file.status());
  auto read = [&](uint64_t begin, uint64_t end, uint64_t step) {
    Bytes piece(step);
    for (uint64_t at = begin; at < end; at += step) {
      const MutableByteView out = MutableByteView(piece).first(std::min(step, end - at));
      SHOAL_CHECK((*file)->read_at(at, out).ok());
      SHOAL_CHECK(std::equal(out.begin(), out.end(), data.begin() + static_cast<ptrdiff_t>(at)));
    }
  };
  std::thread other([&] { read(size_t{10} << 20, data.size(), 700'001); });
  read(0, size_t{10} << 20, 300'007);
  other.join();
  for (uint64_t at : {uint64_t{5} << 20, uint64_t{1}, uint64_t{19} << 20}) read(at, at + 999, 333);
  read(0, data.size(), data.size());
}

TEST_F(OnObjectStore, PatchesAHeaderThatFillsMoreThanOnePart) {
  START_STORE();
  const Bytes header = random_bytes((size_t{20} << 20) + 7, 1), data = random_bytes(size_t{20} << 20, 2);
  EXPECT_TRUE(write(*storage_, "step/shard", header, data).value());
  auto read = storage_->read("step/shard", uint64_t{1} << 30);
  ASSERT_OK(read.status());
  EXPECT_TRUE(std::equal(header.begin(), header.end(), read->begin()));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), read->begin() + header.size()));
}

TEST_F(OnObjectStore, ShowsNothingOfAnObjectThatIsNotPublished) {
  START_STORE();
  const Bytes data = random_bytes(size_t{33} << 20, 3);
  {
    auto file = storage_->create("step/shard", nonce_of(1), data.size());
    ASSERT_OK(file.status());
    ASSERT_OK((*file)->append_kept(data));
  }
  EXPECT_EQ(storage_->list("step").status().code(), Code::not_found);
}

TEST_F(OnObjectStore, ShowsAnUnfinishedUploadAsAPartialObjectThatCanBeRemoved) {
  START_STORE();
  const Bytes data = random_bytes(size_t{33} << 20, 3);
  auto file = storage_->create("step/g1a1/shard", nonce_of(1), data.size());
  ASSERT_OK(file.status());
  ASSERT_OK((*file)->append_kept(data));
  const std::vector<std::string> listed = names("step/g1a1");
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_TRUE(is_partial(listed[0])) << listed[0];
  EXPECT_TRUE(listed[0].starts_with("shard.")) << listed[0];
  ASSERT_OK(storage_->remove("step/g1a1/" + listed[0]));
  EXPECT_EQ(storage_->list("step/g1a1").status().code(), Code::not_found);
  EXPECT_FALSE((*file)->publish().ok()) << "its parts are gone";
  EXPECT_EQ(storage_->open("step/g1a1/shard").status().code(), Code::not_found);
}

// Regression: an attempt of which only an upload existed was in no listing, so that a load chose an older
// checkpoint, and the attempt was committed after it. And a folder in which somebody uploads did not change.
TEST_F(OnObjectStore, ShowsAnUploadFromItsBeginningAndThatItGoesOn) {
  START_STORE();
  const Bytes data = random_bytes(size_t{33} << 20, 3);
  auto file = storage_->create("step-00000100/g1a1/shard", nonce_of(1), data.size());
  ASSERT_OK(file.status());
  ASSERT_OK((*file)->append_kept(ByteView(data).first(size_t{32} << 20)));
  EXPECT_EQ(names(""), std::vector<std::string>{"step-00000100/"});
  EXPECT_EQ(names("step-00000100"), std::vector<std::string>{"g1a1/"});
  const std::string note = names("step-00000100/g1a1").at(0);
  EXPECT_EQ(note, partial_name("shard", nonce_of(1)));
  ASSERT_OK((*file)->append_kept(ByteView(data).subspan(size_t{32} << 20)));
  auto published = (*file)->publish();
  ASSERT_OK(published.status());
  EXPECT_TRUE(*published);
  EXPECT_EQ(names("step-00000100/g1a1"), std::vector<std::string>{"shard"}) << "the note is gone";
}

TEST_F(OnObjectStore, LetsExactlyOneOfTwoCommittersWinEachRace) {
  START_STORE();
  constexpr int kRaces = 1000;
  std::atomic<int> wins[2] = {0, 0};
  std::vector<std::array<bool, 2>> won(kRaces);
  std::atomic<int> arrived{0};
  auto commit = [&](int self) {
    auto storage = opened("s3://bucket/runs/7");
    for (int race = 0; race < kRaces; ++race) {
      for (++arrived; arrived < 2 * (race + 1);) std::this_thread::yield();
      auto created =
          storage->create_exclusive("races/" + std::to_string(race), as_view(self == 0 ? "a" : "b"));
      SHOAL_CHECK(created.ok());
      won[race][self] = *created;
      wins[self] += *created;
    }
  };
  std::thread other(commit, 1);
  commit(0);
  other.join();
  for (int race = 0; race < kRaces; ++race) {
    ASSERT_NE(won[race][0], won[race][1]) << race;
    const char* expected = won[race][0] ? "a" : "b";
    ASSERT_EQ(as_text(storage_->read("races/" + std::to_string(race), 1).value()), expected);
  }
  EXPECT_EQ(wins[0] + wins[1], kRaces);
}

TEST_F(OnObjectStore, PassesTheProbeOfARoot) {
  START_STORE();
  EXPECT_OK(probe_storage(*storage_, random_128()));
  auto left = storage_->list_tree("", TreeDepth::objects, 0);
  ASSERT_OK(left.status());
  EXPECT_TRUE(left->empty()) << "the probe leaves nothing";
}

TEST_F(OnObjectStore, RejectsAStoreThatIgnoresTheCondition) {
  START_STORE({"--no-conditions"});
  const Status status = probe_storage(*storage_, random_128());
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("s3://bucket/runs/7"), HasSubstr("If-None-Match of a PUT")));
}

TEST_F(OnObjectStore, RejectsAStoreThatIgnoresTheConditionOfUploads) {
  START_STORE({"--no-upload-conditions"});
  const Status status = probe_storage(*storage_, random_128());
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_THAT(status.message(), HasSubstr("CompleteMultipartUpload"));
  EXPECT_THAT(names(""), ElementsAre()) << "nodes that start again and again would fill the bucket";
}

TEST_F(OnObjectStore, ADeletionLeavesATombstoneInTheWayOfALateManifest) {
  START_STORE();
  const AttemptKey key{1, 10, 1}, newer{1, 20, 1};
  for (const AttemptKey& each : {key, newer}) {
    ASSERT_OK(
        storage_->create_exclusive(attempt_folder(each) + "/rank-00000.safetensors", as_view("x")).status());
    ASSERT_OK(publish_decision_in_folder(*storage_, sample_manifest(each)).status());
  }
  auto deleted = delete_checkpoint(*storage_, {key, "a test", sample_manifest(key).root_id, nonce_of(9), 1});
  ASSERT_OK(deleted.status());
  EXPECT_EQ(deleted->outcome, DeletionResult::Outcome::gone);
  EXPECT_EQ(deleted->files, 1u);
  EXPECT_THAT(names(attempt_folder(key)), ElementsAre("deleted.shoal", std::string(kDecisionName)));
  // A coordinator that paused before it published the manifest.
  auto late = publish_decision_in_folder(*storage_, sample_manifest(key));
  ASSERT_OK(late.status());
  EXPECT_FALSE(late->committed());
  KnownAttempts known;
  for (int i = 0; i < 2; ++i) {
    auto plan = plan_retention(*storage_, {}, 1, &known);
    ASSERT_OK(plan.status());
    EXPECT_TRUE(plan->finish.empty()) << "nothing is left to delete";
    EXPECT_EQ(plan->keep.size(), 1u);
  }
}

// A root of which retention has deleted many checkpoints.
TEST_F(OnObjectStore, ListsDeletedCheckpointsByFewRequests) {
  START_STORE();
  constexpr uint64_t kDeleted = 60;
  for (uint64_t step = 1; step <= kDeleted + 2; ++step) {
    const AttemptKey key{1, step, 1};
    ASSERT_OK(
        storage_->create_exclusive(attempt_folder(key) + "/rank-00000.safetensors", as_view("x")).status());
    ASSERT_OK(publish_decision_in_folder(*storage_, sample_manifest(key)).status());
    if (step > kDeleted) continue;
    auto deleted =
        delete_checkpoint(*storage_, {key, "a test", sample_manifest(key).root_id, nonce_of(9), 1});
    ASSERT_OK(deleted.status());
    ASSERT_EQ(deleted->outcome, DeletionResult::Outcome::gone);
  }
  const auto requests_of = [&](const std::function<void()>& work) {
    const uint64_t before = storage_->requests();
    work();
    return storage_->requests() - before;
  };
  EXPECT_EQ(requests_of([&] { EXPECT_EQ(list_attempt_names(*storage_)->keys.size(), kDeleted + 2); }), 1u);
  EXPECT_EQ(requests_of([&] { EXPECT_EQ(list_newest_attempts(*storage_)->attempts.size(), 1u); }), 3u);
  for (const auto& list : {list_attempts, list_attempt_states}) {
    const uint64_t requests = requests_of([&] {
      auto listed = list(*storage_);
      ASSERT_OK(listed.status());
      ASSERT_EQ(listed->attempts.size(), kDeleted + 2);
      EXPECT_EQ(listed->attempts.front().state, AttemptInfo::State::deleted);
      EXPECT_EQ(listed->attempts.front().leftover_files, 0u);
      EXPECT_EQ(listed->attempts.back().state, AttemptInfo::State::committed);
      EXPECT_TRUE(listed->damaged.empty());
    });
    EXPECT_EQ(requests, 3u) << "one listing, and the two decisions that are no tombstones";
  }
  EXPECT_LE(requests_of([&] { EXPECT_EQ(plan_retention(*storage_, {}, 1, nullptr)->keep.size(), 2u); }), 12u);
}

TEST_F(OnObjectStore, ListsTheNamesOfLargeAttemptsWithoutTheirFiles) {
  START_STORE();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 1'050; i += 4) {
        SHOAL_CHECK(storage_->create_exclusive(shard_path({1, 5, 1}, i, 0), {}).value());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const AttemptKey& key : {AttemptKey{1, 5, 10}, AttemptKey{2, 5, 1}, AttemptKey{1, 6, 1}}) {
    ASSERT_OK(storage_->create_exclusive(shard_path(key, 0, 0), {}).status());
  }
  ASSERT_OK(
      storage_->create_exclusive("step-00000006/g1a2." + nonce_of(1).to_hex() + ".partial/x", {}).status());
  ASSERT_OK(storage_->create_exclusive("step-00000007", {}).status());
  const uint64_t before = storage_->requests();
  auto names = list_attempt_names(*storage_);
  ASSERT_OK(names.status());
  EXPECT_EQ(storage_->requests() - before, 2u);
  EXPECT_THAT(names->keys, ElementsAre(AttemptKey{1, 5, 1}, AttemptKey{1, 6, 1}, AttemptKey{1, 5, 10},
                                       AttemptKey{2, 5, 1}));
  EXPECT_EQ(names->remains.size(), 1u);
  EXPECT_EQ(names->unreadable.size(), 1u);
  auto listed = list_attempts(*storage_);
  ASSERT_OK(listed.status());
  ASSERT_EQ(listed->attempts.size(), 4u);
  EXPECT_EQ(listed->attempts[0].leftover_files, 1'050u);
  EXPECT_EQ(listed->attempts[0].fingerprint, inspect_attempt(*storage_, {1, 5, 1})->fingerprint);
}

TEST_F(OnObjectStore, SendsAChecksumOfEachUploadThatTheStoreChecks) {
  START_STORE({"--wants-checksums"});
  EXPECT_TRUE(storage_->create_exclusive("a/b", as_view("one")).value());
  EXPECT_TRUE(storage_->create_exclusive("a/empty", {}).value());
  EXPECT_OK(storage_->replace("a/b", as_view("two")));
  EXPECT_OK(probe_storage(*storage_, random_128()));
  const Bytes header = random_bytes(4096, 1), data = random_bytes(size_t{40} << 20, 2);
  auto written = write(*storage_, "step/shard", header, data);
  ASSERT_OK(written.status());
  EXPECT_TRUE(*written);
  auto settings = find_s3_settings("s3://bucket/x", [&](const char* name) {
    const bool is_it = std::string_view(name) == "AWS_REQUEST_CHECKSUM_CALCULATION";
    return is_it ? std::optional<std::string>("WHEN_REQUIRED") : store_->variables()(name);
  });
  auto without = S3Storage::open(std::move(*settings), without_pauses());
  ASSERT_OK(without.status());
  EXPECT_FALSE((*without)->create_exclusive("a", as_view("x")).ok());
}

TEST_F(OnObjectStore, BeginsAnUploadAgainThatMetAnotherConditionalWrite) {
  START_STORE({"--conflicts", "3"});
  const Bytes header = random_bytes(4096, 1), data = random_bytes((size_t{36} << 20) + 1, 2);
  auto written = write(*storage_, "step/shard", header, data);
  ASSERT_OK(written.status());
  EXPECT_TRUE(*written);
  auto read = storage_->read("step/shard", uint64_t{1} << 30);
  ASSERT_OK(read.status());
  EXPECT_TRUE(std::equal(header.begin(), header.end(), read->begin()));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), read->begin() + header.size()));
  EXPECT_THAT(names("step"), ElementsAre("shard"));
}

TEST_F(OnObjectStore, SaysThatAnUploadMustBeWrittenAgainWhoseBytesItNoLongerHas) {
  START_STORE({"--conflicts", "1"});
  const Bytes data = random_bytes(size_t{40} << 20, 2);
  auto file = storage_->create("step/shard", nonce_of(1), data.size());
  ASSERT_OK(file.status());
  ASSERT_OK((*file)->append(data));
  for (size_t at = 0; at < data.size(); at += size_t{1} << 20) {
    ASSERT_OK((*file)->append(ByteView(data).subspan(at, size_t{1} << 20)));
  }
  const Status status = (*file)->publish().status();
  EXPECT_EQ(status.code(), Code::busy) << status.to_string();
  file->reset();
  EXPECT_EQ(storage_->list("step").status().code(), Code::not_found) << "nothing is left of it";
}

// Regression: what `aws s3 sync` had copied of a folder was never removed.
TEST_F(OnObjectStore, RemovesAPartialFileThatIsNoNoteOfAnUpload) {
  START_STORE();
  const std::string prefix = "step-00000001/g1a1/";
  for (const size_t bytes : {size_t{0}, size_t{100}, kUploadNoteBytesMax + 1}) {
    const std::string path = prefix + partial_name("rank-00000.safetensors", nonce_of(bytes % 251));
    S3Client client(*find_s3_settings("s3://bucket/x", store_->variables()));
    const Bytes data = random_bytes(bytes, 1);
    ASSERT_TRUE(client.send({.method = "PUT", .key = "runs/7/" + path, .body = {data}})->ok());
    EXPECT_OK(storage_->remove(path)) << bytes;
    EXPECT_EQ(storage_->open(path).status().code(), Code::not_found) << bytes;
  }
}

// Credentials of a service, each for so many seconds from now; 0 for a service that does not answer.
class CredentialsOfAService : public OnObjectStore {
 protected:
  std::unique_ptr<S3Storage> opened_with(std::vector<int64_t> seconds) {
    auto settings = find_s3_settings("s3://bucket/x", store_->variables());
    settings->credentials = [this, seconds = std::move(seconds)]() -> Result<S3Credentials> {
      const int64_t lasts_s = seconds.at(asked_++);
      if (lasts_s == 0) return Status(Code::unavailable, "no answer");
      const int64_t now_s = std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
      return S3Credentials{store_->fact("access_key"), store_->fact("secret_key"), "", now_s + lasts_s};
    };
    return std::move(*S3Storage::open(std::move(*settings), without_pauses()));
  }
  size_t asked_ = 0;
};

TEST_F(CredentialsOfAService, AreRenewedBeforeTheyEnd) {
  START_STORE();
  auto storage = opened_with({kRenewBeforeS - 1, kRenewBeforeS + 3600});
  EXPECT_EQ(asked_, 1u);
  for (const char* path : {"a", "b", "c"}) EXPECT_OK(storage->replace(path, as_view("x")));
  EXPECT_EQ(asked_, 2u);
}

TEST_F(CredentialsOfAService, ServeUntilTheirEndIfARenewalFails) {
  START_STORE();
  auto storage = opened_with({kRenewBeforeS - 1, 0});
  for (const char* path : {"a", "b", "c"}) EXPECT_OK(storage->replace(path, as_view("x")));
  EXPECT_EQ(asked_, 2u) << "a service that fails is not asked for each request";
}

TEST_F(CredentialsOfAService, ThatHaveEndedAreNotUsed) {
  START_STORE();
  auto storage = opened_with({-1, 0, kRenewBeforeS + 3600});
  EXPECT_EQ(storage->replace("a", as_view("x")).message(), "no answer");
  EXPECT_OK(storage->replace("a", as_view("x")));
}

// Of a store that takes each key for so many requests only.
class CredentialsThatExpire : public OnObjectStore {
 protected:
  std::unique_ptr<S3Storage> opened_with(std::function<Result<S3Credentials>()> credentials) {
    auto settings = find_s3_settings("s3://bucket/x", store_->variables());
    settings->credentials = std::move(credentials);
    S3Retries retries;
    retries.pause = [this](int64_t) { ++pauses_; };
    auto storage = S3Storage::open(std::move(*settings), retries);
    EXPECT_OK(storage.status());
    return std::move(*storage);
  }
  std::atomic<int> asked_ = 0, pauses_ = 0;
};

TEST_F(CredentialsThatExpire, AreRenewedAtWhateverRequestOfASave) {
  const Bytes header = random_bytes(4096, 1), data = random_bytes((size_t{36} << 20) + 1, 2);
  for (int lasts = 1; lasts <= 3; ++lasts) {
    START_STORE({"--keys-last", std::to_string(lasts)});
    auto storage = opened_with([&] { return store_->further_key(asked_++); });
    ASSERT_NE(storage, nullptr);
    const auto expect_created = [&](const Result<bool>& created, bool expected) {
      EXPECT_OK(created.status()) << "keys that last for " << lasts << " requests";
      EXPECT_TRUE(!created.ok() || *created == expected) << lasts;
    };
    expect_created(write(*storage, "step/shard", header, data), true);
    expect_created(write(*storage, "step/shard", header, header), false);
    for (int i = 0; i < 4; ++i) {
      const std::string path = "records/" + std::to_string(i);
      expect_created(storage->create_exclusive(path, as_view(path)), true);
      expect_created(storage->create_exclusive(path, as_view("another")), false);
      EXPECT_OK(storage->list("records").status());
      EXPECT_OK(storage->remove("records/absent"));
    }
    auto read = storage->read("step/shard", uint64_t{1} << 30);
    ASSERT_OK(read.status());
    EXPECT_TRUE(std::equal(data.begin(), data.end(), read->begin() + header.size()));
  }
}

// Regression: each of the requests in flight asked the service, which limits how often it may be asked.
TEST_F(CredentialsThatExpire, AreRenewedOnceForAllRequestsInFlight) {
  START_STORE({"--keys-last", "4"});
  auto storage = opened_with([&] { return store_->further_key(asked_++); });
  std::vector<std::thread> writers;
  std::atomic<int> arrived{0}, written{0};
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&, i] {
      for (++arrived; arrived < 8;) std::this_thread::yield();
      written += storage->replace("records/" + std::to_string(i), as_view("x")).ok();
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(written, 8);
  EXPECT_LE(asked_, 3) << "9 requests by keys that last for 4";
}

// Regression: a save failed if the other program renewed the file a moment after their end.
TEST_F(CredentialsThatExpire, AreWaitedForIfAnotherProgramRenewsThemLater) {
  START_STORE({"--keys-last", "3"});
  std::atomic<bool> is_gone = false;
  auto storage = opened_with([&]() -> Result<S3Credentials> {
    ++asked_;
    if (is_gone && pauses_ == 1) return Status(Code::refused, "the file is empty");
    return store_->further_key(pauses_ < 2 ? 0 : 1);
  });
  for (const char* path : {"a", "b"}) EXPECT_OK(storage->replace(path, as_view("x")));
  is_gone = true;
  EXPECT_OK(storage->replace("c", as_view("x")));
  EXPECT_EQ(pauses_, 2);
}

TEST_F(CredentialsThatExpire, AreNotWaitedForIfTheyNeverServed) {
  START_STORE({"--keys-last", "1"});
  auto used = opened_with([&] { return store_->further_key(0); });
  auto settings = find_s3_settings("s3://bucket/x", store_->variables());
  settings->credentials = [&] { return store_->further_key(0); };
  S3Retries retries;
  retries.pause = [this](int64_t) { ++pauses_; };
  const Status status = S3Storage::open(std::move(*settings), retries).status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("ExpiredToken"), HasSubstr("renew the credentials")));
  EXPECT_EQ(pauses_, 0);
}

TEST_F(OnObjectStore, LetsExactlyOneOfTwoUploadsTakeAName) {
  START_STORE();
  constexpr int kRaces = 20;
  std::vector<std::array<bool, 2>> won(kRaces);
  std::atomic<int> arrived{0};
  const Bytes header(8), data[2] = {random_bytes(size_t{17} << 20, 1), random_bytes(size_t{17} << 20, 2)};
  auto commit = [&](int self) {
    auto storage = opened("s3://bucket/runs/7");
    for (int race = 0; race < kRaces; ++race) {
      for (++arrived; arrived < 2 * (race + 1);) std::this_thread::yield();
      auto created = write(*storage, "races/" + std::to_string(race), header, data[self]);
      SHOAL_CHECK(created.ok());
      won[race][self] = *created;
    }
  };
  std::thread other(commit, 1);
  commit(0);
  other.join();
  for (int race = 0; race < kRaces; ++race) {
    ASSERT_NE(won[race][0], won[race][1]) << race;
    auto read = storage_->read("races/" + std::to_string(race), uint64_t{1} << 30);
    ASSERT_OK(read.status());
    const Bytes& expected = data[won[race][0] ? 0 : 1];
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), read->begin() + header.size())) << race;
  }
}

TEST_F(OnObjectStore, NamesWhatIsWrongWithBucketAndKeys) {
  START_STORE();
  auto absent = find_s3_settings("s3://no-such-bucket/x", store_->variables());
  const Status status = S3Storage::open(std::move(*absent), without_pauses()).status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("NoSuchBucket"), HasSubstr("request ")));
  auto wrong = find_s3_settings("s3://bucket/x", store_->variables());
  wrong->credentials = [&] { return S3Credentials{store_->fact("access_key"), "wrong", ""}; };
  const Status refused = S3Storage::open(std::move(*wrong), without_pauses()).status();
  EXPECT_EQ(refused.code(), Code::refused);
  EXPECT_THAT(refused.message(), HasSubstr("SignatureDoesNotMatch"));
}

TEST_F(OnObjectStore, LosesNothingIfRequestsFailAndAnswersAreLost) {
  for (const char* seed : {"1", "2", "3"}) {
    START_STORE({"--seed", seed, "--faults", "0.2"});
    EXPECT_OK(probe_storage(*storage_, random_128()));
    for (int i = 0; i < 100; ++i) {
      const std::string path = "records/" + std::to_string(i), text = "record " + path;
      auto first = storage_->create_exclusive(path, as_view(text));
      ASSERT_OK(first.status());
      EXPECT_TRUE(*first) << "a lost answer looks like a lost race: " << path;
      auto second = storage_->create_exclusive(path, as_view("another"));
      ASSERT_OK(second.status());
      EXPECT_FALSE(*second) << path;
      EXPECT_EQ(as_text(storage_->read(path, 100).value()), text);
    }
    const Bytes header = random_bytes(4096, 1), data = random_bytes((size_t{36} << 20) + 1, 2);
    EXPECT_TRUE(write(*storage_, "step/shard", header, data).value());
    EXPECT_FALSE(write(*storage_, "step/shard", header, header).value());
    auto read = storage_->read("step/shard", uint64_t{1} << 30);
    ASSERT_OK(read.status());
    EXPECT_TRUE(std::equal(data.begin(), data.end(), read->begin() + header.size()));
    EXPECT_EQ(names("records").size(), 100u);
  }
}

TEST_F(OnObjectStore, ShowsTheWatchARequestThatTakesLong) {
  START_STORE();
  std::atomic<int64_t> now{0};
  CallWatch watch([&] { return now.load(); }, [](const std::string&) {});
  S3Retries retries = without_pauses();
  std::vector<SlowCall> slow;
  retries.pause = [&](int64_t) {  // between two tries
    now += kSlowCallNs + 1;
    slow = watch.slow(1);
  };
  auto storage =
      S3Storage::open(*find_s3_settings("s3://bucket/runs/7", store_->variables()), retries, &watch);
  ASSERT_OK(storage.status());
  store_.reset();
  EXPECT_FALSE((*storage)->create_exclusive("a", as_view("x")).ok());
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].what, "PUT of s3://bucket/runs/7/a");
  EXPECT_TRUE(watch.slow(1).empty());
}

TEST_F(OnObjectStore, EndsItsTriesIfTheStoreIsGone) {
  START_STORE();
  store_.reset();
  const Status status = storage_->create_exclusive("a", as_view("x")).status();
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("s3://bucket/runs/7/a"), HasSubstr("30 tries")));
}

}  // namespace
}  // namespace shoal::storage
