// Commands on roots in an object store: moto, which each case starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "storage/open_storage.h"
#include "tests/cli/process.h"
#include "tests/cli/root/two_steps_test.h"
#include "tests/storage/s3/object_store.h"

namespace shoal::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ObjectStorageCommands : public TwoStepsTest {
 protected:
  void start(std::vector<std::string> arguments = {}) {
    store_ = testing::ObjectStore::start(std::move(arguments));
    SHOAL_NEEDS_OBJECT_STORE(store_);
    store_->set_environment();
  }
  static ProcessEnd copy(const std::string& from, const std::string& to,
                         const std::vector<std::string>& options = {}) {
    std::vector<std::string> all{"copy", from, to};
    all.insert(all.end(), options.begin(), options.end());
    return run_shoal(all);
  }

  static constexpr const char* kBucketRoot = "s3://bucket/archive/run7";
  TemporaryFolder folder_;
  std::unique_ptr<testing::ObjectStore> store_;
};

#define START_STORE(...) \
  start(__VA_ARGS__);    \
  if (HasFatalFailure() || IsSkipped()) return

TEST_F(ObjectStorageCommands, CopyToABucketAndBackAndDiffFindsNoDifference) {
  START_STORE({"--seed", "5", "--faults", "0.03"});
  ProcessEnd end = copy(saved_root(), kBucketRoot, {"--create", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json report = json::parse(end.out);
  EXPECT_EQ(report["ok"], true);
  EXPECT_EQ(report["fits"], true);
  EXPECT_TRUE(report["free_bytes"].is_null());
  ASSERT_EQ(report["checkpoints"].size(), 2u);
  for (const json& one : report["checkpoints"]) EXPECT_EQ(one["state"], "copied");

  const json listed = json::parse(run_shoal({"ls", kBucketRoot, "--json"}).out);
  EXPECT_EQ(listed["attempts"].size(), 2u);
  const std::string back = folder_.path() + "/back";
  end = copy(kBucketRoot, back, {"--create"});
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(run_shoal({"verify", back, "--all"}).status, 0);
  for (const std::string& other : {std::string(kBucketRoot), back}) {
    end = run_shoal({"diff", saved_root(), other, "--step", "1"});
    EXPECT_EQ(end.status, 0) << end.out << end.err;
  }
  end = run_shoal({"diff", kBucketRoot, back, "--step", "1", "--step", "2"});
  EXPECT_EQ(end.status, 1) << end.out << end.err;
}

TEST_F(ObjectStorageCommands, CopySaysWhatItWouldDoAndDoesNotMakeARootByMistake) {
  START_STORE();
  ProcessEnd end = copy(saved_root(), kBucketRoot);
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, AllOf(HasSubstr(kBucketRoot), HasSubstr("--create makes it a root")));
  end = copy(saved_root(), kBucketRoot, {"--create", "--dry-run", "--json"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(json::parse(end.out)["checkpoints"][0]["state"], "to_copy");
  EXPECT_EQ(run_shoal({"ls", kBucketRoot}).status, 2) << "a dry run makes no root";
  end = copy(saved_root(), "s3://absent/x", {"--create"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("NoSuchBucket"));
  ASSERT_EQ(copy(saved_root(), kBucketRoot, {"--create", "--latest"}).status, 0);
  end = copy(kBucketRoot, std::string(kBucketRoot) + "/");
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("are the same root"));
  end = copy(saved_root(), kBucketRoot, {"--dry-run"});
  EXPECT_THAT(end.out, AllOf(HasSubstr("step 2 (g1a1): present"), HasSubstr("step 1 (g1a1): to copy")));
}

TEST_F(ObjectStorageCommands, VerifySaysWhatItWouldReadAndReadsInParallel) {
  START_STORE({"--seed", "3", "--faults", "0.03"});
  ASSERT_EQ(copy(saved_root(), kBucketRoot, {"--create"}).status, 0);
  ProcessEnd end = run_shoal({"verify", kBucketRoot, "--all", "--dry-run", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json forecast = json::parse(end.out);
  EXPECT_EQ(forecast["dry_run"], true);
  ASSERT_EQ(forecast["checkpoints"].size(), 2u);
  EXPECT_EQ(forecast["files"], 4);
  EXPECT_GE(forecast["requests"], 8);
  EXPECT_LE(forecast["requests"], 16);
  end = run_shoal({"verify", kBucketRoot, "--all", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json verified = json::parse(end.out);
  EXPECT_EQ(forecast["bytes"], verified["checkpoints"][0]["bytes"].get<uint64_t>() +
                                   verified["checkpoints"][1]["bytes"].get<uint64_t>());
  EXPECT_THAT(run_shoal({"verify", kBucketRoot, "--dry-run"}).out,
              AllOf(HasSubstr("step 2 (g1a1): to read: "), HasSubstr(" requests")));
  const json of_folder = json::parse(run_shoal({"verify", saved_root(), "--dry-run", "--json"}).out);
  EXPECT_TRUE(of_folder["requests"].is_null());
}

TEST_F(ObjectStorageCommands, VerifyNamesTheDamagedBlock) {
  START_STORE();
  ASSERT_EQ(copy(saved_root(), kBucketRoot, {"--create", "--latest"}).status, 0);
  auto opened = storage::open_storage(kBucketRoot, random_128());
  ASSERT_TRUE(opened.ok());
  const std::string path = "step-00000002/g1a1/rank-00001.safetensors";
  Bytes shard = opened->storage->read(path, uint64_t{1} << 30).value();
  shard.back() ^= std::byte{1};
  ASSERT_TRUE(opened->storage->replace(path, shard).ok());
  const ProcessEnd end = run_shoal({"verify", kBucketRoot, "--json"});
  EXPECT_EQ(end.status, 1);
  const json damage = json::parse(end.out)["checkpoints"][0];
  EXPECT_EQ(damage["damage_count"], 1);
  EXPECT_EQ(damage["damage"][0]["file"], "rank-00001.safetensors");
  EXPECT_EQ(damage["damage"][0]["file_bytes"][1], shard.size());
}

// The row of a check.
json check_of(const ProcessEnd& end, const std::string& name) {
  const json report = json::parse(end.out);
  for (const json& row : report["checks"]) {
    if (row["check"] == name) return row;
  }
  return {};
}

TEST_F(ObjectStorageCommands, DoctorTriesABucketAndLeavesNothing) {
  START_STORE();
  ProcessEnd end = run_shoal({"doctor", kBucketRoot, "--json"});
  for (const char* name : {"root", "endpoint", "creation", "rate", "server-clock"}) {
    EXPECT_EQ(check_of(end, name)["outcome"], "ok") << name << ": " << end.out;
  }
  EXPECT_THAT(check_of(end, "root")["measured"].get<std::string>(), HasSubstr("holds no run yet"));
  auto opened = storage::open_storage("s3://bucket", random_128());
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(opened->storage->list_tree("", storage::TreeDepth::objects, 0)->empty());
  ASSERT_EQ(copy(saved_root(), kBucketRoot, {"--create", "--latest"}).status, 0);
  end = run_shoal({"doctor", kBucketRoot, "--json"});
  EXPECT_THAT(check_of(end, "root")["measured"].get<std::string>(), HasSubstr("holds run"));
}

TEST_F(ObjectStorageCommands, DoctorSaysWhatToDoAboutABucket) {
  START_STORE({"--no-conditions"});
  ProcessEnd end = run_shoal({"doctor", kBucketRoot, "--json"});
  EXPECT_EQ(end.status, 1);
  EXPECT_EQ(check_of(end, "creation")["outcome"], "error");
  EXPECT_THAT(check_of(end, "creation")["remedy"].get<std::string>(), HasSubstr("conditional writes"));
  end = run_shoal({"doctor", "s3://absent/x", "--json"});
  EXPECT_THAT(check_of(end, "root")["remedy"].get<std::string>(), HasSubstr("create the bucket"));
  EXPECT_EQ(check_of(end, "creation")["outcome"], "skipped");
  end = run_shoal({"doctor", kBucketRoot, "--json"},
                  {.environment = {{"AWS_ACCESS_KEY_ID", ""}, {"AWS_EC2_METADATA_DISABLED", "true"}}});
  EXPECT_THAT(check_of(end, "root")["measured"].get<std::string>(), HasSubstr("no credentials"));
  store_.reset();
  end = run_shoal({"doctor", kBucketRoot, "--json"});
  EXPECT_THAT(check_of(end, "root")["remedy"].get<std::string>(), HasSubstr("AWS_ENDPOINT_URL"));
}

TEST_F(ObjectStorageCommands, AJobGoesOnFromWhatWasCopied) {
  START_STORE();
  ASSERT_EQ(copy(saved_root(), kBucketRoot, {"--create"}).status, 0);
  ProcessEnd end = run_trainers(kBucketRoot, 2, {"--load", "latest", "--save-steps", "3-3", "--wait"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json after = json::parse(run_shoal({"ls", kBucketRoot, "--json"}).out);
  ASSERT_EQ(after["attempts"].size(), 3u);
  EXPECT_EQ(after["attempts"][2]["generation"], 2) << "newer than what was copied";
  EXPECT_EQ(run_shoal({"gc", kBucketRoot, "--keep-last", "1"}).status, 0);
  EXPECT_EQ(copy(saved_root(), kBucketRoot, {"--step", "1"}).status, 1) << "it was deleted";
  end = copy(saved_root(), kBucketRoot);
  EXPECT_EQ(end.status, 0) << "an archive may have rules of its own: " << end.err;
  EXPECT_THAT(end.out, HasSubstr("step 1 (g1a1): not copied: "));
}

TEST_F(ObjectStorageCommands, GcShowsUnfinishedCopiesAndRemovesThemIfTold) {
  START_STORE();
  ASSERT_EQ(copy(saved_root(), kBucketRoot, {"--create", "--latest"}).status, 0);
  auto opened = storage::open_storage(kBucketRoot, random_128());
  ASSERT_TRUE(opened.ok());
  storage::Storage& storage = *opened->storage;
  const std::string folder = "step-00000001/g1a1";
  for (const char* name : {"copy.shoal", "rank-00000.safetensors"}) {
    ASSERT_TRUE(storage.create_exclusive(folder + "/" + name, as_view("12345678")).value());
  }
  for (const char* option : {"--dry-run", "--no-wait"}) {
    EXPECT_THAT(run_shoal({"gc", kBucketRoot, option}).out,
                AllOf(HasSubstr("step 1 (g1a1): an unfinished copy, 16 B in 1 file"),
                      HasSubstr("gc --unfinished-copies removes it")));
    const json report = json::parse(run_shoal({"gc", kBucketRoot, option, "--json"}).out);
    ASSERT_EQ(report["unfinished_copies"].size(), 1u);
    EXPECT_EQ(report["unfinished_copies"][0]["step"], 1);
    EXPECT_EQ(report["unfinished_copies"][0]["runs"], false);
  }
  EXPECT_EQ(storage.list(folder)->size(), 2u);
  const ProcessEnd end = run_shoal({"gc", kBucketRoot, "--unfinished-copies"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("step 1 (g1a1): 16 B freed (an unfinished copy)"));
  EXPECT_EQ(storage.list(folder).status().code(), Code::not_found);
  EXPECT_EQ(copy(saved_root(), kBucketRoot, {"--step", "1"}).status, 0) << "it may be copied again";
}

TEST_F(ObjectStorageCommands, AJobIsDrainedToABucketAndGoesOnFromItOnAnotherMachine) {
  START_STORE({"--seed", "7", "--faults", "0.02"});
  const auto train = [&](const std::string& root, const std::string& steps) {
    return run_process({SHOAL_PROGRAM, "launch",
                        "-n",          "2",
                        "--root",      folder_.path() + "/" + root,
                        "--create",    "--keep-last",
                        "1",           "--drain-to",
                        kBucketRoot,   "--drain-interval",
                        "0.1",         "--drain-keep-every",
                        "2",           "--",
                        SHOAL_TRAINER, "--load",
                        "resume",      "--save-steps",
                        steps,         "--wait"},
                       {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/runtime"}}});
  };
  ProcessEnd end = train("one", "1-2");
  ASSERT_EQ(end.status, 0) << end.err;
  end = train("two", "3-4");
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, AllOf(HasSubstr("step 2 (g1a1) of "), HasSubstr("copying it back")));
  const json listed = json::parse(run_shoal({"ls", kBucketRoot, "--json"}).out);
  std::vector<uint64_t> steps;
  for (const json& attempt : listed["attempts"]) {
    if (attempt["state"] == "committed") steps.push_back(attempt["step"]);
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(2, 4));
  EXPECT_EQ(run_shoal({"verify", kBucketRoot, "--all"}).status, 0);
  EXPECT_EQ(run_shoal({"diff", folder_.path() + "/two", kBucketRoot}).status, 0);
}

}  // namespace
}  // namespace shoal::cli
