// Commands on roots in an object store: moto, which each case starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

TEST_F(ObjectStorageCommands, AJobGoesOnFromWhatWasCopied) {
  START_STORE();
  ASSERT_EQ(copy(saved_root(), kBucketRoot, {"--create"}).status, 0);
  ProcessEnd end = run_trainers(kBucketRoot, 2, {"--load", "latest", "--save-steps", "3-3", "--wait"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json after = json::parse(run_shoal({"ls", kBucketRoot, "--json"}).out);
  ASSERT_EQ(after["attempts"].size(), 3u);
  EXPECT_EQ(after["attempts"][2]["generation"], 2) << "newer than what was copied";
  EXPECT_EQ(run_shoal({"gc", kBucketRoot, "--keep-last", "1"}).status, 0);
  end = copy(saved_root(), kBucketRoot, {"--step", "1"});
  EXPECT_EQ(end.status, 1) << "it was deleted";
}

}  // namespace
}  // namespace shoal::cli
