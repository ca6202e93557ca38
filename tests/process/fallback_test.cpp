// Loads of a root whose newest checkpoint is damaged. The load fails with an error that names the checkpoint.
// With a fallback, it loads the newest sound checkpoint, the same one on all ranks of all hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "shoal/checkpoint_reader.h"
#include "tests/process/two_hosts.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

void flip_last_byte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file) << path;
  file.seekg(-1, std::ios::end);
  const char flipped = static_cast<char>(file.get() ^ 0x10);
  file.seekp(-1, std::ios::end);
  file.put(flipped);
}

// Three saves by a job on two hosts with a rank each, which has ended. Then another one of that kind.
class Fallback : public ::testing::Test {
 protected:
  void SetUp() override {
    start("first");
    for (const uint64_t step : {1, 2, 3}) save(step);
    end();
  }
  void start(const std::string& name, const std::function<void(CheckpointerOptions&)>& change = nullptr) {
    job_.start(scratch_, name, nullptr, change);
  }
  void save(uint64_t step) { save_and_commit(job_.trainers, step); }
  void end() {
    job_.trainers.clear();
    job_.kill_nodes();
    job_.nodes.clear();
  }
  std::string folder(uint64_t step) const {
    return scratch_.root() + "/step-0000000" + std::to_string(step) + "/g1a1";
  }
  std::string manifest(uint64_t step) const { return folder(step) + "/manifest.shoal"; }
  std::string shard(uint64_t step, Rank rank) const {
    return folder(step) + "/rank-0000" + std::to_string(rank) + ".safetensors";
  }
  std::vector<Result<LoadResult>> load(const LoadOptions& options) {
    return together(job_.trainers, [&](Trainer& trainer) {
      trainer.forget();
      return trainer.checkpointer().load(trainer.state, options);
    });
  }
  static LoadOptions previous(LoadMethod method = LoadMethod::automatic) {
    LoadOptions options;
    options.fallback = LoadFallback::previous;
    options.method = method;
    return options;
  }
  // Loads on both hosts. Both report the same attempts as passed over.
  PassedOver expect_loads(uint64_t step, const LoadOptions& options) {
    std::vector<PassedOver> passed_over;
    for (const auto& loaded : load(options)) {
      if (!loaded.ok()) {
        ADD_FAILURE() << loaded.status().to_string();
        return {};
      }
      EXPECT_EQ(loaded->metadata.key.step, step);
      passed_over.push_back(loaded->passed_over);
    }
    for (auto& trainer : job_.trainers) EXPECT_TRUE(trainer->holds(step));
    EXPECT_EQ(passed_over[0], passed_over[1]);
    return passed_over[0];
  }
  void expect_corrupt(const LoadOptions& options, const std::string& names) {
    for (const auto& loaded : load(options)) {
      EXPECT_EQ(loaded.status().code(), Code::corrupt) << loaded.status().to_string();
      EXPECT_THAT(loaded.status().message(), HasSubstr(names));
    }
  }
  std::string choices() const {
    std::string names;
    for (const auto& each : fs::directory_iterator(scratch_.root() + "/generations")) {
      const std::string name = each.path().filename();
      if (name.find(".load-") != std::string::npos) names += name + " ";
    }
    return names;
  }

  Scratch scratch_;
  TwoHosts job_;
};

TEST_F(Fallback, OfADamagedManifestLoadsTheCheckpointBeforeIt) {
  flip_last_byte(manifest(3));
  start("next");
  expect_corrupt({}, "step-00000003/g1a1/manifest.shoal");
  const PassedOver passed_over = expect_loads(2, previous());
  ASSERT_EQ(passed_over.count, 1u);
  EXPECT_EQ(passed_over.named[0].key, (AttemptKey{1, 3, 1}));
  EXPECT_THAT(passed_over.named[0].cause, AllOf(HasSubstr("damaged: "), HasSubstr("manifest.shoal")));
  save(4);  // goes on from there
  EXPECT_TRUE(expect_loads(4, {}).empty());
}

TEST_F(Fallback, OfADamagedShardLoadsTheCheckpointBeforeItAlsoWhereTheDamageIsAnotherRanks) {
  flip_last_byte(shard(3, 1));
  for (const LoadMethod method : {LoadMethod::two_stage, LoadMethod::direct}) {
    start(method == LoadMethod::direct ? "direct" : "shared");
    const PassedOver passed_over = expect_loads(2, previous(method));
    ASSERT_EQ(passed_over.count, 1u);
    EXPECT_THAT(passed_over.named[0].cause, HasSubstr("rank-00001.safetensors"));
    end();
  }
}

TEST_F(Fallback, OfAMissingShardLoadsTheCheckpointBeforeIt) {
  ASSERT_TRUE(fs::remove(shard(3, 0)));
  flip_last_byte(shard(2, 0));
  start("next");
  EXPECT_EQ(expect_loads(1, previous(LoadMethod::two_stage)).count, 2u);
}

TEST_F(Fallback, OfASoundRootLoadsTheNewest) {
  start("next");
  EXPECT_TRUE(expect_loads(3, previous()).empty());
}

TEST_F(Fallback, WhereAllAreDamagedIsCorruptAndNeverAStartAfresh) {
  flip_last_byte(manifest(1));
  flip_last_byte(shard(2, 0));
  flip_last_byte(manifest(3));
  start("next");
  expect_corrupt(previous(), "every checkpoint of this root is damaged (3); the newest is step 3 (g1a1)");
  expect_corrupt(previous(LoadMethod::two_stage), "every checkpoint of this root is damaged (3)");
  for (auto& trainer : job_.trainers) {
    auto started = trainer->checkpointer().load_or_start(trainer->state, previous());
    EXPECT_EQ(started.status().code(), Code::corrupt) << started.status().to_string();
  }
  EXPECT_EQ(choices(), "") << "nothing was chosen";
}

// The load that fails on a damaged shard leaves its choice. It is not the choice of the load with a fallback.
TEST_F(Fallback, FollowsALoadThatFailedOnTheDamage) {
  flip_last_byte(shard(3, 0));
  flip_last_byte(shard(3, 1));
  start("next");
  expect_corrupt({}, "step-00000003/g1a1/rank-0000");
  EXPECT_EQ(choices(), "2.load-1 ");
  EXPECT_EQ(expect_loads(2, previous()).count, 1u);
  // One that comes later obeys the choice, also where the root has changed.
  flip_last_byte(shard(3, 0));
  flip_last_byte(shard(3, 1));
  EXPECT_EQ(expect_loads(2, previous()).count, 1u);
}

TEST_F(Fallback, IsASettingOfTheJob) {
  flip_last_byte(manifest(3));
  start("next", [](CheckpointerOptions& options) { options.load_fallback = LoadFallback::previous; });
  EXPECT_EQ(expect_loads(2, {}).count, 1u);
  LoadOptions none;
  none.fallback = LoadFallback::none;
  expect_corrupt(none, "step-00000003/g1a1/manifest.shoal");
  LoadOptions named;
  named.step = 1;
  EXPECT_TRUE(expect_loads(1, named).empty());
}

TEST_F(Fallback, OfAReaderAndOfPoliciesThatCompareFirst) {
  flip_last_byte(shard(3, 1));
  start("next");
  auto reader = job_.trainers[0]->checkpointer().open_checkpoint(std::nullopt, LoadFallback::previous);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(reader->metadata().key.step, 2u);
  EXPECT_EQ(reader->passed_over().count, 1u);
  EXPECT_TRUE(reader->read("b").ok());
  LoadOptions strict = previous();
  strict.policies.root = KeyPolicy::strict;
  strict.policies.subtrees = {{"rng", KeyPolicy::lenient}};
  EXPECT_EQ(expect_loads(2, strict).count, 1u);
}

TEST_F(Fallback, IsOfTheLatestAlone) {
  start("next");
  LoadOptions options = previous();
  options.step = 2;
  for (const auto& loaded : load(options)) {
    EXPECT_EQ(loaded.status().code(), Code::invalid_argument);
    EXPECT_THAT(loaded.status().message(), HasSubstr("LoadOptions::fallback applies to the latest"));
  }
}

TEST_F(Fallback, OfAJobThatOnlyReads) {
  flip_last_byte(manifest(3));
  NodeChild node(scratch_.host("reads"),
                 {"root=" + scratch_.root(), "job=reads", "world=1", "name=reads", "read_only=1"});
  ASSERT_THAT(node.first_line(), HasSubstr("ready"));
  Trainer reader(scratch_, "reads", 0, 1, "reads",
                 [](CheckpointerOptions& options) { options.read_only = true; });
  ASSERT_TRUE(reader.opened.ok()) << reader.opened.status().to_string();
  for (int i = 0; i < 2; ++i) {
    auto loaded = reader.checkpointer().load(reader.state, previous());
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(loaded->metadata.key.step, 2u);
    EXPECT_EQ(loaded->passed_over.count, 1u);
    EXPECT_EQ(reader.checkpointer().load(reader.state).status().code(), Code::corrupt);
  }
}

}  // namespace
}  // namespace shoal::testing
