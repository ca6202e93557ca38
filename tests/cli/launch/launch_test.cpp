// shoal launch and node: the environment of trainers, whose exit status counts, which process receives which
// signal, and which arguments are rejected.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "base/owned_fd.h"
#include "local/socket/socket.h"
#include "tests/cli/process.h"
#include "tests/golden_copy.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchTest : public ::testing::Test {
 protected:
  std::string root() const { return folder_.path() + "/root"; }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  ProcessOptions options() const {
    return {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/runtime"}, {"FOLDER", folder_.path()}}};
  }
  // `shoal launch --root ROOT --create FLAGS -- sh -c SCRIPT`
  std::vector<std::string> command(std::vector<std::string> flags, const std::string& script) const {
    const bool only_reads = std::find(flags.begin(), flags.end(), "--read-only") != flags.end();
    if (!only_reads) flags.insert(flags.begin(), "--create");
    flags.insert(flags.begin(), {SHOAL_PROGRAM, "launch", "--root", root()});
    flags.insert(flags.end(), {"--", "/bin/sh", "-c", script});
    return flags;
  }
  ProcessEnd launch(std::vector<std::string> flags, const std::string& script) const {
    return run_process(command(std::move(flags), script), options());
  }
  std::string write_token(mode_t mode) const {
    std::string name = path("token");
    std::ofstream(name) << "a secret\n";
    chmod(name.c_str(), mode);
    return name;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(LaunchTest, DeadlinesThatContradictEachOtherAreRefused) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--node-deadline-ms", "1000"}, {"--attempt-deadline-ms", "400000"}, {"--lease-ttl-ms", "9999"}}) {
    ProcessEnd end = launch(flags, "echo never");
    EXPECT_EQ(end.status, 2) << flags[0];
    EXPECT_THAT(end.err, HasSubstr("is too short for"));
    EXPECT_EQ(end.out, "");
  }
}

// Regression: the kernel then keeps no status of a child, and launch waited for one without end.
TEST_F(LaunchTest, EndsUnderASupervisorThatIgnoresEndsOfChildren) {
  std::vector<std::string> arguments = command({}, "exit 3");
  arguments.insert(arguments.begin(), {"/usr/bin/env", "--ignore-signal=CHLD"});
  EXPECT_EQ(run_process(arguments, options()).status, 3);
}

TEST_F(LaunchTest, AVariableThatIsNeither0Nor1IsNamed) {
  ProcessOptions with = options();
  with.environment.emplace_back("SHOAL_READ_ONLY", "maybe");
  const ProcessEnd end = run_process(command({}, "echo never"), with);
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("SHOAL_READ_ONLY is 'maybe': it must be 0 or 1"));
}

// Regression: the node deleted the file.
TEST_F(LaunchTest, ASocketPathThatNamesAFileIsRefusedAndTheFileStays) {
  std::ofstream(path("weights")) << "all of them";
  ProcessOptions with = options();
  with.environment.emplace_back("SHOAL_SOCKET", path("weights"));
  const ProcessEnd end = run_process(command({}, "echo never"), with);
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.err, HasSubstr(path("weights") + ": exists and is not a socket"));
  EXPECT_EQ(end.out, "");
  EXPECT_EQ(std::filesystem::file_size(path("weights")), 11u);
}

// Regression: a launcher that was killed left its FIFO for good.
TEST_F(LaunchTest, RemovesTheFifosOfLaunchersThatWereKilled) {
  std::filesystem::create_directory(path("runtime"));
  chmod(path("runtime").c_str(), 0700);
  const auto fifo = [this](const std::string& name) {
    const std::string at = path("runtime/" + name);
    EXPECT_EQ(mkfifo(at.c_str(), 0600), 0);
    std::filesystem::last_write_time(at,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    return at;
  };
  const std::string left = fifo("launch-1.saves"), live = fifo("launch-2.saves"), other = fifo("other.saves");
  const base::OwnedFd reader(open(live.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::ofstream(path("runtime/launch-3.saves")) << "a file";
  EXPECT_EQ(launch({}, "true").status, 0);
  EXPECT_FALSE(std::filesystem::exists(left));
  for (const std::string& stays : {live, other, path("runtime/launch-3.saves")}) {
    EXPECT_TRUE(std::filesystem::exists(stays)) << stays;
  }
}

// Regression: the node took the place of the socket of another program.
TEST_F(LaunchTest, ASocketAtWhichAnotherProgramListensIsRefusedAndStays) {
  auto owner = local::LocalListener::listen(path("socket")).value();
  ProcessOptions with = options();
  with.environment.emplace_back("SHOAL_SOCKET", path("socket"));
  const ProcessEnd end = run_process(command({}, "echo never"), with);
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.err, HasSubstr(path("socket") + ": another program listens at this socket"));
  EXPECT_EQ(end.out, "");
  EXPECT_TRUE(local::LocalSocket::connect(path("socket")).ok());
}

// Regression: at its end the node put a regular file in the place of a device.
TEST_F(LaunchTest, AStatsFileThatIsNoRegularFileIsRefused) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(path("folder"));
  for (const char* name : {"pipe", "folder"}) {
    const ProcessEnd end = launch({"--stats-file", path(name)}, "echo never");
    EXPECT_EQ(end.status, 2) << name;
    EXPECT_THAT(end.err, HasSubstr("--stats-file: " + path(name) + ": exists and is not a regular file"));
    EXPECT_EQ(end.out, "");
    EXPECT_FALSE(std::filesystem::is_regular_file(path(name)));
    EXPECT_FALSE(std::filesystem::exists(path(name) + ".partial"));
  }
}

TEST_F(LaunchTest, ASecondJobOnARootIsRefusedNamingTheFirst) {
  Process first(command({"--job-id", "the-first"}, "echo begun; sleep 60"), options());
  ASSERT_TRUE(first.wait_for_output("begun"));
  ProcessEnd second = launch({"--job-id", "the-second"}, "echo never");
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("job 'the-first', generation 1"));
  EXPECT_THAT(second.out, Not(HasSubstr("never")));
}

// An evaluation that a trainer starts inherits the variables of the trainer.
TEST_F(LaunchTest, AJobThatOnlyReadsRunsBesideTheOneThatTrains) {
  Process first(command({"--job-id", "trains"}, "echo begun; sleep 60"), options());
  ASSERT_TRUE(first.wait_for_output("begun"));
  ProcessOptions inherited = options();
  inherited.environment.emplace_back("SHOAL_SOCKET", path("runtime") + "/not-for-readers.sock");
  ProcessEnd reader = run_process(
      command({"--read-only", "-n", "2"}, "echo reads: $SHOAL_READ_ONLY $SHOAL_SOCKET"), inherited);
  EXPECT_EQ(reader.status, 0) << reader.err;
  EXPECT_THAT(reader.out, HasSubstr("reads: 1 " + path("runtime")));
  EXPECT_THAT(reader.out, Not(HasSubstr("not-for-readers")));
  EXPECT_FALSE(std::filesystem::exists(root() + "/generations/2"));
  EXPECT_FALSE(std::filesystem::exists(root() + "/epochs/2"));
  EXPECT_TRUE(std::filesystem::is_empty(root() + "/readers")) << "it ended";
}

TEST_F(LaunchTest, AJobThatOnlyReadsMakesNoRootAndTakesNoneOver) {
  ProcessEnd absent = launch({"--read-only"}, "echo never");
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.err,
              AllOf(HasSubstr("does not exist: is the storage mounted?"), Not(HasSubstr("--create"))));
  EXPECT_FALSE(std::filesystem::exists(root()));
  EXPECT_EQ(launch({"--read-only", "--take-over"}, "echo never").status, 2);
}

std::map<std::string, std::string> variables_of(const std::string& file) {
  std::ifstream in(file);
  std::map<std::string, std::string> out;
  for (std::string line; std::getline(in, line);) {
    size_t equals = line.find('=');
    if (equals != std::string::npos) out[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return out;
}

void expect_refusal(const ProcessEnd& end, const std::string& cause) {
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr(cause));
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
}

TEST_F(LaunchTest, EachTrainerKnowsItsPlaceInTheJob) {
  ProcessEnd end = launch({"-n", "3"}, "env > $FOLDER/env-$RANK");
  ASSERT_EQ(end.status, 0) << end.err;
  std::string job_id;
  for (int rank = 0; rank < 3; ++rank) {
    auto env = variables_of(path("env-" + std::to_string(rank)));
    EXPECT_EQ(env["RANK"], std::to_string(rank));
    EXPECT_EQ(env["LOCAL_RANK"], std::to_string(rank));
    EXPECT_EQ(env["WORLD_SIZE"], "3");
    EXPECT_EQ(env["LOCAL_WORLD_SIZE"], "3");
    EXPECT_EQ(env["NODE_RANK"], "0");
    EXPECT_EQ(env["MASTER_ADDR"], "127.0.0.1");
    EXPECT_GT(std::stoi(env["MASTER_PORT"]), 0);
    EXPECT_EQ(env["SHOAL_ROOT"], std::filesystem::canonical(root()));
    EXPECT_THAT(env["SHOAL_SOCKET"], HasSubstr(path("runtime")));
    EXPECT_EQ(std::filesystem::path(env["SHOAL_NODE_PROGRAM"]).filename(), "shoal");
    if (rank == 0) job_id = env["SHOAL_JOB_ID"];
    EXPECT_EQ(env["SHOAL_JOB_ID"], job_id);
    EXPECT_EQ(env.count("SHOAL_TOKEN"), 0u) << "a minted token is the node's alone";
  }
  EXPECT_NE(job_id, "");
  launch({"-n", "1"}, "env > $FOLDER/env-again");
  EXPECT_NE(variables_of(path("env-again"))["SHOAL_JOB_ID"], job_id) << "a job id is never used again";
}

TEST_F(LaunchTest, RanksMayStartAnywhereInTheWorld) {
  ProcessEnd end = launch({"-n", "2", "--world-size", "10", "--first-rank", "7", "--job-id", "mine"},
                          "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, $SHOAL_JOB_ID");
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("7 of 10, 0 of 2, mine\n"));
  EXPECT_THAT(end.out, HasSubstr("8 of 10, 1 of 2, mine\n"));
  EXPECT_EQ(launch({"-n", "1", "--job-id", "mine"}, "true").status, 0);
  EXPECT_TRUE(std::filesystem::exists(root() + "/generations/2")) << "another run, also under the same id";
}

TEST_F(LaunchTest, TheWorstStatusIsItsOwn) {
  EXPECT_EQ(launch({"-n", "3"}, "exit $((RANK * 20))").status, 40);
}

TEST_F(LaunchTest, ATrainerThatDiesByASignalDoesNotEndTheOthers) {
  ProcessEnd end = launch({"-n", "2"}, "[ $RANK = 1 ] && kill -9 $$; sleep 0.2; echo survived");
  EXPECT_EQ(end.status, 128 + SIGKILL);
  EXPECT_EQ(end.out, "survived\n");
  EXPECT_THAT(end.err, HasSubstr("rank 1 ended: signal 9"));
}

TEST_F(LaunchTest, OnRequestAFailureEndsTheOthersAndItsStatusCounts) {
  ProcessEnd end = launch({"-n", "2", "--kill-on-failure"}, "[ $RANK = 1 ] && exit 3; exec sleep 50");
  EXPECT_EQ(end.status, 3);
  EXPECT_THAT(end.err, HasSubstr("rank 1 ended: exit status 3; ending the other trainers"));
}

TEST_F(LaunchTest, SignalsReachTheTrainers) {
  for (auto [number, name] :
       {std::pair{SIGTERM, "TERM"}, {SIGINT, "INT"}, {SIGHUP, "HUP"}, {SIGUSR1, "USR1"}}) {
    Process process(command({"-n", "2"}, std::string("trap 'echo heard; exit 7' ") + name +
                                             "; echo up $RANK; while :; do sleep 0.05; done"),
                    options());
    ASSERT_TRUE(process.wait_for_output("up 0"));
    ASSERT_TRUE(process.wait_for_output("up 1"));
    process.send_signal(number);
    ProcessEnd end = process.wait();
    EXPECT_EQ(end.status, 7) << name << ": " << end.err;
    EXPECT_THAT(end.out, HasSubstr("heard\nheard\n"));
  }
}

TEST_F(LaunchTest, TrainersDoNotOutliveIt) {
  Process process(command({"-n", "1"}, "echo pid $$ up; exec sleep 50"), options());
  ASSERT_TRUE(process.wait_for_output(" up"));
  process.send_signal(SIGKILL);
  // The pipes of `process` end when their last holder ends: trainer and node too.
  ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 128 + SIGKILL);
  int pid = std::stoi(end.out.substr(4));
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat") >> std::ws, stat);
  EXPECT_TRUE(stat.empty() || stat.find(") Z") != std::string::npos) << "the trainer lives on: " << stat;
}

TEST_F(LaunchTest, ANodeThatDiesEarlyIsStartedAgainUntilItHasDoneSoTooOften) {
  Process process(command({"-n", "1"}, "echo up; exec sleep 50"), options());
  ASSERT_TRUE(process.wait_for_output("up"));
  pid_t node = 0;
  for (int i = 0; i < 6; ++i) {
    node = wait_for_child(process.pid(), "node", node);
    ASSERT_NE(node, 0) << "restart " << i;
    ASSERT_EQ(kill(node, SIGKILL), 0);
  }
  ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 1) << "trainers that were ended because of it do not count";
  EXPECT_THAT(
      end.err,
      HasSubstr(
          "the node ended early: signal 9 (Killed); starting it again in 0 s (1 of 5 times in 10 minutes)"));
  EXPECT_THAT(end.err, HasSubstr("(5 of 5 times in"));
  EXPECT_THAT(end.err, HasSubstr("the node ended early: signal 9 (Killed); it was started again 5 of 5 times "
                                 "in 10 minutes; ending the trainers"));
  EXPECT_TRUE(std::filesystem::exists(root() + "/generations/1"));
  EXPECT_FALSE(std::filesystem::exists(root() + "/generations/2")) << "it is one run";
}

// Regression: the job failed although its trainers had ended well while the launcher waited to start a node.
TEST_F(LaunchTest, TrainersThatEndWellBeforeTheNextNodeHaveEndedWell) {
  const std::string end_now = path("end");
  Process process(command({"-n", "1"}, "echo up; until [ -e " + end_now + " ]; do sleep 0.02; done"),
                  options());
  ASSERT_TRUE(process.wait_for_output("up"));
  const pid_t first = wait_for_child(process.pid(), "node");
  ASSERT_EQ(kill(first, SIGKILL), 0);
  ASSERT_EQ(kill(wait_for_child(process.pid(), "node", first), SIGKILL), 0);
  ASSERT_TRUE(process.wait_for_errors("starting it again", 2));  // in 1 s
  std::ofstream(end_now).flush();
  ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 0) << end.err;
}

class TakenOver : public LaunchTest {
 protected:
  // A node of another job, on another host, that has the root now.
  std::unique_ptr<Process> take_over() const {
    auto taker = std::make_unique<Process>(
        std::vector<std::string>{SHOAL_PROGRAM, "node", "--root", root(), "--job-id", "other", "--take-over",
                                 "--ready-fd", "1"},
        ProcessOptions{.environment = {{"SHOAL_RUNTIME_DIR", path("elsewhere")}}});
    EXPECT_TRUE(taker->wait_for_output("ready"));
    return taker;
  }
  static void expect_given_up(const ProcessEnd& end) {
    EXPECT_EQ(end.status, 1);
    EXPECT_THAT(end.err, HasSubstr("superseded: job 'other' has taken over"));
    EXPECT_THAT(end.err, HasSubstr("epoch 2 at "));
    EXPECT_THAT(end.err, HasSubstr("the node ended early: another job has taken over the root; ending the"));
  }
};

TEST_F(TakenOver, ItsNodeIsNotStartedAgain) {
  Process process(command({"-n", "1", "--epoch-check-ms", "100"}, "echo up; exec sleep 50"), options());
  ASSERT_TRUE(process.wait_for_output("up"));
  auto taker = take_over();
  ProcessEnd end = process.wait();
  expect_given_up(end);
  EXPECT_THAT(end.err, Not(HasSubstr("starting it again")));
}

TEST_F(TakenOver, ItsNodeDoesNotTakeTheRootBackWhenItIsStartedAgain) {
  Process process(command({"-n", "1", "--take-over"}, "echo up; exec sleep 50"), options());
  ASSERT_TRUE(process.wait_for_output("up"));
  auto taker = take_over();
  ASSERT_EQ(kill(wait_for_child(process.pid(), "node"), SIGKILL), 0);
  ProcessEnd end = process.wait();
  expect_given_up(end);
  EXPECT_THAT(end.err, HasSubstr("(1 of 5 times in"));
  EXPECT_THAT(end.err, Not(HasSubstr("(2 of 5 times in")));
}

TEST_F(LaunchTest, OutputMayBeTaggedLineByLine) {
  ProcessEnd end = launch({"-n", "2", "--tag-output"}, "echo one; printf 'two'; echo three >&2");
  EXPECT_EQ(end.status, 0);
  for (const char* line : {"[0] one\n", "[1] one\n", "[0] two\n", "[1] two\n"})
    EXPECT_THAT(end.out, HasSubstr(line));
  EXPECT_THAT(end.err, HasSubstr("[1] three\n"));
}

TEST_F(LaunchTest, TheRootIsMadeInAFolderThatExistsOnly) {
  EXPECT_EQ(launch({"-n", "1"}, "true").status, 0);
  EXPECT_TRUE(std::filesystem::exists(root() + "/ROOT_ID"));
  EXPECT_EQ(launch({"-n", "1"}, "true").status, 0) << "--create, where there is a root";
  ProcessEnd end =
      run_shoal({"launch", "--root", root() + "/none/run", "--create", "--", "/bin/true"}, options());
  expect_refusal(end, "cannot create root " + root() + "/none/run");
}

// Regression: a job whose root had been moved away, or whose storage was not mounted, made a new root and
// trained from the start.
TEST_F(LaunchTest, NoNewRootIsMadeUnlessItIsAskedFor) {
  auto launch_again = [&] { return run_shoal({"launch", "--root", root(), "--", "/bin/true"}, options()); };
  expect_refusal(launch_again(), "root " + root() + " does not exist: is the storage mounted? Use --create");
  EXPECT_FALSE(std::filesystem::exists(root()));

  EXPECT_EQ(launch({}, "true").status, 0);
  EXPECT_EQ(launch_again().status, 0) << "a root that a run has used";
  std::filesystem::rename(root(), root() + ".moved");
  expect_refusal(launch_again(), "does not exist: is the storage mounted? Use --create");
  EXPECT_FALSE(std::filesystem::exists(root()));

  std::filesystem::create_directory(root());
  expect_refusal(launch_again(),
                 "root " + root() + " is an empty folder: is the storage mounted? Use --create");
  std::ofstream(root() + "/notes") << "mine";
  expect_refusal(launch_again(), "root " + root() + " is a folder that no run has used: is the storage");
  EXPECT_FALSE(std::filesystem::exists(root() + "/ROOT_ID"));
  EXPECT_EQ(launch({}, "true").status, 0);
  EXPECT_TRUE(std::filesystem::exists(root() + "/ROOT_ID"));
}

TEST_F(LaunchTest, ANodeThatIsStartedAgainInAnEmptiedRootMakesNoNewOne) {
  Process process(command({"-n", "1"}, "echo up; exec sleep 50"), options());
  ASSERT_TRUE(process.wait_for_output("up"));
  std::filesystem::rename(root(), root() + ".moved");
  std::filesystem::create_directory(root());
  ASSERT_EQ(kill(wait_for_child(process.pid(), "node"), SIGKILL), 0);
  EXPECT_TRUE(process.wait_for_errors(
      "holds no run: ROOT_ID does not exist; a node that continues a run does not create"));
  EXPECT_TRUE(std::filesystem::is_empty(root()));
  process.send_signal(SIGTERM);
  process.wait();
}

TEST_F(LaunchTest, ANodeKilledBeforeItIsReadySaysNothingAndItsSignalIsTold) {
  // It waits for a coordinator that never starts.
  Process process(command({"--nnodes", "2", "--node-rank", "1", "--coordinator", "127.0.0.1:1", "--job-id",
                           "j", "--token-file", write_token(0600)},
                          "true"),
                  options());
  pid_t node = wait_for_child(process.pid(), "node");
  ASSERT_NE(node, 0);
  ASSERT_EQ(kill(node, SIGKILL), 0);
  ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, HasSubstr("the node ended before it was ready: signal 9 (Killed)"));
  EXPECT_THAT(end.err, Not(HasSubstr("its log line above states why")));
}

TEST_F(LaunchTest, AJobThatIsToGoOnNeedsACheckpoint) {
  ProcessEnd end = launch({"--resume"}, "touch $FOLDER/ran");
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("root " + root() + " does not exist"));
  EXPECT_FALSE(std::filesystem::exists(root()));

  EXPECT_EQ(launch({}, "true").status, 0);
  end = launch({"--resume"}, "touch $FOLDER/ran");
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("root " + root() + " has no checkpoint to resume from"));
  EXPECT_FALSE(std::filesystem::exists(path("ran")));
  EXPECT_FALSE(std::filesystem::exists(root() + "/generations/2")) << "no generation is claimed for it";

  std::filesystem::copy(SHOAL_GOLDEN_ROOT, path("golden"), std::filesystem::copy_options::recursive);
  auto resume = [&] {
    return run_process({SHOAL_PROGRAM, "launch", "--root", path("golden"), "--resume", "--", "/bin/sh", "-c",
                        "touch $FOLDER/ran"},
                       options());
  };
  const std::string manifest = path("golden") + "/step-00000004/g2a1/manifest.shoal";
  flip_bit_at(manifest, -1, std::ios::end);
  end = resume();
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr(manifest));
  EXPECT_FALSE(std::filesystem::exists(path("ran")));
  flip_bit_at(manifest, -1, std::ios::end);
  end = resume();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_TRUE(std::filesystem::exists(path("ran")));
}

// Regression: such a root was rejected, although the first load commits its contents.
TEST_F(LaunchTest, AJobThatIsToGoOnMayHaveACheckpointThatLostItsManifest) {
  std::filesystem::copy(SHOAL_GOLDEN_ROOT, path("golden"), std::filesystem::copy_options::recursive);
  for (const char* step : {"1", "2", "3", "5"}) {
    std::filesystem::remove_all(path("golden") + "/step-0000000" + step);
  }
  const std::string attempt = path("golden") + "/step-00000004/g2a1";
  ASSERT_TRUE(std::filesystem::remove(attempt + "/manifest.shoal"));
  auto resume = [&] {
    return run_process({SHOAL_PROGRAM, "launch", "--root", path("golden"), "--resume", "--", "true"},
                       options());
  };
  EXPECT_EQ(resume().status, 0);
  ASSERT_TRUE(std::filesystem::remove(attempt + "/rank-00000.safetensors"));
  const ProcessEnd end = resume();
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("has no checkpoint to resume from"));
}

TEST_F(LaunchTest, ANodeWithoutAJobIdSaysWhichOneIsNeeded) {
  ProcessEnd end = run_shoal({"node", "--root", root(), "--create-root"}, options());
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err,
              HasSubstr("--job-id (or SHOAL_JOB_ID) is missing: it must equal that of the trainers"));
}

TEST_F(LaunchTest, AProgramThatIsNotThereIsNamed) {
  ProcessEnd end =
      run_process({SHOAL_PROGRAM, "launch", "--root", root(), "--", "/no/such/program"}, options());
  EXPECT_EQ(end.status, 127);
  EXPECT_THAT(end.err, HasSubstr("/no/such/program"));
  EXPECT_FALSE(std::filesystem::exists(root())) << "a job that will never be claims nothing";
  end = run_process({SHOAL_PROGRAM, "launch", "--root", root(), "--", "no-such-program"}, options());
  EXPECT_EQ(end.status, 127);
  EXPECT_THAT(end.err, HasSubstr("cannot run no-such-program"));
}

TEST_F(LaunchTest, WhatSeveralHostsNeedIsAskedForByName) {
  std::vector<std::string> flags = {"-n", "1", "--nnodes", "2"};
  expect_refusal(launch(flags, "true"), "--coordinator");
  flags.insert(flags.end(), {"--coordinator", "127.0.0.1:1"});
  expect_refusal(launch(flags, "true"), "--job-id");
  flags.insert(flags.end(), {"--job-id", "j"});
  expect_refusal(launch(flags, "true"), "--token-file");
  flags.insert(flags.end(), {"--token-file", path("none")});
  expect_refusal(launch(flags, "true"), "none: No such file");
  expect_refusal(launch({"-n", "2", "--world-size", "3", "--first-rank", "2"}, "true"), "ranks 2 to 3");
  expect_refusal(launch({"-n", "1", "--node-rank", "1"}, "true"), "--node-rank 1");
  expect_refusal(run_shoal({"launch", "--root", root()}, options()), "-- ./trainer");
}

TEST_F(LaunchTest, ATokenFileThatOthersMayReadIsRefusedByName) {
  for (mode_t mode : {0644, 0640, 0606, 0660}) {
    ProcessEnd end = launch({"-n", "1", "--token-file", write_token(mode)}, "true");
    expect_refusal(end, path("token") + " has mode");
  }
  ProcessEnd end = launch({"-n", "1", "--token-file", write_token(0600)}, "echo file $SHOAL_TOKEN_FILE");
  EXPECT_EQ(end.status, 0);
  EXPECT_THAT(end.out, HasSubstr("file " + path("token"))) << "for a node that the trainer may have to start";
}

TEST_F(LaunchTest, ANodeWithACoordinatorNeedsAToken) {
  std::filesystem::create_directory(root());
  expect_refusal(
      run_shoal({"node", "--root", root(), "--job-id", "j", "--coordinator", "127.0.0.1:1"}, options()),
      "--token-file or SHOAL_TOKEN");
  expect_refusal(run_shoal({"node", "--root", root()}, options()), "SHOAL_JOB_ID");
  expect_refusal(run_shoal({"node", "--root", root(), "--job-id", "j", "--ranks", "5-3"}, options()),
                 "--ranks 5-3");
}

TEST_F(LaunchTest, ANodeOfARootThatIsNotThereSaysSo) {
  ProcessEnd end = run_shoal({"node", "--root", root(), "--job-id", "j"}, options());
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, HasSubstr(root()));
}

TEST_F(LaunchTest, ANodeThatMayListenAnywhereTakesTheInterfaceThatWasChosen) {
  std::filesystem::create_directory(root());
  std::vector<std::string> arguments = {
      SHOAL_PROGRAM,     "node",         "--root",   root(),      "--job-id",   "j", "--token-file",
      write_token(0600), "--coordinate", "--listen", "0.0.0.0:0", "--ready-fd", "1"};
  {
    Process process(arguments, options());
    ASSERT_TRUE(process.wait_for_output("ready 0.0.0.0:"));
    process.send_signal(SIGTERM);
    EXPECT_THAT(process.wait().err,
                HasSubstr("this node listens at 0.0.0.0:0, on every interface of this host"));
  }
  arguments.insert(arguments.end(), {"--interface", "lo"});
  Process process(arguments, options());
  ASSERT_TRUE(process.wait_for_output("ready 127.0.0.1:"));
  process.send_signal(SIGTERM);
  EXPECT_THAT(process.wait().err, Not(HasSubstr("every interface")));
}

TEST_F(LaunchTest, ANodeStopsCleanlyOnSigterm) {
  std::filesystem::create_directory(root());
  Process process({SHOAL_PROGRAM, "node", "--root", root(), "--job-id", "j", "--ready-fd", "1",
                   "--stats-file", path("stats")},
                  options());
  ASSERT_TRUE(process.wait_for_output("ready 127.0.0.1:"));
  process.send_signal(SIGTERM);
  ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(variables_of(path("stats")).count("saves_committed"), 1u);
}

}  // namespace
}  // namespace shoal::cli
