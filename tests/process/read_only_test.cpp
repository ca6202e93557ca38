// A job that only reads, beside one that trains on the same root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <thread>

#include "shoal/checkpoint_reader.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

void only_reads(CheckpointerOptions& options) {
  options.read_only = true;
}

class ReadOnlyJob : public ::testing::Test {
 protected:
  std::unique_ptr<NodeChild> node(const std::string& host, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "root=" + scratch_.root());
    return std::make_unique<NodeChild>(scratch_.host(host), std::move(arguments));
  }
  // Two trainers on host "a".
  void train(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.end(), {"job=train", "world=2", "name=a"});
    training_ = node("a", std::move(arguments));
    ASSERT_THAT(training_->first_line(), StartsWith("ready"));
    for (Rank rank = 0; rank < 2; ++rank) {
      trainers_.push_back(std::make_unique<Trainer>(scratch_, "a", rank, 2, "train"));
      ASSERT_TRUE(trainers_.back()->opened.ok()) << trainers_.back()->opened.status().to_string();
    }
  }
  void expect_commits(uint64_t step) { save_and_commit(trainers_, step); }
  static uint64_t step_loaded(Trainer& reader) {
    reader.forget();
    auto loaded = reader.checkpointer().load(reader.state);
    if (!loaded.ok()) {
      ADD_FAILURE() << loaded.status().to_string();
      return 0;
    }
    EXPECT_TRUE(reader.holds(loaded->metadata.key.step));
    return loaded->metadata.key.step;
  }
  // Every file of the root with a hash of what it holds, but for what a reader may write.
  std::map<std::string, size_t> files() const {
    std::map<std::string, size_t> out;
    for (const auto& each : std::filesystem::recursive_directory_iterator(scratch_.root())) {
      const std::string name = std::filesystem::relative(each.path(), scratch_.root());
      if (name.starts_with("readers") || name.starts_with("pins")) continue;
      out[name] = each.is_regular_file() ? std::hash<std::string>()(read_file(each.path())) : 0;
    }
    return out;
  }
  std::vector<std::string> readers() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& each : std::filesystem::directory_iterator(scratch_.root() + "/readers", none)) {
      names.push_back(each.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Scratch scratch_;
  std::unique_ptr<NodeChild> training_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

// If the reader's node decided anything, it would give up on an attempt that was idle for a moment.
TEST_F(ReadOnlyJob, LoadsWhileAnotherTrains) {
  train();
  expect_commits(1);
  auto early = trainers_[0]->save(2);
  ASSERT_TRUE(early.ok());
  // Its shard is whole: nothing that the job which trains does changes the root any more.
  const std::string shard = scratch_.root() + "/step-00000002/g1a1/rank-00000.safetensors";
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  auto is_whole = [&] {
    const std::filesystem::path folder = std::filesystem::path(shard).parent_path();
    return std::filesystem::exists(shard) &&
           std::distance(std::filesystem::directory_iterator(folder), {}) == 1;
  };
  while (!is_whole() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(is_whole());
  const auto before = files();
  ASSERT_THAT(before, SizeIs(::testing::Gt(5u)));

  auto eval = node("a", {"job=eval", "world=1", "name=a", "read_only=1", "abandoned_after_ms=1",
                         "node_deadline_ms=1", "epoch_check_ms=10"});
  ASSERT_THAT(eval->first_line(), StartsWith("ready"));
  Trainer reader(scratch_, "a", 0, 1, "eval", only_reads);
  ASSERT_TRUE(reader.opened.ok()) << reader.opened.status().to_string();
  EXPECT_EQ(step_loaded(reader), 1u);
  EXPECT_EQ(reader.checkpointer().latest()->key.step, 1u);
  auto by_step = reader.checkpointer().load(reader.state, {.step = 2});
  EXPECT_EQ(by_step.status().code(), Code::not_found) << "it is not decided yet, and stays so";
  const Status refused = reader.save(9).status();
  EXPECT_EQ(refused.code(), Code::refused);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("rank 0 opened root"), HasSubstr("SHOAL_READ_ONLY")));
  EXPECT_EQ(reader.checkpointer().prepare(reader.state).code(), Code::refused);
  EXPECT_EQ(files(), before) << "epochs, generations, attempts and decisions are as they were";

  auto late = trainers_[1]->save(2);
  ASSERT_TRUE(late.ok());
  for (SaveHandle* save : {&*early, &*late}) {
    auto committed = save->wait_committed(kPatience);
    EXPECT_TRUE(committed.ok()) << committed.status().to_string();
  }
  EXPECT_EQ(step_loaded(reader), 2u) << "the next load of the latest chooses again";
  reader.opened->reset();
  EXPECT_THAT(readers(), Not(IsEmpty()));
  eval->signal(SIGTERM);
  EXPECT_EQ(eval->wait(), 0);
  EXPECT_THAT(readers(), IsEmpty());
  expect_commits(3);
}

TEST_F(ReadOnlyJob, ItsRanksLoadTheSameAlsoAfterItsCoordinatorDied) {
  train();
  expect_commits(1);
  std::vector<std::string> first = {"job=eval", "world=2", "name=b", "read_only=1"};
  auto coordinator = node("b", first);
  const std::string address = coordinator->address();
  ASSERT_NE(address, "");
  auto follower = node("c", {"job=eval", "world=2", "name=c", "read_only=1", "coordinator=" + address});
  ASSERT_THAT(follower->first_line(), StartsWith("ready"));
  Trainer reader0(scratch_, "b", 0, 2, "eval", only_reads), reader1(scratch_, "c", 1, 2, "eval", only_reads);
  ASSERT_TRUE(reader0.opened.ok() && reader1.opened.ok());

  EXPECT_EQ(step_loaded(reader0), 1u);
  expect_commits(2);
  coordinator->signal(SIGKILL);
  ASSERT_EQ(coordinator->wait(), 128 + SIGKILL);
  const std::string number = std::to_string(reader0.checkpointer().generation());
  first.insert(first.end(), {"listen=" + address, "rejoin=" + number});
  coordinator = node("b", first);
  ASSERT_THAT(coordinator->first_line(), StartsWith("ready"));
  EXPECT_EQ(step_loaded(reader1), 1u) << "the choice is that of the rank that came first";
  EXPECT_EQ(step_loaded(reader1), 2u);
  EXPECT_EQ(step_loaded(reader0), 2u);
}

TEST_F(ReadOnlyJob, RetentionSparesWhatItReads) {
  train({"keep_last=1"});
  expect_commits(1);
  auto eval = node("a", {"job=eval", "world=1", "name=a", "read_only=1"});
  ASSERT_THAT(eval->first_line(), StartsWith("ready"));
  Trainer reader(scratch_, "a", 0, 1, "eval", only_reads);
  ASSERT_TRUE(reader.opened.ok()) << reader.opened.status().to_string();
  auto opened = reader.checkpointer().open_checkpoint();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();

  const uint32_t generation = trainers_[0]->checkpointer().generation();
  auto is_deleted = [&](uint64_t step) {
    auto decision = decision_of(scratch_.root(), {generation, step, 1});
    return !decision.ok() || !decision->committed();  // its tombstone goes in the end, too
  };
  for (uint64_t step = 2; step <= 3; ++step) expect_commits(step);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!is_deleted(2) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(is_deleted(2));
  EXPECT_FALSE(is_deleted(1));
  auto read = opened->read_all("w");
  EXPECT_TRUE(read.ok()) << read.status().to_string();
}

TEST_F(ReadOnlyJob, MakesNoRoot) {
  auto eval = node("a", {"job=eval", "world=1", "read_only=1"});
  EXPECT_THAT(eval->first_line(), HasSubstr("holds no run"));
  EXPECT_EQ(eval->wait(), 1);
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.root()));
}

TEST_F(ReadOnlyJob, AllOfItsHostsOnlyRead) {
  train();
  auto coordinator = node("b", {"job=eval", "world=2", "name=b", "read_only=1"});
  const std::string address = coordinator->address();
  ASSERT_NE(address, "");
  auto saves = node("c", {"job=eval", "world=2", "name=c", "coordinator=" + address});
  EXPECT_THAT(saves->first_line(), HasSubstr("the jobs differ"));
  EXPECT_EQ(saves->wait(), 1);
}

}  // namespace
}  // namespace shoal::testing
