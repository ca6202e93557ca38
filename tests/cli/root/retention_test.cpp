// shoal rm, gc, pin, tag and the marks of verify: on copies of the golden root, and beside a live job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<uint64_t> committed_steps(const std::string& root) {
  std::vector<uint64_t> steps;
  const json listed = json::parse(run_shoal({"ls", root, "--json"}).out);
  for (const json& attempt : listed["attempts"]) {
    if (attempt["state"] == "committed") steps.push_back(attempt["step"]);
  }
  return steps;
}

// The golden root: checkpoints at steps 1 and 4, one aborted, one deleted, one undecided. Its generation 2
// began with step 1, which would keep that for ever: here it did not.
class RetentionCommands : public ::testing::Test {
 protected:
  RetentionCommands() {
    fs::copy(SHOAL_GOLDEN_ROOT, root(), fs::copy_options::recursive);
    fs::remove(root() + "/generations/2.load-0");
  }
  std::string root() const { return folder_.path() + "/root"; }
  ProcessEnd shoal(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin() + 1, root());
    return run_shoal(std::move(arguments));
  }
  static void expect_refusal(const ProcessEnd& end, const std::string& cause) {
    EXPECT_EQ(end.status, 2);
    EXPECT_THAT(end.err, HasSubstr(cause));
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(RetentionCommands, GcWithoutARuleSaysHowToDeleteCheckpoints) {
  const std::string hint =
      "no rule is given, so all 2 checkpoints are kept; to delete all but the newest N: "
      "shoal gc " +
      root() + " --keep-last N";
  EXPECT_THAT(shoal({"gc", "--dry-run"}).out, HasSubstr(hint));
  EXPECT_THAT(shoal({"gc", "--no-wait"}).out, HasSubstr(hint));
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
}

TEST_F(RetentionCommands, GcDeletesWhatNoRuleKeeps) {
  ProcessEnd dry = shoal({"gc", "--keep-last", "1", "--dry-run"});
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("step 1 (g1a1): would be deleted: no rule keeps it: keep-last 1"));
  EXPECT_THAT(dry.out, HasSubstr("step 4 (g2a1): kept: the newest"));
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
  const json planned = json::parse(shoal({"gc", "--keep-last", "1", "--dry-run", "--json"}).out);
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
  ProcessEnd end = shoal({"gc", "--keep-last", "1", "--no-wait", "--json"});
  EXPECT_EQ(end.status, 0) << end.err;
  json out = json::parse(end.out);
  EXPECT_EQ(out["deleted"].size(), 2u) << "and the one whose deletion was begun";
  EXPECT_GT(out["freed_bytes"], 0);
  EXPECT_EQ(planned["dry_run"], true);
  EXPECT_EQ(out["dry_run"], false);
  for (const char* same : {"deleted", "kept", "swept", "held", "completed", "failed", "freed_bytes"}) {
    EXPECT_EQ(planned[same], out[same]) << same;
  }
  EXPECT_THAT(committed_steps(root()), ElementsAre(4));
  EXPECT_FALSE(fs::exists(root() + "/step-00000001"));
  EXPECT_EQ(shoal({"verify"}).status, 0);
  end = shoal({"gc", "--keep-last", "1", "--no-wait"});
  EXPECT_EQ(end.status, 0);
  EXPECT_THAT(end.out, HasSubstr("0 checkpoints deleted"));
}

TEST_F(RetentionCommands, GcWithoutARuleDeletesNoCheckpoint) {
  EXPECT_EQ(shoal({"gc", "--no-wait"}).status, 0);
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
}

TEST_F(RetentionCommands, GcKeepsWhatIsPinnedTaggedOrLastVerified) {
  ASSERT_EQ(shoal({"verify", "--step", "1"}).status, 0);
  EXPECT_THAT(shoal({"gc", "--keep-last", "1", "--dry-run"}).out, HasSubstr("the newest that was verified"));
  ASSERT_EQ(shoal({"verify", "--step", "4"}).status, 0);
  EXPECT_THAT(shoal({"gc", "--keep-last", "1", "--dry-run"}).out,
              HasSubstr("step 1 (g1a1): would be deleted"));

  ASSERT_EQ(shoal({"tag", "best", "--step", "1", "--note", "paper"}).status, 0);
  EXPECT_THAT(shoal({"gc", "--keep-last", "1", "--dry-run"}).out, HasSubstr("tagged best"));
  EXPECT_THAT(shoal({"ls"}).out, HasSubstr("best"));
  EXPECT_THAT(shoal({"show", "--step", "best"}).out, HasSubstr("step 1 (g1a1)"));
  expect_refusal(shoal({"show", "--step", "worst"}), "no tag 'worst'");
  expect_refusal(shoal({"rm", "--step", "best"}), "tagged best");
  EXPECT_THAT(shoal({"tag"}).out, HasSubstr("paper"));
  const ProcessEnd untagged = shoal({"tag", "best", "--remove", "--json"});
  ASSERT_EQ(untagged.status, 0);
  EXPECT_EQ(json::parse(untagged.out)["removed"], "best");
  EXPECT_EQ(json::parse(untagged.out)["step"], 1);
  expect_refusal(shoal({"tag", "best", "--remove"}), "no tag 'best'");

  ProcessEnd pinned = shoal({"pin", "--step", "1", "--json"});
  ASSERT_EQ(pinned.status, 0) << pinned.err;
  std::string pin = json::parse(pinned.out)["name"];
  EXPECT_THAT(shoal({"pin"}).out, HasSubstr(pin));
  EXPECT_EQ(shoal({"gc", "--keep-last", "1", "--no-wait"}).status, 0);
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
  EXPECT_EQ(shoal({"rm", "--step", "1", "--force"}).status, 2);
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
  ProcessEnd dry = shoal({"rm", "--step", "1", "--force", "--dry-run"});
  EXPECT_EQ(dry.status, 2) << "it says what would be done, and no more";
  EXPECT_THAT(dry.out, HasSubstr("step 1 (g1a1): kept: pinned: " + pin));
  const ProcessEnd unpinned = shoal({"pin", "--remove", pin, "--json"});
  ASSERT_EQ(unpinned.status, 0);
  EXPECT_EQ(json::parse(unpinned.out)["removed"], pin);
  EXPECT_EQ(shoal({"rm", "--step", "1"}).status, 0);
  EXPECT_THAT(committed_steps(root()), ElementsAre(4));
}

// Regression: the help named variables that gc ignores.
TEST_F(RetentionCommands, HelpOfGcNamesOnlyVariablesThatItReads) {
  const std::string help = shoal({"gc", "--help"}).out;
  EXPECT_THAT(help, HasSubstr("--keep-last"));
  EXPECT_THAT(help, ::testing::Not(HasSubstr("SHOAL_KEEP")));
  EXPECT_THAT(help, HasSubstr("SHOAL_LEASE_TTL_MS"));
}

// Regression: gc took 60 s, whatever the nodes were set to.
TEST_F(RetentionCommands, GcWaitsForLeasesAsLongAsTheSettingsOfTheRootSay) {
  std::ofstream(root() + "/shoal.toml") << "lease-ttl-ms = \"soon\"\n";
  expect_refusal(shoal({"gc"}), "lease-ttl-ms");
}

TEST_F(RetentionCommands, RmRefusesWhatIsAlwaysKept) {
  expect_refusal(shoal({"rm", "--step", "4"}), "must be kept: the newest");
  expect_refusal(shoal({"rm", "--step", "2"}), "no such checkpoint");
  expect_refusal(shoal({"rm", "--step", "77"}), "no attempt at step 77");
  expect_refusal(shoal({"rm"}), "--step");
  EXPECT_THAT(shoal({"rm", "--step", "1", "--dry-run"}).out, HasSubstr("would be deleted"));
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
  ASSERT_EQ(shoal({"verify", "--step", "4"}).status, 0);
  EXPECT_EQ(shoal({"rm", "--step", "4", "--force"}).status, 2) << "no other checkpoint is verified";
  ASSERT_EQ(shoal({"verify", "--step", "1"}).status, 0);
  EXPECT_EQ(shoal({"rm", "--step", "4", "--force"}).status, 0);
  EXPECT_THAT(committed_steps(root()), ElementsAre(1));
}

// Regression: an empty --attempt, as of a variable that is not set, deleted every checkpoint at the step.
TEST_F(RetentionCommands, AnEmptyAttemptIsRefusedAndDeletesNothing) {
  expect_refusal(shoal({"rm", "--step", "1", "--attempt", ""}), "--attempt: it is empty");
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
  for (const char* command : {"show", "verify", "diff"}) {
    expect_refusal(shoal({command, "--step", "1", "--attempt", ""}), "--attempt: it is empty");
  }
  expect_refusal(shoal({"copy", ""}), "OTHER: it is empty");
  expect_refusal(shoal({"drain", "", "--once"}), "OTHER: it is empty");
}

TEST_F(RetentionCommands, ATagMovesOnlyOnRequest) {
  ASSERT_EQ(shoal({"tag", "best", "--step", "1"}).status, 0);
  ASSERT_EQ(shoal({"tag", "best", "--step", "1"}).status, 0) << "the same again";
  expect_refusal(shoal({"tag", "best", "--step", "4"}), "tag 'best' already names step 1 (g1a1)");
  ASSERT_EQ(shoal({"tag", "best", "--step", "4", "--move"}).status, 0);
  EXPECT_THAT(shoal({"show", "--step", "best"}).out, HasSubstr("step 4 (g2a1)"));
  expect_refusal(shoal({"tag", "1st", "--step", "4"}), "'1st' is not a valid tag");
  expect_refusal(shoal({"tag", "../x", "--step", "4"}), "is not a valid tag");
  expect_refusal(shoal({"tag", "other", "--step", "2"}), "no such checkpoint");
  expect_refusal(shoal({"pin", "--remove", "../ROOT_ID"}), "is not a valid name");
}

TEST_F(RetentionCommands, AnEmptyOrMissingNameIsRefusedInsteadOfListing) {
  expect_refusal(shoal({"tag", "", "--step", "1"}), "''");
  expect_refusal(shoal({"tag", "", "--remove"}), "''");
  expect_refusal(shoal({"tag", "--step", "1"}), "the tag's name is missing");
  expect_refusal(shoal({"tag", "--remove"}), "the tag's name is missing");
  expect_refusal(shoal({"pin", "--remove", ""}), "''");
}

TEST_F(RetentionCommands, WhatTheLiveGenerationBeganWithStays) {
  fs::remove_all(root());
  fs::copy(SHOAL_GOLDEN_ROOT, root(), fs::copy_options::recursive);
  expect_refusal(shoal({"rm", "--step", "1"}), "must be kept: generation 2 began with it");
  EXPECT_EQ(shoal({"gc", "--keep-last", "1", "--no-wait"}).status, 0);
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
}

TEST_F(RetentionCommands, APinIsNoLeaseAndDoesNotEnd) {
  ASSERT_EQ(shoal({"pin", "--step", "1"}).status, 0);
  EXPECT_EQ(shoal({"gc", "--keep-last", "1", "--lease-ttl-ms", "10000"}).status, 0);
  EXPECT_THAT(committed_steps(root()), ElementsAre(1, 4));
}

TEST_F(RetentionCommands, DurationsAndCountsThatAreNoneAreRefused) {
  for (const char* text : {"0", "-1", "1x", "d", "1.5h", "99999999999999999999", "200000w"}) {
    expect_refusal(shoal({"gc", std::string("--keep-for=") + text}), "--keep-for");
  }
  for (const char* flag : {"--keep-last=0", "--keep-last=-1", "--keep-every=0", "--keep-last=4294967296"}) {
    expect_refusal(shoal({"gc", flag}), std::string(flag).substr(0, 6));
  }
}

TEST_F(RetentionCommands, GcAbortsAndSweepsWhatNobodyFinishes) {
  // The golden root's undecided attempt belongs to its highest generation; a later one makes it an orphan.
  // With a byte less nothing proves it complete.
  const std::string shard = root() + "/step-00000005/g2a2/rank-00000.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  size_t undecided = 0;
  const json listed = json::parse(shoal({"ls", "--json"}).out);
  for (const json& attempt : listed["attempts"]) {
    undecided += attempt["state"] == "undecided";
  }
  ASSERT_EQ(undecided, 1u);
  std::string runtime = fs::path(root()).parent_path().string() + "/runtime";
  ProcessEnd launched = run_process({SHOAL_PROGRAM, "launch", "--root", root(), "-n", "1",
                                     "--abandoned-after-ms", "3600000", "--", "/bin/true"},
                                    {.environment = {{"SHOAL_RUNTIME_DIR", runtime}}});
  ASSERT_EQ(launched.status, 0) << launched.err;
  EXPECT_THAT(shoal({"gc", "--dry-run"}).out, HasSubstr("undecided, would be aborted"));
  EXPECT_THAT(shoal({"gc", "--no-wait"}).out, HasSubstr("undecided, not changed"));
  ProcessEnd end = shoal({"gc", "--abandoned-after-ms", "50"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(shoal({"ls"}).out, Not(HasSubstr("undecided  "))) << "as a state";
  EXPECT_THAT(shoal({"ls"}).out, HasSubstr("its generation left it undecided"));
}

class RetainedJob : public ::testing::Test {
 protected:
  std::string root() const { return folder_.path() + "/root"; }
  ProcessEnd train(std::vector<std::string> flags, std::vector<std::string> trainer) const {
    std::vector<std::string> command = {SHOAL_PROGRAM, "launch", "--root", root(), "--create", "-n", "2"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"--", SHOAL_TRAINER});
    command.insert(command.end(), trainer.begin(), trainer.end());
    return run_process(command, {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/runtime"}}});
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(RetainedJob, TheCoordinatorDeletesAfterEachCommit) {
  ProcessEnd end = train({"--keep-last", "2", "--keep-every", "4"}, {"--save-steps", "1-9"});
  ASSERT_EQ(end.status, 0) << end.err;
  // The last pass may still have been under way when the node ended; the next one finishes.
  ASSERT_EQ(run_shoal({"gc", root(), "--keep-last", "2", "--keep-every", "4", "--no-wait"}).status, 0);
  EXPECT_THAT(committed_steps(root()), ElementsAre(4, 8, 9));
  EXPECT_THAT(end.err, HasSubstr("is deleted (no rule keeps it"));
  end = train({}, {"--load", "latest"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_TRUE(fs::is_empty(root() + "/pins")) << "a load that ended holds nothing";
}

// All ranks have published their manifests, and no node has merged them: every node was killed before that.
class ACompleteSet : public RetainedJob {
 protected:
  void SetUp() override {
    ASSERT_EQ(train({}, {"--mode", "rank-local", "--save-steps", "1"}).status, 0);
    fs::remove(decision());
  }
  std::string decision() const { return root() + "/step-00000001/g1a1/manifest.shoal"; }
};

TEST_F(ACompleteSet, IsACheckpointToEveryCommand) {
  EXPECT_THAT(run_shoal({"ls", root()}).out, HasSubstr("committed *"));
  EXPECT_THAT(run_shoal({"show", root()}).out, HasSubstr("mode rank-local"));
  ProcessEnd verified = run_shoal({"verify", root()});
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_EQ(json::parse(run_shoal({"status", root(), "--json"}).out)["root"]["latest"]["step"], 1);
  EXPECT_EQ(run_shoal({"rm", root(), "--step", "1", "--dry-run"}).status, 2);
  EXPECT_FALSE(fs::exists(decision())) << "these only read";
  EXPECT_THAT(run_shoal({"rm", root(), "--step", "1"}).err, HasSubstr("must be kept: the newest"));
  fs::remove(decision());
  EXPECT_EQ(run_shoal({"tag", root(), "best", "--step", "1"}).status, 0);
  EXPECT_TRUE(fs::exists(decision()));
}

TEST_F(ACompleteSet, IsGoneOnFrom) {
  ProcessEnd end = train({"--resume"}, {"--load", "latest"});
  EXPECT_EQ(end.status, 0) << end.err;
}

// Regression: gc put a tombstone over it, and removed its files.
TEST_F(ACompleteSet, IsNotCollectedAsAbandoned) {
  ASSERT_EQ(train({}, {"--save-steps", "2"}).status, 0);
  fs::remove(decision());
  EXPECT_THAT(run_shoal({"gc", root(), "--dry-run"}).out, HasSubstr("undecided, would be completed"));
  ProcessEnd end = run_shoal({"gc", root(), "--abandoned-after-ms", "20"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("step 1 (g1a1): completed"));
  EXPECT_EQ(run_shoal({"verify", root(), "--step", "1"}).status, 0);
  EXPECT_TRUE(fs::exists(decision()));
}

}  // namespace
}  // namespace shoal::cli
