// A subset of a job's ranks that saves on its own, through clients, nodes and files. Meshes name the ranks of
// the world, the checkpoint those of the group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/dcp/save_planner.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

// One of the group's ranks: "w" by rows over the ranks of the world that the group has.
struct Member {
  Member(const Scratch& scratch, Rank rank_in_world, const std::vector<Rank>& group, SaveMode mode) {
    setenv("SHOAL_RUNTIME_DIR", scratch.host("group").c_str(), 1);
    CheckpointerOptions options;
    options.root = scratch.root();
    options.rank = rank_in_world;
    options.world_size = 8;
    options.process_group = group;
    options.job_id = "group";
    options.start_node = false;
    options.save.mode = mode;
    opened = Checkpointer::open(options);
    if (!opened.ok()) return;
    place = (*opened)->options().rank;
    rows = kRows / group.size();
    w.resize(rows * kColumns);
    const Mesh mesh = Mesh::from_ranks({group.size()}, group).value();
    state.add_tensor("w", DType::f32, {kRows, kColumns}, mesh, {Placement::shard(0)}, w.data());
    state.add_object("o", &object, mesh);
  }
  void fill(uint64_t step) {
    for (uint64_t i = 0; i < w.size(); ++i) w[i] = value_at(place * rows * kColumns + i, step);
    object = fmt::format("at {}", step);
  }

  Result<std::unique_ptr<Checkpointer>> opened = Status(Code::internal, "not opened");
  Rank place = 0;
  uint64_t rows = 0;
  std::vector<float> w;
  std::string object;
  StateDict state;
};

class ProcessGroups : public ::testing::TestWithParam<SaveMode> {
 protected:
  Scratch scratch_;
};

TEST_P(ProcessGroups, SaveByThemselvesWhatAnyJobLoads) {
  const std::vector<Rank> group = {1, 4, 6, 7};
  {
    NodeChild node(scratch_.host("group"), {"root=" + scratch_.root(), "job=group", "world=4"});
    ASSERT_NE(node.address(), "");
    std::vector<std::unique_ptr<Member>> members;
    for (Rank rank : group) {
      members.push_back(std::make_unique<Member>(scratch_, rank, group, GetParam()));
      ASSERT_TRUE(members.back()->opened.ok()) << members.back()->opened.status().to_string();
    }
    for (uint64_t step : {1, 2}) {
      auto saves = together(members, [&](Member& member) {
        member.fill(step);
        dcp::DefaultSavePlanner planner;
        return step == 1 ? (*member.opened)->save(step, member.state)
                         : (*member.opened)->save(step, member.state, planner);
      });
      for (auto& save : saves) {
        ASSERT_TRUE(save.ok()) << save.status().to_string();
        auto committed = save->wait_committed(kPatience);
        ASSERT_TRUE(committed.ok()) << committed.status().to_string();
        EXPECT_EQ(committed->world_size, 4u);
      }
    }
    auto loads = together(members, [&](Member& member) {
      std::fill(member.w.begin(), member.w.end(), 0.0f);
      return (*member.opened)->load(member.state, {.step = 1}).status();
    });
    for (size_t i = 0; i < members.size(); ++i) {
      ASSERT_TRUE(loads[i].ok()) << loads[i].to_string();
      EXPECT_EQ(members[i]->w[5], value_at(i * members[i]->rows * kColumns + 5, 1));
      EXPECT_EQ(members[i]->object, "at 1");
    }
  }
  NodeChild node(scratch_.host("other"), {"root=" + scratch_.root(), "job=other", "world=1"});
  ASSERT_NE(node.address(), "");
  Trainer other(scratch_, "other", 0, 1, "other");
  ASSERT_TRUE(other.opened.ok()) << other.opened.status().to_string();
  auto loaded = other.checkpointer().load(other.state, {.step = 2, .policies = {KeyPolicy::lenient, {}}});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_THAT(loaded->report.missing, ::testing::UnorderedElementsAre("b", "rng@rank0"));
  for (uint64_t i = 0; i < other.w.size(); ++i) ASSERT_EQ(other.w[i], value_at(i, 2));
}

INSTANTIATE_TEST_SUITE_P(InEachMode, ProcessGroups,
                         ::testing::Values(SaveMode::collective_free, SaveMode::rank_local,
                                           SaveMode::collective),
                         mode_test_name);

}  // namespace
}  // namespace shoal::testing
