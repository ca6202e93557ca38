// shoal drain: one process that follows a root while jobs save there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/process.h"
#include "tests/cli/root/two_steps_test.h"
#include "tests/golden_copy.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class DrainCommandTest : public TwoStepsTest {
 protected:
  void SetUp() override { fs::copy(saved_root(), fast(), fs::copy_options::recursive); }
  std::string fast() const { return folder_.path() + "/fast"; }
  std::string other() const { return folder_.path() + "/other"; }
  std::vector<std::string> command(const std::vector<std::string>& options) const {
    std::vector<std::string> all{SHOAL_PROGRAM, "drain", fast(), other(), "--interval", "0.05", "--create"};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }
  std::vector<uint64_t> steps_of(const std::string& root) const {
    std::vector<uint64_t> steps;
    const json listed = json::parse(run_shoal({"ls", root, "--json"}).out);
    for (const json& attempt : listed["attempts"]) {
      if (attempt["state"] == "committed") steps.push_back(attempt["step"]);
    }
    return steps;
  }
  void fail_target() const {  // no pin can be made
    fs::remove_all(other() + "/pins");
    std::ofstream(other() + "/pins") << "a file\n";
  }
  void mend_target() const { fs::remove(other() + "/pins"); }

  TemporaryFolder folder_;
};

TEST_F(DrainCommandTest, OnceCopiesWhatTheRulesOfTheOtherRootKeep) {
  ProcessEnd end = run_process(command({"--once", "--json", "--keep-last", "1"}));
  ASSERT_EQ(end.status, 0) << end.err;
  json report = json::parse(end.out);
  EXPECT_EQ(report["ok"], true);
  EXPECT_EQ(report["pending"], 0);
  EXPECT_EQ(report["passed_over"], 1);
  ASSERT_EQ(report["checkpoints"].size(), 1u);
  EXPECT_EQ(report["checkpoints"][0]["step"], 2);
  EXPECT_EQ(report["checkpoints"][0]["state"], "copied");
  end = run_process(command({"--once"}));
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, AllOf(HasSubstr("step 2 (g1a1): present"), HasSubstr("step 1 (g1a1): copied")));
  EXPECT_EQ(run_shoal({"verify", other(), "--all"}).status, 0);
  EXPECT_THAT(steps_of(fast()), ElementsAre(1, 2)) << "nothing is deleted there";
}

TEST_F(DrainCommandTest, FollowsAJobUntilASignal) {
  Process drain(command({"--keep-last", "1"}));
  ASSERT_TRUE(drain.wait_for_output("step 2 (g1a1): copied"));
  ProcessEnd end = run_trainers(fast(), 2, {"--load", "latest", "--save-steps", "3-3", "--wait"});
  ASSERT_EQ(end.status, 0) << end.err;
  ASSERT_TRUE(drain.wait_for_output("step 2 (g1a1): deleted from " + other())) << drain.errors();
  drain.send_signal(SIGTERM);
  end = drain.wait();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, AllOf(HasSubstr("1 checkpoint passed over"), HasSubstr("step 3 (g2a1): copied")));
  EXPECT_THAT(steps_of(other()), ElementsAre(3));
  EXPECT_THAT(steps_of(fast()), ElementsAre(1, 2, 3));
}

TEST_F(DrainCommandTest, ThatIsKilledIsContinued) {
  {
    Process killed(command({"--jobs", "1"}));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!fs::exists(other() + "/step-00000002") && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    killed.send_signal(SIGKILL);
    killed.wait();
  }
  const ProcessEnd end = run_process(command({"--once"}));
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(run_shoal({"verify", other(), "--all"}).status, 0);
  EXPECT_THAT(steps_of(other()), ElementsAre(1, 2));
}

TEST_F(DrainCommandTest, WaitsForATargetThatFailsAndNamesWhatWasDeletedMeanwhile) {
  ASSERT_EQ(run_shoal({"copy", fast(), other(), "--create", "--latest"}).status, 0);
  fail_target();
  Process drain(command({}));
  ASSERT_TRUE(drain.wait_for_errors("step 1 (g1a1) is not copied: "));
  ASSERT_EQ(run_shoal({"rm", fast(), "--step", "1"}).status, 0);
  ASSERT_TRUE(
      drain.wait_for_errors("warning: step 1 (g1a1) was deleted from " + fast() + " before it was copied"));
  mend_target();
  ProcessEnd end = run_trainers(fast(), 2, {"--load", "latest", "--save-steps", "3-3", "--wait"});
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_TRUE(drain.wait_for_output("step 3 (g2a1): copied"));
  drain.send_signal(SIGTERM);
  EXPECT_EQ(drain.wait().status, 0);
  EXPECT_THAT(steps_of(other()), ElementsAre(2, 3));
}

TEST_F(DrainCommandTest, EndsWithStatusOneIfSomethingIsNotCopied) {
  flip_bit_at(fast() + "/step-00000002/g1a1/rank-00001.safetensors", -1, std::ios::end);
  ProcessEnd end = run_process(command({"--once", "--json"}));
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, AllOf(HasSubstr("step 2 (g1a1) is not copied: corrupt: "),
                             HasSubstr("1 checkpoint of " + fast() + " not copied to " + other())));
  const json report = json::parse(end.out);
  EXPECT_EQ(report["ok"], false);
  EXPECT_EQ(report["pending"], 1);
  EXPECT_EQ(report["checkpoints"][0]["state"], "failed");
  EXPECT_EQ(report["checkpoints"][1]["state"], "copied");
}

TEST_F(DrainCommandTest, RejectsWhatItCannotCopyTo) {
  ProcessEnd end = run_shoal({"drain", fast(), other()});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("does not exist: --create creates it"));
  end = run_shoal({"drain", fast(), fast()});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("are the same folder"));
}

// As before a job under torchrun.
TEST_F(DrainCommandTest, CopiesTheNewestCheckpointBackIfTheFastRootLacksIt) {
  ASSERT_EQ(run_shoal({"copy", saved_root(), other(), "--create"}).status, 0);
  const std::vector<std::string> copy_back{"drain", fast(), other(), "--copy-back"};
  ProcessEnd end = run_shoal(copy_back);
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("nothing to copy back"));
  fs::remove_all(fast());
  EXPECT_EQ(run_shoal(copy_back).status, 2);
  std::vector<std::string> with_create = copy_back;
  with_create.insert(with_create.end(), {"--create", "--json"});
  end = run_shoal(with_create);
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(json::parse(end.out)["copied_back"]["step"], 2);
  EXPECT_EQ(run_shoal({"diff", fast(), other()}).status, 0);
}

TEST_F(DrainCommandTest, CanFollowARootInWhichNothingWasSavedYet) {
  fs::remove_all(fast());
  EXPECT_EQ(run_process(command({"--once"})).status, 2);
  ASSERT_EQ(run_process(command({"--copy-back"})).status, 0);
  Process drain(command({}));
  const ProcessEnd end = run_trainers(fast(), 2, {"--mode", "rank-local", "--save-steps", "1-1", "--wait"});
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_TRUE(drain.wait_for_output("step 1 (g1a1): copied"));
  drain.send_signal(SIGTERM);
  EXPECT_EQ(drain.wait().status, 0);
  EXPECT_EQ(run_shoal({"verify", other(), "--all"}).status, 0);
  EXPECT_THAT(run_process(command({"--once"})).out, HasSubstr("step 1 (g1a1): present"));
}

// A job that saves to the folder `fast` and is drained to `other`.
class LaunchDrainTest : public DrainCommandTest {
 protected:
  void SetUp() override {}
  ProcessOptions options() const {
    return {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/runtime"}}};
  }
  std::vector<std::string> launch(const std::vector<std::string>& flags,
                                  const std::vector<std::string>& trainer,
                                  const std::string& root = "fast") const {
    std::vector<std::string> all{
        SHOAL_PROGRAM, "launch",           "-n",  "2", "--root", folder_.path() + "/" + root, "--drain-to",
        other(),       "--drain-interval", "0.05"};
    all.insert(all.end(), flags.begin(), flags.end());
    all.push_back("--");
    all.insert(all.end(), trainer.begin(), trainer.end());
    return all;
  }
  // Of a job that is told nothing of --create but the first time.
  ProcessEnd train(const std::vector<std::string>& flags, const std::string& steps,
                   const std::string& root = "fast") const {
    std::vector<std::string> trainer{SHOAL_TRAINER, "--save-steps", steps, "--wait"};
    if (steps != "1-2") trainer.insert(trainer.end(), {"--load", "latest"});
    return run_process(launch(flags, trainer, root), options());
  }
};

TEST_F(LaunchDrainTest, EveryRootHasWhatItsRulesKeepWhenTheJobHasEnded) {
  ProcessEnd end = train({"--create", "--keep-last", "1", "--drain-keep-every", "2"}, "1-2");
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("shoal drain: step 2 (g1a1): copied: "));
  end = train({"--keep-last", "1", "--drain-keep-every", "2"}, "3-4");
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, Not(HasSubstr("copying it back")));
  // The second run has loaded step 2, and step 3 may have been pinned when the rules were applied.
  EXPECT_THAT(steps_of(fast()), AllOf(Contains(4), Not(Contains(1))));
  EXPECT_THAT(steps_of(other()), ElementsAre(2, 4));
  EXPECT_EQ(run_shoal({"verify", other(), "--all"}).status, 0);
}

TEST_F(LaunchDrainTest, AJobGoesOnFromTheOtherRootIfTheFastOneIsLost) {
  ASSERT_EQ(train({"--create"}, "1-2").status, 0);
  fs::remove_all(fast());
  ProcessEnd end = train({"--resume"}, "3-3");
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("does not exist: is the storage mounted?"));
  end = train({"--resume", "--create"}, "3-3");
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("step 2 (g1a1) of " + other() + " is newer than all of " + fast()));
  EXPECT_THAT(end.out, HasSubstr("step 2"));
  EXPECT_THAT(steps_of(fast()), ElementsAre(2, 3));
  EXPECT_THAT(steps_of(other()), ElementsAre(1, 2, 3));
  EXPECT_EQ(run_shoal({"diff", fast(), other()}).status, 0) << "the latest of both is the same";
}

TEST_F(LaunchDrainTest, AJobThatComesBackToAMachineGoesOnFromWhatItSavedElsewhere) {
  ASSERT_EQ(train({"--create"}, "1-2").status, 0);
  ASSERT_EQ(train({"--create"}, "3-3", "elsewhere").status, 0);
  ProcessEnd end = train({"--resume"}, "4-4");
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("copying it back"));
  EXPECT_THAT(steps_of(fast()), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(steps_of(other()), ElementsAre(1, 2, 3, 4));
}

TEST_F(LaunchDrainTest, ARunningJobOfTheFastRootIsNotDisturbed) {
  ASSERT_EQ(train({"--create"}, "1-2").status, 0);
  ASSERT_EQ(train({"--create"}, "3-3", "elsewhere").status, 0);
  Process first({SHOAL_PROGRAM, "launch", "--root", fast(), "--job-id", "the-first", "--", "/bin/sh", "-c",
                 "echo begun; sleep 60"},
                options());
  ASSERT_TRUE(first.wait_for_output("begun"));
  const ProcessEnd end = train({}, "4-4");
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("job 'the-first' is running on"));
  EXPECT_FALSE(fs::exists(fast() + "/step-00000003"));
}

TEST_F(LaunchDrainTest, OtherHostsWaitUntilTheFirstHasCopiedBack) {
  ASSERT_EQ(run_shoal({"copy", saved_root(), other(), "--create"}).status, 0);
  const std::string token = folder_.path() + "/token";
  std::ofstream(token) << "a secret\n";
  fs::permissions(token, fs::perms::owner_read | fs::perms::owner_write);
  const auto second_host = [&](const std::string& patience_ms) {
    return launch({"--create", "--nnodes", "2", "--node-rank", "1", "--coordinator", "127.0.0.1:1",
                   "--job-id", "j", "--token-file", token, "--find-coordinator-ms", patience_ms},
                  {"true"});
  };
  ProcessEnd end = run_process(second_host("1000"), options());
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("no host copied it back within 1000 ms"));
  Process host(second_host("60000"), options());
  ASSERT_TRUE(host.wait_for_errors("waiting until the first host has copied the newest checkpoint"));
  ASSERT_EQ(run_shoal({"copy", other(), fast(), "--latest"}).status, 0);
  EXPECT_NE(wait_for_child(host.pid(), "node"), 0);
}

TEST_F(LaunchDrainTest, ADrainThatDiesIsStartedAgain) {
  const std::string wait = "while [ ! -e " + folder_.path() + "/end ]; do sleep 0.05; done";
  Process job(launch({"--create"}, {"/bin/sh", "-c", wait}), options());
  const pid_t drain = wait_for_child(job.pid(), "drain");
  ASSERT_NE(drain, 0);
  kill(drain, SIGKILL);
  EXPECT_TRUE(job.wait_for_errors("ended early: signal 9 (Killed); starting it again in 1 s"));
  EXPECT_NE(wait_for_child(job.pid(), "drain", drain), 0);
  std::ofstream(folder_.path() + "/end") << "now\n";
  const ProcessEnd end = job.wait();
  EXPECT_EQ(end.status, 0) << end.err;
}

TEST_F(LaunchDrainTest, SaysThatNotAllIsCopiedWhenItsTimeHasPassed) {
  ASSERT_EQ(train({"--create"}, "1-2").status, 0);
  fail_target();
  ProcessEnd end = train({"--drain-patience", "1"}, "3-3");
  EXPECT_EQ(end.status, 5) << end.err;
  EXPECT_THAT(end.err,
              AllOf(HasSubstr("step 3 (g2a1) is not copied: "),
                    HasSubstr(other() + " does not have all checkpoints (the time for it has passed)"),
                    HasSubstr("`shoal drain " + fast() + " " + other() + " --once`")));
  mend_target();
  EXPECT_EQ(run_process(command({"--once"})).status, 0);
  EXPECT_THAT(steps_of(other()), ElementsAre(1, 2, 3));
}

TEST_F(LaunchDrainTest, ASignalEndsTheWaitForTheLastCopies) {
  ASSERT_EQ(train({"--create"}, "1-2").status, 0);
  fail_target();
  Process job(launch({}, {SHOAL_TRAINER, "--load", "latest", "--save-steps", "3", "--wait"}), options());
  ASSERT_TRUE(job.wait_for_errors("copying what is left to " + other() + ", for at most 600 s"));
  job.send_signal(SIGTERM);
  const ProcessEnd end = job.wait();
  EXPECT_EQ(end.status, 5) << end.err;
  EXPECT_THAT(end.err, HasSubstr("does not have all checkpoints"));
}

TEST_F(LaunchDrainTest, RejectsARootToWhichAJobHasSavedAndSaysHowToGoOn) {
  ASSERT_EQ(run_trainers(other(), 2, {"--save-steps", "1-1", "--wait"}).status, 0);
  ProcessEnd end = train({"--create"}, "2-2");
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("takes no copies of later runs: copy it with `shoal copy` to a new root"));
  const std::string jobs_root = folder_.path() + "/jobs";
  fs::rename(other(), jobs_root);
  ASSERT_EQ(run_shoal({"copy", jobs_root, other(), "--create"}).status, 0);
  end = train({"--create"}, "2-2");
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(steps_of(other()), ElementsAre(1, 2));
}

TEST_F(LaunchDrainTest, RejectsARootThatMayNotBeMounted) {
  fs::create_directory(fast());
  fs::create_directory(fast() + "/generations");
  ProcessEnd end = train({}, "1-2");
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr(other() + " does not exist: is the storage mounted?"));
  fs::create_directory(other());
  end = train({}, "1-2");
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("holds no run: is the storage mounted?"));
  end = run_shoal({"launch", "--root", fast(), "--drain-keep-last", "1", "--", "true"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("--drain-to"));
}

}  // namespace
}  // namespace shoal::cli
