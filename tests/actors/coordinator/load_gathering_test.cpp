// The coordinator's part in shared loads, alone: the test plays the nodes and the root.
#include "actors/coordinator/load_gathering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/actors/role_by_itself.h"
#include "tests/actors/test_ids.h"

namespace shoal::actors {
namespace {

using ::testing::ElementsAre;

LayoutId layout(uint8_t number) {
  LayoutId id;
  id.bytes[0] = static_cast<std::byte>(number);
  return id;
}

class GatheringRole final : public Role {
 public:
  RoleKind kind() const override { return RoleKind::coordinator; }
  void handle(TimeNs now, const Event& event, Effects& effects) override {
    EffectWriter out(kind(), effects);
    if (const auto* received = std::get_if<event::Received>(&event)) {
      gathering_.join(now, received->from, std::get<wire::JoinLoad>(*received->message.body), out);
    } else if (const auto* done = std::get_if<event::OperationDone>(&event)) {
      operations_.done(now, *done, out);
    } else if (const auto* timer = std::get_if<event::TimerFired>(&event)) {
      timers_.fired(now, *timer, out);
    } else if (const auto* lost = std::get_if<event::PeerLost>(&event)) {
      gathering_.forget(lost->node);
    }
  }

 private:
  const NodeConfig config_{};
  PendingOperations operations_;
  PendingTimers timers_;
  LoadGathering gathering_{operations_, timers_, config_};
};

class AGathering : public ::testing::Test {
 protected:
  static constexpr NodeId kA = 101, kB = 102, kC = 103;
  const Timeouts times_{};
  const TimeNs quiet_ = TimeNs{times_.load_gather_quiet_ms} * kMillisecond;
  const TimeNs longest_ = TimeNs{times_.load_gather_longest_ms} * kMillisecond;
  const TimeNs most_ = TimeNs{times_.load_gather_most_ms} * kMillisecond;

  // Ranks [first, first + count) of a host, all of one layout; without an address it shares nothing.
  void join(NodeId node, const std::string& address, Rank first, uint32_t count, uint8_t of_layout = 1,
            const wire::LoadId& id = kLoadOfLatest) {
    wire::JoinLoad report{id, world_size_, address, {}, patience_ms_};
    for (Rank rank = first; !address.empty() && rank < first + count; ++rank) {
      report.ranks.push_back({rank, layout(of_layout)});
    }
    coordinator_.receive(node, RoleKind::loader, std::move(report));
  }
  // The choice in the root.
  void choose() { ASSERT_TRUE(coordinator_.answer<operation::ReadLoadChoice>(OperationResult(choice()))); }
  static storage::LoadChoice choice() {
    storage::LoadChoice choice;
    choice.found = true;
    choice.key = kLoadedKey;
    return choice;
  }
  std::vector<wire::LoadRoster> notified(NodeId node) const {
    return coordinator_.sent<wire::LoadRoster>(node);
  }

  uint32_t world_size_ = 8;
  uint32_t patience_ms_ = times_.load_gather_quiet_ms;  // of who joins
  RoleByItself coordinator_{std::make_unique<GatheringRole>()};
};

TEST_F(AGathering, ChoosesOnceAndTellsAllAsSoonAsEveryRankHasCome) {
  join(kA, "a:1", 0, 4);
  join(kB, "b:1", 4, 4);
  EXPECT_TRUE(notified(kA).empty()) << "nothing is chosen yet";
  EXPECT_EQ(coordinator_.started<operation::ReadLoadChoice>(), 1u);
  choose();
  for (NodeId node : {kA, kB}) {
    ASSERT_EQ(notified(node).size(), 1u);
    const wire::LoadRoster roster = notified(node)[0];
    EXPECT_TRUE(roster.outcome.ok());
    EXPECT_EQ(roster.key, kLoadedKey);
    EXPECT_THAT(roster.groups, ElementsAre(layout(1)));
    EXPECT_THAT(roster.addresses, ElementsAre("a:1", "b:1"));
    ASSERT_EQ(roster.members.size(), 2u);
    EXPECT_EQ(roster.members[1].first, 4u);
    EXPECT_EQ(roster.members[1].count, 4u);
    EXPECT_EQ(roster.members[1].host, 1u);
  }
}

// The ranks that load save only after it, so that a later save is decided only then.
TEST_F(AGathering, DoesNotWaitForASaveThatItsRanksHaveNotCalled) {
  const AttemptKey last = {0, 10, 1}, later = {0, 20, 1};
  join(kA, "a:1", 0, 2, 1, {true, last.step, 1, 0, last.attempt});
  ASSERT_TRUE(coordinator_.answer<operation::ReadLoadChoice>(Status(Code::not_found, "no choice")));
  storage::AttemptList there;
  there.attempts.push_back({last, storage::AttemptInfo::State::committed});
  there.attempts.push_back({later, storage::AttemptInfo::State::undecided});
  ASSERT_TRUE(coordinator_.answer<operation::ListNewestAttempts>(OperationResult(there)));
  EXPECT_EQ(coordinator_.started<operation::InspectAttempt>(), 0u);
  EXPECT_EQ(coordinator_.started<operation::ReadDecision>(), 1u);
}

TEST_F(AGathering, WaitsUntilNobodyHasComeForAWhile) {
  join(kA, "a:1", 0, 2);
  choose();
  coordinator_.pass(quiet_ / 2);
  join(kB, "b:1", 2, 2);
  coordinator_.pass(quiet_ / 2);
  EXPECT_TRUE(notified(kA).empty()) << "another one has come since";
  coordinator_.pass(quiet_ / 2);
  ASSERT_EQ(notified(kA).size(), 1u);
  EXPECT_THAT(notified(kA)[0].addresses, ElementsAre("a:1", "b:1"));
}

TEST_F(AGathering, WaitsForNoLongerThanItMayHoweverManyCome) {
  for (const TimeNs quiet : {quiet_, longest_}) {
    const wire::LoadId id{false, static_cast<uint64_t>(quiet), 0, 0};
    const TimeNs until = coordinator_.now + std::min(15 * quiet, most_);
    world_size_ = 64;
    patience_ms_ = static_cast<uint32_t>(quiet / kMillisecond);
    const size_t before = notified(kA).size();
    join(kA, "a:1", 0, 1, 1, id);
    storage::AttemptList there;
    there.attempts.push_back({{1, id.step, 1}, storage::AttemptInfo::State::committed});
    ASSERT_TRUE(coordinator_.answer<operation::ListAttemptsOfStep>(OperationResult(there)));
    for (NodeId node = kB; coordinator_.now < until - quiet / 2; ++node) {
      coordinator_.pass(quiet / 2);
      join(node, "node" + std::to_string(node), 1, 1, 1, id);  // all of them claim to be rank 1
    }
    EXPECT_EQ(notified(kA).size(), before);
    coordinator_.pass(quiet / 2);
    EXPECT_EQ(notified(kA).size(), before + 1);
  }
}

// Regression: hosts that came a quarter of a second after the others shared nothing, whatever that cost.
TEST_F(AGathering, WaitsAsLongAsTheMostPatientOfItsMembers) {
  join(kA, "a:1", 0, 2);
  choose();
  coordinator_.pass(quiet_ / 2);
  patience_ms_ = 2'000;
  join(kB, "b:1", 2, 2);
  patience_ms_ = 0;
  join(kC, "c:1", 4, 1);
  coordinator_.pass(1'999 * kMillisecond);
  EXPECT_TRUE(notified(kA).empty());
  coordinator_.pass(kMillisecond);
  ASSERT_EQ(notified(kA).size(), 1u);
  EXPECT_THAT(notified(kA)[0].addresses, ElementsAre("a:1", "b:1", "c:1"));
}

TEST_F(AGathering, WaitsNoLongerThanIsUsefulWhateverItIsTold) {
  patience_ms_ = std::numeric_limits<uint32_t>::max();
  join(kA, "a:1", 0, 2);
  choose();
  coordinator_.pass(longest_ - kMillisecond);
  EXPECT_TRUE(notified(kA).empty());
  coordinator_.pass(kMillisecond);
  EXPECT_EQ(notified(kA).size(), 1u);
}

TEST_F(AGathering, WaitsForNobodyWhereNobodyIsWorthIt) {
  patience_ms_ = 0;
  join(kA, "a:1", 0, 2);
  choose();
  EXPECT_EQ(notified(kA).size(), 1u);
}

TEST_F(AGathering, TellsOfTheRanksThatAHostNamedLater) {
  join(kA, "a:1", 0, 1);
  join(kB, "b:1", 4, 4);
  choose();
  coordinator_.pass(quiet_ / 2);
  join(kA, "a:1", 0, 3);
  coordinator_.pass(quiet_ / 2);
  EXPECT_TRUE(notified(kA).empty()) << "which is news";
  join(kA, "a:1", 0, 4);
  ASSERT_EQ(notified(kB).size(), 1u) << "now all have come";
  EXPECT_EQ(notified(kB)[0].members.at(0).count, 4u);
}

TEST_F(AGathering, TellsThoseOfEachLayoutOfEachOther) {
  join(kA, "a:1", 0, 2, 1);
  join(kB, "b:1", 2, 2, 2);
  join(kC, "c:1", 4, 4, 1);
  choose();
  ASSERT_EQ(notified(kA).size(), 1u);
  EXPECT_THAT(notified(kA)[0].addresses, ElementsAre("a:1", "c:1"));
  EXPECT_THAT(notified(kB)[0].addresses, ElementsAre("b:1"));
  EXPECT_THAT(notified(kB)[0].groups, ElementsAre(layout(2)));
}

TEST_F(AGathering, TellsWhoComesLateTheCheckpointAlone) {
  join(kA, "a:1", 0, 4);
  choose();
  coordinator_.pass(quiet_);
  ASSERT_EQ(notified(kA).size(), 1u);
  join(kB, "b:1", 4, 4);
  ASSERT_EQ(notified(kB).size(), 1u);
  EXPECT_EQ(notified(kB)[0].key, kLoadedKey);
  EXPECT_TRUE(notified(kB)[0].addresses.empty());
  join(kA, "a:1", 0, 4);  // its answer was lost
  ASSERT_EQ(notified(kA).size(), 2u);
  EXPECT_THAT(notified(kA)[1].addresses, ElementsAre("a:1"));
  EXPECT_EQ(coordinator_.started<operation::ReadLoadChoice>(), 0u) << "nothing is chosen again";
}

TEST_F(AGathering, TellsWhoSharesNothingTheCheckpointAsSoonAsItIsChosen) {
  join(kA, "a:1", 0, 4);
  join(kB, "", 4, 4);
  EXPECT_TRUE(notified(kB).empty());
  choose();
  ASSERT_EQ(notified(kB).size(), 1u);
  EXPECT_EQ(notified(kB)[0].key, kLoadedKey);
  EXPECT_TRUE(notified(kB)[0].addresses.empty());
  EXPECT_TRUE(notified(kA).empty()) << "which waits for others";
}

TEST_F(AGathering, WaitsForNoRankOfAHostThatSharesNothing) {
  join(kA, "a:1", 0, 4);
  choose();
  wire::JoinLoad alone{kLoadOfLatest, world_size_, "", {}, 0};
  for (Rank rank = 4; rank < 8; ++rank) alone.ranks.push_back({rank, layout(1)});
  coordinator_.receive(kB, RoleKind::loader, alone);
  ASSERT_EQ(notified(kA).size(), 1u) << "all ranks have come";
  EXPECT_THAT(notified(kA)[0].addresses, ElementsAre("a:1"));
  ASSERT_EQ(notified(kB).size(), 1u);
  EXPECT_TRUE(notified(kB)[0].addresses.empty());
}

TEST_F(AGathering, BeginsToWaitWithTheFirstThatShares) {
  join(kA, "", 0, 4);
  choose();
  EXPECT_EQ(notified(kA).size(), 1u);
  coordinator_.pass(most_);
  join(kB, "b:1", 4, 2);
  coordinator_.pass(quiet_ / 2);
  join(kC, "c:1", 6, 2);
  EXPECT_TRUE(notified(kB).empty());
  coordinator_.pass(quiet_);
  ASSERT_EQ(notified(kB).size(), 1u);
  EXPECT_THAT(notified(kB)[0].addresses, ElementsAre("b:1", "c:1"));
}

TEST_F(AGathering, NamesNoHostOfARankThatTwoSayTheyHave) {
  join(kA, "a:1", 0, 4);
  join(kB, "b:1", 3, 5);
  choose();
  coordinator_.pass(quiet_);
  ASSERT_EQ(notified(kA).size(), 1u);
  uint32_t of_rank_3 = 0;
  const wire::LoadRoster roster = notified(kA)[0];
  for (const wire::LoadMembers& members : roster.members) {
    of_rank_3 += members.first <= 3 && 3 < members.first + members.count ? 1 : 0;
  }
  EXPECT_EQ(of_rank_3, 1u);
}

TEST_F(AGathering, ForgetsANodeThatIsLostBeforeTheOthersAreTold) {
  join(kA, "a:1", 0, 4);
  join(kB, "b:1", 4, 2);
  coordinator_.handle(event::PeerLost{kB, Status(Code::unavailable, "gone")});
  choose();
  coordinator_.pass(quiet_);
  ASSERT_EQ(notified(kA).size(), 1u);
  EXPECT_THAT(notified(kA)[0].addresses, ElementsAre("a:1"));
  EXPECT_TRUE(notified(kB).empty());
}

TEST_F(AGathering, TellsAllWhyNothingCanBeLoaded) {
  join(kA, "a:1", 0, 4, 1, kLoadOfStep);
  join(kB, "b:1", 4, 2, 1, kLoadOfStep);
  ASSERT_TRUE(coordinator_.answer<operation::ListAttemptsOfStep>(OperationResult(storage::AttemptList{})));
  for (NodeId node : {kA, kB}) {
    ASSERT_EQ(notified(node).size(), 1u) << "at once";
    EXPECT_EQ(notified(node)[0].outcome.code(), Code::not_found);
  }
}

TEST_F(AGathering, KnowsSoManyLoadsAndTakesAnOlderOneForNew) {
  for (uint32_t i = 0; i <= kMaxLoadsGathered; ++i) {
    join(kA, "a:1", 0, 8, 1, {true, 0, i + 1, 0});
    choose();
  }
  EXPECT_EQ(notified(kA).size(), kMaxLoadsGathered + 1);
  join(kA, "a:1", 0, 8, 1, {true, 0, 2, 0});
  EXPECT_EQ(notified(kA).size(), kMaxLoadsGathered + 2);
  join(kA, "a:1", 0, 8, 1, {true, 0, 1, 0});
  EXPECT_EQ(coordinator_.started<operation::ReadLoadChoice>(), 1u);
}

}  // namespace
}  // namespace shoal::actors
