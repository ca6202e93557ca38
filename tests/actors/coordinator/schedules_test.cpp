// The Coordinator under schedules in which nodes are replaced, and answers of the root come late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/coordinator/coordinator_by_itself.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

constexpr NodeId kNext = kFirstPeerNode + 2;  // a node that replaces kNode

// Two saves in flight, whose layouts make two rosters. Rank 0 has the same layout in both, and divides what
// it holds with rank 1 in the second one only.
class SavesWhoseLayoutsChange : public ACoordinatorByItself {
 protected:
  static constexpr AttemptKey kFirst{1, 5, 1}, kSecond{1, 6, 1};

  SavesWhoseLayoutsChange() { roster_exists(); }

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

// --- hosts and trainers that come late or never ---

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

}  // namespace
}  // namespace shoal::actors
