// A custom storage through clients, nodes and files: which process calls finish, which process reads what,
// and how failures are reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "shoal/dcp/storage.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

// What all ranks write to and read from, by checkpoint and name.
using Shelf = std::map<std::string, std::string>;
std::mutex shelf_mutex;  // ranks of a collective save write at once

class ShelfWriter : public dcp::LocalStorageWriter {
 public:
  explicit ShelfWriter(Shelf& shelf) : shelf_(shelf) {}
  Status reset(const std::string& checkpoint_id) override { return step("reset", checkpoint_id); }
  Status set_up_storage_writer(const dcp::Role& role) override {
    role_ = role;
    return step("set_up_storage_writer");
  }
  Result<dcp::SavePlan> prepare_local_plan(dcp::SavePlan plan) override {
    SHOAL_RETURN_IF_ERROR(step("prepare_local_plan"));
    plan.storage_data = fmt::format("{}/{}/", id_, role_.rank);
    return plan;
  }
  Result<std::vector<dcp::WriteResult>> write_data(const dcp::SavePlan& plan,
                                                   dcp::SavePlanner& planner) override {
    SHOAL_RETURN_IF_ERROR(step("write_data"));
    std::vector<dcp::WriteResult> results;
    for (const dcp::WriteItem& item : plan.items) {
      SHOAL_ASSIGN_OR_RETURN(const dcp::Data data, planner.resolve_data(item));
      const std::string name = plan.storage_data + to_string(item.index);
      std::lock_guard lock(shelf_mutex);
      shelf_[name] = std::string(as_text(data.bytes));
      results.push_back({item.index, data.bytes.size(), name});
    }
    return results;
  }
  Status finish(const dcp::Metadata& metadata,
                const std::vector<std::vector<dcp::WriteResult>>& results) override {
    finished.push_back(metadata.storage_meta.key.step);
    EXPECT_EQ(results.size(), role_.world_size);
    EXPECT_EQ(metadata.state_dict_metadata.size(), 2u + role_.world_size);
    return step("finish");
  }
  std::string fails_at;
  std::vector<uint64_t> finished;

 private:
  Status step(const std::string& name, const std::string& id = "") {
    if (!id.empty()) id_ = id;
    return fails_at == name ? Status(Code::io, "the shelf is full") : ok_status();
  }
  Shelf& shelf_;
  std::string id_;
  dcp::Role role_;
};

class ShelfReader : public dcp::LocalStorageReader {
 public:
  explicit ShelfReader(const Shelf& shelf) : shelf_(shelf) {}
  Status reset(const std::string&) override { return ok_status(); }
  Status set_up_storage_reader(const dcp::Metadata& metadata, const dcp::Role&) override {
    metadata_ = metadata;
    return ok_status();
  }
  Status read_data(const dcp::LoadPlan& plan, dcp::LoadPlanner& planner) override {
    for (const dcp::ReadItem& item : plan.items) {
      const std::string& bytes = shelf_.at(metadata_.storage_data.at(item.storage_index).storage_data);
      if (item.type == dcp::LoadItemType::byte_io) {
        SHOAL_RETURN_IF_ERROR(planner.load_bytes(item, bytes));
        continue;
      }
      SHOAL_ASSIGN_OR_RETURN(const Dims sizes, dcp::chunk_sizes(metadata_, item.storage_index));
      SHOAL_ASSIGN_OR_RETURN(const dcp::Tensor tensor, planner.resolve_tensor(item));
      SHOAL_RETURN_IF_ERROR(dcp::fill_from_chunk(item, sizes, as_view(bytes), tensor));
      SHOAL_RETURN_IF_ERROR(planner.commit_tensor(item, tensor));
    }
    return ok_status();
  }

 private:
  const Shelf& shelf_;
  dcp::Metadata metadata_;
};

class Storages : public ::testing::TestWithParam<SaveMode> {
 protected:
  std::vector<std::unique_ptr<Trainer>> start(const std::string& job, uint32_t world) {
    std::vector<std::unique_ptr<Trainer>> trainers;
    for (Rank rank = 0; rank < world; ++rank) {
      trainers.push_back(
          std::make_unique<Trainer>(scratch_, job, rank, world, job, [&](CheckpointerOptions& options) {
            options.save.mode = GetParam();
            options.coordinator_rank = world - 1;
          }));
      EXPECT_TRUE(trainers.back()->opened.ok()) << trainers.back()->opened.status().to_string();
    }
    return trainers;
  }
  NodeChild node(const std::string& job, uint32_t world) {
    return NodeChild(scratch_.host(job),
                     {"root=" + scratch_.root(), "job=" + job, "world=" + std::to_string(world)});
  }
  Scratch scratch_;
  Shelf shelf_;
};

class StoragesInEachMode : public Storages {};

TEST_P(StoragesInEachMode, KeepTheBytesOfACheckpointThatShoalCommits) {
  {
    NodeChild running = node("saving", 2);
    ASSERT_NE(running.address(), "");
    auto trainers = start("saving", 2);
    ShelfWriter writers[] = {ShelfWriter(shelf_), ShelfWriter(shelf_)};
    for (uint64_t step : {1, 2}) {
      dcp::DefaultSavePlanner planners[2];
      auto saves = together(trainers, [&](Trainer& trainer) {
        trainer.fill(step);
        return dcp::save(trainer.checkpointer(), step, trainer.state, planners[trainer.rank],
                         writers[trainer.rank], {.metadata = {{"data", "shelf " + std::to_string(step)}}});
      });
      for (auto& save : saves) {
        ASSERT_TRUE(save.ok()) << save.status().to_string();
        for (int twice = 0; twice < 2; ++twice) {
          auto committed = save->wait_committed(kPatience);
          ASSERT_TRUE(committed.ok()) << committed.status().to_string();
          EXPECT_EQ(committed->user.at("data"), "shelf " + std::to_string(step));
        }
      }
    }
    EXPECT_THAT(writers[0].finished, ::testing::IsEmpty());
    EXPECT_THAT(writers[1].finished, ::testing::ElementsAre(1, 2)) << "coordinator_rank's alone, once a save";
  }
  NodeChild running = node("loading", 4);
  ASSERT_NE(running.address(), "");
  auto trainers = start("loading", 4);
  ShelfReader reader(shelf_);
  for (auto& trainer : trainers) {
    dcp::DefaultLoadPlannerOptions options;
    options.allow_partial_load = true;  // ranks 2 and 3 saved no random state
    dcp::DefaultLoadPlanner planner(options);
    trainer->rng = fmt::format("rng of {} at 2", trainer->rank);
    auto loaded = dcp::load(trainer->checkpointer(), trainer->state, planner, reader, {.step = 2});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_TRUE(trainer->holds(2));
  }
}

TEST_P(Storages, ThatFailFailTheSaveByTheNameOfTheStep) {
  NodeChild running = node("failing", 2);
  ASSERT_NE(running.address(), "");
  auto trainers = start("failing", 2);
  dcp::DefaultSavePlanner planner;
  ShelfWriter good(shelf_), bad(shelf_);
  uint64_t step = 0;
  for (const char* at : {"reset", "set_up_storage_writer", "prepare_local_plan", "write_data"}) {
    bad.fails_at = at;
    ++step;
    auto other = dcp::save(trainers[0]->checkpointer(), step, trainers[0]->state, planner, good);
    ASSERT_TRUE(other.ok());
    const Status failed =
        dcp::save(trainers[1]->checkpointer(), step, trainers[1]->state, planner, bad).status();
    EXPECT_THAT(failed.message(), ::testing::EndsWith(fmt::format("{}: the shelf is full", at)));
    const Status outcome = other->wait_committed(kPatience).status();
    EXPECT_EQ(outcome.code(), Code::aborted);
    const std::string prefix = fmt::format("rank 1, step {} (g1a1): ", step);
    ASSERT_THAT(failed.message(), ::testing::StartsWith(prefix));
    EXPECT_THAT(outcome.message(), ::testing::HasSubstr(failed.message().substr(prefix.size())));
  }
  // An ordinary checkpoint is none of a storage's.
  std::vector<SaveHandle> saves;
  for (auto& trainer : trainers) saves.push_back(trainer->save(9).value());
  for (SaveHandle& save : saves) ASSERT_TRUE(save.wait_committed(kPatience).ok());
  ShelfReader reader(shelf_);
  dcp::DefaultLoadPlanner loads;
  EXPECT_THAT(dcp::load(trainers[0]->checkpointer(), trainers[0]->state, loads, reader, {.step = 9})
                  .status()
                  .message(),
              ::testing::HasSubstr("was saved without a StorageWriter"));
}

// Names every rank's place on the shelf for all of them.
class PlanningWriter : public dcp::StorageWriter {
 public:
  explicit PlanningWriter(Shelf& shelf) : inner_(shelf) {}
  Status reset(const std::string& id) override { return inner_.reset(id); }
  Status set_up_storage_writer(const dcp::Role& role) override { return inner_.set_up_storage_writer(role); }
  Result<std::vector<dcp::SavePlan>> prepare_global_plan(std::vector<dcp::SavePlan> plans) override {
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      plans[rank].storage_data = fmt::format("place {} of {}: ", rank, plans.size());
    }
    return plans;
  }
  Result<std::vector<dcp::WriteResult>> write_data(const dcp::SavePlan& plan, dcp::SavePlanner& by) override {
    return inner_.write_data(plan, by);
  }
  Status finish(const dcp::Metadata& metadata,
                const std::vector<std::vector<dcp::WriteResult>>& results) override {
    return inner_.finish(metadata, results);
  }

 private:
  ShelfWriter inner_;
};

class StoragesByPlan : public Storages {};

TEST_P(StoragesByPlan, ShareTheWritingAsTheGlobalPlanSays) {
  NodeChild running = node("planning", 4);
  ASSERT_NE(running.address(), "");
  auto trainers = start("planning", 4);
  auto saves = together(trainers, [&](Trainer& trainer) {
    trainer.fill(1);
    dcp::DefaultSavePlanner planner;
    auto writer = std::make_shared<PlanningWriter>(shelf_);
    auto saved = dcp::save(trainer.checkpointer(), 1, trainer.state, planner, *writer);
    return std::pair(writer, std::move(saved));
  });
  for (auto& [writer, saved] : saves) {
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    auto committed = saved->wait_committed(kPatience);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  size_t copies_of_b = 0;
  for (const auto& [name, bytes] : shelf_) {
    EXPECT_THAT(name, ::testing::MatchesRegex("place [0-3] of 4: '(w|b|rng)'.*"));
    if (name.find("'b'") != std::string::npos) ++copies_of_b;
  }
  EXPECT_EQ(copies_of_b, 1u);
  EXPECT_EQ(shelf_.size(), 4u + 4u + 1u) << "rows and an object of each rank, and b once";
  auto loads = together(trainers, [&](Trainer& trainer) {
    trainer.forget();
    dcp::DefaultLoadPlanner planner;
    ShelfReader own(shelf_);
    return dcp::load(trainer.checkpointer(), trainer.state, planner, own, {.step = 1}).status();
  });
  for (Rank rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(loads[rank].ok()) << loads[rank].to_string();
    EXPECT_TRUE(trainers[rank]->holds(1));
  }
}

INSTANTIATE_TEST_SUITE_P(InEachMode, StoragesInEachMode,
                         ::testing::Values(SaveMode::collective_free, SaveMode::rank_local,
                                           SaveMode::collective),
                         mode_test_name);
INSTANTIATE_TEST_SUITE_P(ByTurns, Storages,
                         ::testing::Values(SaveMode::collective_free, SaveMode::rank_local), mode_test_name);
INSTANTIATE_TEST_SUITE_P(InModeCollective, StoragesByPlan, ::testing::Values(SaveMode::collective),
                         mode_test_name);

}  // namespace
}  // namespace shoal::testing
