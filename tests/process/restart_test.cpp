// Nodes that are killed during saves and loads, and restarted. No staged data is lost.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <future>
#include <thread>

#include "tests/process/node_child.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two hosts, a rank on each; the node of either can be killed and comes back under the same arguments.
class Restart : public ::testing::Test {
 protected:
  void SetUp() override {
    arguments_[0] = {"root=" + scratch_.root(), "job=job-1", "world=2", "name=a", "rejoin=0"};
    start(0);
    const std::string address = nodes_[0]->address();
    ASSERT_NE(address, "");
    arguments_[0].push_back("listen=" + address);
    arguments_[1] = {"root=" + scratch_.root(), "job=job-1", "world=2", "name=b", "coordinator=" + address};
    start(1);
    ASSERT_THAT(nodes_[1]->first_line(), StartsWith("ready"));
    for (uint32_t i = 0; i < 2; ++i) {
      trainers_[i] = std::make_unique<Trainer>(scratch_, kHosts[i], i, 2, "job-1", change_);
      ASSERT_TRUE(trainers_[i]->opened.ok()) << trainers_[i]->opened.status().to_string();
    }
  }
  void start(int host, const std::string& stop_at = "") {
    std::vector<std::string> arguments = arguments_[host];
    if (!stop_at.empty()) arguments.push_back("die_at=" + stop_at);
    nodes_[host] = std::make_unique<NodeChild>(scratch_.host(kHosts[host]), arguments);
  }
  // Kills the node at once, or waits until it has killed itself as requested; then starts it again.
  void restart(int host) {
    nodes_[host]->signal(SIGKILL);
    ASSERT_EQ(nodes_[host]->wait(), 128 + SIGKILL);
    start(host);
  }
  void expect_committed(std::vector<SaveHandle>& saves) {
    for (SaveHandle& save : saves) {
      auto committed = save.wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << to_string(save.key()) << ": " << committed.status().to_string();
    }
  }
  void save_on_both(uint64_t step) {
    for (auto& trainer : trainers_) {
      auto saved = trainer->save(step);
      ASSERT_TRUE(saved.ok()) << saved.status().to_string();
      saves_.push_back(*saved);
    }
  }
  void expect_loads(uint64_t step) {
    for (auto& trainer : trainers_) {
      trainer->forget();
      auto loaded = trainer->checkpointer().load(trainer->state);
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      EXPECT_EQ(loaded->metadata.key.step, step);
      EXPECT_EQ(loaded->metadata.user, trainer->attributes.metadata);
      EXPECT_TRUE(trainer->holds(step));
    }
  }

  static constexpr const char* kHosts[] = {"a", "b"};
  Scratch scratch_;
  std::vector<std::string> arguments_[2];
  std::unique_ptr<NodeChild> nodes_[2];
  std::function<void(CheckpointerOptions&)> change_;
  std::unique_ptr<Trainer> trainers_[2];
  std::vector<SaveHandle> saves_;
};

// The moments of a save at which a node ends, by the operation that it would begin or has just ended.
struct KillPoint {
  int host;
  const char* at;
};
class RestartAt : public Restart, public ::testing::WithParamInterface<KillPoint> {};

TEST_P(RestartAt, LosesNothingAndCommits) {
  save_on_both(1);
  expect_committed(saves_);
  // The node restarts, with a request to end at that point of what follows.
  nodes_[GetParam().host]->signal(SIGKILL);
  ASSERT_EQ(nodes_[GetParam().host]->wait(), 128 + SIGKILL);
  start(GetParam().host, GetParam().at);
  for (auto& trainer : trainers_) trainer->attributes.metadata = {{"run", "a"}};
  save_on_both(2);
  ASSERT_EQ(nodes_[GetParam().host]->wait(), 128 + SIGKILL) << "it never came to " << GetParam().at;
  start(GetParam().host);
  save_on_both(3);
  expect_committed(saves_);
  for (uint64_t step : {2, 3}) {
    auto decision = decision_of(scratch_.root(), {1, step, 1});
    ASSERT_TRUE(decision.ok()) << decision.status().to_string();
    EXPECT_EQ(decision->manifest().user, (UserMetadata{{"run", "a"}})) << step;
  }
  for (SaveHandle& save : saves_) EXPECT_EQ(save.key().generation, 1u);
  expect_loads(3);
}

INSTANTIATE_TEST_SUITE_P(
    EveryMoment, RestartAt,
    ::testing::Values(KillPoint{0, "WriteShard:before:1"}, KillPoint{0, "WriteShard:after:1"},
                      KillPoint{0, "ReadDecision:before:1"}, KillPoint{0, "CheckFiles:before:1"},
                      KillPoint{0, "PublishDecision:before:1"}, KillPoint{0, "PublishDecision:after:1"},
                      KillPoint{0, "RecordDecision:before:1"}, KillPoint{0, "RecordDecision:after:1"},
                      KillPoint{1, "WriteShard:before:1"}, KillPoint{1, "WriteShard:after:1"},
                      KillPoint{1, "ReadDecision:before:1"}),
    [](const auto& at) {
      std::string name = fmt::format("Host{}{}", at.param.host, at.param.at);
      std::erase(name, ':');
      return name;
    });

// Each of the two ranks once the one that has not staged yet.
class CoordinatorToldToStop : public Restart, public ::testing::WithParamInterface<int> {};

TEST_P(CoordinatorToldToStop, LeavesWhatIsInFlightToTheNextOne) {
  save_on_both(1);
  expect_committed(saves_);
  const int late = GetParam();
  auto early = trainers_[1 - late]->save(2);
  ASSERT_TRUE(early.ok()) << early.status().to_string();
  saves_.push_back(*early);
  nodes_[0]->signal(SIGTERM);
  ASSERT_EQ(nodes_[0]->wait(), 0);
  EXPECT_EQ(decision_of(scratch_.root(), {1, 2, 1}).status().code(), Code::not_found);
  start(0);
  auto then = trainers_[late]->save(2);
  ASSERT_TRUE(then.ok()) << then.status().to_string();
  saves_.push_back(*then);
  expect_committed(saves_);
  expect_loads(2);
}

INSTANTIATE_TEST_SUITE_P(RankThatIsLate, CoordinatorToldToStop, ::testing::Values(0, 1));

TEST_F(Restart, AHostThatDoesNotComeBackAbortsTheSaveThatWaitsForIt) {
  save_on_both(1);
  expect_committed(saves_);
  nodes_[0]->signal(SIGKILL);
  ASSERT_EQ(nodes_[0]->wait(), 128 + SIGKILL);
  arguments_[0].push_back("host_lost_ms=5000");
  start(0);
  save_on_both(2);  // both ranks have connected: the node knows its ranks
  expect_committed(saves_);
  nodes_[1]->signal(SIGKILL);
  ASSERT_EQ(nodes_[1]->wait(), 128 + SIGKILL);
  auto saved = trainers_[0]->save(3);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  const Status outcome = saved->wait_committed(kPatience).status();  // well below the deadline
  EXPECT_EQ(outcome.code(), Code::aborted);
  EXPECT_THAT(outcome.message(), AllOf(HasSubstr("host b (rank 1) is lost ("),
                                       HasSubstr("): neither its node nor its trainers came back within 5")));
}

TEST_F(Restart, OfBothNodesWithSeveralSavesInFlight) {
  for (int host : {1, 0}) nodes_[host]->signal(SIGSTOP);
  save_on_both(1);
  save_on_both(2);
  for (int host : {1, 0}) nodes_[host]->signal(SIGKILL);
  for (int host : {0, 1}) {
    ASSERT_EQ(nodes_[host]->wait(), 128 + SIGKILL);
    start(host);
  }
  save_on_both(3);
  expect_committed(saves_);
  expect_loads(3);
}

// Some file of the attempt's folder whose name ends like that.
bool has_file(const std::string& folder, const std::string& ending) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().ends_with(ending)) return true;
  }
  return false;
}

TEST(RestartOfAWriter, InTheMiddleOfAFile) {
  Scratch scratch;
  const std::vector<std::string> arguments = {"root=" + scratch.root(), "job=job-1", "world=1", "rejoin=0"};
  auto node = std::make_unique<NodeChild>(scratch.host("a"), arguments);
  ASSERT_NE(node->address(), "");
  Trainer trainer(scratch, "a", 0, 1);
  ASSERT_TRUE(trainer.opened.ok());
  std::vector<uint32_t> large(size_t{24} << 20);  // 96 MiB
  trainer.state.add_tensor("large", DType::u32, {large.size()}, Mesh::contiguous({1}), {Placement::shard(0)},
                           large.data());
  int in_time = 0;
  for (uint64_t step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<uint32_t>(i * step);
    auto saved = trainer.save(step);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    const std::string folder = fmt::format("{}/step-{:08}/g1a1", scratch.root(), step);
    while (!has_file(folder, ".partial") && !saved->done()) std::this_thread::yield();
    in_time += !saved->done();
    node->signal(SIGKILL);
    ASSERT_EQ(node->wait(), 128 + SIGKILL);
    node = std::make_unique<NodeChild>(scratch.host("a"), arguments);
    auto committed = saved->wait_committed(kPatience);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  EXPECT_GT(in_time, 0);
  std::fill(large.begin(), large.end(), 0);
  ASSERT_TRUE(trainer.checkpointer().load(trainer.state).ok());
  for (size_t i = 0; i < large.size(); ++i) ASSERT_EQ(large[i], static_cast<uint32_t>(i * 3)) << i;
}

TEST_F(Restart, KeepsTheDescriptorOfWhatIsDurable) {
  // Host b writes, receives no decision (the coordinator is stopped), and ends.
  save_on_both(1);
  expect_committed(saves_);
  nodes_[0]->signal(SIGSTOP);
  auto staged = trainers_[1]->save(2);
  ASSERT_TRUE(staged.ok());
  saves_.push_back(*staged);
  // A third save finds a free slab only once one of the two before is durable.
  for (uint64_t step : {3, 4}) {
    auto more = trainers_[1]->save(step);
    ASSERT_TRUE(more.ok()) << more.status().to_string();
    saves_.push_back(*more);
  }
  nodes_[1]->signal(SIGKILL);
  ASSERT_EQ(nodes_[1]->wait(), 128 + SIGKILL);
  nodes_[0]->signal(SIGCONT);
  start(1);
  for (uint64_t step : {2, 3, 4}) {
    auto other = trainers_[0]->save(step);
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    saves_.push_back(*other);
  }
  expect_committed(saves_);
  expect_loads(4);
}

// Where the trainer reads the files itself, and where its node reads them.
class RestartInALoad : public Restart, public ::testing::WithParamInterface<bool> {
 protected:
  RestartInALoad() {
    change_ = [](CheckpointerOptions& options) { options.load_threads = GetParam() ? 2 : 0; };
  }
};

TEST_P(RestartInALoad, OfANodeInTheMiddleOfIt) {
  save_on_both(1);
  expect_committed(saves_);
  nodes_[1]->signal(SIGKILL);
  ASSERT_EQ(nodes_[1]->wait(), 128 + SIGKILL);
  start(1, GetParam() ? "LocateRanges:after:1" : "ReadBatch:before:1");
  trainers_[1]->forget();
  std::thread back([&] {
    EXPECT_EQ(nodes_[1]->wait(), 128 + SIGKILL);
    start(1);
  });
  auto loaded = trainers_[1]->checkpointer().load(trainers_[1]->state);
  back.join();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_TRUE(trainers_[1]->holds(1));
}

INSTANTIATE_TEST_SUITE_P(ByWhomIsRead, RestartInALoad, ::testing::Bool(),
                         [](const auto& by) { return by.param ? "Trainer" : "Node"; });

class RestartInVain : public Restart {
 protected:
  RestartInVain() {
    change_ = [](CheckpointerOptions& options) { options.attach_timeout = kShortPatience; };
  }
};

TEST_F(RestartInVain, IsReportedAndPasses) {
  nodes_[1]->signal(SIGSTOP);
  auto saved = trainers_[1]->save(1);
  ASSERT_TRUE(saved.ok());
  nodes_[1]->signal(SIGKILL);
  ASSERT_EQ(nodes_[1]->wait(), 128 + SIGKILL);
  Status gone = saved->wait_committed(kPatience).status();
  EXPECT_THAT(gone.message(), HasSubstr("has ended"));
  EXPECT_THAT(gone.message(), HasSubstr("no process holds"));
  start(1);  // later than any rank waited for it
  ASSERT_THAT(nodes_[1]->first_line(), StartsWith("ready"));
  ASSERT_TRUE(trainers_[1]->checkpointer().latest().status().code() == Code::not_found);
  ASSERT_TRUE(trainers_[0]->save(1).ok());
  save_on_both(2);
  expect_committed(saves_);
}

// Each rank waits in save until all have declared their layouts, so each runs on its own thread.
class CollectiveRestart : public Restart {
 protected:
  CollectiveRestart() {
    change_ = [](CheckpointerOptions& options) { options.save.mode = SaveMode::collective; };
  }
  std::future<Result<SaveHandle>> saving(int rank, uint64_t step) {
    return std::async(std::launch::async, [this, rank, step] { return trainers_[rank]->save(step); });
  }
  void expect_committed_by_both(std::future<Result<SaveHandle>> first,
                                std::future<Result<SaveHandle>> second) {
    for (auto* each : {&first, &second}) {
      Result<SaveHandle> saved = each->get();
      ASSERT_TRUE(saved.ok()) << saved.status().to_string();
      auto committed = saved->wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    }
  }
};

TEST_F(CollectiveRestart, ARankThatWaitsForItsPlanAsksTheNextNodeOfItsHost) {
  for (int host : {0, 1}) {  // the first is the coordinator's, too
    const uint64_t step = 1 + static_cast<uint64_t>(host);
    auto first = saving(host, step);
    EXPECT_EQ(first.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    restart(host);
    expect_committed_by_both(std::move(first), saving(1 - host, step));
    expect_loads(step);
  }
}

TEST_F(CollectiveRestart, APlanThatAClientHasServesUnderNodesThatNeverToldIt) {
  expect_committed_by_both(saving(0, 1), saving(1, 1));
  restart(0);
  restart(1);
  expect_committed_by_both(saving(0, 2), saving(1, 2));
  expect_loads(2);
}

TEST_F(CollectiveRestart, AFailureBeforeARankAsksEndsTheSaveOfThoseThatWait) {
  auto waiting = saving(0, 1);
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  StateDict twice;
  twice.add_object("x", &trainers_[1]->rng, Mesh::contiguous({2}));
  twice.add_object("x", &trainers_[1]->rng, Mesh::contiguous({2}));
  const Status failed = trainers_[1]->checkpointer().save(1, twice).status();
  EXPECT_EQ(failed.message(), "rank 1, step 1 (g1a1): 'x' is given twice");
  const Status outcome = waiting.get().status();
  EXPECT_EQ(outcome.code(), Code::aborted) << outcome.to_string();
  EXPECT_THAT(outcome.message(), HasSubstr("rank 1"));
  EXPECT_THAT(outcome.message(), HasSubstr("'x' is given twice"));
}

}  // namespace
}  // namespace shoal::testing
