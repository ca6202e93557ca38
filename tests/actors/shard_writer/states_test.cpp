// The tables of states of the ShardWriter, and what NodeSave and RankSave derive from them.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "actors/shard_writer/node_drain.h"
#include "actors/shard_writer/node_save.h"
#include "actors/shard_writer/rank_save.h"
#include "tests/actors/role_by_itself.h"
#include "tests/base/state_tables.h"

namespace shoal::actors {
namespace {

TEST(TheTablesOfTheShardWriter, ReachEveryState) {
  EXPECT_TRUE(base::reaches_all(
      kRankSaveTransitions,
      std::vector{RankSaveState::planning, RankSaveState::asking_root, RankSaveState::staged}));
  EXPECT_TRUE(base::reaches_all(kNodeSaveTransitions, std::vector{NodeSaveState::open}));
  EXPECT_TRUE(base::reaches_all(kLocalGatherTransitions, std::vector{LocalGatherState::gathering}));
  EXPECT_TRUE(base::reaches_all(kNodeDrainTransitions, std::vector{NodeDrainState::serving}));
}

TEST(ASaveOfANode, CanEndFromEveryStateInEachWay) {
  for (const auto& row : kNodeSaveTransitions) {
    const NodeSaveMachine save(row.from);
    EXPECT_TRUE(save.may(NodeSaveTrigger::committed)) << base::name_of_enumerator(row.from);
    EXPECT_TRUE(save.may(NodeSaveTrigger::aborted)) << base::name_of_enumerator(row.from);
    EXPECT_TRUE(save.may(NodeSaveTrigger::left)) << base::name_of_enumerator(row.from);
  }
}

TEST(ASaveOfANode, IsClosedOnce) {
  for (NodeSaveState end : {NodeSaveState::committed, NodeSaveState::aborted, NodeSaveState::unknown}) {
    for (const auto& row : kNodeSaveTransitions) EXPECT_NE(row.from, end) << base::name_of_enumerator(row.on);
  }
}

TEST(ASaveOfARank, IsWrittenOnlyAfterItWasStaged) {
  for (const auto& row : kRankSaveTransitions) {
    if (row.to != RankSaveState::writing) continue;
    RankSaveMachine::Counts counts;
    EXPECT_TRUE(RankSave(row.from, counts).is_unplanned()) << base::name_of_enumerator(row.from);
  }
}

TEST(ASaveOfARank, KeepsWhatIsDurable) {
  for (const auto& row : kRankSaveTransitions) {
    RankSaveMachine::Counts counts;
    if (!RankSave(row.from, counts).is_written()) continue;
    EXPECT_TRUE(RankSave(row.to, counts).is_written())
        << base::name_of_enumerator(row.from) << ": " << base::name_of_enumerator(row.on);
  }
}

class ANodeSave : public ::testing::Test {
 protected:
  // Mode collective: the rank gets its plan from the plan gather.
  RankSave& planned(Rank rank) {
    RankSave& save = save_.add(rank, RankSaveState::planning);
    save.on(RankSaveTrigger::offered_plan);
    save.follows_planner = true;
    save.on(RankSaveTrigger::gathered);
    save.on(RankSaveTrigger::requested_plan);
    save.plan = std::make_shared<const SavePlan>();
    save.on(RankSaveTrigger::received_plan);
    return save;
  }

  SaveCounts counts_;
  NodeSave save_{0, Timeouts{}, counts_};
};

// The node forgot it, and refused the next rank that began again.
TEST_F(ANodeSave, RemembersThatARankHasAPlannerAfterItHasStaged) {
  RankSave& first = planned(0);
  first.on(RankSaveTrigger::staged_by_plan);
  first.stage(7, 1, nullptr, nullptr, nullptr);
  EXPECT_TRUE(save_.check_planners(1, true).ok());
  EXPECT_EQ(save_.check_planners(1, false).code(), Code::invalid_argument);
}

TEST_F(ANodeSave, KeepsTheFirstFailureAlsoWhileItDecides) {
  save_.on(NodeSaveTrigger::given_up);
  EXPECT_TRUE(save_.fail(3, Status(Code::no_space, "disk full")));
  EXPECT_FALSE(save_.fail(4, Status(Code::io, "disk broken")));
  EXPECT_EQ(save_.state(), NodeSaveState::deciding);
  EXPECT_EQ(save_.failed_rank(), 3u);
  EXPECT_EQ(save_.failure().code(), Code::no_space);
}

TEST_F(ANodeSave, CountsRanksThatWaitAndThatHaveWritten) {
  save_.add(0, RankSaveState::staged).on(RankSaveTrigger::planned);
  save_.ranks.at(0).on(RankSaveTrigger::all_durable);
  save_.add(1, RankSaveState::staged).on(RankSaveTrigger::layout_is_not_newest);
  save_.add(2, RankSaveState::staged);
  save_.add(3, RankSaveState::planning).on(RankSaveTrigger::requested_plan);
  EXPECT_EQ(save_.ready(), NodeSave::Ready(1, 2));
  EXPECT_FALSE(save_.has_staged(3));
  EXPECT_TRUE(save_.has_staged(2));
}

// --- the role takes the transitions ---

TEST(AShardWriterWithoutARoster, DecidesAndThenInformsItsClientsWhereTheRootTakesNoDecision) {
  NodeConfig config;
  config.generation = 1;
  RoleByItself role(make_shard_writer(config));
  local::Attach attach;
  attach.world_size = 2;
  role.from_client(7, attach);
  local::Staged staged;
  staged.step = staged.attempt = 1;
  role.from_client(7, staged);
  role.receive(kCoordinatorNode, RoleKind::coordinator,
               wire::Undecided{{1, 1, 1}, Status(Code::refused, "read-only")});
  ASSERT_TRUE(role.answer<operation::PublishDecision>(Status(Code::io, "busy")));
  EXPECT_EQ(role.taken("node's save", "open", "given_up"), 1u);
  EXPECT_EQ(role.taken("node's save", "deciding", "publishing_failed"), 1u);
  EXPECT_EQ(role.taken("rank's save", "staged", "undecidable"), 1u);
  EXPECT_EQ(role.notified<local::Decided>(7).size(), 1u);
  EXPECT_EQ(role.notified<local::SlabFree>(7).size(), 1u);
}

}  // namespace
}  // namespace shoal::actors
