// Jobs of two hosts whose root is in an object store, with nodes that are killed and requests that fail.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <thread>

#include "storage/open_storage.h"
#include "tests/process/node_child.h"
#include "tests/process/trainer.h"
#include "tests/storage/s3/object_store.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kBucketRoot = "s3://bucket/runs/7";
constexpr uint64_t kLargeElements = uint64_t{12} << 20;  // 48 MiB over two ranks: each has more than one part

class InObjectStorage : public ::testing::Test {
 protected:
  void start_store(std::vector<std::string> arguments = {}) {
    store_ = ObjectStore::start(std::move(arguments));
    SHOAL_NEEDS_OBJECT_STORE(store_);
    store_->set_environment();
  }
  void start_job() {
    arguments_[0] = {"root=" + root(), "job=job-1", "world=2", "name=a", "rejoin=0"};
    start(0);
    const std::string address = nodes_[0]->address();
    ASSERT_NE(address, "");
    arguments_[0].push_back("listen=" + address);
    arguments_[1] = {"root=" + root(), "job=job-1", "world=2", "name=b", "coordinator=" + address};
    start(1);
    ASSERT_THAT(nodes_[1]->first_line(), StartsWith("ready"));
    for (uint32_t i = 0; i < 2; ++i) {
      large_[i].resize(kLargeElements / 2);
      trainers_[i] = std::make_unique<Trainer>(scratch_, kHosts[i], i, 2, "job-1",
                                               [](CheckpointerOptions& options) { options.root = root(); });
      ASSERT_TRUE(trainers_[i]->opened.ok()) << trainers_[i]->opened.status().to_string();
      trainers_[i]->state.add_tensor("large", DType::u32, {kLargeElements}, Mesh::contiguous({2}),
                                     {Placement::shard(0)}, large_[i].data());
    }
  }
  static std::string root() { return kBucketRoot; }
  static uint32_t element(uint64_t i, uint64_t step) { return static_cast<uint32_t>(i * 2654435761u + step); }
  void start(int host, const std::string& die_at = "") {
    std::vector<std::string> arguments = arguments_[host];
    if (!die_at.empty()) arguments.push_back("die_at=" + die_at);
    nodes_[host] = std::make_unique<NodeChild>(scratch_.host(kHosts[host]), arguments);
  }
  void kill(int host) {
    nodes_[host]->signal(SIGKILL);
    ASSERT_EQ(nodes_[host]->wait(), 128 + SIGKILL);
  }
  void save_on_both(uint64_t step) {
    for (int host : {0, 1}) {
      for (uint64_t i = 0; i < large_[host].size(); ++i) {
        large_[host][i] = element(host * kLargeElements / 2 + i, step);
      }
      auto saved = trainers_[host]->save(step);
      ASSERT_TRUE(saved.ok()) << saved.status().to_string();
      saves_.push_back(*saved);
    }
  }
  void expect_committed() {
    for (SaveHandle& save : saves_) {
      auto committed = save.wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << to_string(save.key()) << ": " << committed.status().to_string();
    }
  }
  void expect_loads(uint64_t step) {
    for (int host : {0, 1}) {
      Trainer& trainer = *trainers_[host];
      trainer.forget();
      std::fill(large_[host].begin(), large_[host].end(), 0);
      auto loaded = trainer.checkpointer().load(trainer.state);
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      EXPECT_EQ(loaded->metadata.key.step, step);
      EXPECT_TRUE(trainer.holds(step));
      for (uint64_t i = 0; i < large_[host].size(); ++i) {
        ASSERT_EQ(large_[host][i], element(host * kLargeElements / 2 + i, step)) << i;
      }
    }
  }

  static constexpr const char* kHosts[] = {"a", "b"};
  Scratch scratch_;
  std::unique_ptr<ObjectStore> store_;
  std::vector<std::string> arguments_[2];
  std::unique_ptr<NodeChild> nodes_[2];
  std::vector<uint32_t> large_[2];
  std::unique_ptr<Trainer> trainers_[2];
  std::vector<SaveHandle> saves_;
};

#define START_JOB(...)                          \
  start_store(__VA_ARGS__);                     \
  if (HasFatalFailure() || IsSkipped()) return; \
  start_job();                                  \
  if (HasFatalFailure()) return

TEST_F(InObjectStorage, AJobSavesAndLoadsAlthoughRequestsFail) {
  START_JOB({"--seed", "7", "--faults", "0.05"});
  for (uint64_t step : {1, 2, 3}) save_on_both(step);
  expect_committed();
  expect_loads(3);
}

// The moments of a save at which the node of a host ends.
struct KillIn {
  int host;
  const char* at;
};
class KilledInObjectStorage : public InObjectStorage, public ::testing::WithParamInterface<KillIn> {};

TEST_P(KilledInObjectStorage, ANodeThatComesBackLosesNothing) {
  START_JOB();
  const auto [host, at] = GetParam();
  save_on_both(1);
  expect_committed();
  kill(host);
  start(host, at);
  save_on_both(2);
  ASSERT_EQ(nodes_[host]->wait(), 128 + SIGKILL) << "it never came to " << at;
  start(host);
  save_on_both(3);
  expect_committed();
  for (SaveHandle& save : saves_) EXPECT_EQ(save.key().generation, 1u);
  expect_loads(3);
  auto opened = storage::open_storage(root(), random_128());
  ASSERT_TRUE(opened.ok());
  auto decision = storage::read_decision(*opened->storage, saves_[2].key());
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_TRUE(decision->committed());
}

INSTANTIATE_TEST_SUITE_P(Moments, KilledInObjectStorage,
                         ::testing::Values(KillIn{0, "PublishDecision:before:1"},
                                           KillIn{0, "PublishDecision:after:1"},
                                           KillIn{1, "WriteShard:before:1"}, KillIn{1, "WriteShard:after:1"}),
                         [](const auto& at) {
                           std::string name = fmt::format("Host{}{}", at.param.host, at.param.at);
                           std::erase(name, ':');
                           return name;
                         });

bool has_partial(storage::Storage& storage, const std::string& folder) {
  auto listed = storage.list(folder);
  return listed.ok() && std::any_of(listed->begin(), listed->end(), [](const storage::ObjectInfo& object) {
           return storage::is_partial(object.name);
         });
}

TEST_F(InObjectStorage, AnUploadOfAKilledNodeIsBegunAgainAndItsPartsAreSwept) {
  START_JOB();
  auto opened = storage::open_storage(root(), random_128());
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  storage::Storage& storage = *opened->storage;
  int in_time = 0;
  for (uint64_t step : {1, 2, 3}) {
    save_on_both(step);
    const AttemptKey key = saves_.back().key();
    while (!has_partial(storage, storage::attempt_folder(key)) && !saves_.back().done()) {
      std::this_thread::yield();
    }
    in_time += !saves_.back().done();
    kill(1);
    start(1);
    expect_committed();
    ASSERT_TRUE(storage::sweep_attempt(storage, key).ok());
    EXPECT_FALSE(has_partial(storage, storage::attempt_folder(key))) << step;
  }
  EXPECT_GT(in_time, 0);
  expect_loads(3);
}

TEST_F(InObjectStorage, ANodeRejectsAStoreThatIgnoresTheCondition) {
  start_store({"--no-conditions"});
  if (HasFatalFailure() || IsSkipped()) return;
  NodeChild node(scratch_.host("a"), {"root=" + root(), "job=job-1", "world=1"});
  const std::string line = node.first_line();
  EXPECT_THAT(line, HasSubstr("If-None-Match"));
  EXPECT_THAT(line, ::testing::Not(HasSubstr("a node writes to its root"))) << "no right would mend that";
  EXPECT_EQ(node.wait(), 1);
}

}  // namespace
}  // namespace shoal::testing
