// The example trainer under shoal launch: one sharding loads what another saved. The trainer checks every
// element.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cli/process.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainerTest : public ::testing::Test {
 protected:
  std::vector<std::string> command(int ranks, const std::vector<std::string>& arguments) const {
    std::vector<std::string> out = {
        SHOAL_PROGRAM, "launch",      "--root",   root(), "--create", "-n",   std::to_string(ranks),
        "--",          SHOAL_TRAINER, "--layers", layers, "--hidden", hidden, "--vocab",
        "1000",        "--context",   "33"};
    out.insert(out.end(), arguments.begin(), arguments.end());
    return out;
  }
  ProcessOptions options() const {
    return {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/runtime"}}};
  }
  ProcessEnd train(int ranks, const std::vector<std::string>& arguments) const {
    return run_process(command(ranks, arguments), options());
  }
  std::string root() const { return folder_.path() + "/root"; }
  std::string layers = "3", hidden = "64";

 private:
  TemporaryFolder folder_;
};

std::string errors_of_rank_0(const ProcessEnd& end) {
  std::istringstream lines(end.err);
  std::string line;
  while (std::getline(lines, line) && line.rfind("rank 0: ", 0) != 0) continue;
  return line;
}

// Regression: the node that the trainer had started stayed for some seconds, and launch failed meanwhile.
TEST_F(TrainerTest, LaunchFollowsATrainerThatStartedItsOwnNode) {
  std::filesystem::create_directory(root());
  ProcessOptions alone = options();
  alone.environment.insert(alone.environment.end(),
                           {{"SHOAL_ROOT", root()}, {"SHOAL_NODE_PROGRAM", SHOAL_PROGRAM}});
  std::vector<std::string> trainer = command(1, {"--save-steps", "1"});
  trainer.erase(trainer.begin(), std::find(trainer.begin(), trainer.end(), SHOAL_TRAINER));
  ProcessEnd end = run_process(trainer, alone);
  ASSERT_EQ(end.status, 0) << end.err;
  end = train(1, {"--load", "latest"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("loaded step 1"));
}

TEST_F(TrainerTest, WhatAnyShardingSavedAnyOtherLoadsBitForBit) {
  const std::vector<std::pair<std::string, int>> loads = {{"tp", 1}, {"pipeline", 4}, {"fsdp+tp", 6}};
  for (const char* saved : {"fsdp+tp", "hsdp", "pipeline"}) {
    ProcessEnd end = train(4, {"--sharding", saved, "--dtype", "bf16", "--save-steps", "1-2"});
    ASSERT_EQ(end.status, 0) << end.err;
    for (const auto& [loaded, ranks] : loads) {
      end = train(ranks, {"--sharding", loaded, "--dtype", "bf16", "--load", "latest"});
      EXPECT_EQ(end.status, 0) << saved << " to " << loaded << ": " << end.err;
      EXPECT_THAT(end.out, HasSubstr("loaded step 2"));
    }
  }
}

TEST_F(TrainerTest, WhatItSaysOfASaveIsShownByLsAndShow) {
  for (const char* mode : {"collective-free", "rank-local", "collective"}) {
    ProcessEnd end = train(2, {"--mode", mode, "--save-steps", "1-2", "--wait", "--metadata", "run=a b",
                               "--metadata", "mode=" + std::string(mode)});
    ASSERT_EQ(end.status, 0) << end.err;
    end = run_process({SHOAL_PROGRAM, "ls", root()});
    EXPECT_THAT(end.out, HasSubstr("mode=" + std::string(mode) + " run=a b"));
    end = run_process({SHOAL_PROGRAM, "ls", root(), "--json"});
    EXPECT_THAT(end.out, ContainsRegex("\"metadata\": \\{[^}]*\"mode\": \"" + std::string(mode) + "\""));
    end = run_process({SHOAL_PROGRAM, "show", root()});
    EXPECT_THAT(end.out, ContainsRegex("METADATA +VALUE\nmode +" + std::string(mode) + "\nrun +a b\n"));
    end = run_process({SHOAL_PROGRAM, "show", root(), "--json"});
    EXPECT_THAT(end.out, HasSubstr("\"run\": \"a b\""));
    EXPECT_EQ(run_process({SHOAL_PROGRAM, "verify", root(), "--no-record"}).status, 0);
  }
}

TEST_F(TrainerTest, ARankLocalSaveIsLoadedByAnyShardingAndVerified) {
  const std::vector<std::pair<std::string, int>> loads = {{"tp", 1}, {"pipeline", 4}, {"fsdp+tp", 2}};
  ProcessEnd end = train(4, {"--sharding", "hsdp", "--mode", "rank-local", "--save-steps", "1-2", "--wait"});
  ASSERT_EQ(end.status, 0) << end.err;
  for (const auto& [loaded, ranks] : loads) {
    end = train(ranks, {"--sharding", loaded, "--load", "latest"});
    EXPECT_EQ(end.status, 0) << loaded << ": " << end.err;
    EXPECT_THAT(end.out, HasSubstr("loaded step 2"));
  }
  EXPECT_EQ(run_shoal({"verify", root()}).status, 0);
  EXPECT_THAT(run_shoal({"show", root()}).out, HasSubstr("mode rank-local"));
}

TEST_F(TrainerTest, ACollectiveSaveIsLoadedByAnyShardingAndVerified) {
  const std::vector<std::pair<std::string, int>> loads = {{"tp", 1}, {"pipeline", 4}, {"fsdp+tp", 2}};
  ProcessEnd end = train(4, {"--sharding", "hsdp", "--mode", "collective", "--save-steps", "1-3", "--wait"});
  ASSERT_EQ(end.status, 0) << end.err;
  for (const auto& [loaded, ranks] : loads) {
    end = train(ranks, {"--sharding", loaded, "--load", "latest"});
    EXPECT_EQ(end.status, 0) << loaded << ": " << end.err;
    EXPECT_THAT(end.out, HasSubstr("loaded step 3"));
  }
  EXPECT_EQ(run_shoal({"verify", root()}).status, 0);
  EXPECT_THAT(run_shoal({"show", root()}).out, HasSubstr("mode collective"));
}

TEST_F(TrainerTest, ADamagedBlockIsNeverLoaded) {
  ASSERT_EQ(train(2, {"--save-steps", "1"}).status, 0);
  std::string file = root() + "/step-00000001/g1a1/rank-00001.safetensors";
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-1, std::ios::end);
    std::streampos at = stream.tellg();
    char byte = static_cast<char>(stream.get());
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 4));
  }
  ProcessEnd end = train(2, {"--load", "latest"});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, HasSubstr("rank-00001.safetensors"));
  EXPECT_EQ(run_shoal({"verify", root()}).status, 1);
}

TEST_F(TrainerTest, AJobThatMayFallBackLoadsWhatIsSoundAndSaysWhatItPassedOver) {
  ASSERT_EQ(train(2, {"--save-steps", "1-3", "--wait"}).status, 0);
  auto flip = [&](const std::string& path) {
    std::fstream stream(root() + path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-1, std::ios::end);
    const char byte = static_cast<char>(stream.get() ^ 4);
    stream.seekp(-1, std::ios::end);
    stream.put(byte);
  };
  flip("/step-00000003/g1a1/manifest.shoal");
  flip("/step-00000002/g1a1/rank-00001.safetensors");
  ProcessEnd end = train(3, {"--load", "latest"});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, HasSubstr("the newest checkpoint, step 3 (g1a1), cannot be read"));
  auto falling_back = [&](int ranks) {
    std::vector<std::string> with_setting = command(ranks, {"--load", "latest"});
    with_setting.insert(with_setting.begin() + 2, {"--load-fallback", "previous"});
    return run_process(with_setting, options());
  };
  end = falling_back(3);
  EXPECT_EQ(end.status, 0) << end.err;
  for (const char* rank : {"rank 0", "rank 1", "rank 2"}) {
    EXPECT_THAT(end.out,
                ContainsRegex(std::string(rank) + ": loaded step 1 .*; passed over: step 3 .*manifest.*; "
                                                  "step 2 .*rank-00001"));
  }
  EXPECT_THAT(end.err, HasSubstr("shoal: warning: loaded step 1 (g1a1), and passed over 2 newer attempts: "
                                 "step 3 (g1a1) is damaged: "));
  flip("/step-00000001/g1a1/rank-00000.safetensors");
  end = falling_back(2);
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, HasSubstr("every checkpoint of this root is damaged (3)"));
}

TEST_F(TrainerTest, ATrainerKilledAfterStagingLosesNothing) {
  ProcessEnd end = train(2, {"--save-steps", "1-2", "--wait", "--kill-after-stage", "2", "--kill-rank", "1"});
  EXPECT_EQ(end.status, 137) << end.err;
  end = train(3, {"--load", "2"});
  EXPECT_EQ(end.status, 0) << end.err;
}

TEST_F(TrainerTest, ANodeKilledInTheMiddleCostsNoSave) {
  Process process(command(2, {"--save-steps", "1-6", "--train-ms", "50"}), options());
  ASSERT_TRUE(process.wait_for_output("step 1: committed"));
  pid_t node = wait_for_child(process.pid(), "node");
  ASSERT_NE(node, 0);
  ASSERT_EQ(kill(node, SIGKILL), 0);
  ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("starting it again in 0 s (1 of 5 times in 10 minutes)"));
  for (const char* step : {"1", "6"}) EXPECT_EQ(train(3, {"--load", step}).status, 0) << step;
}

// Rank 1 ends before it attaches. `script`: its commands instead of training.
class ARankThatNeverCame : public TrainerTest {
 protected:
  std::vector<std::string> command_without(const std::string& script) const {
    std::vector<std::string> out = command(3, {"--save-steps", "1"});
    auto trainer = std::find(out.begin(), out.end(), "--") + 1;
    out.insert(trainer,
               {"/bin/sh", "-c", "[ $RANK != 1 ] || " + script + "; " + others + "exec \"$0\" \"$@\""});
    return out;
  }
  static void expect_named(const ProcessEnd& end, const std::string& how) {
    for (const char* rank : {"rank 0: ", "rank 2: "}) {
      EXPECT_THAT(end.err,
                  ContainsRegex(std::string(rank) + "aborted: rank [02], step 1 .g1a1.: rank 1 .host "))
          << end.err;
    }
    EXPECT_THAT(end.err, HasSubstr("its trainer ended before it staged this save: " + how));
  }
  std::string others;  // what the others do first
};

TEST_F(ARankThatNeverCame, IsNamedWithItsStatusToTheOthers) {
  ProcessEnd end = run_process(command_without("exit 7"), options());
  EXPECT_EQ(end.status, 7);
  expect_named(end, "exit status 7");
}

TEST_F(ARankThatNeverCame, IsNamedWithItsSignalByANodeThatWasStartedAgain) {
  others = "echo up; while [ ! -e " + root() + "/../go ]; do sleep 0.02; done; ";
  Process process(command_without("kill -9 $$"), options());
  ASSERT_TRUE(process.wait_for_output("up"));
  ASSERT_TRUE(process.wait_for_errors("rank 1 ended"));
  const pid_t node = wait_for_child(process.pid(), "node");
  ASSERT_EQ(kill(node, SIGKILL), 0);
  ASSERT_TRUE(process.wait_for_errors("generation 1, epoch 2"));
  ASSERT_TRUE(process.wait_for_errors("ready, coordinating", 2));
  std::ofstream(root() + "/../go") << "\n";
  ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 128 + SIGKILL);
  expect_named(end, "signal 9 (Killed)");
}

TEST_F(TrainerTest, WhatTheCheckpointLacksIsNamedAndNotCalledDamage) {
  ASSERT_EQ(train(2, {"--save-steps", "7"}).status, 0);
  layers = "5";
  ProcessEnd end = train(2, {"--load", "latest"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("step 7 (g1a1) lacks "));
  EXPECT_THAT(end.err, HasSubstr("'model.transformer.h.3.attn.c_attn.bias'"));
  EXPECT_THAT(end.err, ContainsRegex("and [0-9]+ more"));
  EXPECT_THAT(end.err, Not(HasSubstr("corrupt")));
  EXPECT_LT(errors_of_rank_0(end).size(), 400u) << end.err;
}

TEST_F(TrainerTest, AnotherShapeIsToldWithBothOfEveryKey) {
  ASSERT_EQ(train(2, {"--save-steps", "7"}).status, 0);
  hidden = "128";
  ProcessEnd end = train(2, {"--load", "latest"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("step 7 (g1a1)"));
  EXPECT_THAT(end.err, HasSubstr("F32[192] in the checkpoint, and F32[384] in the state"));
  EXPECT_THAT(end.err, HasSubstr("'optimizer.exp_avg_sq.transformer.wte.weight' is F32[1000, 64] in the "
                                 "checkpoint, and F32[1000, 128] in the state"));
}

// The root is moved away, as an operator may do, under a trainer that requests the outcome of no save.
class ForgetfulTrainer : public TrainerTest {
 protected:
  // The node takes three seconds to give up on the record of an abort.
  ProcessEnd train_without_root(std::vector<std::string> launch_flags, const char* steps) {
    std::vector<std::string> arguments =
        command(1, {"--save-steps", steps, "--train-ms", "1500", "--forget"});
    arguments.insert(arguments.begin() + 2, launch_flags.begin(), launch_flags.end());
    Process process(arguments, options());
    EXPECT_TRUE(process.wait_for_output("step 1 (first): staged"));
    std::filesystem::rename(root(), root() + ".moved");
    return process.wait();
  }
};

TEST_F(ForgetfulTrainer, HearsOfAFailureFromTheNextSaveAndTheLauncherEndsWithAStatusOfItsOwn) {
  const ProcessEnd end = train_without_root({}, "1-5");
  EXPECT_THAT(end.err,
              ContainsRegex("rank 0: earlier save failed: rank 0, step [2345] \\(g1a1\\): the save of step "
                            "[1234] \\(g1a1\\) failed: .*was staged nevertheless"));
  EXPECT_THAT(end.err,
              ContainsRegex("rank 0: the save of step 5 \\(g1a1\\) was undecided when the job ended"));
  EXPECT_EQ(end.status, 4);
}

TEST_F(ForgetfulTrainer, IsEndedAfterAsManyFailuresInARowAsMayBe) {
  const ProcessEnd end = train_without_root({"--max-failed-saves", "2"}, "1-100");
  EXPECT_THAT(end.err, HasSubstr("2 saves in a row failed, as many as --max-failed-saves allows"));
  EXPECT_EQ(end.status, 4);
}

TEST_F(ForgetfulTrainer, EndsWithoutAWordWhereAllWasCommitted) {
  const ProcessEnd end = train(2, {"--save-steps", "1-3", "--forget"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, Not(HasSubstr("the save of")));
}

TEST_F(TrainerTest, ALoadWithoutACheckpointSaysSo) {
  ProcessEnd end = train(1, {"--load", "latest"});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, HasSubstr("not found"));
}

}  // namespace
}  // namespace shoal::cli
