// The Planner of a node that replaces another: the roster exists, and its clients come back one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "actors/coordinator/roster_gathering.h"
#include "tests/actors/role_by_itself.h"
#include "tests/sim/support/job_layouts.h"

namespace shoal::actors {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TimeNs kLong = 60'000 * kMillisecond;

class ThePlanner : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 4;

  static NodeConfig one_host() {
    NodeConfig config;
    config.generation = 1;
    config.epoch = 1;
    config.job_id = "job-1";
    config.host = "host0";
    config.world_size = kRanks;
    config.expected_ranks = {0, 1, 2, 3};
    return config;
  }
  void comes(Rank rank, const SaveOptions& options = {}) {
    local::Attach attach;
    attach.rank = rank;
    attach.world_size = kRanks;
    planner_.from_client(client_of(rank), attach);
    planner_.from_client(client_of(rank), local::LayoutUpdate{layouts_[rank], options});
  }
  void goes(Rank rank) { planner_.handle(event::ClientLost{client_of(rank)}); }
  void roster_arrives() {
    RosterGathering gathering;
    wire::JoinRanks all{"host0", kRanks, {}, {}};
    for (Rank rank = 0; rank < kRanks; ++rank) all.ranks.push_back({rank, layouts_[rank]->id()});
    ASSERT_TRUE(gathering.add(all).ok());
    for (const LayoutPtr& layout : layouts_) gathering.add_layout(layout);
    auto world = gathering.make_world();
    ASSERT_TRUE(world.ok()) << world.status().to_string();
    planner_.receive(kCoordinatorNode, RoleKind::coordinator, wire::RosterUpdate{*world, {}, kRuleVersion});
  }
  // The ranks that each JoinRanks has named since the last call.
  std::vector<std::vector<Rank>> joined_within(TimeNs duration) {
    planner_.pass(duration);
    std::vector<std::vector<Rank>> named;
    for (const auto& join : planner_.sent<wire::JoinRanks>(kCoordinatorNode)) {
      named.emplace_back();
      for (const wire::RankLayout& each : join.ranks) named.back().push_back(each.rank);
    }
    planner_.sends.clear();
    return named;
  }
  // Ranks 0 and 1 join, and the coordinator answers.
  void two_join() {
    comes(0);
    comes(1);
    EXPECT_THAT(joined_within(kMillisecond * NodeConfig{}.timeouts.join_gather_ms),
                ElementsAre(ElementsAre(0, 1)));
    roster_arrives();
    EXPECT_THAT(joined_within(kLong), IsEmpty());
  }
  static ClientId client_of(Rank rank) { return rank + 10; }

  const std::vector<LayoutPtr> layouts_ = sim::flat_job(kRanks, 0);
  RoleByItself planner_{make_planner(one_host())};
};

// Otherwise the coordinator counts them as lost, or as ended with the node before, and aborts the next save.
TEST_F(ThePlanner, NamesRanksToTheCoordinatorThatCameAfterTheRoster) {
  two_join();
  comes(2);
  comes(3);
  EXPECT_THAT(joined_within(kLong), Contains(ElementsAre(0, 1, 2, 3)));
  roster_arrives();
  EXPECT_THAT(joined_within(kLong), IsEmpty()) << "the coordinator has answered";
}

TEST_F(ThePlanner, NamesRanksThatCameBetweenItsMessageAndTheRoster) {
  comes(0);
  EXPECT_THAT(joined_within(kMillisecond * NodeConfig{}.timeouts.join_gather_ms),
              ElementsAre(ElementsAre(0)));
  comes(1);
  roster_arrives();
  EXPECT_THAT(joined_within(kLong), Contains(ElementsAre(0, 1)));
}

TEST_F(ThePlanner, RepeatsLateRanksUntilTheCoordinatorAnswers) {
  two_join();
  comes(2);
  EXPECT_GT(joined_within(kLong).size(), 2u);
  planner_.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "closed")});
  joined_within(0);
  planner_.handle(event::PeerUp{kCoordinatorNode});
  EXPECT_THAT(joined_within(0), ElementsAre(ElementsAre(0, 1, 2)));
}

TEST_F(ThePlanner, NamesNoRankAgainThatComesBackToTheSameCoordinator) {
  two_join();
  goes(1);
  comes(1);
  EXPECT_THAT(joined_within(kLong), IsEmpty());
}

// The ShardWriter tells a new coordinator which ranks are attached (RanksEnded). Rank 1 is not among them.
TEST_F(ThePlanner, NamesRanksThatComeBackAfterTheSessionBeganAnew) {
  two_join();
  goes(1);
  planner_.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "closed")});
  planner_.handle(event::PeerUp{kCoordinatorNode});
  EXPECT_THAT(joined_within(kLong), IsEmpty());
  comes(1);
  EXPECT_THAT(joined_within(kLong), Contains(ElementsAre(0, 1)));
}

TEST_F(ThePlanner, NamesNoLateRankWhoseClientIsGone) {
  two_join();
  comes(2);
  goes(2);
  comes(3);
  EXPECT_THAT(joined_within(kLong), Contains(ElementsAre(0, 1, 3)));
  roster_arrives();
  goes(3);
  EXPECT_THAT(joined_within(kLong), IsEmpty());
}

TEST_F(ThePlanner, RejectsALateRankWithOtherOptionsAlone) {
  two_join();
  SaveOptions other;
  other.dedupe = Dedupe::lowest_rank;
  comes(2, other);
  const auto failed = planner_.notified<local::Failed>(client_of(2));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].why.message(),
            "rank 2 saves with other options than the rest of the job, dedupe: lowest-rank and balanced");
  EXPECT_THAT(joined_within(kLong), IsEmpty());
  comes(3);
  EXPECT_THAT(joined_within(kLong), Contains(ElementsAre(0, 1, 3)));
  EXPECT_THAT(planner_.notified<local::Failed>(client_of(0)), IsEmpty());
}

// The coordinator before was on this node, so that no session ended. The ShardWriter waits no longer for the
// later one than for one whose session ended.
TEST_F(ThePlanner, TellsTheShardWriterThatNobodyHasReachedALaterCoordinator) {
  two_join();
  planner_.to_roles.clear();
  planner_.receive(kThisNode, RoleKind::coordinator, wire::Superseded{2, "node1:7000"});
  ASSERT_TRUE(planner_.answer<operation::ReadEpoch>(OperationResult(
      std::make_shared<const storage::EpochRecord>(storage::EpochRecord{2, "node1:7000", "job-1", {}, 1}))));
  ASSERT_EQ(planner_.to_roles.size(), 1u);
  EXPECT_EQ(planner_.to_roles[0].to, RoleKind::shard_writer);
  const auto* lost = std::get_if<event::PeerLost>(&planner_.to_roles[0].event);
  ASSERT_NE(lost, nullptr);
  EXPECT_EQ(lost->node, kCoordinatorNode);
  EXPECT_FALSE(planner_.redirects.empty());
}

TEST_F(ThePlanner, KeepsItsRosterIfTheCoordinatorRejectsLateRanks) {
  two_join();
  comes(2);
  EXPECT_THAT(joined_within(kLong), Contains(ElementsAre(0, 1, 2)));
  planner_.receive(kCoordinatorNode, RoleKind::coordinator, wire::JoinRejected{"another world"});
  EXPECT_THAT(joined_within(kLong), IsEmpty());
  EXPECT_THAT(planner_.notified<local::Failed>(client_of(0)), IsEmpty());
}

// --- the coordinator that it follows ---

OperationResult epoch(uint32_t number, const std::string& job = "job-1") {
  return std::make_shared<const storage::EpochRecord>(
      storage::EpochRecord{number, "node" + std::to_string(number) + ":7000", job, {}, 1});
}

TEST_F(ThePlanner, FollowsNoEarlierCoordinatorThatTheRootStillNames) {
  planner_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Superseded{3, "node3:7000"});
  ASSERT_TRUE(planner_.answer<operation::ReadEpoch>(epoch(3)));
  ASSERT_FALSE(planner_.redirects.empty());
  planner_.redirects.clear();
  planner_.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "closed")});
  ASSERT_TRUE(planner_.answer<operation::ReadEpoch>(epoch(2)));  // of a root that answers late
  EXPECT_TRUE(planner_.redirects.empty());
}

TEST_F(ThePlanner, BelievesTheCoordinatorIfTheRootCannotBeRead) {
  planner_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Superseded{3, "node3:7000"});
  ASSERT_TRUE(planner_.answer<operation::ReadEpoch>(Status(Code::io, "Input/output error")));
  ASSERT_EQ(planner_.redirects.size(), 1u);
  EXPECT_EQ(planner_.redirects[0].epoch, 3u);
}

TEST_F(ThePlanner, RejectsItsClientsOnceAnotherJobHasTheRootAndThereIsNoRoster) {
  comes(0);
  planner_.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "closed")});
  ASSERT_TRUE(planner_.answer<operation::ReadEpoch>(epoch(2, "job-2")));
  planner_.pass(1'000 * kMillisecond);
  while (planner_.answer<operation::ReadEpoch>(epoch(2, "job-2"))) {
  }
  EXPECT_EQ(planner_.notified<local::Failed>(client_of(0)).size(), 1u);
  comes(1);
  EXPECT_EQ(planner_.notified<local::Failed>(client_of(1)).size(), 1u) << "it comes later";
  EXPECT_EQ(std::count_if(planner_.to_roles.begin(), planner_.to_roles.end(),
                          [](const effect::ToRole& each) {
                            return std::holds_alternative<event::CoordinatorSuperseded>(each.event);
                          }),
            1);
}

TEST_F(ThePlanner, KeepsItsRosterWhenAnotherJobHasTheRoot) {
  two_join();
  planner_.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "closed")});
  ASSERT_TRUE(planner_.answer<operation::ReadEpoch>(epoch(2, "job-2")));
  EXPECT_THAT(planner_.notified<local::Failed>(client_of(0)), IsEmpty()) << "it may load";
}

TEST(ThePlannerOfAJobThatOnlyReads, LooksForNoCoordinatorInTheRoot) {
  NodeConfig config;
  config.read_only = true;
  RoleByItself planner{make_planner(config)};
  planner.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "closed")});
  planner.pass(kLong);
  EXPECT_EQ(planner.started<operation::ReadEpoch>(), 0u);
}

// --- rosters and clients ---

TEST_F(ThePlanner, PassesTheRosterToTheRolesOfItsNode) {
  comes(0);
  planner_.to_roles.clear();
  roster_arrives();
  ASSERT_EQ(planner_.to_roles.size(), 2u);
  EXPECT_EQ(planner_.to_roles[0].to, RoleKind::shard_writer);
  EXPECT_EQ(planner_.to_roles[1].to, RoleKind::loader);
}

TEST_F(ThePlanner, RejectsARosterOfAnotherRuleVersion) {
  comes(0);
  roster_arrives();
  ASSERT_EQ(planner_.notified<local::RosterUpdate>(client_of(0)).size(), 1u);
  RoleByItself other{make_planner(one_host())};
  local::Attach attach;
  attach.world_size = kRanks;
  other.from_client(client_of(0), attach);
  other.from_client(client_of(0), local::LayoutUpdate{layouts_[0], {}});
  const auto world = planner_.notified<local::RosterUpdate>(client_of(0))[0].world;
  other.receive(kCoordinatorNode, RoleKind::coordinator, wire::RosterUpdate{world, {}, kRuleVersion + 1});
  EXPECT_TRUE(other.notified<local::RosterUpdate>(client_of(0)).empty());
  ASSERT_EQ(other.notified<local::Failed>(client_of(0)).size(), 1u);
  EXPECT_EQ(other.notified<local::Failed>(client_of(0))[0].why.code(), Code::version);
}

// A trainer that was started again attaches before the node has noticed the end of the one before.
TEST_F(ThePlanner, AnswersTheLaterProcessOfARankWhenTheEarlierOneEnds) {
  comes(0);
  local::Attach attach;
  attach.rank = 0;
  attach.world_size = kRanks;
  planner_.from_client(99, attach);
  planner_.from_client(99, local::LayoutUpdate{layouts_[0], {}});
  goes(0);
  roster_arrives();
  EXPECT_EQ(planner_.notified<local::RosterUpdate>(99).size(), 1u);
}

TEST_F(ThePlanner, RejectsItsClientsIfALayoutFitsIntoNoMessage) {
  NodeConfig config = one_host();
  config.message_bytes_max = 100;
  RoleByItself planner{make_planner(config)};
  local::Attach attach;
  attach.world_size = kRanks;
  planner.from_client(client_of(0), attach);
  planner.from_client(client_of(0), local::LayoutUpdate{layouts_[0], {}});
  planner.receive(kCoordinatorNode, RoleKind::coordinator, wire::LayoutRequest{{layouts_[0]->id()}});
  ASSERT_EQ(planner.notified<local::Failed>(client_of(0)).size(), 1u);
  EXPECT_EQ(planner.notified<local::Failed>(client_of(0))[0].why.code(), Code::too_large);
}

}  // namespace
}  // namespace shoal::actors
