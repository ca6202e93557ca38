// shoal copy of checkpoints that two ranks have saved, and of the golden root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "admin/root_reader.h"
#include "shoal/hash.h"
#include "tests/cli/process.h"
#include "tests/cli/root/two_steps_test.h"
#include "tests/golden_copy.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CopyTest : public TwoStepsTest {
 protected:
  std::string other() const { return folder_.path() + "/other"; }
  ProcessEnd copy(std::vector<std::string> options, const std::string& from = saved_root()) const {
    options.insert(options.begin(), {"copy", from, other()});
    return run_shoal(options);
  }

  TemporaryFolder folder_;
};

TEST_F(CopyTest, IsARootForEveryOtherCommandAndForAJob) {
  ProcessEnd end = copy({"--create", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json report = json::parse(end.out);
  ASSERT_EQ(report["checkpoints"].size(), 2u);
  EXPECT_EQ(report["checkpoints"][0]["step"], 2) << "the newest first";
  EXPECT_EQ(report["checkpoints"][0]["state"], "copied");
  EXPECT_EQ(report["checkpoints"][1]["state"], "copied");
  EXPECT_EQ(report["ok"], true);

  const json listed = json::parse(run_shoal({"ls", other(), "--json"}).out);
  const json source = json::parse(run_shoal({"ls", saved_root(), "--json"}).out);
  EXPECT_NE(listed["root_id"], source["root_id"]);
  ASSERT_EQ(listed["attempts"].size(), 2u);
  EXPECT_EQ(listed["attempts"][1]["latest"], true);
  EXPECT_EQ(listed["attempts"][1]["file_bytes"], source["attempts"][1]["file_bytes"]);
  EXPECT_EQ(run_shoal({"show", other()}).status, 0);
  EXPECT_EQ(run_shoal({"verify", other(), "--all"}).status, 0);
  EXPECT_EQ(run_shoal({"rebuild", other(), "--catalog", folder_.path() + "/catalog"}).status, 0);
  end = run_shoal({"diff", saved_root(), other(), "--step", "1"});
  EXPECT_EQ(end.status, 0) << end.out << end.err;

  end = run_trainers(other(), 3, {"--load", "latest", "--save-steps", "3-3", "--wait"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json after = json::parse(run_shoal({"ls", other(), "--json"}).out);
  ASSERT_EQ(after["attempts"].size(), 3u);
  EXPECT_EQ(after["attempts"][2]["generation"], 2) << "newer than what was copied";
  EXPECT_EQ(run_shoal({"gc", other(), "--keep-last", "1"}).status, 0);
  EXPECT_FALSE(fs::exists(other() + "/step-00000001"));
  EXPECT_TRUE(fs::exists(saved_root() + "/step-00000001"));
}

TEST_F(CopyTest, CopiesWhatIsNewAndPassesOverTheRest) {
  ASSERT_EQ(copy({"--create", "--step", "1"}).status, 0);
  ProcessEnd end = copy({"--latest"});
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, AllOf(HasSubstr("step 2 (g1a1): copied"), Not(HasSubstr("step 1"))));
  end = copy({});
  EXPECT_EQ(end.status, 0);
  EXPECT_THAT(end.out, AllOf(HasSubstr("step 2 (g1a1): present"), HasSubstr("step 1 (g1a1): present")));
}

TEST_F(CopyTest, SaysWhatItWouldDoAndChangesNothing) {
  ProcessEnd end = copy({"--create", "--dry-run", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json report = json::parse(end.out);
  EXPECT_EQ(report["checkpoints"].size(), 2u);
  EXPECT_EQ(report["checkpoints"][0]["state"], "to_copy");
  EXPECT_EQ(report["checkpoints"][0]["files"], 2);
  EXPECT_EQ(report["bytes_to_copy"], report["checkpoints"][0]["bytes"].get<uint64_t>() +
                                         report["checkpoints"][1]["bytes"].get<uint64_t>());
  EXPECT_EQ(report["fits"], true);
  EXPECT_FALSE(fs::exists(other()));
  fs::create_directory(other());
  EXPECT_EQ(copy({"--dry-run"}).status, 0);
  EXPECT_TRUE(fs::is_empty(other()));
}

TEST_F(CopyTest, RejectsWhatItCannotCopyTo) {
  EXPECT_THAT(copy({}).err, HasSubstr("does not exist: --create creates it"));
  EXPECT_EQ(copy({}).status, 2);
  ProcessEnd end = run_shoal({"copy", saved_root(), saved_root()});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("are the same folder"));
  fs::create_directory(other());
  std::ofstream(other() + "/notes.txt") << "mine\n";
  EXPECT_EQ(copy({}).status, 2);
  EXPECT_THAT(copy({}).err, HasSubstr("holds notes.txt and no run"));
  EXPECT_THAT(copy({"--step", "9"}).err, HasSubstr("no attempt at step 9"));
  EXPECT_EQ(copy({"--step", "9"}).status, 2);
  EXPECT_THAT(copy({"--step", "1", "--latest"}).err, HasSubstr("--latest"));
}

TEST_F(CopyTest, NamesADamagedBlockAndCopiesTheOtherCheckpoints) {
  const std::string damaged = folder_.path() + "/damaged";
  fs::copy(saved_root(), damaged, fs::copy_options::recursive);
  flip_bit_at(damaged + "/step-00000002/g1a1/rank-00001.safetensors", -1, std::ios::end);
  ProcessEnd end = copy({"--create"}, damaged);
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, AllOf(HasSubstr("step 2 (g1a1) is not copied"), HasSubstr("rank-00001.safetensors"),
                             HasSubstr("of the file, differs from its digest")));
  EXPECT_THAT(end.out, HasSubstr("step 1 (g1a1): copied"));
  const json listed = json::parse(run_shoal({"ls", other(), "--json"}).out);
  ASSERT_EQ(listed["attempts"].size(), 1u);
  EXPECT_EQ(listed["attempts"][0]["step"], 1);
  flip_bit_at(damaged + "/step-00000002/g1a1/rank-00001.safetensors", -1, std::ios::end);
  end = copy({}, damaged);
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("step 2 (g1a1): copied"));
}

// Wherever the signal finds it.
TEST_F(CopyTest, ThatIsKilledIsContinued) {
  fs::create_directory(other());
  {
    Process killed({SHOAL_PROGRAM, "copy", saved_root(), other(), "--jobs", "1"});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!fs::exists(other() + "/step-00000002") && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    killed.send_signal(SIGKILL);
    killed.wait();
  }
  const json between = json::parse(run_shoal({"ls", other(), "--json"}).out);
  for (const json& attempt : between["attempts"]) EXPECT_EQ(attempt["state"], "committed");
  ASSERT_EQ(copy({}).status, 0);
  EXPECT_EQ(run_shoal({"verify", other(), "--all"}).status, 0);
  for (const auto& entry : fs::recursive_directory_iterator(other())) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".partial")));
  }
}

TEST_F(CopyTest, LeavesNothingBehindThatGcDoesNotRemove) {
  const std::string damaged = folder_.path() + "/damaged";
  fs::copy(saved_root(), damaged, fs::copy_options::recursive);
  flip_bit_at(damaged + "/step-00000002/g1a1/rank-00001.safetensors", -1, std::ios::end);
  ASSERT_EQ(copy({"--create"}, damaged).status, 1);
  ASSERT_TRUE(fs::exists(other() + "/step-00000002"));
  {
    auto root = admin::open_root_for_reading(other());
    ASSERT_TRUE(root.ok());
    const Nonce id = random_128();  // the pin of a copy that was killed
    const storage::Mark pin{storage::pin_name(id), {1, 2, 1}, true, 0, "shoal copy", 1, id};
    ASSERT_TRUE(storage::create_mark(*root->storage, storage::MarkKind::pin, pin).ok());
  }
  EXPECT_EQ(run_shoal({"gc", other(), "--no-wait"}).status, 0);
  EXPECT_TRUE(fs::exists(other() + "/step-00000002")) << "the copy may still run";
  ProcessEnd end = run_shoal({"gc", other(), "--lease-ttl-ms", "10000"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_FALSE(fs::exists(other() + "/step-00000002"));
  EXPECT_TRUE(fs::exists(other() + "/step-00000001"));
}

TEST_F(CopyTest, WithoutTheRightToWriteToTheRootGoesOnWithAWarning) {
  GoldenCopy golden;
  const std::string to = golden.beside("other");
  fs::create_directory(to);
  fs::permissions(to, fs::perms::all);
  fs::permissions(golden.beside(""), fs::perms::owner_all | fs::perms::others_exec | fs::perms::group_exec);
  ProcessEnd end = run_shoal({"copy", golden.root(), to, "--step", "4"}, {.unprivileged = true});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("is copied without a pin"));
  const std::string closed = golden.beside("closed");
  fs::create_directory(closed);
  fs::permissions(closed, fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec);
  end = run_shoal({"copy", golden.root(), closed}, {.unprivileged = true});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("not writable"));
}

}  // namespace
}  // namespace shoal::cli
