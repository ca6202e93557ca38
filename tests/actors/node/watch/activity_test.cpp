// What a node reports about its saves, from the events that it sees.
#include "actors/node/watch/activity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/actors/units.h"

namespace shoal::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kGeneration = 3;
constexpr AttemptKey kSaveKey = {kGeneration, 10, 1};

class ActivityTest : public ::testing::Test {
 protected:
  void attach(ClientId client, Rank rank, uint32_t world_size = 4) {
    local::Attach attach;
    attach.rank = rank;
    attach.world_size = world_size;
    activity_.from_client(now_, client, attach);
  }
  void stage(ClientId client, uint64_t bytes, uint64_t step = 10) {
    local::Staged staged;
    staged.step = step;
    staged.attempt = 1;
    staged.roster_id.bytes[0] = std::byte{1};
    staged.pieces.push_back({0, 0, 0, bytes, 0});
    activity_.from_client(now_, client, staged);
  }
  static Operation write_of(Rank rank, uint64_t bytes) {
    operation::WriteShard write;
    write.key = kSaveKey;
    write.rank = rank;
    write.pieces.push_back({"w", "w", DType::u8, false, {bytes}, Box{{0}, {bytes}}, bytes});
    return write;
  }
  void write(Rank rank, uint64_t bytes) {
    Operation operation = write_of(rank, bytes);
    activity_.operation_began(now_, operation);
    activity_.operation_ended(now_, operation,
                              OperationResult(storage::WrittenShard{bytes + 4096, {}, bytes}));
  }
  void free_slab(ClientId client) {
    local::SlabFree free;
    free.step = 10;
    free.attempt = 1;
    free.durable.emplace();
    activity_.to_client(now_, client, free);
  }
  void decide(bool committed, const std::string& cause = "") {
    activity_.from_peer(now_, wire::Decided{kSaveKey, committed, cause});
  }
  void join(const std::string& host, const std::vector<Rank>& ranks) {
    wire::JoinRanks join;
    join.host = host;
    join.world_size = 4;
    for (Rank rank : ranks) join.ranks.push_back({rank, {}});
    activity_.from_peer(now_, join);
  }
  local::NodeStatus status(bool coordinates = false) const {
    local::NodeStatus out;
    activity_.describe(now_, coordinates, &out);
    return out;
  }

  Activity activity_{kGeneration, 0};
  TimeNs now_ = kSecond;
};

TEST_F(ActivityTest, FollowsASaveFromStagingToItsCommit) {
  attach(1, 0);
  attach(2, 1);
  EXPECT_THAT(status().saves, IsEmpty());
  EXPECT_THAT(status().ranks, ElementsAre(0, 1));
  EXPECT_EQ(status().world_size, 4u);

  stage(1, 1000);
  now_ += kSecond;
  ASSERT_EQ(status().saves.size(), 1u);
  local::SaveStatus save = status().saves[0];
  EXPECT_EQ(save.key, kSaveKey);
  EXPECT_EQ(save.phase, local::SavePhase::staging);
  EXPECT_EQ(save.age_ms, 1000u);
  EXPECT_EQ(save.ranks_here, 2u);
  EXPECT_EQ(save.ranks_staged, 1u);
  EXPECT_THAT(save.awaited, ElementsAre(1)) << "rank 1 has not staged";

  stage(2, 500);
  save = status().saves[0];
  EXPECT_EQ(save.phase, local::SavePhase::writing);
  EXPECT_EQ(save.bytes_staged, 1500u);
  EXPECT_EQ(save.bytes_to_write, 1500u);
  EXPECT_THAT(save.awaited, ElementsAre(0, 1));

  write(1, 500);
  free_slab(2);
  save = status().saves[0];
  EXPECT_EQ(save.bytes_written, 500u);
  EXPECT_EQ(save.ranks_written, 1u);
  EXPECT_THAT(save.awaited, ElementsAre(0));
  write(0, 1000);
  free_slab(1);
  EXPECT_EQ(status().saves[0].phase, local::SavePhase::waiting);

  now_ += kSecond;
  decide(true);
  local::NodeStatus after = status();
  EXPECT_THAT(after.saves, IsEmpty());
  ASSERT_TRUE(after.last_commit);
  EXPECT_EQ(after.last_commit->key, kSaveKey);
  EXPECT_EQ(after.last_commit->duration_ms, 2000u);
  EXPECT_GT(after.last_commit->unix_time_ns, 0);
  EXPECT_EQ(after.last_commit->slowest_rank, 0u);
  EXPECT_EQ(after.counts.saves_committed, 1u);
  EXPECT_EQ(after.counts.bytes_staged, 1500u);
  EXPECT_EQ(after.counts.bytes_written, 1500u);
}

TEST_F(ActivityTest, KeepsTheCourseOfTheNewestSaves) {
  attach(1, 0);
  stage(1, 1000);
  now_ += kSecond;
  ASSERT_EQ(activity_.save_records(now_).size(), 1u);
  EXPECT_EQ(activity_.save_records(now_)[0].state, SaveRecord::State::in_flight);
  EXPECT_FALSE(activity_.save_records(now_)[0].decided_ms);
  write(0, 1000);
  free_slab(1);
  now_ += kSecond;
  decide(true);
  activity_.from_client(now_, 1, local::SaveReturned{10, 1, 2'000'000, 0});  // after the decision
  const SaveRecord record = activity_.save_records(now_)[0];
  EXPECT_EQ(record.state, SaveRecord::State::committed);
  EXPECT_EQ(record.staged_ms, 0u);
  EXPECT_EQ(record.durable_ms, 1000u);
  EXPECT_EQ(record.decided_ms, 2000u);
  EXPECT_EQ(record.blocked_ns, 2'000'000u);
  for (uint64_t step = 11; step < 11 + kMaxSaveRecords; ++step) {
    stage(1, 1000, step);
    activity_.from_peer(now_, wire::Decided{{kGeneration, step, 1}, false, "no space"});
  }
  const auto records = activity_.save_records(now_);
  EXPECT_EQ(records.size(), kMaxSaveRecords);
  EXPECT_EQ(records.back().state, SaveRecord::State::aborted);
  EXPECT_EQ(records.back().cause, "no space");
  EXPECT_EQ(records.back().abort_cause, AbortCause::other);
}

TEST_F(ActivityTest, KnowsAtTheCoordinatorWhichRanksHaveNotReported) {
  attach(1, 0);
  stage(1, 1000);
  write(0, 1000);
  free_slab(1);
  wire::ShardsWritten report;
  report.key = kSaveKey;
  report.plans = {{2, {}}};
  report.files = {{2, 0, 5096, {}, 1000}};
  activity_.from_peer(now_, report);
  activity_.from_peer(now_, report);  // resent
  local::SaveStatus save = status(true).saves[0];
  EXPECT_EQ(save.phase, local::SavePhase::waiting);
  EXPECT_EQ(save.ranks_reported, 2u);
  EXPECT_EQ(save.bytes_reported, 2000u);
  EXPECT_THAT(save.awaited, ElementsAre(1, 3));
  EXPECT_THAT(status(false).saves[0].awaited, IsEmpty()) << "another node knows of its own ranks alone";
}

TEST_F(ActivityTest, NamesTheRanksWithoutALayoutWhileASaveIsNotPlanned) {
  attach(1, 0);
  local::Staged unplanned;  // roster_id is zero: all that the rank holds
  unplanned.step = 10;
  unplanned.attempt = 1;
  unplanned.pieces.push_back({0, 0, 0, 1000, 0});
  activity_.from_client(now_, 1, unplanned);
  EXPECT_EQ(status(true).saves[0].phase, local::SavePhase::planning);
  EXPECT_THAT(status(true).saves[0].awaited, ElementsAre(1, 2, 3));

  wire::JoinRanks join;
  join.ranks = {{1, {}}};
  activity_.from_peer(now_, join);
  EXPECT_THAT(status(true).saves[0].awaited, ElementsAre(2, 3));
  activity_.from_peer(now_, wire::LayoutsStaged{kSaveKey, {{3, {}}}});
  EXPECT_THAT(status(true).saves[0].awaited, ElementsAre(2));
  EXPECT_EQ(status(true).saves[0].awaited_count, 1u);

  // With a roster, ranks that joined before may wait for a new one.
  activity_.to_client(now_, 1, local::RosterUpdate{});
  EXPECT_THAT(status(true).saves[0].awaited, ElementsAre(1, 2));

  activity_.operation_began(now_, write_of(0, 1000));
  EXPECT_EQ(status(true).saves[0].phase, local::SavePhase::writing);
}

TEST_F(ActivityTest, ShowsAtTheCoordinatorAlsoRanksOfOtherHostsWhileItsOwnStillWrite) {
  attach(1, 0);
  attach(2, 1);
  stage(1, 1000);
  write(0, 1000);
  free_slab(1);
  stage(2, 1000);  // rank 1 still writes; ranks 2 and 3 of another host have sent nothing
  EXPECT_THAT(status(true).saves[0].awaited, ElementsAre(1, 2, 3));
  EXPECT_THAT(status(false).saves[0].awaited, ElementsAre(1));
}

TEST_F(ActivityTest, CountsAllRanksThatAreAwaitedAndShowsTheFirst) {
  attach(1, 0, 1'000'000);
  stage(1, 1000);
  write(0, 1000);
  free_slab(1);
  wire::ShardsWritten report;
  report.key = kSaveKey;
  report.plans = {{1, {}}, {3, {}}};
  activity_.from_peer(now_, report);
  local::SaveStatus save = status(true).saves[0];
  EXPECT_EQ(save.ranks_reported, 3u);
  EXPECT_EQ(save.awaited_count, 999'997u);
  ASSERT_EQ(save.awaited.size(), local::kMaxStatusRanks);
  EXPECT_EQ(save.awaited[0], 2u);
  EXPECT_EQ(save.awaited[1], 4u);
}

TEST_F(ActivityTest, KeepsTheCauseOfAnAbort) {
  attach(1, 0);
  stage(1, 1000);
  decide(false, "rank 2: its trainer ended");
  local::NodeStatus after = status();
  EXPECT_EQ(after.counts.saves_aborted, 1u);
  ASSERT_EQ(after.errors.size(), 1u);
  EXPECT_THAT(after.errors[0].line, HasSubstr("step 10 (g3a1) is aborted: rank 2: its trainer ended"));
  activity_.warned(now_, "shard writer: step 10 (g3a1) is aborted: rank 2: its trainer ended");
  EXPECT_EQ(status().errors.size(), 1u) << "a role warns of the same abort";
}

TEST_F(ActivityTest, CountsADecisionOnceHoweverOftenItIsHeard) {
  attach(1, 0);
  stage(1, 1000);
  decide(true);
  decide(true);
  local::Decided notified;
  notified.step = 10;
  notified.attempt = 1;
  activity_.to_client(now_, 1, notified);
  wire::ShardsWritten late;
  late.key = kSaveKey;
  late.plans = {{2, {}}};
  activity_.from_peer(now_, late);
  EXPECT_EQ(status().counts.saves_committed, 1u);
  EXPECT_EQ(status().counts.saves_begun, 1u);
  EXPECT_THAT(status().saves, IsEmpty()) << "a report that comes late opens nothing again";
}

TEST_F(ActivityTest, CountsAsWrittenWhatADeadTrainerHadStaged) {
  attach(1, 0, 1);
  stage(1, 1000);
  activity_.client_lost(1);
  EXPECT_EQ(status().saves[0].phase, local::SavePhase::writing);
  write(0, 1000);
  EXPECT_EQ(status().saves[0].phase, local::SavePhase::waiting);
}

TEST_F(ActivityTest, ShowsThatADecisionIsBeingPublished) {
  attach(1, 0, 1);
  stage(1, 1000);
  operation::PublishDecision publish;
  publish.key = kSaveKey;
  activity_.operation_began(now_, publish);
  EXPECT_EQ(status(true).saves[0].phase, local::SavePhase::committing);
  activity_.operation_ended(now_, publish, Status(Code::io, "the disk is gone"));
  EXPECT_EQ(status(true).saves[0].phase, local::SavePhase::writing);
  EXPECT_THAT(status(true).saves[0].trouble,
              HasSubstr("cannot publish a decision: I/O error: the disk is gone"));
}

// Regression: a save without a decision was shown as aborted.
TEST_F(ActivityTest, DoesNotCallAnUndecidedSaveAborted) {
  attach(1, 0);
  stage(1, 1000);
  activity_.to_client(now_, 1,
                      local::Decided{10, 1, Status(Code::refused, "not decided: read-only"), nullptr});
  ASSERT_EQ(status().errors.size(), 1u);
  EXPECT_EQ(status().errors[0].line, "step 10 (g3a1): not decided: read-only");
  EXPECT_TRUE(status().saves.empty());
}

TEST_F(ActivityTest, ShowsAFailureOnceThatARoleHasWarnedOf) {
  attach(1, 0);
  stage(1, 1000);
  activity_.warned(now_, "shard_writer: step 10 (g3a1): refused: not decided: read-only; cannot publish");
  activity_.to_client(now_, 1,
                      local::Decided{10, 1, Status(Code::refused, "not decided: read-only"), nullptr});
  EXPECT_EQ(status().errors.size(), 1u);
}

TEST_F(ActivityTest, KnowsTheProcessesOfTheTrainers) {
  local::Attach attach;
  attach.world_size = 4;
  attach.rank = 2;
  attach.pid = 4711;
  activity_.from_client(now_, 7, attach);
  EXPECT_THAT(status().trainers, ElementsAre(local::TrainerStatus{2, 4711, false}));
  activity_.client_lost(7);
  EXPECT_THAT(status().trainers, IsEmpty());
}

TEST_F(ActivityTest, GivesARankToTheHostThatClaimsItLast) {
  for (const char* dead : {"b", "f9"}) {
    join(dead, {1, 2});
    join("c", {2});
    EXPECT_THAT(activity_.job_facts()->ranks_of_hosts.at(dead), ElementsAre(1));
    join("c", {1, 2, 3});
    EXPECT_THAT(activity_.job_facts()->ranks_of_hosts.at(dead), IsEmpty());
    EXPECT_THAT(activity_.job_facts()->ranks_of_hosts.at("c"), ElementsAre(1, 2, 3));
  }
}

TEST_F(ActivityTest, CopiesWhichHostHasWhichRanksOnlyIfThatHasChanged) {
  join("b", {1, 2});
  const auto before = activity_.job_facts();
  join("b", {1, 2});
  attach(1, 0);
  stage(1, 1000);
  EXPECT_EQ(activity_.job_facts().get(), before.get());
  join("c", {2});
  EXPECT_NE(activity_.job_facts().get(), before.get());
  EXPECT_THAT(before->ranks_of_hosts.at("b"), ElementsAre(1, 2)) << "who asked earlier keeps it";
  const auto placed = activity_.job_facts();
  wire::RanksEnded ended;
  ended.rank_local = true;
  activity_.from_peer(now_, ended);
  EXPECT_TRUE(activity_.job_facts()->is_rank_local);
  EXPECT_FALSE(placed->is_rank_local);
}

TEST_F(ActivityTest, ForgetsReplacedHostsIfThereAreTooMany) {
  const size_t hosts = kMaxHostsOfRanks + 10;
  for (size_t i = 0; i < hosts; ++i) join("h" + std::to_string(i), {3});
  const auto facts = activity_.job_facts();
  EXPECT_EQ(facts->ranks_of_hosts.size(), kMaxHostsOfRanks);
  EXPECT_THAT(facts->ranks_of_hosts.at("h" + std::to_string(hosts - 1)), ElementsAre(3));
}

TEST_F(ActivityTest, IsBoundedWhateverPassesBy) {
  attach(1, 0);
  for (uint64_t step = 0; step < 2 * kMaxSavesTracked; ++step) stage(1, 1, step);
  for (size_t i = 0; i < 10 * local::kMaxStatusErrors; ++i) activity_.warned(now_, "warning");
  local::NodeStatus out = status();
  EXPECT_EQ(out.saves.size(), local::kMaxStatusSaves);
  EXPECT_EQ(out.saves_count, kMaxSavesTracked);
  EXPECT_EQ(out.saves.back().key.step, kMaxSavesTracked - 1) << "the newest are shown";
  EXPECT_EQ(out.errors.size(), local::kMaxStatusErrors);
  EXPECT_EQ(activity_.counts().warnings, 10 * local::kMaxStatusErrors);
}

TEST_F(ActivityTest, PutsEachCommitIntoItsBucket) {
  attach(1, 0);
  stage(1, 1);
  now_ += 3 * kSecond;
  decide(true);
  const auto seconds = activity_.counts().commit_seconds;
  size_t five = 8;
  EXPECT_EQ(kCommitSecondsBuckets[five], 5);
  EXPECT_EQ(seconds.counts[five], 1u);
  EXPECT_DOUBLE_EQ(seconds.sum, 3.0);
}

TEST_F(ActivityTest, SumsForHowLongCallsOfSaveHeldTrainers) {
  attach(1, 0);
  activity_.from_client(now_, 1, local::SaveReturned{10, 1, 3'000'000, 0});
  activity_.from_client(now_, 1, local::SaveReturned{11, 1, 200'000'000'000, 60'000'000'000});
  const ActivityCounts counts = activity_.counts();
  EXPECT_DOUBLE_EQ(counts.blocked_seconds.sum, 200.003);
  EXPECT_EQ(kBlockedSecondsBuckets[2], 0.005);
  EXPECT_EQ(counts.blocked_seconds.counts[2], 1u);
  EXPECT_EQ(counts.blocked_seconds.counts.back(), 1u) << "longer than the last bucket";
  EXPECT_DOUBLE_EQ(counts.waited_seconds, 60.0);
  EXPECT_EQ(counts.node.saves_begun, 0u) << "a call that returned is no sign that its save is in flight";
}

uint64_t aborted_by(const Activity& activity, AbortCause cause) {
  return activity.counts().aborted.at(static_cast<size_t>(cause));
}

TEST_F(ActivityTest, CountsAbortsByWhatTheCoordinatorSaysOfThem) {
  attach(1, 0);
  stage(1, 1000);
  wire::Decided decided{kSaveKey, false, "host b is lost"};
  decided.give_up = GiveUp::host_lost;
  activity_.from_peer(now_, decided);
  activity_.to_client(now_, 1, local::Decided{10, 1, Status(Code::aborted, "host b is lost"), nullptr});
  EXPECT_EQ(aborted_by(activity_, AbortCause::host_lost), 1u);
  stage(1, 1000, 11);
  activity_.to_client(now_, 1, local::Decided{11, 1, Status(Code::aborted, "found in the root"), nullptr});
  EXPECT_EQ(aborted_by(activity_, AbortCause::other), 1u);
  stage(1, 1000, 12);
  activity_.to_client(now_, 1,
                      local::Decided{12, 1, Status(Code::refused, "not decided: read-only"), nullptr});
  EXPECT_EQ(aborted_by(activity_, AbortCause::undecided), 1u);
  EXPECT_EQ(status().counts.saves_aborted, 3u);
}

TEST_F(ActivityTest, CountsAnAbortThatThisNodePublishesByItsOwnReasonUnlessAnotherOneWasFirst) {
  attach(1, 0);
  const auto publish = [&](uint64_t step, const std::string& cause_in_root) {
    stage(1, 1000, step);
    operation::PublishDecision made;
    made.key = {kGeneration, step, 1};
    made.body = std::make_shared<const storage::DecisionBody>(
        storage::Tombstone{storage::Tombstone::Reason::aborted, "no space"});
    made.give_up = GiveUp::rank_lacks_space;
    auto decision = std::make_shared<storage::Decision>();
    decision->key = made.key;
    decision->body = storage::Tombstone{storage::Tombstone::Reason::aborted, cause_in_root};
    activity_.operation_ended(now_, made, OperationResult(DecisionPtr(std::move(decision))));
  };
  publish(10, "no space");
  EXPECT_EQ(aborted_by(activity_, AbortCause::storage), 1u);
  publish(11, "host b is lost");
  EXPECT_EQ(aborted_by(activity_, AbortCause::storage), 1u);
  EXPECT_EQ(aborted_by(activity_, AbortCause::other), 1u);
}

TEST_F(ActivityTest, CountsFailedLoadsByTheirCode) {
  attach(1, 0);
  const auto failed = [&](Code code) {
    return activity_.counts().loads_failed.at(static_cast<size_t>(code));
  };
  local::Load load;
  load.request_id = 4;
  activity_.from_client(now_, 1, load);
  activity_.to_client(now_, 1, local::Found{4, Status(Code::not_found, "no checkpoint"), {}});
  EXPECT_EQ(failed(Code::not_found), 1u);
  EXPECT_EQ(status().counts.loads_failed, 0u) << "a job that starts with an empty root has not failed";
  activity_.to_client(now_, 1, local::Found{5, Status(Code::corrupt, "of latest()"), {}});
  EXPECT_EQ(failed(Code::corrupt), 0u) << "latest() is not a load";
  load.request_id = 6;
  activity_.from_client(now_, 1, load);
  activity_.to_client(now_, 1, local::Found{6, ok_status(), {}});
  activity_.to_client(now_, 1, local::LoadDone{6, Status(Code::corrupt, "block 3 differs")});
  EXPECT_EQ(failed(Code::corrupt), 1u);
  EXPECT_EQ(status().counts.loads_failed, 1u);
}

// A coordinator that starts again receives reports about saves that the one before it has decided.
TEST_F(ActivityTest, ShowsNoSaveInFlightThatWasDecidedBeforeThisNodeBegan) {
  for (const bool committed : {true, false}) {
    wire::ShardsWritten report;
    report.key = {kGeneration, committed ? 10u : 11u, 1};
    report.plans.push_back({.rank = 1});
    activity_.from_peer(now_, report);
    ASSERT_EQ(activity_.counts().saves_in_flight, 1u);
    auto decision = std::make_shared<storage::Decision>();
    decision->key = report.key;
    decision->body = storage::Manifest();
    if (!committed) {
      decision->body = storage::Tombstone{storage::Tombstone::Reason::aborted, "host b is lost"};
    }
    activity_.operation_ended(now_, operation::RecordDecision{decision}, OperationResult(operation::Done{}));
    EXPECT_EQ(activity_.counts().saves_in_flight, 0u);
  }
  EXPECT_EQ(status().counts.saves_committed, 1u);
  EXPECT_EQ(status().counts.saves_aborted, 1u);
  EXPECT_EQ(activity_.counts().newest->key.step, 10u);
}

OperationResult checkpoint_of(const AttemptKey& key, int64_t unix_time_ns) {
  auto decision = std::make_shared<storage::Decision>();
  decision->key = key;
  decision->unix_time_ns = unix_time_ns;
  decision->body = storage::Manifest();
  return DecisionPtr(std::move(decision));
}

TEST_F(ActivityTest, KnowsTheNewestCheckpointOfTheRootBeforeItSeesACommit) {
  EXPECT_FALSE(activity_.counts().newest);
  activity_.checkpoint_exists({{kGeneration - 1, 90, 1}, 1'000, 5});
  EXPECT_EQ(activity_.counts().newest->key.step, 90u);
  EXPECT_FALSE(status().last_commit) << "it was not committed while this node ran";
  // A save that an earlier node of this host had in flight: its trainer asks for the decision.
  activity_.operation_ended(now_, operation::ReadDecision{kSaveKey}, checkpoint_of(kSaveKey, 2'000));
  EXPECT_EQ(activity_.counts().newest->unix_time_ns, 2'000);
  activity_.operation_ended(now_, operation::ReadDecision{kSaveKey},
                            checkpoint_of({kGeneration - 1, 91, 1}, 3'000));
  EXPECT_EQ(activity_.counts().newest->key, kSaveKey) << "an older one changes nothing";
  attach(1, 0);
  stage(1, 1000, 11);
  activity_.from_peer(now_, wire::Decided{{kGeneration, 11, 1}, true, ""});
  EXPECT_EQ(activity_.counts().newest->key.step, 11u);
  EXPECT_GT(activity_.counts().newest->unix_time_ns, 4'000) << "now, since the message states no time";
  const AttemptKey key{kGeneration, 11, 1};
  activity_.operation_ended(now_, operation::ReadDecision{key}, checkpoint_of(key, 4'000));
  EXPECT_EQ(activity_.counts().newest->unix_time_ns, 4'000);
  activity_.from_peer(now_, wire::Decided{key, true, ""});  // sent again
  EXPECT_EQ(activity_.counts().newest->unix_time_ns, 4'000);
}

TEST_F(ActivityTest, CountsWhatIsReadForLoadsAndForThoseWhomTheyShareWith) {
  operation::ReadRange range;
  range.begin = 100;
  range.end = 350;
  operation::ReadBatch batch;
  batch.ranges = {range, range};
  activity_.operation_ended(now_, batch, OperationResult(operation::Done{}));
  activity_.operation_ended(now_, operation::ReadChunk{{range}}, OperationResult(ChunkPtr()));
  activity_.operation_ended(now_, operation::ReadChunk{{range}}, Status(Code::corrupt, "a flipped bit"));
  EXPECT_EQ(status().counts.bytes_read, 750u);
  auto located = std::make_shared<LocatedRanges>();  // the second has no place, and is read by the node then
  located->places.resize(2);
  located->places[0].file = 0;
  activity_.operation_ended(now_, operation::LocateRanges{7, {range, range}},
                            OperationResult(LocatedRangesPtr(located)));
  activity_.operation_ended(now_, operation::LocateRanges{7, {range}}, Status(Code::unavailable, "gone"));
  EXPECT_EQ(status().counts.bytes_read, 1000u);
}

}  // namespace
}  // namespace shoal::actors
