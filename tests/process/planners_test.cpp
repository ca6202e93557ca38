// Custom planners through clients, nodes and files. Plain calls of other ranks load what the planners saved
// under other names. A failure in one planner fails the save on all ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <stdexcept>

#include "shoal/dcp/load_planner.h"
#include "shoal/dcp/save_planner.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

// Saves "w" in halves of its precision's bytes under another name, with its own object; not "b".
class HalvingPlanner : public dcp::DefaultSavePlanner {
 public:
  HalvingPlanner() : DefaultSavePlanner(rules()) {}
  Result<dcp::SavePlan> create_local_plan() override {
    SHOAL_ASSIGN_OR_RETURN(dcp::SavePlan plan, DefaultSavePlanner::create_local_plan());
    for (dcp::WriteItem& item : plan.items) {
      if (item.tensor_data) item.tensor_data->properties.dtype = DType::bf16;
    }
    return plan;
  }
  Result<dcp::Data> resolve_data(const dcp::WriteItem& item) override {
    if (fails) return Status(Code::io, "the device is gone");
    if (throws) throw std::runtime_error("the device fell off");
    SHOAL_ASSIGN_OR_RETURN(dcp::Data data, DefaultSavePlanner::resolve_data(item));
    if (!item.tensor_data) return data;
    Bytes out(data.bytes.size() / 2);
    for (size_t i = 0; i < out.size() / 2; ++i) std::memcpy(&out[i * 2], &data.bytes[i * 4 + 2], 2);
    return dcp::Data::owned(std::move(out));
  }
  bool fails = false, throws = false;

 private:
  static dcp::DefaultSavePlannerOptions rules() {
    dcp::DefaultSavePlannerOptions options;
    options.keys.drop_prefixes = {"b"};
    options.keys.rename_prefixes = {{"w", "model.weight"}};
    return options;
  }
};

// The other way: halves from the checkpoint become the state's floats when they are committed.
class WideningPlanner : public dcp::DefaultLoadPlanner {
 public:
  WideningPlanner() : DefaultLoadPlanner(rules()) {}
  Status set_up_planner(const StateDict& state, const dcp::Metadata& stored, const dcp::Role& role) override {
    dcp::Metadata widened = stored;
    for (auto& [fqn, value] : widened.state_dict_metadata) {
      if (auto* tensor = std::get_if<dcp::TensorStorageMetadata>(&value))
        tensor->properties.dtype = DType::f32;
    }
    return DefaultLoadPlanner::set_up_planner(state, widened, role);
  }
  Result<dcp::Tensor> resolve_tensor(const dcp::ReadItem& item) override {
    auto halves = std::make_shared<Bytes>(*element_count(item.lengths) * 2);
    return dcp::Tensor{halves->data(), item.lengths, Dims(item.lengths.size(), 0), 2, halves};
  }
  Status commit_tensor(const dcp::ReadItem& item, const dcp::Tensor& halves) override {
    SHOAL_ASSIGN_OR_RETURN(dcp::Tensor floats, DefaultLoadPlanner::resolve_tensor(item));
    Bytes wide(*element_count(item.lengths) * 4);
    for (size_t i = 0; i < wide.size() / 4; ++i) std::memcpy(&wide[i * 4 + 2], halves.data + i * 2, 2);
    dcp::fill_tensor(floats, item.lengths, wide.data());
    ++commits;
    return DefaultLoadPlanner::commit_tensor(item, floats);
  }
  int commits = 0;

 private:
  static dcp::DefaultLoadPlannerOptions rules() {
    dcp::DefaultLoadPlannerOptions options;
    options.keys.rename_prefixes = {{"w", "model.weight"}};
    options.allow_partial_load = true;
    return options;
  }
};

uint16_t halved(float value) {
  uint16_t out;
  std::memcpy(&out, reinterpret_cast<const char*>(&value) + 2, 2);
  return out;
}

class Planners : public ::testing::TestWithParam<SaveMode> {
 protected:
  static void in_mode(CheckpointerOptions& options) { options.save.mode = GetParam(); }
  std::vector<std::unique_ptr<Trainer>> start(const std::string& job, uint32_t world) {
    std::vector<std::unique_ptr<Trainer>> trainers;
    for (Rank rank = 0; rank < world; ++rank) {
      trainers.push_back(std::make_unique<Trainer>(scratch_, job, rank, world, job, in_mode));
      EXPECT_TRUE(trainers.back()->opened.ok()) << trainers.back()->opened.status().to_string();
    }
    return trainers;
  }
  NodeChild node(const std::string& job, uint32_t world) {
    return NodeChild(scratch_.host(job),
                     {"root=" + scratch_.root(), "job=" + job, "world=" + std::to_string(world)});
  }
  Scratch scratch_;
};

TEST_P(Planners, RenameFilterAndConvertWhatOtherRanksLoadByThePlainCalls) {
  {
    NodeChild running = node("saving", 4);
    ASSERT_NE(running.address(), "");
    auto trainers = start("saving", 4);
    HalvingPlanner planners[4];
    for (uint64_t step : {1, 2}) {  // the second one by plan
      auto saves = together(trainers, [&](Trainer& trainer) {
        trainer.fill(step);
        return trainer.checkpointer().save(step, trainer.state, planners[trainer.rank]);
      });
      for (auto& save : saves) {
        ASSERT_TRUE(save.ok()) << save.status().to_string();
        auto committed = save->wait_committed(kPatience);
        ASSERT_TRUE(committed.ok()) << committed.status().to_string();
        EXPECT_EQ(committed->state_dict_metadata.size(), 5u);  // the weight, and four objects
      }
    }
  }
  NodeChild running = node("loading", 2);
  ASSERT_NE(running.address(), "");
  auto trainers = start("loading", 2);
  for (auto& trainer : trainers) {
    std::vector<uint16_t> weight(trainer->rows * kColumns);
    StateDict state;
    state.add_tensor("model.weight", DType::bf16, {kRows, kColumns}, Mesh::contiguous({2}),
                     {Placement::shard(0)}, weight.data());
    state.add_rank_object("rng", &trainer->rng);
    for (uint64_t step : {1, 2}) {
      auto loaded = trainer->checkpointer().load(state, {.step = step});
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      const uint64_t first = trainer->rank * trainer->rows * kColumns;
      for (uint64_t i = 0; i < weight.size(); ++i) ASSERT_EQ(weight[i], halved(value_at(first + i, step)));
      EXPECT_EQ(trainer->rng, fmt::format("rng of {} at {}", trainer->rank, step));
    }
    WideningPlanner planner;
    trainer->forget();
    auto loaded = trainer->checkpointer().load(trainer->state, planner, {.step = 2});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(planner.commits, 1);
    EXPECT_THAT(planner.missing(), ::testing::ElementsAre("b"));
    EXPECT_EQ(trainer->rng, fmt::format("rng of {} at 2", trainer->rank));
    for (uint64_t i = 0; i < weight.size(); ++i) ASSERT_EQ(halved(trainer->w[i]), weight[i]);
    dcp::DefaultLoadPlanner strict;
    EXPECT_THAT(trainer->checkpointer().load(trainer->state, strict, {.step = 2}).status().message(),
                ::testing::HasSubstr("missing 'b'; missing 'w'"));
  }
}

TEST_P(Planners, ThatFailOnOneRankFailTheSaveByName) {
  NodeChild running = node("failing", 2);
  ASSERT_NE(running.address(), "");
  auto trainers = start("failing", 2);
  HalvingPlanner planners[2];
  planners[1].fails = true;
  auto saves = together(trainers, [&](Trainer& trainer) {
    return trainer.checkpointer().save(1, trainer.state, planners[trainer.rank]);
  });
  ASSERT_TRUE(saves[0].ok()) << saves[0].status().to_string();
  EXPECT_EQ(saves[1].status().message(), "rank 1, step 1 (g1a1): resolve_data: the device is gone");
  const Status outcome = saves[0]->wait_committed(kPatience).status();
  EXPECT_EQ(outcome.code(), Code::aborted) << outcome.to_string();
  EXPECT_THAT(outcome.message(), ::testing::HasSubstr("rank 1"));
  EXPECT_THAT(outcome.message(), ::testing::HasSubstr("resolve_data: the device is gone"));
}

// An exception is the trainer's; the other ranks do not wait for a rank that is busy with one.
TEST_P(Planners, ThatThrowOnOneRankFailTheSaveByName) {
  NodeChild running = node("throwing", 2);
  ASSERT_NE(running.address(), "");
  auto trainers = start("throwing", 2);
  HalvingPlanner planners[2];
  planners[1].throws = true;
  auto outcome = together(trainers, [&](Trainer& trainer) -> Status {
    try {
      auto save = trainer.checkpointer().save(1, trainer.state, planners[trainer.rank]);
      return save.ok() ? save->wait_committed(kPatience).status() : save.status();
    } catch (const std::exception& thrown) {
      return Status(Code::internal, thrown.what());
    }
  });
  EXPECT_EQ(outcome[1].message(), "the device fell off");
  EXPECT_EQ(outcome[0].code(), Code::aborted) << outcome[0].to_string();
  EXPECT_THAT(outcome[0].message(), ::testing::HasSubstr("rank 1"));
  EXPECT_THAT(outcome[0].message(), ::testing::HasSubstr("save threw an exception: the device fell off"));
}

// Gives every chunk to the last rank that has it, objects that all have to rank 1, and leaves "b" out of the
// checkpoint.
class LastRankPlanner : public dcp::DefaultGlobalSavePlanner {
 public:
  Result<dcp::GlobalSavePlan> create_global_plan(std::vector<dcp::SavePlan> plans) override {
    ++global_plans;
    if (fails) return Status(Code::internal, "it is not its day");
    if (leaves_nothing) return dcp::GlobalSavePlan{std::vector<dcp::SavePlan>(plans.size()), {}};
    std::set<std::pair<std::string, dcp::MetadataIndex>> taken;
    for (Rank rank = static_cast<Rank>(plans.size()); rank-- > 0;) {
      plans[rank].planner_data = fmt::format("{} of {}", rank, plans.size());
      std::erase_if(plans[rank].items, [&](const dcp::WriteItem& item) {
        const std::string own = item.per_rank ? std::to_string(rank) : "";
        return item.index.fqn == "b" || !taken.emplace(own, item.index).second;
      });
    }
    if (adds) plans[0].items.push_back({{"nobody's"}, dcp::WriteItemType::byte_io});
    return dcp::GlobalSavePlan{std::move(plans), {}};
  }
  Result<dcp::SavePlan> finish_plan(dcp::SavePlan plan) override {
    outcome = plan.planner_data;
    items = plan.items.size();
    return plan;
  }
  bool fails = false, adds = false, leaves_nothing = false;
  int global_plans = 0;
  std::string outcome;
  size_t items = 0;
};

class GlobalPlanners : public Planners {};

TEST_P(GlobalPlanners, DecideWhatEachRankWrites) {
  {
    NodeChild running = node("saving", 4);
    ASSERT_NE(running.address(), "");
    auto trainers = start("saving", 4);
    LastRankPlanner planners[4];
    for (uint64_t step : {1, 2}) {
      auto saves = together(trainers, [&](Trainer& trainer) {
        trainer.fill(step);
        return trainer.checkpointer().save(step, trainer.state, planners[trainer.rank]);
      });
      for (Rank rank = 0; rank < 4; ++rank) {
        ASSERT_TRUE(saves[rank].ok()) << saves[rank].status().to_string();
        auto committed = saves[rank]->wait_committed(kPatience);
        ASSERT_TRUE(committed.ok()) << committed.status().to_string();
        EXPECT_EQ(planners[rank].outcome, fmt::format("{} of 4", rank));
        EXPECT_EQ(planners[rank].items, 2u) << "its rows and its own object";
        EXPECT_EQ(planners[rank].global_plans, rank == 0 ? static_cast<int>(step) : 0);
        EXPECT_EQ(committed->state_dict_metadata.size(), 5u);  // the weight, and four objects
      }
    }
  }
  NodeChild running = node("loading", 2);
  ASSERT_NE(running.address(), "");
  auto trainers = start("loading", 2);
  for (auto& trainer : trainers) {
    trainer->forget();
    auto loaded =
        trainer->checkpointer().load(trainer->state, {.step = 2, .policies = {KeyPolicy::lenient, {}}});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_THAT(loaded->report.missing, ::testing::ElementsAre("b"));
    const uint64_t first = trainer->rank * trainer->rows * kColumns;
    for (uint64_t i = 0; i < trainer->rows * kColumns; ++i) ASSERT_EQ(trainer->w[i], value_at(first + i, 2));
  }
}

TEST_P(GlobalPlanners, ThatFailFailTheSaveOfAllByName) {
  NodeChild running = node("failing", 2);
  ASSERT_NE(running.address(), "");
  auto trainers = start("failing", 2);
  LastRankPlanner planners[2];
  auto expect_failure = [&](uint64_t step, const std::string& cause) {
    auto saves = together(trainers, [&](Trainer& trainer) {
      return trainer.checkpointer().save(step, trainer.state, planners[trainer.rank]);
    });
    EXPECT_EQ(saves[0].status().message(), fmt::format("rank 0, step {} (g1a1): {}", step, cause));
    EXPECT_EQ(saves[1].status().code(), Code::aborted);
    EXPECT_THAT(saves[1].status().message(), ::testing::HasSubstr("rank 0 (host "));
    EXPECT_THAT(saves[1].status().message(), ::testing::HasSubstr(cause));
  };
  planners[0].fails = true;
  expect_failure(1, "create_global_plan: it is not its day");
  planners[0].fails = false;
  planners[0].adds = true;
  expect_failure(2, "the plan of rank 0 has 'nobody's' more often than its local plan");
}

TEST_P(GlobalPlanners, BesidePlannersWithoutOneAreNamed) {
  NodeChild running = node("mixed", 2);
  ASSERT_NE(running.address(), "");
  auto trainers = start("mixed", 2);
  LastRankPlanner global;
  dcp::DefaultSavePlanner local;
  auto saves = together(trainers, [&](Trainer& trainer) {
    if (trainer.rank == 0) return trainer.checkpointer().save(1, trainer.state, global);
    return trainer.checkpointer().save(1, trainer.state, local);
  });
  for (auto& save : saves) {
    EXPECT_THAT(
        save.status().message(),
        ::testing::HasSubstr("the planner of rank 0 makes a global plan, but that of rank 1 makes none"));
  }
}

TEST_P(GlobalPlanners, ThatLeaveNothingToAnybodyAreNamed) {
  NodeChild running = node("nothing", 2);
  ASSERT_NE(running.address(), "");
  auto trainers = start("nothing", 2);
  LastRankPlanner planners[2];
  planners[0].leaves_nothing = true;
  auto outcome = together(trainers, [&](Trainer& trainer) {
    auto save = trainer.checkpointer().save(1, trainer.state, planners[trainer.rank]);
    return save.ok() ? save->wait_committed(kPatience).status() : save.status();
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(outcome[rank].message(),
              fmt::format("rank {}, step 1 (g1a1): no rank holds anything to save", rank));
  }
}

INSTANTIATE_TEST_SUITE_P(InModeCollective, GlobalPlanners, ::testing::Values(SaveMode::collective),
                         mode_test_name);

INSTANTIATE_TEST_SUITE_P(InEachMode, Planners,
                         ::testing::Values(SaveMode::collective_free, SaveMode::rank_local,
                                           SaveMode::collective),
                         mode_test_name);

}  // namespace
}  // namespace shoal::testing
