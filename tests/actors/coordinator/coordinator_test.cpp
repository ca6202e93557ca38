// The Coordinator alone: what it remembers, how long it retries, and which causes it reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/coordinator/published_manifests.h"
#include "actors/messages/message_bounds.h"
#include "actors/operation_traits.h"
#include "actors/recent_map.h"
#include "plan/layout/codec.h"
#include "tests/actors/coordinator/coordinator_by_itself.h"
#include "tests/sim/support/job_layouts.h"

namespace shoal::actors {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ARecentMap, ForgetsWhatWasPutFirstNotTheSmallestKey) {
  RecentMap<int, int> map(2);
  map.put(8, 1);
  map.put(9, 2);
  map.put(9, 3);  // keeps its place
  map.put(1, 4);
  EXPECT_EQ(map.find(8), map.end());
  EXPECT_EQ(map.find(9)->second, 2);
  EXPECT_EQ(map.find(1)->second, 4);
  EXPECT_EQ(map.size(), 2u);
}

TEST_F(ACoordinatorByItself, RemembersTheDecisionOfARollbackAmongAThousandOfLaterSteps) {
  roster_exists();
  for (uint64_t step = 0; step < 1024; ++step) abort({1, 10'000 + step, 1});
  abort({1, 1, 1});  // rolled back
  role_.sends.clear();
  role_.receive(kNode, RoleKind::shard_writer, report({1, 1, 1}, 0));
  EXPECT_EQ(role_.sent<wire::Decided>(kNode).size(), 1u);
  EXPECT_EQ(role_.started<operation::ReadDecision>(), 0u);
}

TEST_F(ACoordinatorByItself, PublishesTheMetadataThatAllRanksGave) {
  roster_exists();
  user_ = std::make_shared<const UserMetadata>(UserMetadata{{"run", "a"}});
  both_report({1, 5, 1});
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_EQ(std::get<storage::Manifest>(*publish->body).user, *user_);
}

TEST_F(ACoordinatorByItself, AbortsWhereRanksGaveDifferentMetadata) {
  roster_exists();
  const AttemptKey key{1, 5, 1};
  user_ = std::make_shared<const UserMetadata>(UserMetadata{{"run", "a"}, {"seed", "7"}});
  const wire::ShardsWritten first = report(key, 0);
  user_ = std::make_shared<const UserMetadata>(UserMetadata{{"run", "b"}, {"seed", "7"}});
  role_.receive(kNode, RoleKind::shard_writer, first);
  role_.receive(kOther, RoleKind::shard_writer, report(key, 1));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  no_later_epoch();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause,
              HasSubstr("'run' is 'a' on rank 0 and 'b' on rank 1"));
}

TEST_F(ACoordinatorByItself, WaitsForAHostThatWritesForAsLongAsItMakesProgress) {
  roster_exists();
  const AttemptKey key{1, 5, 1};
  role_.receive(kNode, RoleKind::shard_writer, report(key, 0));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  for (uint64_t amount = 1; amount <= 20; ++amount) {
    role_.pass(100'000 * kMillisecond);
    role_.receive(kOther, RoleKind::shard_writer, wire::SaveProgress{key, amount});
    role_.receive(kNode, RoleKind::shard_writer, report(key, 0));
    no_later_epoch();
  }
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  const auto news = role_.sent<wire::SaveProgress>(kNode);
  ASSERT_EQ(news.size(), 20u);
  EXPECT_LT(news[0].amount, news[19].amount) << "so that the node that has written waits too";
  for (int i = 0; i < 2; ++i) {
    role_.receive(kOther, RoleKind::shard_writer, wire::SaveProgress{key, 20});
    role_.pass(60'000 * kMillisecond);
  }
  no_later_epoch();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value()) << "a repetition is no progress";
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause,
              HasSubstr("nothing came from rank 1 (host host1) within 2 min 00 s of the last report; 1 of 2 "
                        "ranks have reported durable files"));
}

TEST_F(ACoordinatorByItself, WarnsAtHalfTheDeadlineOnceOfTheRankThatASaveWaitsFor) {
  roster_exists();
  role_.receive(kNode, RoleKind::shard_writer, report({1, 5, 1}, 0));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.log.clear();
  role_.pass(59'000 * kMillisecond);
  EXPECT_TRUE(role_.log.empty()) << role_.log.front();
  role_.pass(2'000 * kMillisecond);
  ASSERT_EQ(role_.log.size(), 1u);
  EXPECT_THAT(role_.log[0],
              AllOf(HasSubstr("step 5 (g1a1) waits: nothing came from rank 1 (host host1) for 60"),
                    HasSubstr("aborts the save after 2 min 00 s")));
  role_.pass(50'000 * kMillisecond);
  EXPECT_EQ(role_.log.size(), 1u);
}

// It stalled. Meanwhile the other nodes lost it, and committed what the root proved complete. They report
// nothing more, and this node waits for the coordinator's decision.
TEST_F(ACoordinatorByItself, FindsTheDecisionThatNodesMadeWithoutIt) {
  roster_exists();
  const AttemptKey committed{1, 5, 1}, aborted{1, 6, 1};
  role_.receive(kNode, RoleKind::shard_writer, report(committed, 0));
  role_.receive(kNode, RoleKind::shard_writer, report(aborted, 0));
  while (role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"))) {
  }
  role_.pass(16'000 * kMillisecond);
  storage::Decision manifest;
  manifest.key = committed;
  manifest.body = storage::Manifest{};
  ASSERT_TRUE(role_.answer<operation::ReadDecision>(
      OperationResult(std::make_shared<const storage::Decision>(manifest))));
  ASSERT_TRUE(role_.answer<operation::ReadDecision>(Status(Code::unavailable, "the root is away")));
  role_.pass(16'000 * kMillisecond);
  storage::Decision tombstone;
  tombstone.key = aborted;
  tombstone.body = storage::Tombstone{storage::Tombstone::Reason::aborted, "rank 1 was lost"};
  ASSERT_TRUE(role_.answer<operation::ReadDecision>(
      OperationResult(std::make_shared<const storage::Decision>(tombstone))));
  while (role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}))) {
  }
  const auto decided = role_.sent<wire::Decided>(kNode);
  ASSERT_EQ(decided.size(), 2u);
  EXPECT_EQ(decided[0].key, committed);
  EXPECT_TRUE(decided[0].committed);
  EXPECT_EQ(decided[1].key, aborted);
  EXPECT_FALSE(decided[1].committed);
  role_.pass(120'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
}

// Mode rank-local. The nodes have left this coordinator for the later one.
TEST_F(ACoordinatorByItself, CallsNoRankLostOnceALaterOneHasReplacedIt) {
  auto losses = [&] {
    std::vector<event::RanksLost> found;
    for (const effect::ToRole& each : role_.to_roles) {
      if (const auto* lost = std::get_if<event::RanksLost>(&each.event)) found.push_back(*lost);
    }
    return found;
  };
  wire::RanksEnded here;
  here.host = "host1";
  here.here = {1};
  here.rank_local = true;
  role_.receive(kOther, RoleKind::shard_writer, here);
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "closed by the peer")});
  role_.pass(16'000 * kMillisecond);
  no_later_epoch();
  ASSERT_EQ(losses().size(), 1u);
  EXPECT_THAT(losses()[0].ranks, ::testing::ElementsAre(1));
  role_.receive(kOther + 1, RoleKind::shard_writer, here);
  role_.handle(event::PeerLost{kOther + 1, Status(Code::unavailable, "closed by the peer")});
  role_.pass(5'000 * kMillisecond);
  ASSERT_TRUE(role_.answer<operation::ReadEpoch>(OperationResult(
      std::make_shared<const storage::EpochRecord>(storage::EpochRecord{2, "node1", "job-1", {}, 1}))));
  ASSERT_TRUE(role_.retired_by.has_value());
  role_.pass(60'000 * kMillisecond);
  ASSERT_GE(losses().size(), 2u);
  EXPECT_TRUE(losses().back().ranks.empty()) << "the ShardWriter forgets what this one called lost";
}

TEST_F(ACoordinatorByItself, NamesTheOtherStepThatAMissingRankHasReported) {
  roster_exists();
  role_.receive(kNode, RoleKind::shard_writer, report({1, 5, 1}, 0));
  role_.receive(kOther, RoleKind::shard_writer, report({1, 4, 1}, 1));
  while (role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"))) {
  }
  role_.pass(121'000 * kMillisecond);
  no_later_epoch();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_EQ(publish->key.step, 5u);
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause,
              HasSubstr("rank 1 has reported step 4 (g1a1), which is not complete either"));
  role_.handle(event::OperationDone{id, aborted({1, 5, 1}, "nothing came")});
  role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
  const auto decided = role_.sent<wire::Decided>(kOther);
  ASSERT_EQ(decided.size(), 1u);
  EXPECT_TRUE(decided[0].is_overdue);
  EXPECT_EQ(decided[0].give_up, GiveUp::deadline);

  // Regression: the abort of the second step named the first one no more, since it was decided.
  no_later_epoch();
  publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_EQ(publish->key.step, 4u);
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause,
              HasSubstr("rank 0 has reported step 5 (g1a1), which was not complete either"));
}

TEST_F(ACoordinatorByItself, NamesHowAHostWasLostAndWhetherItsNodeCameBackWithoutTheRank) {
  roster_exists();
  auto cause_of = [&](uint64_t step) {
    role_.receive(kNode, RoleKind::shard_writer, report({1, step, 1}, 0));
    while (role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"))) {
    }
    no_later_epoch();
    OperationId id = 0;
    auto publish = role_.take_start<operation::PublishDecision>(&id);
    return publish ? std::get<storage::Tombstone>(*publish->body).cause : "";
  };
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "host1:7 sent nothing for 2500 ms")});
  role_.pass(16'000 * kMillisecond);
  EXPECT_EQ(cause_of(5),
            "host host1 (rank 1) is lost (host1:7 sent nothing for 2500 ms): neither its node nor its "
            "trainers came back within 15.00 s");
  wire::RanksEnded node;  // of a new node of the host, without its trainer
  node.host = "host1";
  role_.receive(kOther + 1, RoleKind::shard_writer, node);
  EXPECT_EQ(
      cause_of(6),
      "rank 1 of host host1 did not attach to the new node of its host within 15.00 s after the earlier "
      "node was lost: its trainer is stopped, hangs or has ended");
}

TEST_F(ACoordinatorByItself, SendsWithAnAbortTheKindOfItsCause) {
  roster_exists();
  auto kind_of = [&](uint64_t step, Code code) {
    const AttemptKey key{1, step, 1};
    role_.receive(kNode, RoleKind::shard_writer, report(key, 0));
    role_.receive(kOther, RoleKind::shard_writer, wire::SaveFailed{key, 1, Status(code, "why")});
    while (role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"))) {
    }
    no_later_epoch();
    OperationId id = 0;
    const auto publish = role_.take_start<operation::PublishDecision>(&id);
    role_.handle(event::OperationDone{id, aborted(key, "why")});
    role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
    const std::vector<wire::Decided> decided = role_.sent<wire::Decided>(kOther);
    EXPECT_FALSE(decided.empty());
    EXPECT_EQ(publish->give_up, decided.back().give_up);
    return decided.back().give_up;
  };
  EXPECT_EQ(kind_of(5, Code::unavailable), GiveUp::rank_ended);
  EXPECT_EQ(kind_of(6, Code::no_space), GiveUp::rank_lacks_space);
  EXPECT_EQ(kind_of(7, Code::io), GiveUp::rank_lacks_space);
  EXPECT_EQ(kind_of(8, Code::invalid_argument), GiveUp::rank_failed);
}

// A node may end before its trainers have attached: its launcher has given up, or its host died.
TEST_F(ACoordinatorByItself, AbortsForRanksThatNeverCameOnceTheirHostIsLost) {
  role_.receive(kNode, RoleKind::planner, join(0));
  wire::RanksEnded started;
  started.host = "host1";
  started.expected = {1};
  role_.receive(kOther, RoleKind::shard_writer, started);
  const auto abort_of = [&](uint64_t step) -> std::string {
    role_.receive(kNode, RoleKind::shard_writer,
                  wire::LayoutsStaged{{1, step, 1}, {{0, layouts()[0]->id()}}});
    no_later_epoch();
    OperationId id = 0;
    const auto abort = role_.take_start<operation::PublishDecision>(&id);
    return abort ? std::get<storage::Tombstone>(*abort->body).cause : "none";
  };
  EXPECT_EQ(abort_of(5), "none");
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "closed by the peer")});
  role_.pass(14'000 * kMillisecond);
  EXPECT_EQ(abort_of(6), "none");
  role_.receive(kOther + 1, RoleKind::shard_writer, started);  // the next node of this host
  role_.pass(20'000 * kMillisecond);
  EXPECT_EQ(abort_of(7), "none") << "its trainers may still come";
  role_.handle(event::PeerLost{kOther + 1, Status(Code::unavailable, "closed by the peer")});
  role_.pass(16'000 * kMillisecond);
  EXPECT_EQ(abort_of(8),
            "host host1 (rank 1) is lost (closed by the peer): neither its node nor its trainers came back "
            "within 15.00 s");
}

// The save waits only for the host that is lost second, while the timer runs for the first.
TEST_F(ACoordinatorByItself, AbortsInTimeForASecondHostThatIsLostSoonAfterTheFirst) {
  roster_exists();
  role_.receive(kOther, RoleKind::shard_writer, report({1, 5, 1}, 1));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "closed by the peer")});
  role_.pass(5'000 * kMillisecond);
  role_.handle(event::PeerLost{kNode, Status(Code::unavailable, "host0:7 sent nothing for 2500 ms")});
  role_.pass(11'000 * kMillisecond);
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u) << "the first host has reported";
  role_.pass(5'000 * kMillisecond);
  no_later_epoch();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause,
              HasSubstr("host host0 (rank 0) is lost (host0:7 sent nothing for 2500 ms)"));
}

TEST_F(ACoordinatorByItself, OpensNoAttemptOfAnotherGeneration) {
  roster_exists();
  role_.receive(kNode, RoleKind::shard_writer, report({0, 5, 1}, 0));
  role_.receive(kNode, RoleKind::shard_writer, report({2, 5, 1}, 0));
  EXPECT_EQ(role_.started<operation::ReadDecision>(), 0u);
  role_.pass(130'000 * kMillisecond);
  no_later_epoch();
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
}

TEST_F(ACoordinatorByItself, RefusesHostsOfDifferentOptionsNamingBothValues) {
  role_.receive(kNode, RoleKind::planner, join(0));
  wire::JoinRanks other = join(1);
  other.options.dedupe = Dedupe::none;
  role_.receive(kOther, RoleKind::planner, other);
  const auto rejected = role_.sent<wire::JoinRejected>(kOther);
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_EQ(rejected[0].cause,
            "hosts host1 and host0 save with different options, dedupe: none and balanced");
}

TEST_F(ACoordinatorByItself, RefusesAtOnceARankLocalHostAmongOthers) {
  wire::RanksEnded rank_local;
  rank_local.host = "host1";
  rank_local.here = {1};
  rank_local.rank_local = true;
  role_.receive(kOther, RoleKind::shard_writer, rank_local);
  role_.receive(kNode, RoleKind::planner, join(0));
  const auto rejected = role_.sent<wire::JoinRejected>(kNode);
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_EQ(rejected[0].cause,
            "host host1 saves in mode rank-local, but host host0 saves in mode collective-free");
}

// Regression: the cause, after the deadline, was that no layout had come from the rank-local host.
class ACollectiveHostBesideARankLocalOne : public ACoordinatorByItself {
 protected:
  void collective_saves() {
    wire::LocalPlans message;
    message.key = {1, 5, 1};
    message.world_size = 2;
    message.host = "host0";
    message.options.mode = SaveMode::collective;
    message.ranks = {{0, layouts()[0]->id()}};
    message.known = {PlanId{}};
    role_.receive(kNode, RoleKind::shard_writer, message);
  }
  void rank_local_attaches() {
    wire::RanksEnded message;
    message.host = "host1";
    message.here = {1};
    message.rank_local = true;
    role_.receive(kOther, RoleKind::shard_writer, message);
  }
  std::string cause() {
    role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
    no_later_epoch();
    OperationId id = 0;
    auto publish = role_.take_start<operation::PublishDecision>(&id);
    return publish ? std::get<storage::Tombstone>(*publish->body).cause : "";
  }
  const std::string expected_ =
      "host host1 saves in mode rank-local, but host host0 saves in mode collective";
};

TEST_F(ACollectiveHostBesideARankLocalOne, EndsItsSaveAtOnce) {
  rank_local_attaches();
  collective_saves();
  EXPECT_EQ(cause(), expected_);
}

TEST_F(ACollectiveHostBesideARankLocalOne, EndsItsSaveOnceThatOneIsKnown) {
  collective_saves();
  rank_local_attaches();
  EXPECT_EQ(cause(), expected_);
}

TEST_F(ACoordinatorByItself, TellsEverybodyAtOnceThatItsRootIsReadOnly) {
  roster_exists();
  both_report({1, 5, 1});
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(read_only_root()));
  for (NodeId node : {kNode, kOther}) {
    ASSERT_EQ(role_.sent<wire::Undecided>(node).size(), 1u);
    EXPECT_THAT(role_.sent<wire::Undecided>(node)[0].why.message(), HasSubstr("Read-only file system"));
  }
  role_.sends.clear();
  // The node had not received the decision.
  role_.receive(kNode, RoleKind::shard_writer, report({1, 5, 1}, 0));
  EXPECT_EQ(role_.sent<wire::Undecided>(kNode).size(), 1u);
  role_.handle(event::Drain{});
  EXPECT_TRUE(role_.drained);
}

// What was not reported may be in the root all the same. What is wrong is aborted, whatever the root has.
TEST_F(ACoordinatorByItself, GivesUpWhatNeverCameOnlyIfTheRootDoesNotProveItComplete) {
  roster_exists();
  auto completes = [&](uint64_t step, const WireBody& received) -> std::optional<bool> {
    role_.starts.clear();
    role_.receive(kNode, RoleKind::shard_writer, report({1, step, 1}, 0));
    role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
    role_.receive(kOther, RoleKind::shard_writer, received);
    no_later_epoch();
    OperationId id = 0;
    auto publish = role_.take_start<operation::PublishDecision>(&id);
    if (!publish) return std::nullopt;
    return publish->looks_first;
  };
  EXPECT_EQ(completes(5, wire::SaveFailed{{1, 5, 1}, 1, Status(Code::unavailable, "its trainer ended")}),
            true);
  EXPECT_EQ(completes(6, wire::SaveFailed{{1, 6, 1}, 1, Status(Code::io, "input/output error")}), false);
  wire::ShardsWritten wrong = report({1, 7, 1}, 1);
  wrong.plans[0].plan_id = {};
  EXPECT_EQ(completes(7, wrong), false);
  EXPECT_EQ(completes(8, wire::RanksEnded{{{1, "exit 1"}}, {}, "host1", {}}), true);
  role_.starts.clear();
  role_.receive(kNode, RoleKind::shard_writer, report({1, 9, 1}, 0));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  no_later_epoch();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_TRUE(publish->looks_first);
}

TEST_F(ACoordinatorByItself, TriesToPublishWithBackOffAndNotForEver) {
  roster_exists();
  both_report({1, 5, 1});
  size_t tries = 0;
  while (role_.answer<operation::PublishDecision>(Status(Code::io, "input/output error"))) {
    ASSERT_LT(++tries, 100u);
    role_.pass(10'000 * kMillisecond);
  }
  EXPECT_GE(tries, 10u);
  EXPECT_LE(tries, 20u);  // 120 s, every 10 s at most
  EXPECT_EQ(role_.sent<wire::Undecided>(kNode).size(), 1u);
}

// Regression: after the root had been moved away, trainers were notified of failed saves two minutes late.
TEST_F(ACoordinatorByItself, TellsWithinSecondsOfAFailedSaveWhoseAbortCannotBeRecorded) {
  roster_exists();
  role_.receive(kNode, RoleKind::shard_writer,
                wire::SaveFailed{{1, 5, 1}, 0, Status(Code::no_space, "disk full")});
  no_later_epoch();
  size_t seconds = 0;
  while (seconds < 60 && role_.sent<wire::Undecided>(kNode).empty()) {
    role_.answer<operation::PublishDecision>(Status(Code::unavailable, "the root is gone"));
    role_.pass(1'000 * kMillisecond);
    ++seconds;
  }
  EXPECT_GE(seconds, 3u) << "what passes soon is worth another try";
  EXPECT_LE(seconds, 8u);
  ASSERT_EQ(role_.sent<wire::Undecided>(kNode).size(), 1u);
  EXPECT_THAT(role_.sent<wire::Undecided>(kNode)[0].why.message(),
              AllOf(HasSubstr("rank 0 (host host0): no space: disk full"), HasSubstr("the root is gone")));
}

// Regression: a disk that was full for longer than a save may wait ended every later save of the run.
TEST_F(ACoordinatorByItself, PublishesTheFirstRosterAfterALongFailureOfTheStorage) {
  both_join();
  no_later_epoch();
  for (int second = 0; second < 600; ++second) {
    role_.answer<operation::PublishRoster>(Status(Code::no_space, "No space left on device"));
    role_.pass(1'000 * kMillisecond);
  }
  EXPECT_TRUE(role_.sent<wire::JoinRejected>(kOther).empty());
  EXPECT_TRUE(role_.sent<wire::RosterUpdate>(kOther).empty());
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishRoster>(&id);
  for (int second = 0; second < 60 && !publish; ++second) {
    role_.pass(1'000 * kMillisecond);
    publish = role_.take_start<operation::PublishRoster>(&id);
  }
  ASSERT_TRUE(publish.has_value());
  role_.handle(event::OperationDone{id, OperationResult(publish->record)});
  EXPECT_EQ(role_.sent<wire::RosterUpdate>(kOther).size(), 1u);
}

TEST_F(ACoordinatorByItself, RefusesAllWhenTheRosterCannotBePublished) {
  both_join();
  no_later_epoch();
  ASSERT_TRUE(role_.answer<operation::PublishRoster>(read_only_root()));
  ASSERT_EQ(role_.sent<wire::JoinRejected>(kOther).size(), 1u);
  EXPECT_THAT(role_.sent<wire::JoinRejected>(kOther)[0].cause, HasSubstr("Read-only file system"));

  // Every rank then fails. The cause of the abort names none of them, since none is the culprit.
  role_.receive(kNode, RoleKind::shard_writer,
                wire::SaveFailed{{1, 5, 1}, 0, Status(Code::refused, "the node's own words")});
  no_later_epoch();
  OperationId id = 0;
  const auto abort = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(abort.has_value());
  EXPECT_THAT(std::get<storage::Tombstone>(*abort->body).cause,
              AllOf(HasSubstr("there is no roster: "), HasSubstr("Read-only file system"),
                    ::testing::Not(HasSubstr("rank 0"))));
}

// Regression, found by shoal fuzz: an earlier coordinator published the first roster just after this one had
// looked for it. The other nodes had that roster and did not join here, so that this coordinator waited for
// layouts and aborted every save.
TEST_F(ACoordinatorByItself, LooksAgainForTheFirstRosterWhenANodeReportsUnderOneThatItDoesNotKnow) {
  roster_exists();
  const wire::ShardsWritten first = report({1, 5, 1}, 0), second = report({1, 5, 1}, 1);
  RoleByItself later{make_coordinator(facts_of_one())};
  later.answer<operation::ReadRoster>(Status(Code::not_found, "no roster"));
  later.answer<operation::ListAttempts>(OperationResult(storage::AttemptList{}));
  later.receive(kNode, RoleKind::shard_writer, first);
  later.receive(kOther, RoleKind::shard_writer, second);
  later.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  ASSERT_EQ(later.started<operation::ReadRoster>(), 1u) << "one look at a time";
  later.answer<operation::ReadRoster>(OperationResult(storage::RosterRecord{world_, {}, kRuleVersion}));
  EXPECT_EQ(later.sent<wire::RosterUpdate>(kOther).size(), 1u);
  EXPECT_EQ(later.started<operation::CheckFiles>(), 1u) << "both have reported";
}

TEST_F(ACoordinatorByItself, NamesTheHostOfTheRankThatFailed) {
  roster_exists();
  role_.receive(kOther, RoleKind::shard_writer,
                wire::SaveFailed{{1, 5, 1}, 1, Status(Code::no_space, "disk full")});
  no_later_epoch();
  OperationId id = 0;
  const auto abort = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(abort.has_value());
  EXPECT_THAT(std::get<storage::Tombstone>(*abort->body).cause,
              ::testing::MatchesRegex("rank 1 \\(host .+\\): no space: disk full"));
}

// A host that has no roster. The first of its ranks to fail is not the cause.
TEST_F(ACoordinatorByItself, NamesNoRankOfAHostWhoseRanksAllFail) {
  roster_exists();
  const Status why(Code::invalid_argument, "there is no roster: rank 5 saves with other options than rank 4");
  role_.receive(kOther, RoleKind::shard_writer, wire::SaveFailed{{1, 5, 1}, std::nullopt, why, "host1"});
  no_later_epoch();
  OperationId id = 0;
  const auto abort = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(abort.has_value());
  EXPECT_EQ(std::get<storage::Tombstone>(*abort->body).cause, "host host1: " + why.message());
}

// A node that was started again may report a failure before its Planner has joined.
TEST_F(ACoordinatorByItself, NamesTheHostOfARankWhoseNodeHasNotJoined) {
  role_.receive(kOther, RoleKind::shard_writer,
                wire::SaveFailed{{1, 5, 1}, 1, Status(Code::unavailable, "its trainer ended"), "host1"});
  no_later_epoch();
  OperationId id = 0;
  const auto abort = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(abort.has_value());
  EXPECT_EQ(std::get<storage::Tombstone>(*abort->body).cause, "rank 1 (host host1): its trainer ended");
}

TEST_F(ACoordinatorByItself, CommitsThoughANodeReportedAgainAndAgainBeforeTheRosterWasKnown) {
  roster_exists();
  RoleByItself again(make_coordinator(facts_of_one()));
  again.answer<operation::ListAttempts>(OperationResult(storage::AttemptList{}));
  for (int i = 0; i < 5000; ++i) again.receive(kNode, RoleKind::shard_writer, report({1, 5, 1}, 0));
  again.receive(kOther, RoleKind::shard_writer, report({1, 5, 1}, 1));
  again.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  again.answer<operation::ReadRoster>(OperationResult(storage::RosterRecord{world_, {}, kRuleVersion}));
  EXPECT_EQ(again.started<operation::CheckFiles>(), 1u);
}

TEST_F(ACoordinatorByItself, SweepsAgainWhenANodeSpeaksOfAnAbortedAttempt) {
  roster_exists();
  abort({1, 5, 1});
  const wire::SaveFailed late{{1, 5, 1}, 1, Status(Code::aborted, "its files were written after the abort")};
  role_.receive(kOther, RoleKind::shard_writer, late);
  ASSERT_EQ(role_.started<operation::SweepAttempt>(), 1u);
  for (int i = 0; i < 5; ++i) role_.receive(kOther, RoleKind::shard_writer, late);
  EXPECT_EQ(role_.started<operation::SweepAttempt>(), 1u);  // one at a time
  role_.answer<operation::SweepAttempt>(OperationResult(uint64_t{7}));
  EXPECT_TRUE(role_.answer<operation::SweepAttempt>(OperationResult(uint64_t{0})));  // and once more
  EXPECT_EQ(role_.started<operation::SweepAttempt>(), 0u);
}

TEST_F(ACoordinatorByItself, SweepsAnAbortedAttemptAgainAfterTheNodesDeadline) {
  roster_exists();
  abort({1, 5, 1});
  role_.pass(299'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::SweepAttempt>(), 0u);
  role_.pass(2'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::SweepAttempt>(), 1u);
}

TEST_F(ACoordinatorByItself, RefusesAHostOfAnotherWorldSizeWhenTheRosterStands) {
  roster_exists();
  wire::JoinRanks other = join(1);
  other.world_size = 3;
  role_.receive(kOther, RoleKind::planner, other);
  ASSERT_EQ(role_.sent<wire::JoinRejected>(kOther).size(), 1u);
  EXPECT_EQ(role_.sent<wire::JoinRejected>(kOther)[0].cause,
            "host host1 declares a world of 3 ranks, but the roster of this run has 2");
}

TEST_F(ACoordinatorByItself, SendsTheRosterAgainOnlyToWhoAsksAfterItMustHaveCome) {
  roster_exists();
  auto notified = [&] { return role_.sent<wire::RosterUpdate>(kOther).size(); };
  ASSERT_EQ(notified(), 1u);
  role_.pass(3000 * kMillisecond);  // sending to all nodes took this long
  role_.receive(kNode, RoleKind::planner, wire::Layouts{});
  for (int asked = 0; asked < 3; ++asked) {
    role_.receive(kOther, RoleKind::planner, join(1));
    role_.pass(1000 * kMillisecond);
  }
  EXPECT_EQ(notified(), 1u);
  role_.pass(1000 * kMillisecond);
  role_.receive(kOther, RoleKind::planner, join(1));
  EXPECT_EQ(notified(), 2u);  // the first was lost
  role_.receive(kOther, RoleKind::planner, join(1));
  EXPECT_EQ(notified(), 2u);
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "session ended")});
  role_.receive(kOther, RoleKind::planner, join(1));
  EXPECT_EQ(notified(), 3u);  // with its session everything on the way is gone
}

TEST_F(ACoordinatorByItself, AsksOneNodeForALayoutThatManyHaveAndAnotherWhereThatIsLost) {
  const LayoutId id = layouts()[0]->id();
  auto join_alike = [&](NodeId node, Rank rank) {
    const std::string host = "host" + std::to_string(rank);
    role_.receive(node, RoleKind::planner, wire::JoinRanks{host, 3, {{rank, id}}, {}});
  };
  auto asked = [&](NodeId node) { return role_.sent<wire::LayoutRequest>(node).size(); };
  const NodeId third = kFirstPeerNode + 2;
  join_alike(kNode, 0);
  join_alike(kOther, 1);
  join_alike(third, 2);
  EXPECT_EQ(asked(kNode), 1u);
  EXPECT_EQ(asked(kOther), 0u);
  EXPECT_EQ(asked(third), 0u);
  join_alike(kNode, 0);  // what it was asked may have been lost
  EXPECT_EQ(asked(kNode), 2u);
  role_.handle(event::PeerLost{kNode, Status(Code::unavailable, "session ended")});
  join_alike(third, 2);
  EXPECT_EQ(asked(third), 1u);
  join_alike(kOther, 1);
  EXPECT_EQ(asked(kOther), 0u);
}

class ACoordinatorOfSmallMessages : public ACoordinatorByItself {
 protected:
  static NodeConfig small() {
    NodeConfig config = facts_of_one();
    config.message_bytes_max = 5000;
    return config;
  }
  ACoordinatorOfSmallMessages() : ACoordinatorByItself(small()) {}
};

TEST_F(ACoordinatorOfSmallMessages, RefusesARosterThatFitsIntoNoMessageNamingSizeAndBound) {
  both_join();
  EXPECT_EQ(role_.started<operation::PublishRoster>(), 0u);
  ASSERT_EQ(role_.sent<wire::JoinRejected>(kOther).size(), 1u);
  EXPECT_THAT(role_.sent<wire::JoinRejected>(kOther)[0].cause,
              HasSubstr("bytes, but a message takes at most 5000"));
}

// Else what earlier runs left undecided would stay until the next coordinator.
TEST_F(ACoordinatorByItself, ListsTheAttemptsAgainIfTheRootCouldNotBeRead) {
  RoleByItself again(make_coordinator(facts_of_one()));
  again.answer<operation::ListAttempts>(Status(Code::io, "Input/output error"));
  EXPECT_EQ(again.started<operation::ListAttempts>(), 0u) << "it waits";
  again.pass(10'000 * kMillisecond);
  storage::AttemptInfo left;
  left.key = {0, 7, 1};
  ASSERT_TRUE(again.answer<operation::ListAttempts>(OperationResult(storage::AttemptList{{left}, {}})));
  ASSERT_TRUE(again.answer<operation::InspectAttempt>(Status(Code::io, "Input/output error")));
  EXPECT_EQ(again.started<operation::InspectAttempt>(), 0u) << "it waits";
  again.pass(10'000 * kMillisecond);
  EXPECT_EQ(again.started<operation::InspectAttempt>(), 1u);
}

// A hiccup of the storage that answers once with an error.
TEST_F(ACoordinatorByItself, ChecksFilesAgainIfTheRootCouldNotBeRead) {
  roster_exists();
  both_send_reports({1, 5, 1});
  role_.answer<operation::CheckFiles>(Status(Code::io, "Input/output error"));
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  EXPECT_EQ(role_.started<operation::CheckFiles>(), 0u) << "it backs off";
  role_.pass(10'000 * kMillisecond);
  ASSERT_TRUE(role_.answer<operation::CheckFiles>(OperationResult(operation::Done{})));
  no_later_epoch();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_TRUE(std::holds_alternative<storage::Manifest>(*publish->body));
}

TEST_F(ACoordinatorByItself, AbortsIfTheRootCannotBeReadForLong) {
  roster_exists();
  both_send_reports({1, 5, 1});
  for (int i = 0; i < 1000 && role_.answer<operation::CheckFiles>(Status(Code::io, "Input/output error"));
       ++i) {
    role_.pass(10'000 * kMillisecond);
  }
  EXPECT_EQ(role_.started<operation::CheckFiles>(), 0u);
  no_later_epoch();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  ASSERT_TRUE(std::holds_alternative<storage::Tombstone>(*publish->body));
  EXPECT_THAT(std::get<storage::Tombstone>(*publish->body).cause,
              AllOf(HasSubstr("its files cannot be checked"), HasSubstr("Input/output error")));
  EXPECT_TRUE(publish->looks_first) << "every rank has reported: the root may prove the save complete by now";
  // The patience for the abort begins with the abort: an earlier failure of another operation uses up none.
  role_.handle(event::OperationDone{id, Status(Code::io, "Input/output error")});
  EXPECT_TRUE(role_.sent<wire::Undecided>(kNode).empty());
  role_.pass(2'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 1u);
}

class ASupersededCoordinator : public ACoordinatorByItself {
 protected:
  static storage::EpochRecord later() { return {2, "host9:7070", "job-1", {}}; }
};

TEST_F(ASupersededCoordinator, PublishesNothingAndSaysWhoCameAfterIt) {
  roster_exists();
  both_send_reports({1, 5, 1});
  role_.answer<operation::CheckFiles>(OperationResult(operation::Done{}));
  ASSERT_TRUE(role_.answer<operation::ReadEpoch>(
      OperationResult(std::make_shared<const storage::EpochRecord>(later()))));
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  for (NodeId node : {kNode, kOther, kThisNode}) {
    ASSERT_EQ(role_.sent<wire::Superseded>(node).size(), 1u);
    EXPECT_EQ(role_.sent<wire::Superseded>(node)[0].epoch, 2u);
    EXPECT_EQ(role_.sent<wire::Superseded>(node)[0].address, "host9:7070");
  }
  ASSERT_TRUE(role_.retired_by.has_value());
  role_.receive(kFirstPeerNode + 7, RoleKind::planner, join(1));
  EXPECT_EQ(role_.sent<wire::Superseded>(kFirstPeerNode + 7).size(), 1u);
  role_.starts.clear();
  role_.pass(1'000'000 * kMillisecond);
  EXPECT_TRUE(role_.starts.empty());  // it never looks, claims or decides again
  role_.handle(event::Drain{});
  EXPECT_TRUE(role_.drained);
}

TEST_F(ASupersededCoordinator, NoticesAtTheLatestAfterTheNextCheck) {
  role_.pass(5'000 * kMillisecond);
  ASSERT_TRUE(role_.answer<operation::ReadEpoch>(OperationResult(
      std::make_shared<const storage::EpochRecord>(storage::EpochRecord{1, "node0", "job-1", {}}))));
  EXPECT_FALSE(role_.retired_by.has_value());
  role_.pass(5'000 * kMillisecond);
  ASSERT_TRUE(role_.answer<operation::ReadEpoch>(
      OperationResult(std::make_shared<const storage::EpochRecord>(later()))));
  EXPECT_TRUE(role_.retired_by.has_value());
}

TEST_F(ASupersededCoordinator, AsksTheRootWhenItIsToldAndBelievesNothingElse) {
  role_.receive(kNode, RoleKind::coordinator, wire::Superseded{9, "a.stranger:1"});
  ASSERT_TRUE(role_.answer<operation::ReadEpoch>(OperationResult(
      std::make_shared<const storage::EpochRecord>(storage::EpochRecord{1, "node0", "job-1", {}}))));
  EXPECT_FALSE(role_.retired_by.has_value());
}

TEST_F(ASupersededCoordinator, GoesOnWhileTheEpochsCannotBeRead) {
  roster_exists();
  role_.receive(kNode, RoleKind::shard_writer, wire::SaveFailed{{1, 5, 1}, 0, Status(Code::no_space, "x")});
  ASSERT_TRUE(role_.answer<operation::ReadEpoch>(Status(Code::io, "input/output error")));
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 1u);
}

TEST(Layouts, AreSplitIntoMessagesThatFit) {
  std::vector<LayoutPtr> layouts;
  for (uint32_t world_size : {1u, 2u, 3u, 4u, 5u}) layouts.push_back(sim::flat_job(world_size, 0)[0]);
  size_t largest = 0;
  for (const LayoutPtr& layout : layouts) largest = std::max(largest, plan::encode_layout(*layout).size());
  const size_t bytes_max = 2 * (largest + kItemOverheadBytes) + kMessageOverheadBytes;
  Status refused;
  const auto parts = split_layouts(layouts, bytes_max, &refused);
  EXPECT_TRUE(refused.ok());
  ASSERT_EQ(parts.size(), 3u);
  size_t count = 0;
  for (const wire::Layouts& part : parts) {
    for (const LayoutPtr& layout : part.layouts) EXPECT_EQ(layout, layouts[count++]);
    const WireMessage message{RoleKind::planner, RoleKind::coordinator,
                              std::make_shared<const WireBody>(part)};
    EXPECT_LE(encode_wire(message).size(), bytes_max);
  }
  EXPECT_EQ(count, layouts.size());
  EXPECT_TRUE(split_layouts(layouts, largest, &refused).empty());
  EXPECT_EQ(refused.code(), Code::too_large);
}

TEST_F(ACoordinatorByItself, GivesUpWhileDrainingASaveForWhichThereIsNoRoster) {
  role_.receive(kNode, RoleKind::planner, join(0));
  wire::ShardsWritten early{{1, 5, 1}, {}, {{0, {}}}, {}};
  role_.receive(kNode, RoleKind::shard_writer, early);
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.handle(event::Drain{});
  role_.pass(6'000 * kMillisecond);
  no_later_epoch();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  EXPECT_THAT(
      std::get<storage::Tombstone>(*publish->body).cause,
      AllOf(HasSubstr("there is no roster: no layout came from rank 1 before the coordinator was stopped"),
            HasSubstr("rank 0 sent its layout (rank 0 is on host host0)")));
}

// The node of a host is killed before it hears of the last commit. The next one cannot start without a
// coordinator, and its trainers wait.
TEST_F(ACoordinatorByItself, StaysUntilTheNextNodeOfALostHostHasAskedAndItsTrainersHaveEnded) {
  roster_exists();
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "gone")});
  role_.pass(100 * kMillisecond);
  role_.handle(event::Stopping{});
  role_.handle(event::Drain{});
  EXPECT_FALSE(role_.drained);
  role_.receive(kOther + 1, RoleKind::planner, join(1));
  role_.pass(1'000 * kMillisecond);
  EXPECT_FALSE(role_.drained) << "the trainers of that host are back, and have not ended";
  role_.receive(kOther + 1, RoleKind::shard_writer, wire::RanksEnded{{{1, ""}}, {}, "host1", {}});
  EXPECT_TRUE(role_.drained);
}

TEST_F(ACoordinatorByItself, StaysForALostHostOnlyForTheTimeOfADrain) {
  roster_exists();
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "gone")});
  role_.handle(event::Stopping{});
  role_.handle(event::Drain{});
  role_.pass(4'900 * kMillisecond);
  EXPECT_FALSE(role_.drained);
  role_.pass(200 * kMillisecond);
  EXPECT_TRUE(role_.drained);
}

TEST_F(ACoordinatorByItself, DoesNotStayForAHostThatIsLostForGood) {
  roster_exists();
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "gone")});
  role_.pass(16'000 * kMillisecond);
  role_.handle(event::Stopping{});
  role_.handle(event::Drain{});
  EXPECT_TRUE(role_.drained);
}

TEST_F(ACoordinatorByItself, GivesUpWhileDrainingWhatNobodyIsLeftToComplete) {
  roster_exists();
  const AttemptKey key{1, 5, 1};
  role_.receive(kNode, RoleKind::shard_writer, report(key, 0));
  role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  role_.handle(event::Drain{});
  role_.pass(60'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);  // the other node may still report
  role_.handle(event::PeerLost{kOther, Status(Code::unavailable, "gone")});
  role_.handle(event::PeerLost{kNode, Status(Code::unavailable, "gone")});
  role_.pass(4'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  role_.pass(2'000 * kMillisecond);
  no_later_epoch();
  OperationId id = 0;
  auto publish = role_.take_start<operation::PublishDecision>(&id);
  ASSERT_TRUE(publish.has_value());
  const std::string cause = std::get<storage::Tombstone>(*publish->body).cause;
  EXPECT_THAT(cause, HasSubstr("nothing came from rank 1 (host host1) before the coordinator was stopped"));
  role_.handle(event::OperationDone{id, aborted(key, cause)});
  role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
  EXPECT_TRUE(role_.drained);
}

// Another job trains on this root. Its attempts, epochs and checkpoints are no business of this one.
TEST(ACoordinatorOfAJobThatOnlyReads, ChoosesForItsNodesAndDoesNothingElse) {
  NodeConfig config = facts_of_one();
  config.read_only = true;
  config.retention.keep_last = 1;
  RoleByItself role(make_coordinator(config));
  EXPECT_TRUE(role.starts.empty()) << traits_of(role.starts.front().operation).name;
  EXPECT_FALSE(role.has_timers());
  role.receive(kNode, RoleKind::coordinator, wire::Superseded{7, "node7"});
  role.receive(kNode, RoleKind::planner, wire::JoinRanks{"host0", 1, {{0, LayoutId{}}}, {}});
  role.receive(kNode, RoleKind::shard_writer, wire::SaveFailed{{1, 3, 1}, 0, Status(Code::io, "no")});
  role.pass(TimeNs{600'000} * kMillisecond);
  EXPECT_TRUE(role.starts.empty()) << traits_of(role.starts.front().operation).name;
  wire::JoinLoad load;
  load.id.latest = true;
  load.id.ordinal = 1;
  role.receive(kNode, RoleKind::loader, load);
  EXPECT_EQ(role.started<operation::ReadLoadChoice>(), 1u);
}

// --- rank-local ---

class ACoordinatorOfRankLocalSaves : public ACoordinatorByItself {
 protected:
  static constexpr AttemptKey kSave{1, 5, 1};
  void published(NodeId node, uint32_t ranks) {
    role_.receive(node, RoleKind::shard_writer, wire::ManifestsPublished{kSave, ranks, 4});
  }
  void found(NodeId node) { role_.receive(node, RoleKind::shard_writer, wire::Decided{kSave, true, ""}); }
  size_t called_complete(NodeId node) const { return role_.sent<wire::ManifestsPublished>(node).size(); }
};

TEST_F(ACoordinatorOfRankLocalSaves, AnswersTheNodeWhoseReportCompletesTheSet) {
  published(kNode, 1);
  published(kNode, 2);
  EXPECT_EQ(called_complete(kNode), 0u) << "a report replaces the one before";
  published(kOther, 2);
  EXPECT_EQ(called_complete(kNode), 0u);
  ASSERT_EQ(called_complete(kOther), 1u);
  EXPECT_EQ(role_.sent<wire::ManifestsPublished>(kOther)[0].ranks, 4u);
  published(kOther, 2);
  EXPECT_EQ(called_complete(kOther), 2u) << "the answer may be lost";
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u) << "nodes decide";
}

TEST_F(ACoordinatorOfRankLocalSaves, PassesACommitOnceToTheOtherNodes) {
  published(kNode, 2);
  published(kOther, 2);
  found(kOther);
  ASSERT_EQ(role_.sent<wire::Decided>(kNode).size(), 1u);
  EXPECT_TRUE(role_.sent<wire::Decided>(kNode)[0].committed);
  EXPECT_TRUE(role_.sent<wire::Decided>(kOther).empty()) << "it has found the commit";
  found(kNode);
  EXPECT_TRUE(role_.sent<wire::Decided>(kOther).empty());
  published(kNode, 2);
  EXPECT_EQ(called_complete(kNode), 0u) << "nobody need look any more";
  EXPECT_EQ(role_.sent<wire::Decided>(kNode).size(), 2u) << "it may not have heard";
}

TEST_F(ACoordinatorOfRankLocalSaves, CountsFewSavesAtOnce) {
  for (uint64_t step = 100; step < 100 + kMaxSetsCounted; ++step) {
    role_.receive(kNode, RoleKind::shard_writer, wire::ManifestsPublished{{1, step, 1}, 2, 4});
  }
  published(kNode, 2);  // of an earlier step, as after a rollback
  published(kOther, 2);
  EXPECT_EQ(called_complete(kOther), 1u);
  role_.receive(kOther, RoleKind::shard_writer, wire::ManifestsPublished{{1, 100, 1}, 2, 4});
  EXPECT_EQ(called_complete(kOther), 1u) << "the oldest is forgotten";
}

}  // namespace
}  // namespace shoal::actors
