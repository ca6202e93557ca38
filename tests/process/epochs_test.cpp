// Real coordinators that are killed, stopped and resumed, and another one beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "local/socket/socket_file.h"
#include "local/status/node_query.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A coordinator without trainers on host "c", and the nodes of two hosts with one rank each.
class EpochsLive : public ::testing::Test {
 protected:
  std::vector<std::string> coordinating(const std::string& job = "job-1") const {
    return {"root=" + scratch_.root(), "job=" + job, "name=c", "world=2"};
  }
  // In the place of the coordinator of the first generation.
  std::vector<std::string> coordinating_again() const {
    auto arguments = coordinating();
    arguments.push_back("rejoin=1");
    return arguments;
  }
  std::vector<std::string> following(const std::string& name, const std::string& address) const {
    return {"root=" + scratch_.root(), "job=job-1", "name=" + name, "world=2", "coordinator=" + address,
            "node_deadline_ms=30000"};
  }
  void start() {
    coordinator_ = std::make_unique<NodeChild>(scratch_.host("c"), coordinating());
    const std::string address = coordinator_->address();
    ASSERT_NE(address, "");
    a_ = std::make_unique<NodeChild>(scratch_.host("a"), following("a", address));
    b_ = std::make_unique<NodeChild>(scratch_.host("b"), following("b", address));
    ASSERT_THAT(a_->first_line(), StartsWith("ready"));
    ASSERT_THAT(b_->first_line(), StartsWith("ready"));
    first_ = std::make_unique<Trainer>(scratch_, "a", 0, 2);
    second_ = std::make_unique<Trainer>(scratch_, "b", 1, 2);
    ASSERT_TRUE(first_->opened.ok() && second_->opened.ok());
  }
  // The outcome that both ranks received for this save; it must be the same.
  Status outcome_of(uint64_t step) {
    auto one = first_->save(step), other = second_->save(step);
    if (!one.ok()) return one.status();
    if (!other.ok()) return other.status();
    Status outcome = one->wait_committed(kPatience).status();
    EXPECT_EQ(other->wait_committed(kPatience).ok(), outcome.ok());
    auto decision = decision_of(scratch_.root(), {1, step, 1});
    EXPECT_EQ(decision.ok() && decision->committed(), outcome.ok());
    return outcome;
  }

  Scratch scratch_;
  std::unique_ptr<NodeChild> coordinator_, a_, b_;
  std::unique_ptr<Trainer> first_, second_;
};

TEST_F(EpochsLive, ACoordinatorKilledInTheMiddleAndRestartedElsewhereIsFoundByAll) {
  start();
  ASSERT_EQ(outcome_of(1), ok_status());
  auto one = first_->save(2);  // the other rank has not staged it
  ASSERT_TRUE(one.ok());
  coordinator_->signal(SIGKILL);
  coordinator_->wait();
  NodeChild next(scratch_.host("d"), coordinating_again());  // on another port
  ASSERT_NE(next.address(), "");
  auto other = second_->save(2);
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(one->wait_committed(kPatience).ok());
  EXPECT_TRUE(other->wait_committed(kPatience).ok());
  EXPECT_EQ(outcome_of(3), ok_status());
}

TEST_F(EpochsLive, AStoppedCoordinatorThatWakesUpBesideALaterOneDecidesNothingAndEnds) {
  start();
  ASSERT_EQ(outcome_of(1), ok_status());
  auto one = first_->save(2);
  ASSERT_TRUE(one.ok());
  coordinator_->signal(SIGSTOP);
  NodeChild next(scratch_.host("d"), coordinating_again());
  ASSERT_NE(next.address(), "");
  coordinator_->signal(SIGCONT);  // two at once
  auto other = second_->save(2);
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(one->wait_committed(kPatience).ok());
  EXPECT_TRUE(other->wait_committed(kPatience).ok());
  EXPECT_EQ(outcome_of(3), ok_status());
  EXPECT_EQ(coordinator_->wait(), 0);  // superseded, and not needed by any trainer
  EXPECT_EQ(outcome_of(4), ok_status());
}

// Regression: it stated that it coordinates, and showed the hosts of the job as lost.
TEST_F(EpochsLive, ACoordinatorThatWasReplacedStatesWhomItFollows) {
  NodeChild former(scratch_.host("c"), coordinating());
  ASSERT_NE(former.address(), "");
  b_ = std::make_unique<NodeChild>(scratch_.host("b"), following("b", former.address()));
  ASSERT_THAT(b_->first_line(), StartsWith("ready"));
  first_ = std::make_unique<Trainer>(scratch_, "c", 0, 2);  // so it stays
  second_ = std::make_unique<Trainer>(scratch_, "b", 1, 2);
  ASSERT_TRUE(first_->opened.ok() && second_->opened.ok());
  ASSERT_EQ(outcome_of(1), ok_status());
  former.signal(SIGSTOP);
  auto arguments = coordinating_again();
  std::replace(arguments.begin(), arguments.end(), std::string("name=c"), std::string("name=d"));
  NodeChild next(scratch_.host("d"), arguments);
  ASSERT_NE(next.address(), "");
  former.signal(SIGCONT);
  EXPECT_EQ(outcome_of(2), ok_status());

  setenv("SHOAL_RUNTIME_DIR", scratch_.host("c").c_str(), 1);
  const std::string socket = local::node_paths(scratch_.root())->socket_file;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  Result<local::NodeStatus> status = local::ask_node(socket);
  Result<local::JobStatus> job = local::ask_job(socket);
  const auto is_followed = [&] {
    return job.ok() &&
           std::ranges::count(job->hosts, local::HostState::answered, &local::HostStatus::state) == 3;
  };
  while (!is_followed() && std::chrono::steady_clock::now() < until) {
    status = local::ask_node(socket);
    job = local::ask_job(socket);
  }
  ASSERT_TRUE(status.ok() && job.ok());
  EXPECT_FALSE(status->coordinates);
  EXPECT_EQ(status->coordinator, next.address());
  EXPECT_EQ(status->epoch, 2u);
  EXPECT_TRUE(is_followed()) << job->incomplete;
  for (const local::HostStatus& host : job->hosts) EXPECT_EQ(host.coordinates, host.host == "d") << host.host;
}

TEST_F(EpochsLive, AnotherJobTakesTheRootOnlyWhenItSaysSo) {
  start();
  ASSERT_EQ(outcome_of(1), ok_status());
  NodeChild refused(scratch_.host("d"), coordinating("job-2"));
  EXPECT_THAT(refused.first_line(), HasSubstr("job 'job-1' is running"));
  auto one = first_->save(2);
  ASSERT_TRUE(one.ok());
  auto arguments = coordinating("job-2");
  arguments.push_back("take_over=1");
  NodeChild taken(scratch_.host("e"), arguments);
  ASSERT_NE(taken.address(), "");
  EXPECT_EQ(coordinator_->wait(), 1);
  auto outcome = one->wait_committed(kPatience);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("job 'job-2' has taken over"));
}

// Regression: the clients of the next job started its coordinator too early, and the next one after up to 14
// s.
TEST_F(EpochsLive, ANodeThatAClientStartedWaitsForTheCoordinatorOfTheJobBefore) {
  start();
  auto waiting = coordinating("job-2");
  waiting.insert(waiting.end(), {"idle_ms=3600000", "log=" + scratch_.file("d.log")});
  NodeChild next(scratch_.host("d"), waiting);
  auto impatient = waiting;
  impatient.push_back("find_ms=300");
  EXPECT_THAT(NodeChild(scratch_.host("e"), impatient).first_line(), HasSubstr("job 'job-1' is running"));
  coordinator_->signal(SIGTERM);
  EXPECT_EQ(coordinator_->wait(), 0);
  EXPECT_NE(next.address(), "") << next.first_line();
  EXPECT_THAT(read_file(scratch_.file("d.log")), HasSubstr("this node waits until that job ends"));
}

// Regression: it kept the host's lock for a minute, and the next job, on this host alone, gave up.
TEST(ANodeThatAClientStarted, EndsWithItsClientBeforeItHasFoundTheCoordinator) {
  Scratch scratch;
  const pid_t client = fork();
  if (client == 0) {
    pause();
    _exit(0);
  }
  NodeChild first(scratch.host("a"),
                  {"root=" + scratch.root(), "job=job-1", "world=2", "coordinator=127.0.0.1:1",
                   "idle_ms=5000", "log=" + scratch.file("a.log"), "started_by=" + std::to_string(client)});
  for (int i = 0; i < 500 && read_file(scratch.file("a.log")).empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_THAT(read_file(scratch.file("a.log")), HasSubstr("cannot reach the coordinator"));
  kill(client, SIGKILL);  // its status is not collected yet
  EXPECT_THAT(first.first_line(), HasSubstr("no coordinator at 127.0.0.1:1"));
  EXPECT_EQ(first.wait(), 1);
  waitpid(client, nullptr, 0);
  NodeChild next(scratch.host("a"), {"root=" + scratch.root(), "job=job-2", "world=1"});
  EXPECT_NE(next.address(), "") << next.first_line();
}

TEST(ANodeThatAClientStarted, WaitsForThePortOfTheJobBeforeOnAnotherRoot) {
  Scratch first, second;
  NodeChild before(first.host("a"), {"root=" + first.root(), "job=job-1", "name=a", "world=1"});
  ASSERT_NE(before.address(), "");
  const std::vector<std::string> next = {"root=" + second.root(), "job=job-2", "name=a", "world=1",
                                         "listen=" + before.address()};
  NodeChild refused(second.host("b"), next);
  EXPECT_THAT(refused.first_line(), HasSubstr("cannot listen on it"));
  auto waiting = next;
  waiting.insert(waiting.end(), {"idle_ms=3600000", "log=" + second.file("c.log")});
  NodeChild waits(second.host("c"), waiting);
  for (int i = 0; i < 500 && read_file(second.file("c.log")).empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_THAT(read_file(second.file("c.log")),
              HasSubstr("this node waits until the program that uses it ends"));
  const std::string address = before.address();
  before.signal(SIGTERM);
  EXPECT_EQ(before.wait(), 0);
  EXPECT_EQ(waits.address(), address) << waits.first_line();
}

TEST_F(EpochsLive, ARunOfTheSameJobIdIsAnotherRun) {
  start();
  ASSERT_EQ(outcome_of(1), ok_status());
  auto other_world = coordinating();
  other_world[3] = "world=3";
  NodeChild refused(scratch_.host("d"), other_world);
  EXPECT_THAT(refused.first_line(), HasSubstr("an earlier run of job 'job-1' is running"));
  auto one = first_->save(2);
  ASSERT_TRUE(one.ok());
  other_world.push_back("take_over=1");
  NodeChild taken(scratch_.host("e"), other_world);
  ASSERT_NE(taken.address(), "");
  EXPECT_EQ(coordinator_->wait(), 1);
  auto outcome = one->wait_committed(kPatience);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("a later run of job 'job-1' has taken over"));
  Trainer later(scratch_, "e", 0, 3);
  ASSERT_TRUE(later.opened.ok()) << later.opened.status().to_string();
  EXPECT_EQ(later.checkpointer().generation(), 2u);
}

TEST(TheTrainersOfACoordinator, WhoseRootAnotherJobTakesHearItsNameInEveryCall) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2", "epoch_check_ms=100"});
  ASSERT_NE(node.address(), "");
  Trainer first(scratch, "a", 0, 2), second(scratch, "a", 1, 2);
  ASSERT_TRUE(first.opened.ok() && second.opened.ok());
  auto one = first.save(1), other = second.save(1);
  ASSERT_TRUE(one.ok() && other.ok() && one->wait_committed(kPatience).ok());
  auto half = first.save(2);  // the other rank has not staged it
  ASSERT_TRUE(half.ok());
  NodeChild taker(scratch.host("b"), {"root=" + scratch.root(), "job=job-2", "take_over=1"});
  ASSERT_NE(taker.address(), "");
  const std::string cause =
      fmt::format("job 'job-2' has taken over {}: epoch 2 at {}", scratch.root(), taker.address());
  EXPECT_EQ(node.wait(), 1);
  EXPECT_THAT(half->wait_committed(kPatience).status().message(), HasSubstr("job 'job-2' has taken over"));
  auto next = second.save(3);  // the node is gone by now
  Status outcome = next.ok() ? next->wait_committed(kPatience).status() : next.status();
  EXPECT_EQ(outcome.code(), Code::superseded);
  EXPECT_THAT(outcome.message(), HasSubstr(cause));
  EXPECT_THAT(first.checkpointer().latest().status().message(), HasSubstr(cause));
}

TEST_F(EpochsLive, AFollowerIsStoppedWithinSecondsWhenItsCoordinatorIsGoneForGood) {
  start();
  auto one = first_->save(1);
  ASSERT_TRUE(one.ok());
  coordinator_->signal(SIGKILL);
  coordinator_->wait();
  const auto begun = std::chrono::steady_clock::now();
  a_->signal(SIGTERM);
  EXPECT_EQ(a_->wait(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  auto outcome = one->wait_committed(kPatience);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("has ended"));
  EXPECT_FALSE(decision_of(scratch_.root(), {1, 1, 1}).ok()) << "the next node would have gone on with it";
}

}  // namespace
}  // namespace shoal::testing
