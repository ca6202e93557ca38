// The Coordinator under schedules in which nodes are replaced, and answers of the root come late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/coordinator/coordinator.h"
#include "tests/actors/coordinator/coordinator_by_itself.h"
#include "tests/sim/support/job_layouts.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

constexpr NodeId kNext = kFirstPeerNode + 2;  // a node that replaces kNode

// Two saves in flight, whose layouts make two rosters. Rank 0 has the same layout in both, and divides what
// it holds with rank 1 in the second one only.
class SavesWhoseLayoutsChange : public ACoordinatorByItself {
 protected:
  static constexpr AttemptKey kFirst{1, 5, 1}, kSecond{1, 6, 1};

  SavesWhoseLayoutsChange() {
    roster_exists();
    role_.sends.clear();
  }

  static LayoutPtr holding(bool shared) {
    const Mesh both = Mesh::contiguous({2});
    LayoutBuilder builder;
    builder.add_tensor("w", DType::f32, {42, 10}, both, {Placement::shard(0)});
    for (int i = 0; shared && i < 8; ++i) {
      builder.add_value("shared" + std::to_string(i), DType::f32, {9}, both, true);
    }
    return std::move(builder).build().value();
  }
  void stages(NodeId node, const AttemptKey& key, Rank rank, bool shared) {
    role_.receive(node, RoleKind::shard_writer, wire::LayoutsStaged{key, {{rank, holding(shared)->id()}}});
  }
  void none_decided() {
    while (role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"))) {
    }
  }
  // Both ranks have staged. Returns the roster that the coordinator made of it.
  std::shared_ptr<const World> roster_is_made() {
    none_decided();
    for (bool shared : {false, true})
      role_.receive(kNode, RoleKind::planner, wire::Layouts{{holding(shared)}});
    no_later_epoch();
    OperationId id = 0;
    auto publish = role_.take_start<operation::PublishRoster>(&id);
    if (!publish) return nullptr;
    role_.handle(event::OperationDone{id, OperationResult(publish->record)});
    return publish->record.world;
  }
  void reports(NodeId node, const AttemptKey& key, Rank rank, const std::shared_ptr<const World>& under) {
    world_ = under;
    role_.receive(node, RoleKind::shard_writer, report(key, rank));
  }
  std::optional<std::string> cause() {
    no_later_epoch();
    OperationId id = 0;
    auto publish = role_.take_start<operation::PublishDecision>(&id);
    if (!publish) return std::nullopt;
    const auto* tombstone = std::get_if<storage::Tombstone>(publish->body.get());
    return tombstone ? tombstone->cause : "a manifest";
  }
};

// The node of rank 0 is killed after both saves have their rosters. The next node knows the newest roster,
// which has the layout of rank 0, and writes the first save by it.
TEST_F(SavesWhoseLayoutsChange, AreNotCommittedIfTheNextNodeOfARankWroteByTheRosterOfALaterSave) {
  stages(kNode, kFirst, 0, true);
  stages(kOther, kFirst, 1, false);
  const auto first = roster_is_made();
  stages(kNode, kSecond, 0, true);
  stages(kOther, kSecond, 1, true);
  const auto second = roster_is_made();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  ASSERT_NE(plan_save(*first, 0, {})->items, plan_save(*second, 0, {})->items) << "nothing is tested";
  role_.handle(event::PeerLost{kNode, Status(Code::unavailable, "killed")});
  reports(kOther, kFirst, 1, first);
  reports(kNext, kFirst, 0, second);
  EXPECT_EQ(role_.started<operation::CheckFiles>(), 0u) << "it commits the pieces of two plans";
  EXPECT_THAT(cause().value_or(""), HasSubstr("which assigns it other pieces"));
}

// The node of a host with ranks 0 and 1 reported rank 0, and was killed while rank 1 waited for a roster. The
// next one has no roster yet, and names what both have staged.
TEST_F(SavesWhoseLayoutsChange, GetARosterWithTheNewLayoutThoughAnEarlierNodeHasReportedANeighbour) {
  role_.receive(kNode, RoleKind::shard_writer, report(kFirst, 0));
  none_decided();
  role_.handle(event::PeerLost{kNode, Status(Code::unavailable, "killed")});
  role_.receive(kNext, RoleKind::shard_writer,
                wire::LayoutsStaged{kFirst, {{0, layouts()[0]->id()}, {1, holding(true)->id()}}});
  for (const auto& answer : role_.sent<wire::AttemptRoster>(kNext)) {
    EXPECT_NE(answer.roster_id, world_->roster.id()) << "rank 1 cannot write by this roster";
  }
  ASSERT_EQ(role_.sent<wire::LayoutRequest>(kNext).size(), 1u);
  EXPECT_THAT(role_.sent<wire::LayoutRequest>(kNext)[0].ids, ::testing::ElementsAre(holding(true)->id()));
}

TEST_F(SavesWhoseLayoutsChange, AreAnsweredAtOnceIfAnEarlierNodeHasReportedAllRanksOfTheHost) {
  role_.receive(kNode, RoleKind::shard_writer, report(kFirst, 0));
  none_decided();
  role_.handle(event::PeerLost{kNode, Status(Code::unavailable, "killed")});
  stages(kNext, kFirst, 0, false);
  ASSERT_EQ(role_.sent<wire::AttemptRoster>(kNext).size(), 1u);
  EXPECT_EQ(role_.sent<wire::AttemptRoster>(kNext)[0].roster_id, world_->roster.id());
}

// A slow rank completes the save before the change when the roster of the next one is in force.
TEST_F(SavesWhoseLayoutsChange, DoNotMakeTheRosterOfAnEarlierSaveTheNewestAgain) {
  role_.receive(kNode, RoleKind::shard_writer, report(kFirst, 0));
  none_decided();
  const wire::ShardsWritten slow = report(kFirst, 1);
  const RosterId before = world_->roster.id();
  stages(kNode, kSecond, 0, true);
  stages(kOther, kSecond, 1, true);
  const auto after = roster_is_made();
  ASSERT_TRUE(after != nullptr);
  role_.receive(kOther, RoleKind::shard_writer, slow);
  EXPECT_EQ(role_.started<operation::CheckFiles>(), 1u) << "it commits all the same";
  const auto updates = role_.sent<wire::RosterUpdate>(kNode);
  ASSERT_FALSE(updates.empty());
  EXPECT_EQ(updates.back().world->roster.id(), after->roster.id()) << "the next save is planned by it";
  EXPECT_NE(updates.back().world->roster.id(), before);
}

TEST_F(SavesWhoseLayoutsChange, AskAgainForALayoutIfTheNodeRepeatsItsMessage) {
  stages(kNode, kFirst, 0, true);
  stages(kOther, kFirst, 1, true);
  none_decided();
  ASSERT_EQ(role_.sent<wire::LayoutRequest>(kNode).size(), 1u);
  stages(kOther, kFirst, 1, true);
  EXPECT_TRUE(role_.sent<wire::LayoutRequest>(kOther).empty()) << "one node was asked, and lives";
  stages(kNode, kFirst, 0, true);
  EXPECT_EQ(role_.sent<wire::LayoutRequest>(kNode).size(), 2u) << "the first request may be lost";
}

TEST_F(SavesWhoseLayoutsChange, WaitForAllRanksOfTheWorldAndForNoneBeyondIt) {
  stages(kNode, kFirst, 0, true);
  stages(kNode, kFirst, 7, true);
  none_decided();
  EXPECT_TRUE(role_.sent<wire::LayoutRequest>(kNode).empty()) << "rank 1 has not staged";
  stages(kOther, kFirst, 1, true);
  EXPECT_TRUE(roster_is_made() != nullptr);
}

TEST_F(SavesWhoseLayoutsChange, EndIfTheRootDoesNotHaveTheRosterOfAReport) {
  wire::ShardsWritten strange = report(kFirst, 0);
  strange.roster_id = {};
  role_.receive(kNode, RoleKind::shard_writer, strange);
  none_decided();
  role_.receive(kNode, RoleKind::shard_writer, strange);
  role_.receive(kOther, RoleKind::shard_writer, strange);
  ASSERT_EQ(role_.started<operation::ReadRoster>(), 1u) << "one read for all reports";
  ASSERT_TRUE(role_.answer<operation::ReadRoster>(Status(Code::not_found, "no such file")));
  EXPECT_THAT(cause().value_or(""), HasSubstr("which this generation does not have"));
}

// Its reports are sent again, and the roster is read again.
TEST_F(SavesWhoseLayoutsChange, DoNotEndBecauseTheRosterOfAReportCannotBeReadNow) {
  wire::ShardsWritten strange = report(kFirst, 0);
  strange.roster_id = {};
  role_.receive(kNode, RoleKind::shard_writer, strange);
  none_decided();
  ASSERT_TRUE(role_.answer<operation::ReadRoster>(Status(Code::io, "Input/output error")));
  EXPECT_FALSE(cause().has_value());
  role_.receive(kNode, RoleKind::shard_writer, strange);
  EXPECT_EQ(role_.started<operation::ReadRoster>(), 1u);
}

// --- bounds ---

TEST(TheEarlyReportsOfAttempts, TakeNoMoreThanTheirBound) {
  AttemptMachine::Counts counts;
  Attempt attempt({{1, 5, 1}, 1}, 0, Timeouts{}, counts);
  wire::ShardsWritten report;
  report.key = {1, 5, 1};
  report.files.resize(100'000);
  size_t used = 0;
  for (NodeId node = 0; node < 100; ++node) attempt.keep_early(0, node, report, &used);
  EXPECT_LE(used, kMaxEarlyReportBytes);
  EXPECT_GT(used, kMaxEarlyReportBytes / 2);
  EXPECT_LT(attempt.early().size(), 100u);
  (void)attempt.take_early(&used);
  EXPECT_EQ(used, 0u);
}

TEST_F(ACoordinatorByItself, OpensNoMoreAttemptsThanItsBoundUntilOneIsDecided) {
  roster_exists();
  for (uint64_t step = 1; step <= kMaxAttemptsInFlight + 5; ++step) {
    role_.receive(kNode, RoleKind::shard_writer, report({1, step, 1}, 0));
  }
  EXPECT_EQ(role_.started<operation::ReadDecision>(), kMaxAttemptsInFlight);
  role_.answer<operation::ReadDecision>(aborted({1, 1, 1}, "by another party"));
  const AttemptKey next{1, kMaxAttemptsInFlight + 1, 1};
  role_.receive(kNode, RoleKind::shard_writer, report(next, 0));
  EXPECT_EQ(role_.started<operation::ReadDecision>(), kMaxAttemptsInFlight);
}

TEST_F(ACoordinatorByItself, SweepsLaterWhatItLeftUndecided) {
  roster_exists();
  both_report({1, 5, 1});
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(read_only_root()));
  role_.pass(301'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::SweepAttempt>(), 1u) << "a node may have aborted it";
}

TEST_F(ACoordinatorByItself, AnswersProgressOfADecidedAttempt) {
  roster_exists();
  abort({1, 5, 1});
  role_.sends.clear();
  role_.receive(kOther, RoleKind::shard_writer, wire::SaveProgress{{1, 5, 1}, 7});
  EXPECT_EQ(role_.sent<wire::Decided>(kOther).size(), 1u);
  EXPECT_EQ(role_.started<operation::ReadDecision>(), 0u);
}

// --- the first roster ---

TEST_F(ACoordinatorByItself, AbortsAtTheDeadlineForTheRootIfItTakesNoFirstRoster) {
  both_join();
  no_later_epoch();
  ASSERT_TRUE(role_.answer<operation::PublishRoster>(Status(Code::no_space, "No space left on device")));
  role_.receive(kNode, RoleKind::shard_writer, wire::LayoutsStaged{{1, 5, 1}, {{0, layouts()[0]->id()}}});
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.pass(121'000 * kMillisecond);
  no_later_epoch();
  OperationId id = 0;
  const auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_EQ(publish->give_up, GiveUp::root_unreliable);
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause, HasSubstr("No space left on device"));
}

// Nodes that have the roster do not join. One of them waits here with a save.
TEST_F(ACoordinatorByItself, LooksForTheFirstRosterWhileASaveWaitsAndMissesTheRanksOfNoNode) {
  role_.receive(kNode, RoleKind::shard_writer, wire::LayoutsStaged{{1, 5, 1}, {{0, layouts()[0]->id()}}});
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.pass(16'000 * kMillisecond);
  ASSERT_EQ(role_.started<operation::ReadRoster>(), 1u);
  RosterGathering gathering;
  ASSERT_TRUE(gathering.add(join(0)).ok() && gathering.add(join(1)).ok());
  for (const LayoutPtr& layout : layouts()) gathering.add_layout(layout);
  const storage::RosterRecord record{gathering.make_world().value(), {}, kRuleVersion};
  ASSERT_TRUE(role_.answer<operation::ReadRoster>(OperationResult(record)));
  role_.pass(16'000 * kMillisecond);
  no_later_epoch();
  OperationId id = 0;
  const auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value()) << "no node has reported rank 1 within host_lost_ms";
  EXPECT_EQ(publish->give_up, GiveUp::host_lost);
}

class ALaterRoster : public ACoordinatorByItself {
 protected:
  static NodeConfig small() {
    NodeConfig config = facts_of_one();
    config.message_bytes_max = 20'000;
    return config;
  }
  ALaterRoster() : ACoordinatorByItself(small()) {}
};

TEST_F(ALaterRoster, ThatFitsIntoNoMessageAbortsTheSaveWhoseLayoutsMakeIt) {
  roster_exists();
  LayoutBuilder builder;
  for (int i = 0; i < 800; ++i) {
    builder.add_value("value" + std::to_string(i), DType::f32, {9}, Mesh::contiguous({2}), true);
  }
  const LayoutPtr large = std::move(builder).build().value();
  for (Rank rank : {0u, 1u}) {
    role_.receive(rank == 0 ? kNode : kOther, RoleKind::shard_writer,
                  wire::LayoutsStaged{{1, 5, 1}, {{rank, large->id()}}});
  }
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.receive(kNode, RoleKind::planner, wire::Layouts{{large}});
  no_later_epoch();
  OperationId id = 0;
  const auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause,
              HasSubstr("but a message takes at most 20000"));
}

// Both saved with the layout, and the second one joins last. The layout has no part for them alone.
TEST_F(ACoordinatorByItself, AbortsASaveWhoseLayoutsMakeNoRosterAsSoonAsAllHaveJoined) {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {42, 10}, Mesh::contiguous({3}), {Placement::shard(0)});
  const LayoutPtr gap = std::move(builder).build().value();
  const auto comes = [&](NodeId node, Rank rank) {
    role_.receive(node, RoleKind::shard_writer, wire::LayoutsStaged{{1, 5, 1}, {{rank, gap->id()}}});
  };
  comes(kNode, 0);
  comes(kOther, 1);
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.receive(kNode, RoleKind::planner, wire::JoinRanks{"host0", 2, {{0, gap->id()}}, {}});
  role_.receive(kNode, RoleKind::planner, wire::Layouts{{gap}});
  role_.receive(kOther, RoleKind::planner, wire::JoinRanks{"host1", 2, {{1, gap->id()}}, {}});
  role_.receive(kNode, RoleKind::planner, wire::Layouts{{gap}});
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 1u);
}

// --- hosts and trainers that come late or never ---

// The root has not said yet whether the save is decided, and the report is kept.
TEST_F(ACoordinatorByItself, MissesNoRankOfALostHostThatHasReportedEarly) {
  roster_exists();
  role_.receive(kOther, RoleKind::shard_writer, report({1, 5, 1}, 1));
  role_.receive(kNode, RoleKind::shard_writer, report({1, 5, 1}, 0));
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "killed")});
  role_.pass(20'000 * kMillisecond);
  no_later_epoch();
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  EXPECT_EQ(role_.started<operation::CheckFiles>(), 1u);
}

TEST_F(ACoordinatorByItself, AbortsNoSaveForRanksBeyondTheWorldThatHaveEnded) {
  roster_exists();
  role_.receive(kNode, RoleKind::shard_writer, report({1, 5, 1}, 0));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.receive(kOther, RoleKind::shard_writer, wire::RanksEnded{{{7, "exit 1"}}, {}, "host1", {}});
  EXPECT_EQ(taken("attempt", "gathering", "given_up"), 0u);
  role_.receive(kOther, RoleKind::shard_writer, wire::RanksEnded{{{1, "exit 1"}}, {}, "host1", {}});
  EXPECT_EQ(taken("attempt", "gathering", "given_up"), 1u);
}

// Its ShardWriter still writes when its patience is over, and so this coordinator does not drain yet.
TEST_F(ACoordinatorByItself, AbortsNothingForItsOwnRanksWhoseTrainersGoOnWithTheNextOne) {
  roster_exists();
  role_.receive(kOther, RoleKind::shard_writer, report({1, 5, 1}, 1));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  wire::RanksEnded own{{}, {}, "host0", {0}};
  role_.receive(kThisNode, RoleKind::shard_writer, own);
  role_.handle(event::PeerLost{kNode, Status(Code::unavailable, "killed")});
  role_.handle(event::Stopping{true});
  own = {{{0, ""}}, {}, "host0", {}};
  own.may_return = true;
  role_.receive(kThisNode, RoleKind::shard_writer, own);
  role_.pass(30'000 * kMillisecond);
  EXPECT_EQ(taken("attempt", "gathering", "given_up"), 0u);
}

TEST_F(ACoordinatorByItself, GivesAHostThatStopsNoMoreTimeBecauseItRepeatsThat) {
  roster_exists();
  role_.receive(kNode, RoleKind::shard_writer, report({1, 5, 1}, 0));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  wire::RanksEnded stops{{{1, ""}}, {}, "host1", {}};
  stops.may_return = true;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(taken("attempt", "gathering", "given_up"), 0u);
    role_.receive(kOther, RoleKind::shard_writer, stops);
    role_.pass(4'000 * kMillisecond);
  }
  EXPECT_EQ(taken("attempt", "gathering", "given_up"), 1u) << "16 s have passed";
}

TEST(ARankThatTwoNodesExpect, IsLostWithTheLastOfThem) {
  RankPresence presence(15'000 * kMillisecond);
  presence.expected(kNode, {1}, "host1");
  presence.expected(kOther, {1}, "host1");  // the next node of its host, before the first session has ended
  presence.lose_node(1, kNode, "killed");
  EXPECT_TRUE(presence.lost().empty());
  presence.lose_node(2, kOther, "killed");
  EXPECT_TRUE(presence.lost().contains(1));
}

// Its ranks do not come to the load. A further host is worth waiting for.
TEST_F(ACoordinatorByItself, CountsNoHostAmongThoseOfALoadThatWasLost) {
  const auto joins = [&](NodeId node, Rank rank) {
    wire::JoinLoad message;
    message.id.latest = false;
    message.id.step = 5;
    message.world_size = 2;
    message.address = "host" + std::to_string(rank) + ":1";
    message.ranks = {{rank, layouts()[rank]->id()}};
    message.quiet_ms = 1'000;
    role_.receive(node, RoleKind::loader, message);
  };
  joins(kNode, 0);
  role_.handle(event::PeerLost{kNode, Status(Code::unavailable, "killed")});
  joins(kOther, 1);
  EXPECT_EQ(taken("load gathering", "gathering", "all_joined"), 0u);
  joins(kNext, 0);
  EXPECT_EQ(taken("load gathering", "gathering", "all_joined"), 1u);
}

// Mode rank-local. If this node is lost, the others must know whose manifests never come.
TEST_F(ACoordinatorByItself, TellsTheOtherNodesWhenARankOfItsOwnHostEnds) {
  wire::RanksEnded own, other;
  own.rank_local = other.rank_local = true;
  own.host = "host0";
  own.here = {0};
  other.host = "host1";
  other.here = {1};
  role_.receive(kThisNode, RoleKind::shard_writer, own);
  role_.receive(kOther, RoleKind::shard_writer, other);
  ASSERT_EQ(role_.sent<wire::RanksEnded>(kOther).size(), 1u);
  role_.receive(kThisNode, RoleKind::shard_writer, own);
  EXPECT_EQ(role_.sent<wire::RanksEnded>(kOther).size(), 1u) << "a repetition";
  own.here.clear();
  own.ranks = {{0, "exit 1"}};
  role_.receive(kThisNode, RoleKind::shard_writer, own);
  ASSERT_EQ(role_.sent<wire::RanksEnded>(kOther).size(), 2u);
  EXPECT_EQ(role_.sent<wire::RanksEnded>(kOther)[1].ranks.size(), 1u);
}

// Mode rank-local. The ShardWriter must not go on to hold a rank for lost that comes to the later one.
TEST_F(ACoordinatorByItself, TakesItsLossesBackWhenALaterOneReplacesIt) {
  wire::RanksEnded here;
  here.host = "host1";
  here.here = {1};
  here.rank_local = true;
  role_.receive(kOther, RoleKind::shard_writer, here);
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "closed by the peer")});
  role_.pass(16'000 * kMillisecond);
  ASSERT_FALSE(role_.to_roles.empty());
  EXPECT_FALSE(std::get<event::RanksLost>(role_.to_roles.back().event).is_empty());
  ASSERT_TRUE(role_.answer<operation::ReadEpoch>(OperationResult(
      std::make_shared<const storage::EpochRecord>(storage::EpochRecord{2, "node1", "job-1", {}, 1}))));
  ASSERT_TRUE(role_.retired_by.has_value());
  EXPECT_TRUE(std::get<event::RanksLost>(role_.to_roles.back().event).is_empty());
}

// The trainers of one host call save; those of the other one are still starting when it is lost.
TEST_F(ACoordinatorByItself, AbortsASaveInFlightSoonAfterAHostIsLostWhoseTrainersNeverCame) {
  role_.receive(kNode, RoleKind::planner, join(0));
  wire::RanksEnded started;
  started.host = "host1";
  started.expected = {1};
  role_.receive(kOther, RoleKind::shard_writer, started);
  role_.receive(kNode, RoleKind::shard_writer, wire::LayoutsStaged{{1, 5, 1}, {{0, layouts()[0]->id()}}});
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "closed by the peer")});
  role_.pass(16'000 * kMillisecond);
  no_later_epoch();
  OperationId id = 0;
  const auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause, HasSubstr("host host1 (rank 1) is lost"));
}

// A host stops without trainers while the coordinator waits longer for one whose trainers live.
TEST_F(ACoordinatorByItself, GivesEachHostThatStopsItsOwnTime) {
  roster_exists();
  role_.receive(kThisNode, RoleKind::shard_writer, wire::SaveProgress{{1, 5, 1}, 1});
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  wire::RanksEnded returns{{{0, ""}}, {}, "host0", {}}, ends{{{1, ""}}, {}, "host1", {}};
  returns.may_return = true;
  role_.receive(kNode, RoleKind::shard_writer, returns);
  role_.receive(kOther, RoleKind::shard_writer, ends);
  role_.pass(6'000 * kMillisecond);
  no_later_epoch();
  OperationId id = 0;
  const auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value()) << "drain_patience_ms are over";
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause, HasSubstr("rank 1 (host host1)"));
}

// Mode collective. The rank asked for its plan through a node that was killed; the launcher reports its end
// to the next one, which does not know the save.
TEST_F(ACoordinatorByItself, AbortsAtOnceIfARankEndsThatHasOnlyAskedForItsPlan) {
  SaveOptions options;
  options.mode = SaveMode::collective;
  const wire::LocalPlans plans{{1, 5, 1}, "host1", 2, options, {{1, layouts()[1]->id()}}, {PlanId{}}};
  role_.receive(kOther, RoleKind::shard_writer, plans);
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "killed")});
  role_.receive(kNext, RoleKind::shard_writer, wire::RanksEnded{{{1, "signal 9"}}, {}, "host1", {}});
  no_later_epoch();
  OperationId id = 0;
  const auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause, HasSubstr("signal 9"));
}

// The offer of a further rank is news, like its layout in a save without such planners.
TEST_F(ACoordinatorByItself, WaitsForPlannersThatOfferTheirPlansOneAfterTheOther) {
  auto offers = [&](NodeId node, Rank rank) {
    wire::PlanGathering message;
    message.key = {1, 5, 1};
    message.stage = plan::GatherStage::offered;
    message.host = "host" + std::to_string(rank);
    message.world_size = 3;
    message.options.mode = SaveMode::collective;
    message.plans = {{rank, std::make_shared<const std::string>("offer")}};
    role_.receive(node, RoleKind::shard_writer, message);
  };
  offers(kNode, 0);
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.pass(100'000 * kMillisecond);
  offers(kOther, 1);
  role_.pass(100'000 * kMillisecond);
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u) << "the second offer is 100 s old";
  offers(kOther, 1);
  offers(kNode, 0);
  role_.pass(30'000 * kMillisecond);
  no_later_epoch();
  OperationId id = 0;
  const auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value()) << "a repetition is no news";
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause,
              HasSubstr("rank 2 did not send its local plan"));
}

// The root hangs, so no check of the epoch wakes the coordinator. It waits for the ranks of other hosts,
// which may continue without it, and meanwhile one of their hosts is lost.
TEST_F(ACoordinatorByItself, GivesUpInTimeWhileItWaitsLongerForSomethingElse) {
  roster_exists();
  role_.receive(kNode, RoleKind::shard_writer, report({1, 5, 1}, 0));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.handle(event::Stopping{});
  role_.handle(event::Drain{});
  role_.pass(1'000 * kMillisecond);
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "killed")});
  role_.pass(6'000 * kMillisecond);
  EXPECT_EQ(taken("attempt", "gathering", "given_up"), 1u);
}

// --- answers of the root that come late ---

class ACoordinatorWhoseRootAnswersLate : public ACoordinatorByItself {
 protected:
  ACoordinatorWhoseRootAnswersLate() : ACoordinatorByItself(make_coordinator(facts_of_one())) {
    role_.answer<operation::ReadRoster>(Status(Code::not_found, "no roster"));
  }
  void the_list_comes() {
    storage::AttemptInfo left;
    left.key = kLeft;
    ASSERT_TRUE(role_.answer<operation::ListAttempts>(OperationResult(storage::AttemptList{{left}, {}})));
  }
  void superseded() {
    role_.receive(kNode, RoleKind::coordinator, wire::Superseded{2, "host9:7070"});
    ASSERT_TRUE(role_.answer<operation::ReadEpoch>(OperationResult(
        std::make_shared<const storage::EpochRecord>(storage::EpochRecord{2, "host9:7070", "job-1", {}}))));
    ASSERT_TRUE(role_.retired_by.has_value());
  }
  void a_rank_local_node_comes() {
    wire::RanksEnded message;
    message.host = "host1";
    message.here = {1};
    message.rank_local = true;
    role_.receive(kOther, RoleKind::shard_writer, message);
  }
  static constexpr AttemptKey kLeft{1, 5, 1};
};

// Regression: it opened the attempts of the list, could not decide them, and its node did not end.
TEST_F(ACoordinatorWhoseRootAnswersLate, OpensNothingOnceALaterOneExists) {
  superseded();
  role_.starts.erase(std::remove_if(role_.starts.begin(), role_.starts.end(),
                                    [](const effect::Start& each) {
                                      return !std::holds_alternative<operation::ListAttempts>(each.operation);
                                    }),
                     role_.starts.end());
  the_list_comes();
  EXPECT_TRUE(role_.starts.empty());
  role_.handle(event::Drain{});
  EXPECT_TRUE(role_.drained);
}

TEST_F(ACoordinatorWhoseRootAnswersLate, DecidesASaveThatTheCoordinatorBeforeLeft) {
  the_list_comes();
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.pass(130'000 * kMillisecond);
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 1u);
}

// A trainer has ended, and the coordinator before could not abort the save.
TEST_F(ACoordinatorWhoseRootAnswersLate, AbortsAtOnceWhatItFindsIfARankOfItHasEnded) {
  role_.receive(kOther, RoleKind::shard_writer, wire::RanksEnded{{{1, "signal 9"}}, {}, "host1", {}});
  the_list_comes();
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 1u);
}

TEST_F(ACoordinatorWhoseRootAnswersLate, AsksNoNodeThatWasLostMeanwhile) {
  RoleByItself role{make_coordinator(facts_of_one())};
  role.receive(kOther, RoleKind::planner, join(1));
  role.handle(event::PeerLost{kOther, Status(Code::unavailable, "killed")});
  ASSERT_TRUE(role.answer<operation::ReadRoster>(Status(Code::not_found, "no roster")));
  EXPECT_TRUE(role.sent<wire::LayoutRequest>(kOther).empty());
}

// Mode rank-local. Nodes decide such a save, and report nothing of it to this coordinator. It may take long.
TEST_F(ACoordinatorWhoseRootAnswersLate, LeavesARankLocalSaveOfTheCoordinatorBeforeToTheNodes) {
  for (bool list_is_first : {true, false}) {
    RoleByItself role{make_coordinator(facts_of_one())};
    std::swap(role, role_);
    role_.answer<operation::ReadRoster>(Status(Code::not_found, "no roster"));
    if (list_is_first) the_list_comes();
    a_rank_local_node_comes();
    if (!list_is_first) the_list_comes();
    role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
    for (uint64_t amount = 1; amount <= 10; ++amount) {
      role_.pass(40'000 * kMillisecond);
      role_.receive(kOther, RoleKind::shard_writer, wire::SaveProgress{kLeft, amount, true});
      no_later_epoch();
    }
    EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u) << "list first: " << list_is_first;
    role_.handle(event::Drain{});
    EXPECT_TRUE(role_.drained);
  }
}

// --- retention ---

// Leases that nobody renews, and deletions that were interrupted, would stay until the next coordinator.
TEST_F(ACoordinatorByItself, PlansItsRetentionAgainIfTheRootCouldNotBeRead) {
  ASSERT_TRUE(role_.answer<operation::PlanRetention>(Status(Code::io, "Input/output error")));
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 0u) << "it waits";
  role_.pass(31'000 * kMillisecond);
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 1u);
  ASSERT_TRUE(role_.answer<operation::PlanRetention>(read_only_root()));
  role_.pass(100'000 * kMillisecond);
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 0u) << "another try would fail likewise";
}

TEST_F(ACoordinatorByItself, DeletesAgainWhatCouldNotBeDeleted) {
  storage::RetentionPlan plan;
  plan.finish.push_back({1, 1, 1});
  ASSERT_TRUE(role_.answer<operation::PlanRetention>(
      OperationResult(std::make_shared<const storage::RetentionPlan>(plan))));
  ASSERT_TRUE(role_.answer<operation::DeleteCheckpoint>(Status(Code::io, "Input/output error")));
  role_.pass(31'000 * kMillisecond);
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 1u);
}

TEST_F(ACoordinatorByItself, LooksAgainAtADeletedCheckpointThatALoadHolds) {
  storage::RetentionPlan plan;
  plan.finish.push_back({1, 1, 1});
  plan.remains.push_back("step-2/g1a1.7.partial");
  ASSERT_TRUE(role_.answer<operation::PlanRetention>(
      OperationResult(std::make_shared<const storage::RetentionPlan>(plan))));
  storage::DeletionResult held;
  held.outcome = storage::DeletionResult::Outcome::held;
  ASSERT_TRUE(role_.answer<operation::DeleteCheckpoint>(OperationResult(held)));
  ASSERT_TRUE(role_.answer<operation::RemoveRemains>(OperationResult(operation::Done{})));
  role_.pass(31'000 * kMillisecond);
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 1u);
}

class ACoordinatorThatKeepsTheLast : public ACoordinatorByItself {
 protected:
  static NodeConfig facts() {
    NodeConfig config = facts_of_one();
    config.retention.keep_last = 1;
    return config;
  }
  ACoordinatorThatKeepsTheLast() : ACoordinatorByItself(facts()) {}
};

TEST_F(ACoordinatorThatKeepsTheLast, AppliesItsRulesAfterARankLocalCommitToo) {
  ASSERT_TRUE(role_.answer<operation::PlanRetention>(
      OperationResult(std::make_shared<const storage::RetentionPlan>())));
  role_.receive(kOther, RoleKind::shard_writer, wire::Decided{{1, 5, 1}, true, ""});
  OperationId id = 0;
  const auto pass = role_.take_start<operation::PlanRetention>(&id);
  ASSERT_TRUE(pass.has_value());
  EXPECT_EQ(pass->policy.keep_last, 1u);
}

TEST_F(ACoordinatorByItself, SweepsALimitedNumberOfAttemptsLaterAndThenMore) {
  roster_exists();
  for (uint64_t step = 1; step <= kMaxLateSweeps + 10; ++step) abort({1, step, 1});
  role_.pass(301'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::SweepAttempt>(), kMaxLateSweeps);
  while (role_.answer<operation::SweepAttempt>(OperationResult(uint64_t{0}))) {
  }
  abort({1, 1'000, 1});
  role_.pass(301'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::SweepAttempt>(), 1u);
}

// --- stopping ---

class ACoordinatorThatDrains : public ACoordinatorByItself {
 protected:
  void committed_but_not_recorded() {
    roster_exists();
    both_report({1, 5, 1});
    storage::Decision decision;
    decision.key = {1, 5, 1};
    decision.body = storage::Manifest{};
    role_.answer<operation::PublishDecision>(
        OperationResult(std::make_shared<const storage::Decision>(decision)));
  }
  uint64_t given_up() const { return taken("attempt", "gathering", "given_up"); }
  void one_reports_and_the_other_is_killed() {
    roster_exists();
    role_.receive(kNode, RoleKind::shard_writer, report({1, 5, 1}, 0));
    role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
    role_.handle(event::Stopping{});
    role_.handle(event::Drain{});
    role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "killed")});
  }
};

TEST_F(ACoordinatorThatDrains, StaysUntilItHasSentTheLastDecision) {
  committed_but_not_recorded();
  role_.handle(event::Stopping{});
  role_.handle(event::Drain{});
  EXPECT_FALSE(role_.drained);
  role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
  EXPECT_EQ(role_.sent<wire::Decided>(kOther).size(), 1u);
  EXPECT_TRUE(role_.drained);
}

TEST_F(ACoordinatorThatDrains, StaysUntilItHasSentTheLastDecisionThoughAnotherOneReplacesIt) {
  committed_but_not_recorded();
  role_.handle(event::Stopping{true});
  role_.handle(event::Drain{true, true});
  role_.pass(6'000 * kMillisecond);
  EXPECT_FALSE(role_.drained);
  role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
  EXPECT_EQ(role_.sent<wire::Decided>(kOther).size(), 1u);
  EXPECT_TRUE(role_.drained);
}

TEST_F(ACoordinatorThatDrains, GivesARankThatCameBackAndIsLostAgainItsFullTime) {
  one_reports_and_the_other_is_killed();
  role_.pass(4'000 * kMillisecond);
  role_.receive(kNext, RoleKind::shard_writer, wire::RanksEnded{{}, {}, "host1", {1}});
  role_.pass(2'000 * kMillisecond);
  EXPECT_EQ(given_up(), 0u) << "the rank is back";
  role_.handle(event::PeerLost{kNext, Status(Code::unavailable, "killed")});
  role_.pass(4'000 * kMillisecond);
  EXPECT_EQ(given_up(), 0u) << "it is lost for 4 s";
  role_.pass(2'000 * kMillisecond);
  EXPECT_EQ(given_up(), 1u);
}

TEST_F(ACoordinatorThatDrains, WaitsForANodeThatHasNotSaidYetWhichRanksItHas) {
  one_reports_and_the_other_is_killed();
  role_.receive(kNext, RoleKind::shard_writer, wire::SaveProgress{{1, 5, 1}, 1});
  role_.pass(8'000 * kMillisecond);
  EXPECT_EQ(given_up(), 0u) << "it may have the lost rank";
  role_.receive(kNext, RoleKind::shard_writer, wire::RanksEnded{{}, {}, "host1", {}});
  role_.pass(6'000 * kMillisecond);
  EXPECT_EQ(given_up(), 1u);
}

TEST_F(ACoordinatorThatDrains, DoesNotStayForTrainersThatNeverCame) {
  wire::RanksEnded started;
  started.host = "host1";
  started.expected = {1};
  role_.receive(kOther, RoleKind::shard_writer, started);
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "killed")});
  role_.handle(event::Stopping{});
  role_.handle(event::Drain{});
  EXPECT_TRUE(role_.drained) << "they have staged nothing about which they could ask";
}

// --- modes rank-local and collective ---

TEST_F(ACoordinatorByItself, PassesOnProgressOfARankLocalSaveNowAndThen) {
  const auto progress = [&](uint64_t amount) {
    role_.receive(kNode, RoleKind::shard_writer, wire::SaveProgress{{1, 5, 1}, amount, true});
    role_.receive(kOther, RoleKind::shard_writer, wire::SaveProgress{{1, 5, 1}, amount, true});
  };
  progress(1);
  progress(2);
  EXPECT_EQ(role_.sent<wire::SaveProgress>(kNode).size(), 1u);
  role_.pass(31'000 * kMillisecond);
  progress(3);
  const auto passed = role_.sent<wire::SaveProgress>(kNode);
  ASSERT_EQ(passed.size(), 2u);
  EXPECT_LT(passed[0].amount, passed[1].amount);
}

class ACollectiveSaveWhoseRanksHavePlans : public ACoordinatorByItself {
 protected:
  void asks(NodeId node, Rank rank, const LayoutPtr& layout) {
    SaveOptions options;
    options.mode = SaveMode::collective;
    role_.receive(
        node, RoleKind::shard_writer,
        wire::LocalPlans{
            {1, 5, 1}, "host" + std::to_string(rank), 2, options, {{rank, layout->id()}}, {PlanId{}}});
  }
  void SetUp() override {
    asks(kNode, 0, layouts()[0]);
    asks(kOther, 1, layouts()[1]);
    role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
    role_.receive(kNode, RoleKind::planner, wire::Layouts{layouts()});
    no_later_epoch();
    OperationId id = 0;
    auto publish = role_.take_start<operation::PublishRoster>(&id);
    ASSERT_TRUE(publish.has_value());
    role_.handle(event::OperationDone{id, OperationResult(publish->record)});
    ASSERT_EQ(plans_sent(), 1u);
  }
  size_t plans_sent() const { return role_.sent<wire::GlobalPlan>(kNode).size(); }
};

TEST_F(ACollectiveSaveWhoseRanksHavePlans, SendsThemAgainOnlyAfterTheyMustHaveCome) {
  asks(kNode, 0, layouts()[0]);
  EXPECT_EQ(plans_sent(), 1u) << "it is on its way";
  for (int i = 0; i < 2; ++i) {
    role_.pass(10'000 * kMillisecond);
    asks(kNode, 0, layouts()[0]);
  }
  EXPECT_EQ(plans_sent(), 2u) << "the first was lost";
}

TEST_F(ACollectiveSaveWhoseRanksHavePlans, EndsIfTheNextProcessOfARankHoldsSomethingElse) {
  role_.handle(event::PeerLost{kNode, Status(Code::unavailable, "killed")});
  asks(kNext, 0, sim::flat_job(2, 0)[0]);
  no_later_epoch();
  OperationId id = 0;
  const auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_EQ(std::get<storage::Tombstone>(*publish->body).cause,
            "rank 0 now declares another layout than at first");
}

}  // namespace
}  // namespace shoal::actors
