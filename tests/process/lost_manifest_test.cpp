// Saves whose manifest is missing, although every shard is in the root. The next job runs on other hosts and
// so has no catalog. It commits these saves and loads them instead of an older step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

class LostManifest : public ::testing::Test {
 protected:
  // Two hosts with a rank each, as a job of their own.
  struct Job {
    std::unique_ptr<NodeChild> nodes[2];
    std::vector<std::unique_ptr<Trainer>> trainers;
  };
  // The node of host `dying` ends there.
  std::unique_ptr<Job> start(const std::string& name, const std::string& die_at = "", uint32_t dying = 0) {
    auto job = std::make_unique<Job>();
    std::string coordinator;
    for (uint32_t i = 0; i < 2; ++i) {
      const std::string host = name + (i == 0 ? "-a" : "-b");
      std::vector<std::string> arguments = {"root=" + scratch_.root(),
                                            "job=" + name,
                                            "world=2",
                                            "name=" + host,
                                            "abandoned_after_ms=200",
                                            "host_lost_ms=2500",
                                            "log=" + scratch_.file(host + ".log")};
      if (i == dying && !die_at.empty()) arguments.push_back("die_at=" + die_at);
      if (i == 1) arguments.push_back("coordinator=" + coordinator);
      job->nodes[i] = std::make_unique<NodeChild>(scratch_.host(host), arguments);
      if (i == 0) coordinator = job->nodes[i]->address();
      EXPECT_THAT(job->nodes[i]->first_line(), HasSubstr("ready"));
    }
    for (uint32_t i = 0; i < 2; ++i) {
      job->trainers.push_back(std::make_unique<Trainer>(
          scratch_, name + (i == 0 ? "-a" : "-b"), i, 2, name,
          [](CheckpointerOptions& options) { options.attach_timeout = std::chrono::seconds(5); }));
      EXPECT_TRUE(job->trainers[i]->opened.ok()) << job->trainers[i]->opened.status().to_string();
    }
    return job;
  }
  static void save(Job& job, uint64_t step) {
    std::vector<SaveHandle> saves;
    for (auto& trainer : job.trainers) {
      auto saved = trainer->save(step);
      ASSERT_TRUE(saved.ok()) << saved.status().to_string();
      saves.push_back(*saved);
    }
    for (SaveHandle& each : saves) {
      auto committed = each.wait_committed(kPatience);
      EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    }
  }
  static void end(Job& job) {
    for (auto& node : job.nodes) node->signal(SIGKILL);
    for (auto& node : job.nodes) node->wait();
  }
  std::string folder(uint64_t step) const {
    return scratch_.root() + "/step-0000000" + std::to_string(step) + "/g1a1";
  }
  static std::vector<Result<LoadResult>> load(Job& job) {
    return together(job.trainers, [](Trainer& trainer) {
      trainer.forget();
      return trainer.checkpointer().load(trainer.state);
    });
  }
  static void expect_loads(Job& job, uint64_t step) {
    for (const auto& loaded : load(job)) {
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      EXPECT_EQ(loaded->metadata.key.step, step);
    }
    for (auto& trainer : job.trainers) EXPECT_TRUE(trainer->holds(step));
  }

  Scratch scratch_;
};

// Regression: the next job aborted step 3, deleted its shards and loaded step 2 with status 0.
TEST_F(LostManifest, OfTheNewestStepIsWrittenAgain) {
  auto job = start("first");
  for (uint64_t step : {1, 2, 3}) save(*job, step);
  end(*job);
  ASSERT_TRUE(fs::remove(folder(3) + "/manifest.shoal"));
  auto next = start("next");
  expect_loads(*next, 3);
  EXPECT_TRUE(fs::exists(folder(3) + "/manifest.shoal"));
  save(*next, 4);
  expect_loads(*next, 4);
}

TEST_F(LostManifest, WasNeverWrittenWhereTheJobDiedAfterItsLastShard) {
  auto job = start("first", "CheckFiles:before:2");
  save(*job, 1);
  for (auto& trainer : job->trainers) ASSERT_TRUE(trainer->save(2).ok());
  ASSERT_EQ(job->nodes[0]->wait(), 128 + SIGKILL);
  end(*job);
  ASSERT_FALSE(fs::exists(folder(2) + "/manifest.shoal"));
  auto next = start("next");
  expect_loads(*next, 2);
}

// Regression: the coordinator aborted the save of a host that died before its report, and swept its shard.
TEST_F(LostManifest, IsWrittenByTheLiveJobWhereAHostDiedBetweenItsShardAndItsReport) {
  auto job = start("first", "WriteShard:after:2", 1);
  save(*job, 1);
  auto saved = job->trainers[0]->save(2);
  ASSERT_TRUE(saved.ok() && job->trainers[1]->save(2).ok());
  ASSERT_EQ(job->nodes[1]->wait(), 128 + SIGKILL);
  auto committed = saved->wait_committed(kPatience);
  EXPECT_TRUE(committed.ok()) << committed.status().to_string();
  EXPECT_THAT(read_file(scratch_.file("first-a.log")),
              HasSubstr("it is committed all the same: the root holds all of it"));
}

// Without that shard nothing proves the step. An older one is loaded, and the node's log states the reason.
TEST_F(LostManifest, WithALostShardIsReportedByWhoLoadsAnOlderStep) {
  auto job = start("first");
  for (uint64_t step : {1, 2}) save(*job, step);
  end(*job);
  ASSERT_TRUE(fs::remove(folder(2) + "/manifest.shoal"));
  ASSERT_TRUE(fs::remove(folder(2) + "/rank-00001.safetensors"));
  auto next = start("next");
  expect_loads(*next, 1);
  const std::string log = read_file(scratch_.file("next-a.log"));
  EXPECT_THAT(log, HasSubstr("latest loads step 1 (g1a1): the newer step 2 (g1a1) is not loaded"));
  EXPECT_THAT(log, HasSubstr("there is no shard of rank 1"));
}

// "b" alone is saved, which both ranks hold: one of them writes it, the other nothing.
class LostManifestOfASmallModel : public LostManifest {
 protected:
  std::unique_ptr<Job> start_small(const std::string& name) {
    auto job = start(name);
    for (auto& trainer : job->trainers) {
      trainer->state = StateDict();
      trainer->state.add_tensor("b", DType::f32, {kColumns}, Mesh::contiguous({2}), {Placement::replicate()},
                                trainer->b.data());
    }
    return job;
  }
  static void expect_loads_small(Job& job, uint64_t step) {
    for (const auto& loaded : load(job)) {
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      EXPECT_EQ(loaded->metadata.key.step, step);
    }
    for (auto& trainer : job.trainers) EXPECT_EQ(trainer->b[1], -value_at(1, step));
  }
};

// Regression: the next job aborted step 3 and loaded step 2, because nothing recorded that the other rank had
// staged.
TEST_F(LostManifestOfASmallModel, ThatOneRankWroteIsWrittenAgain) {
  auto job = start_small("first");
  for (uint64_t step : {1, 2, 3}) save(*job, step);
  end(*job);
  size_t shards = 0, records = 0;
  for (const auto& entry : fs::directory_iterator(folder(3))) {
    shards += entry.path().extension() == ".safetensors";
    records += entry.path().extension() == ".staged";
  }
  EXPECT_EQ(shards, 1u);
  EXPECT_EQ(records, 1u);
  ASSERT_TRUE(fs::remove(folder(3) + "/manifest.shoal"));
  for (const char* host : {"first-a", "first-b"}) fs::remove_all(scratch_.host(host));  // and the catalog
  auto next = start_small("next");
  expect_loads_small(*next, 3);
  EXPECT_TRUE(fs::exists(folder(3) + "/manifest.shoal"));
  save(*next, 4);
  expect_loads_small(*next, 4);
}

// Regression: the roster was not written again, so that nothing proved what was saved later.
TEST_F(LostManifest, OfARunWhoseRecordsWereRemovedWhileItSavedIsWrittenAgain) {
  auto job = start("first");
  save(*job, 1);
  ASSERT_GT(fs::remove_all(scratch_.root() + "/generations"), 0u);
  for (uint64_t step : {2, 3}) save(*job, step);
  end(*job);
  ASSERT_TRUE(fs::remove(folder(3) + "/manifest.shoal"));
  auto next = start("next");
  expect_loads(*next, 3);
  EXPECT_TRUE(fs::exists(folder(3) + "/manifest.shoal"));
}

// Regression: such a folder was passed over, and an older step loaded.
TEST_F(LostManifest, OrAnAttemptsFolderThatIsASymbolicLinkIsNamed) {
  auto job = start("first");
  for (uint64_t step : {1, 2}) save(*job, step);
  end(*job);
  fs::rename(folder(2), scratch_.file("elsewhere"));
  fs::create_directory_symlink(scratch_.file("elsewhere"), folder(2));
  auto next = start("next");
  for (const auto& loaded : load(*next)) {
    ASSERT_FALSE(loaded.ok());
    EXPECT_THAT(loaded.status().message(), HasSubstr(folder(2) + " is not a folder"));
  }
}

}  // namespace
}  // namespace shoal::testing
