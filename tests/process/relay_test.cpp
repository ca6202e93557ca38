// Jobs with more nodes than may connect to the coordinator directly. The others use relays, which are
// ordinary nodes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <thread>

#include "shoal/dcp/save_planner.h"
#include "tests/process/node_child.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

size_t descriptors_of(pid_t pid) {
  size_t count = 0;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), error)) {
    (void)each;
    ++count;
  }
  return count;
}

uint64_t count_of(const std::string& stats, const std::string& key) {
  size_t at = stats.find("\n" + key + "=");
  return at == std::string::npos ? 0 : std::stoull(stats.substr(at + key.size() + 2));
}

// Seven hosts, the first of which coordinates and has two ranks. Two nodes connect to it; the other four go
// by way of these, and that is all that two direct nodes reach.
class Relays : public ::testing::Test {
 protected:
  static constexpr uint32_t kHosts = 7, kWorld = 8;

  static std::string host(uint32_t i) { return std::string("host-") + std::to_string(i % kHosts); }
  std::vector<std::string> arguments(uint32_t i) const {
    std::vector<std::string> out = {"root=" + scratch_.root(),
                                    "job=job-1",
                                    fmt::format("world={}", kWorld),
                                    "name=" + host(i),
                                    "stats=" + scratch_.file("stats-" + host(i)),
                                    "max_direct_nodes=2"};
    if (i > 0) out.push_back("coordinator=" + address_);
    return out;
  }
  void start(uint32_t i, const std::string& more = "") {
    std::vector<std::string> words = arguments(i);
    if (!more.empty()) words.push_back(more);
    nodes_[i] = std::make_unique<NodeChild>(scratch_.host(host(i)), words);
    ASSERT_THAT(nodes_[i]->first_line(), StartsWith("ready"));
    if (i == 0) address_ = nodes_[0]->address();
  }
  void open_trainers(SaveMode mode = SaveMode::collective_free) {
    for (Rank rank = 0; rank < kWorld; ++rank) {
      trainers_.push_back(
          std::make_unique<Trainer>(scratch_, host(rank), rank, kWorld, "job-1",
                                    [mode](CheckpointerOptions& options) { options.save.mode = mode; }));
      ASSERT_TRUE(trainers_[rank]->opened.ok()) << trainers_[rank]->opened.status().to_string();
    }
  }
  std::vector<SaveHandle> save(uint64_t step) {
    std::vector<SaveHandle> saves;
    for (auto& saved : together(trainers_, [step](Trainer& trainer) { return trainer.save(step); })) {
      EXPECT_TRUE(saved.ok()) << saved.status().to_string();
      if (saved.ok()) saves.push_back(*saved);
    }
    return saves;
  }
  static void expect_committed(std::vector<SaveHandle> saves) {
    for (SaveHandle& save : saves) {
      auto committed = save.wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << to_string(save.key()) << ": " << committed.status().to_string();
    }
  }
  std::string stop(uint32_t i) {
    nodes_[i]->signal(SIGTERM);
    EXPECT_EQ(nodes_[i]->wait(), 0);
    return "\n" + read_file(scratch_.file("stats-" + host(i)));
  }

  Scratch scratch_;
  std::string address_;
  std::unique_ptr<NodeChild> nodes_[kHosts];
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

TEST_F(Relays, SixNodesAreHeardOverTwoConnectionsAndTheirSaveLoadsElsewhere) {
  for (uint32_t i = 0; i < 3; ++i) start(i);
  const size_t with_two = descriptors_of(nodes_[0]->pid());
  for (uint32_t i = 3; i < kHosts; ++i) start(i);
  open_trainers();
  expect_committed(save(1));
  expect_committed(save(2));
  EXPECT_LE(descriptors_of(nodes_[0]->pid()), with_two + 2 * 4) << "its two trainers, and no more nodes";
  for (auto& trainer : trainers_) {
    trainer->forget();
    auto loaded = trainer->checkpointer().load(trainer->state);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_TRUE(trainer->holds(2));
  }
  trainers_.clear();
  uint64_t relayed = 0;
  for (uint32_t i = kHosts - 1; i > 0; --i) relayed += count_of(stop(i), "relay_messages_up");
  const std::string stats = stop(0);
  EXPECT_EQ(count_of(stats, "direct_nodes_most"), 2u);
  EXPECT_EQ(count_of(stats, "relayed_nodes_most"), 4u);
  EXPECT_EQ(count_of(stats, "saves_committed"), 2u);
  EXPECT_GE(relayed, 4u * 2u) << "each child reported each save";

  NodeChild next(scratch_.host("next"), {"root=" + scratch_.root(), "job=job-2", "world=2"});
  ASSERT_NE(next.address(), "");
  Trainer first(scratch_, "next", 0, 2, "job-2"), second(scratch_, "next", 1, 2, "job-2");
  for (Trainer* trainer : {&first, &second}) {
    auto loaded = trainer->checkpointer().load(trainer->state);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_TRUE(trainer->holds(2));
  }
}

// Gathered and scattered over a tree of fan-in two: what is planned, and, before that, what planners say.
TEST_F(Relays, CarryACollectiveSaveUpTheTreeAndDown) {
  class Planner : public dcp::DefaultGlobalSavePlanner {
   public:
    Result<dcp::GlobalSavePlan> create_global_plan(std::vector<dcp::SavePlan> plans) override {
      for (dcp::SavePlan& plan : plans) plan.planner_data = fmt::format("one of {}", plans.size());
      return DefaultGlobalSavePlanner::create_global_plan(std::move(plans));
    }
    Result<dcp::SavePlan> finish_plan(dcp::SavePlan plan) override {
      EXPECT_EQ(plan.planner_data, fmt::format("one of {}", kWorld));
      return plan;
    }
  };
  for (uint32_t i = 0; i < kHosts; ++i) start(i);
  open_trainers(SaveMode::collective);
  expect_committed(save(1));
  auto planned = together(trainers_, [](Trainer& trainer) {
    Planner planner;
    trainer.fill(2);
    return trainer.checkpointer().save(2, trainer.state, planner);
  });
  for (auto& save : planned) {
    ASSERT_TRUE(save.ok()) << save.status().to_string();
    auto committed = save->wait_committed(kPatience);
    EXPECT_TRUE(committed.ok()) << committed.status().to_string();
  }
  for (auto& trainer : trainers_) {
    trainer->forget();
    auto loaded = trainer->checkpointer().load(trainer->state, {.step = 2});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_TRUE(trainer->holds(2));
  }
  trainers_.clear();
  for (uint32_t i = kHosts - 1; i > 0; --i) stop(i);
  EXPECT_EQ(count_of(stop(0), "direct_nodes_most"), 2u);
}

TEST_F(Relays, ARelayThatIsKilledInTheMiddleOfASaveIsReplacedAndTheSaveCommits) {
  start(0);
  start(1, "die_at=WriteShard:before:2");  // of its rank's second save
  for (uint32_t i = 2; i < kHosts; ++i) start(i);
  open_trainers();
  expect_committed(save(1));
  std::vector<SaveHandle> saves = save(2);
  ASSERT_EQ(nodes_[1]->wait(), 128 + SIGKILL);
  start(1);
  expect_committed(saves);
  expect_committed(save(3));
  trainers_.clear();
  for (uint32_t i = kHosts - 1; i > 0; --i) stop(i);
  EXPECT_EQ(count_of(stop(0), "saves_committed"), 3u);
}

TEST_F(Relays, ThatAreAllToldToStopCommitWhatAllRanksHaveStagedAndLeaveTheRestToTheNextNodes) {
  for (uint32_t i = 0; i < kHosts; ++i) start(i);
  open_trainers();
  expect_committed(save(1));
  std::vector<SaveHandle> staged = save(2), half;
  for (Rank rank = 0; rank < kWorld; ++rank) {
    if (rank == 5) continue;
    auto saved = trainers_[rank]->save(3);
    ASSERT_TRUE(saved.ok());
    half.push_back(*saved);
  }
  for (auto& node : nodes_) node->signal(SIGTERM);
  expect_committed(staged);
  for (SaveHandle& save : half) {
    EXPECT_THAT(save.wait_committed(kPatience).status().message(), HasSubstr("has ended"));
  }
  for (auto& node : nodes_) EXPECT_EQ(node->wait(), 0);
  EXPECT_FALSE(decision_of(scratch_.root(), {1, 3, 1}).ok());
}

TEST_F(Relays, ANodeForWhichThereIsNoPlaceIsToldWhy) {
  for (uint32_t i = 0; i < kHosts; ++i) start(i);
  std::vector<std::string> more = arguments(1);
  more[3] = "name=one-too-many";
  more.push_back("find_ms=3000");
  NodeChild late(scratch_.host("late"), more);
  EXPECT_THAT(late.first_line(),
              HasSubstr("2 nodes are connected to the coordinator, and their relays are full"));
}

}  // namespace
}  // namespace shoal::testing
