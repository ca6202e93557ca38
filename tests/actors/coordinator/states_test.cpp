// The tables of states of the Coordinator: every state can be reached, and rare transitions are taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "actors/coordinator/attempt.h"
#include "actors/coordinator/load_gathering.h"
#include "actors/coordinator/retention_duty.h"
#include "actors/coordinator/term.h"
#include "tests/actors/coordinator/coordinator_by_itself.h"
#include "tests/base/state_tables.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

TEST(TheTablesOfTheCoordinator, ReachEveryStateFromTheFirst) {
  EXPECT_TRUE(base::reaches_all(kAttemptTransitions, std::vector{AttemptState::reading_decision}));
  EXPECT_TRUE(base::reaches_all(kPlanGatherTransitions, std::vector{PlanGatherState::gathering}));
  EXPECT_TRUE(base::reaches_all(kTermTransitions, std::vector{TermState::starting}));
  EXPECT_TRUE(base::reaches_all(kFirstRosterTransitions, std::vector{FirstRosterState::reading}));
  EXPECT_TRUE(base::reaches_all(kShutdownTransitions, std::vector{ShutdownState::running}));
  EXPECT_TRUE(base::reaches_all(kGatheringTransitions, std::vector{GatheringState::gathering}));
  EXPECT_TRUE(base::reaches_all(kRetentionTransitions, std::vector{RetentionState::idle}));
}

TEST(TheTableOfAttempts, LeavesNoStateWithoutAWayToAnEnd) {
  for (const auto& row : kAttemptTransitions) {
    EXPECT_TRUE(AttemptMachine(row.from).may(AttemptTrigger::superseded))
        << base::name_of_enumerator(row.from);
  }
}

constexpr AttemptKey kAttempt{1, 5, 1};

class StatesOfACoordinator : public ACoordinatorByItself {
 protected:
  using ACoordinatorByItself::ACoordinatorByItself;

  void report_of(Rank rank) {
    role_.receive(rank == 0 ? kNode : kOther, RoleKind::shard_writer, report(kAttempt, rank));
  }
  void none_decided() { role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided")); }
  void fail() {
    role_.receive(kNode, RoleKind::shard_writer,
                  wire::SaveFailed{kAttempt, 0, Status(Code::no_space, "disk full")});
  }
  // A node claims that a later epoch exists, and so it is.
  void supersede() {
    role_.receive(kNode, RoleKind::coordinator, wire::Superseded{2, "host9:7070"});
    while (!role_.retired_by &&
           role_.answer<operation::ReadEpoch>(OperationResult(std::make_shared<const storage::EpochRecord>(
               storage::EpochRecord{2, "host9:7070", "job-1", {}})))) {
    }
    EXPECT_TRUE(role_.retired_by.has_value());
  }
  // Its node is stopped while trainers live, and all that it can decide in time is decided.
  void hand_over() {
    role_.handle(event::Stopping{true});
    role_.handle(event::Drain{true, true});
    role_.pass(6'000 * kMillisecond);
  }
  static OperationResult committed(const AttemptKey& key = kAttempt) {
    storage::Decision decision;
    decision.key = key;
    decision.body = storage::Manifest{};
    return std::make_shared<const storage::Decision>(std::move(decision));
  }
  // Both ranks ask for their plans (mode collective), and the coordinator publishes the roster that they
  // make.
  void both_ask() {
    SaveOptions options;
    options.mode = SaveMode::collective;
    for (Rank rank : {0u, 1u}) {
      const wire::LocalPlans plans{kAttempt, "host" + std::to_string(rank),   2,
                                   options,  {{rank, layouts()[rank]->id()}}, {PlanId{}}};
      role_.receive(rank == 0 ? kNode : kOther, RoleKind::shard_writer, plans);
    }
    none_decided();
    role_.receive(kNode, RoleKind::planner, wire::Layouts{layouts()});
    no_later_epoch();
  }
  void roster_of_both_published() {
    OperationId id = 0;
    auto publish = role_.take_start<operation::PublishRoster>(&id);
    ASSERT_TRUE(publish.has_value());
    role_.handle(event::OperationDone{id, OperationResult(publish->record)});
  }
};

// --- an attempt ---

TEST_F(StatesOfACoordinator, AnAttemptThatTheRootHasCommittedIsClosedAtTheFirstReport) {
  roster_exists();
  report_of(0);
  role_.answer<operation::ReadDecision>(committed());
  EXPECT_EQ(taken("attempt", "reading_decision", "committed"), 1u);
  role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
  ASSERT_EQ(role_.sent<wire::Decided>(kNode).size(), 1u);
  EXPECT_TRUE(role_.sent<wire::Decided>(kNode)[0].committed);
}

TEST_F(StatesOfACoordinator, AnAttemptThatTheRootHasAbortedIsClosedAtTheFirstReport) {
  roster_exists();
  report_of(0);
  role_.answer<operation::ReadDecision>(aborted(kAttempt, "rank 9: disk full"));
  EXPECT_EQ(taken("attempt", "reading_decision", "aborted"), 1u);
  role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
  ASSERT_EQ(role_.sent<wire::Decided>(kNode).size(), 1u);
  EXPECT_EQ(role_.sent<wire::Decided>(kNode)[0].cause, "rank 9: disk full");
}

// The failure of a rank and the root's answer come at the same time.
TEST_F(StatesOfACoordinator, AnAttemptThatIsGivenUpEndsAsTheRootHasDecidedIt) {
  roster_exists();
  fail();
  role_.answer<operation::ReadDecision>(committed());
  EXPECT_EQ(taken("attempt", "aborting", "committed"), 1u);
}

TEST_F(StatesOfACoordinator, FilesThatAreNotThereAbortAnAttemptThatAllRanksReported) {
  roster_exists();
  report_of(0);
  report_of(1);
  none_decided();
  role_.answer<operation::CheckFiles>(Status(Code::not_found, "rank-00001.safetensors does not exist"));
  no_later_epoch();
  EXPECT_EQ(taken("attempt", "checking_files", "files_differ"), 1u);
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_FALSE(publish->looks_first);
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause, HasSubstr("rank-00001.safetensors"));
}

// That the root cannot be read says nothing about the files.
TEST_F(StatesOfACoordinator, FilesThatCannotBeCheckedAbortAnAttemptOnlyAfterALookAtTheRoot) {
  roster_exists();
  report_of(0);
  report_of(1);
  none_decided();
  role_.answer<operation::CheckFiles>(Status(Code::refused, "step-5/g1a1: Permission denied"));
  no_later_epoch();
  EXPECT_EQ(taken("attempt", "checking_files", "files_unreadable"), 1u);
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_TRUE(publish->looks_first);
  EXPECT_EQ(std::get<storage::Tombstone>(*publish->body).cause,
            "its files cannot be checked: step-5/g1a1: Permission denied");
}

// Regression: one error of the storage aborted a save whose layouts made a new roster.
TEST_F(StatesOfACoordinator, ARosterThatCouldNotBePublishedIsPublishedAgain) {
  both_ask();
  role_.answer<operation::PublishRoster>(Status(Code::io, "Input/output error"));
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u) << "one error is no reason to abort";
  EXPECT_EQ(role_.started<operation::PublishRoster>(), 0u) << "it backs off";
  role_.pass(10'000 * kMillisecond);
  no_later_epoch();
  roster_of_both_published();
  EXPECT_EQ(taken("attempt", "publishing_roster", "roster_known"), 1u);
  EXPECT_EQ(role_.sent<wire::GlobalPlan>(kNode).size(), 1u);
}

TEST_F(StatesOfACoordinator, ARosterThatCannotBePublishedForLongAbortsTheSaveAndIsNamed) {
  both_ask();
  OperationId id = 0;
  std::optional<operation::PublishDecision> publish;
  for (int i = 0; i < 1000 && !publish; ++i) {
    role_.answer<operation::PublishRoster>(Status(Code::io, "Input/output error"));
    role_.pass(1'000 * kMillisecond);
    no_later_epoch();
    publish = role_.take_start<operation::PublishDecision>(&id);
  }
  ASSERT_TRUE(publish.has_value());
  EXPECT_EQ(std::get<storage::Tombstone>(*publish->body).cause,
            "cannot publish its roster: Input/output error");
  EXPECT_EQ(taken("attempt", "publishing_roster", "given_up"), 1u);
}

TEST_F(StatesOfACoordinator, ACommitThatComesAfterAnotherPartysTombstoneIsAnAbort) {
  roster_exists();
  both_report(kAttempt);
  role_.answer<operation::PublishDecision>(aborted(kAttempt, "a node gave it up"));
  EXPECT_EQ(taken("attempt", "committing", "aborted"), 1u);
  role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
  ASSERT_EQ(role_.sent<wire::Decided>(kOther).size(), 1u);
  EXPECT_EQ(role_.sent<wire::Decided>(kOther)[0].cause, "a node gave it up");
}

TEST_F(StatesOfACoordinator, AnotherCoordinatorsFirstRosterSendsTheSaveBackToGathering) {
  both_ask();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishRoster>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_TRUE(publish->is_first);
  storage::RosterRecord other = publish->record;  // the same ranks, all on one host
  auto world = std::make_shared<World>(*other.world);
  const std::vector<LayoutId> ids{layouts()[0]->id(), layouts()[1]->id()};
  world->roster = Roster::make(ids, std::vector<uint32_t>{0, 0}).value();
  other.world = world;
  role_.handle(event::OperationDone{id, OperationResult(other)});
  EXPECT_EQ(taken("attempt", "publishing_roster", "other_roster_published"), 1u);
  EXPECT_EQ(taken("attempt", "gathering", "roster_known"), 1u)
      << "the roster of these layouts is the other one";
  EXPECT_EQ(role_.sent<wire::GlobalPlan>(kNode).size(), 1u);
}

TEST_F(StatesOfACoordinator, AFailureEndsASaveWhoseRosterIsBeingPublished) {
  both_ask();
  fail();
  EXPECT_EQ(taken("attempt", "publishing_roster", "given_up"), 1u);
  roster_of_both_published();  // too late for this save, and the first roster of the run all the same
  EXPECT_EQ(taken("attempt", "publishing_roster", "roster_known"), 0u);
  EXPECT_EQ(taken("first roster", "gathering", "known"), 1u);
}

class AnAttemptInState : public StatesOfACoordinator, public ::testing::WithParamInterface<AttemptState> {
 protected:
  void reach(AttemptState state) {
    switch (state) {
      case AttemptState::reading_decision:
        roster_exists();
        return report_of(0);
      case AttemptState::gathering:
        reach(AttemptState::reading_decision);
        return none_decided();
      case AttemptState::publishing_roster:
        return both_ask();
      case AttemptState::awaiting_reports:
        both_ask();
        return roster_of_both_published();
      case AttemptState::checking_files:
        reach(AttemptState::gathering);
        return report_of(1);
      case AttemptState::committing:
        roster_exists();
        return both_report(kAttempt);
      case AttemptState::aborting:
        roster_exists();
        return fail();
      case AttemptState::committed:
      case AttemptState::aborted:
      case AttemptState::undecided:
      case AttemptState::left:
        FAIL() << "the attempt is closed";
    }
  }
};
std::string state_name(const ::testing::TestParamInfo<AttemptState>& each) {
  return std::string(base::name_of_enumerator(each.param));
}

class AnOpenAttempt : public AnAttemptInState {};

TEST_P(AnOpenAttempt, IsLeftToTheCoordinatorOfALaterEpoch) {
  reach(GetParam());
  supersede();
  EXPECT_EQ(taken("attempt", base::name_of_enumerator(GetParam()), "superseded"), 1u);
  EXPECT_EQ(taken("term", "deciding", "later_epoch_exists"), 1u);
}

INSTANTIATE_TEST_SUITE_P(In, AnOpenAttempt,
                         ::testing::Values(AttemptState::reading_decision, AttemptState::gathering,
                                           AttemptState::publishing_roster, AttemptState::awaiting_reports,
                                           AttemptState::checking_files, AttemptState::committing,
                                           AttemptState::aborting),
                         state_name);

class AnAttemptWithoutADecision : public AnAttemptInState {};

TEST_P(AnAttemptWithoutADecision, IsHandedOverOncePatienceIsOver) {
  reach(GetParam());
  role_.handle(event::Stopping{true});
  role_.handle(event::Drain{true, true});
  EXPECT_FALSE(role_.drained);
  role_.pass(6'000 * kMillisecond);
  EXPECT_EQ(taken("attempt", base::name_of_enumerator(GetParam()), "handed_over"), 1u);
  EXPECT_EQ(taken("shutdown", "handing_over", "nothing_in_flight"), 1u);
  EXPECT_TRUE(role_.drained);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
}

INSTANTIATE_TEST_SUITE_P(In, AnAttemptWithoutADecision,
                         ::testing::Values(AttemptState::reading_decision, AttemptState::gathering,
                                           AttemptState::publishing_roster, AttemptState::awaiting_reports),
                         state_name);

// A node may send its report again before the process ends.
TEST_F(StatesOfACoordinator, AnOperationOfAnAttemptThatWasHandedOverDoesNotChangeTheOneOpenedAgain) {
  roster_exists();
  report_of(0);  // reads the decision
  hand_over();
  report_of(0);  // opens the attempt again, and reads the decision again
  none_decided();
  EXPECT_EQ(taken("attempt", "reading_decision", "no_decision_found"), 0u) << "the first answer is too late";
  none_decided();
  EXPECT_EQ(taken("attempt", "reading_decision", "no_decision_found"), 1u);
  role_.pass(60'000 * kMillisecond);
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u) << "the next coordinator decides";
}

// --- the first roster ---

class ACoordinatorThatStarts : public StatesOfACoordinator {
 protected:
  ACoordinatorThatStarts() : StatesOfACoordinator(make_coordinator(facts_of_one())) {}
};

TEST_F(ACoordinatorThatStarts, RefusesAllIfItsPlannerFailsBeforeTheRootHasAnswered) {
  role_.receive(kNode, RoleKind::planner, join(0));
  role_.handle(event::PlanningFailed{Status(Code::refused, "host0: its ranks declare different options")});
  EXPECT_EQ(taken("first roster", "reading", "refused"), 1u);
  EXPECT_EQ(role_.sent<wire::JoinRejected>(kNode).size(), 1u);
}

// Hosts in different modes: a collective save makes a roster while that of the joining ranks is published.
TEST_F(StatesOfACoordinator, ARosterThatCannotBePublishedIsRefusedThoughACollectiveSaveMadeOne) {
  both_join();
  no_later_epoch();
  OperationId joined = 0;
  auto publish = role_.take_start<operation::PublishRoster>(&joined);
  ASSERT_TRUE(publish.has_value());
  both_ask();
  roster_of_both_published();
  EXPECT_EQ(taken("first roster", "publishing", "known"), 1u);
  role_.handle(event::OperationDone{joined, Status(Code::refused, "Read-only file system")});
  EXPECT_EQ(taken("first roster", "known", "refused"), 1u);
  EXPECT_EQ(role_.sent<wire::JoinRejected>(kOther).size(), 1u);
}

// --- stopping ---

TEST_F(StatesOfACoordinator, GoesByTheTrainersThatLiveWhenItDrains) {
  role_.handle(event::Stopping{false});
  role_.handle(event::Drain{true, true});  // a trainer has attached since
  EXPECT_EQ(taken("shutdown", "stopping", "drain_requested_with_trainers"), 1u);
  EXPECT_TRUE(role_.drained);
}

TEST_F(StatesOfACoordinator, DecidesWhatIsInFlightIfItsTrainersHaveEndedWhileItStopped) {
  roster_exists();
  report_of(0);
  none_decided();
  role_.handle(event::Stopping{true});
  role_.handle(event::Drain{true, false});
  EXPECT_EQ(taken("shutdown", "stopping_with_trainers", "drain_requested"), 1u);
  EXPECT_FALSE(role_.drained);
  report_of(1);
  role_.answer<operation::CheckFiles>(OperationResult(operation::Done{}));
  no_later_epoch();
  role_.answer<operation::PublishDecision>(committed());
  role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
  EXPECT_TRUE(role_.drained);
}

TEST_F(StatesOfACoordinator, HandsOverIfItDrainsWithTrainersAndNobodyAnnouncedTheStop) {
  role_.handle(event::Drain{true, true});
  EXPECT_EQ(taken("shutdown", "running", "drain_requested_with_trainers"), 1u);
  EXPECT_TRUE(role_.drained);
}

TEST_F(StatesOfACoordinator, ARepeatedRequestToStopChangesNothing) {
  role_.handle(event::Stopping{true});
  role_.handle(event::Stopping{false});
  EXPECT_EQ(taken("shutdown", "running", "stop_requested_with_trainers"), 1u);
  role_.handle(event::Drain{true, true});
  role_.drained = false;
  role_.handle(event::Drain{true, true});
  EXPECT_EQ(taken("shutdown", "handing_over", "nothing_in_flight"), 1u);
  EXPECT_FALSE(role_.drained) << "it drains once";
}

// --- retention ---

NodeConfig facts_of_one_that_deletes() {
  NodeConfig config = facts_of_one();
  config.retention.keep_last = 1;
  return config;
}

class StatesOfRetention : public StatesOfACoordinator {
 protected:
  StatesOfRetention() : StatesOfACoordinator(facts_of_one_that_deletes()) { roster_exists(); }

  void commit(const AttemptKey& key) {
    both_report(key);
    ASSERT_TRUE(role_.answer<operation::PublishDecision>(committed(key)));
    ASSERT_TRUE(role_.answer<operation::RecordDecision>(OperationResult(operation::Done{})));
  }
  // What no rule keeps is one checkpoint.
  void plan_one_deletion() {
    storage::RetentionPlan plan;
    plan.remove.push_back({{1, 1, 1}, "a later one was committed"});
    ASSERT_TRUE(role_.answer<operation::PlanRetention>(
        OperationResult(std::make_shared<const storage::RetentionPlan>(plan))));
    ASSERT_EQ(role_.started<operation::DeleteCheckpoint>(), 1u);
  }
};

// Regression: a job that started again deleted the checkpoint to which its load was about to fall back.
TEST_F(StatesOfRetention, AppliesNoRuleBeforeTheFirstCommit) {
  OperationId id = 0;
  const auto first = role_.take_start<operation::PlanRetention>(&id);
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(first->policy.any());
  role_.handle(event::OperationDone{id, OperationResult(std::make_shared<const storage::RetentionPlan>())});
  commit({1, 5, 1});
  const auto second = role_.take_start<operation::PlanRetention>(&id);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->policy.keep_last, 1u);
}

TEST_F(StatesOfRetention, APassThatFailsIsFollowedByTheOneThatCommitsRequested) {
  commit({1, 5, 1});
  EXPECT_EQ(taken("retention", "planning", "requested"), 1u) << "the pass of the start still runs";
  commit({1, 6, 1});
  EXPECT_EQ(taken("retention", "planning_again", "requested"), 1u);
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 1u) << "never two at once";
  role_.answer<operation::PlanRetention>(Status(Code::unavailable, "the root hangs"));
  EXPECT_EQ(taken("retention", "planning_again", "could_not_plan"), 1u);
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 1u) << "one pass for both commits";
  role_.answer<operation::PlanRetention>(Status(Code::unavailable, "the root hangs"));
  EXPECT_EQ(taken("retention", "planning", "could_not_plan"), 1u);
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 0u);
}

TEST_F(StatesOfRetention, ACommitWhileCheckpointsAreDeletedRequestsAnotherPass) {
  plan_one_deletion();
  commit({1, 5, 1});
  EXPECT_EQ(taken("retention", "deleting", "requested"), 1u);
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 0u);
  role_.answer<operation::DeleteCheckpoint>(OperationResult(storage::DeletionResult{}));
  EXPECT_EQ(taken("retention", "deleting_again", "deleted"), 1u);
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 1u);
}

TEST_F(StatesOfRetention, APassThatWasRequestedTwiceWhileItRanIsFollowedByOne) {
  commit({1, 5, 1});
  plan_one_deletion();
  EXPECT_EQ(taken("retention", "planning_again", "planned"), 1u);
  commit({1, 6, 1});
  EXPECT_EQ(taken("retention", "deleting_again", "requested"), 1u);
  role_.answer<operation::DeleteCheckpoint>(OperationResult(storage::DeletionResult{}));
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 1u);
  plan_one_deletion();
  role_.answer<operation::DeleteCheckpoint>(OperationResult(storage::DeletionResult{}));
  EXPECT_EQ(taken("retention", "deleting", "deleted"), 1u);
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 0u);
}

// Regression: the rules of a job that has been replaced deleted what the rules of its successor keep.
TEST_F(StatesOfRetention, ACoordinatorThatIsSupersededBeginsNoFurtherDeletion) {
  storage::RetentionPlan plan;
  for (uint64_t step = 1; step <= 40; ++step) plan.remove.push_back({{1, step, 1}, "not among the last"});
  ASSERT_TRUE(role_.answer<operation::PlanRetention>(
      OperationResult(std::make_shared<const storage::RetentionPlan>(plan))));
  const size_t begun = role_.started<operation::DeleteCheckpoint>();
  ASSERT_LT(begun, 40u);
  supersede();
  EXPECT_EQ(taken("retention", "deleting", "superseded"), 1u);
  for (size_t i = 0; i < begun; ++i) {
    ASSERT_TRUE(role_.answer<operation::DeleteCheckpoint>(OperationResult(storage::DeletionResult{})));
  }
  EXPECT_EQ(role_.started<operation::DeleteCheckpoint>(), 0u);
  role_.pass(1'000'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 0u);
}

TEST_F(StatesOfRetention, APlanThatArrivesAfterTheSupersessionDeletesNothing) {
  supersede();
  EXPECT_EQ(taken("retention", "planning", "superseded"), 1u);
  storage::RetentionPlan plan;
  plan.remove.push_back({{1, 1, 1}, "a later one was committed"});
  ASSERT_TRUE(role_.answer<operation::PlanRetention>(
      OperationResult(std::make_shared<const storage::RetentionPlan>(plan))));
  EXPECT_EQ(role_.started<operation::DeleteCheckpoint>(), 0u);
}

TEST_F(StatesOfRetention, ASupersessionWhileAnotherPassIsRequestedEndsBoth) {
  commit({1, 5, 1});  // while the pass of the start is planned
  supersede();
  EXPECT_EQ(taken("retention", "planning_again", "superseded"), 1u);
  role_.answer<operation::PlanRetention>(Status(Code::unavailable, "the root hangs"));
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 0u);
}

// A look at leases is due, and a later job has begun meanwhile: its coordinator watches them.
TEST_F(StatesOfRetention, AnIdleCoordinatorAsksForTheEpochBeforeItLooksAgain) {
  storage::RetentionPlan plan;
  plan.leases.push_back({});
  ASSERT_TRUE(role_.answer<operation::PlanRetention>(
      OperationResult(std::make_shared<const storage::RetentionPlan>(plan))));
  EXPECT_EQ(taken("retention", "deleting", "deleted"), 1u);
  role_.pass(1'000'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 0u);
  while (role_.answer<operation::ReadEpoch>(OperationResult(
      std::make_shared<const storage::EpochRecord>(storage::EpochRecord{2, "host9:7070", "job-1", {}})))) {
  }
  EXPECT_EQ(taken("retention", "idle", "superseded"), 1u);
  EXPECT_EQ(role_.started<operation::PlanRetention>(), 0u);
}

}  // namespace
}  // namespace shoal::actors
