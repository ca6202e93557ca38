// Saves whose manifest is missing, although every shard is in the root. The next job runs on other hosts and
// so has no catalog. It commits these saves and loads them instead of an older step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/process/two_hosts.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

class LostManifest : public ::testing::Test {
 protected:
  // The node of host `dying` ends there.
  std::unique_ptr<TwoHosts> start(const std::string& name, const std::string& die_at = "",
                                  uint32_t dying = 0) {
    auto job = std::make_unique<TwoHosts>();
    job->start(scratch_, name, [&](uint32_t i) {
      std::vector<std::string> more = {"host_lost_ms=2500"};
      if (i == dying && !die_at.empty()) more.push_back("die_at=" + die_at);
      return more;
    });
    return job;
  }
  static void save(TwoHosts& job, uint64_t step) { save_and_commit(job.trainers, step); }
  std::string folder(uint64_t step) const {
    return scratch_.root() + "/step-0000000" + std::to_string(step) + "/g1a1";
  }
  static std::vector<Result<LoadResult>> load(TwoHosts& job) {
    return together(job.trainers, [](Trainer& trainer) {
      trainer.forget();
      return trainer.checkpointer().load(trainer.state);
    });
  }
  static void expect_loads(TwoHosts& job, uint64_t step) {
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
  job->kill_nodes();
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
  job->kill_nodes();
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
              HasSubstr("it is committed nevertheless, because the root holds all its files"));
}

// Without that shard nothing proves the step. An older one is loaded, and the node's log states the reason.
TEST_F(LostManifest, WithALostShardIsReportedByWhoLoadsAnOlderStep) {
  auto job = start("first");
  for (uint64_t step : {1, 2}) save(*job, step);
  job->kill_nodes();
  ASSERT_TRUE(fs::remove(folder(2) + "/manifest.shoal"));
  ASSERT_TRUE(fs::remove(folder(2) + "/rank-00001.safetensors"));
  auto next = start("next");
  expect_loads(*next, 1);
  const std::string log = read_file(scratch_.file("next-a.log"));
  EXPECT_THAT(
      log,
      HasSubstr(
          "load(latest) chooses step 1 (g1a1): it passes over the newer step 2 (g1a1), which was aborted"));
  EXPECT_THAT(log, HasSubstr("there is no shard of rank 1"));
}

// "b" alone is saved, which both ranks hold: one of them writes it, the other nothing.
class LostManifestOfASmallModel : public LostManifest {
 protected:
  std::unique_ptr<TwoHosts> start_small(const std::string& name) {
    auto job = start(name);
    for (auto& trainer : job->trainers) {
      trainer->state = StateDict();
      trainer->state.add_tensor("b", DType::f32, {kColumns}, Mesh::contiguous({2}), {Placement::replicate()},
                                trainer->b.data());
    }
    return job;
  }
  static void expect_loads_small(TwoHosts& job, uint64_t step) {
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
  job->kill_nodes();
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
  job->kill_nodes();
  ASSERT_TRUE(fs::remove(folder(3) + "/manifest.shoal"));
  auto next = start("next");
  expect_loads(*next, 3);
  EXPECT_TRUE(fs::exists(folder(3) + "/manifest.shoal"));
}

// Regression: such a folder was passed over, and an older step loaded.
TEST_F(LostManifest, OrAnAttemptsFolderThatIsASymbolicLinkIsNamed) {
  auto job = start("first");
  for (uint64_t step : {1, 2}) save(*job, step);
  job->kill_nodes();
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
