// The ShardWriter alone: how its saves end if the coordinator, the root or other ranks do not respond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "actors/planner/known_worlds.h"
#include "storage/decisions/rank_manifest_set.h"
#include "tests/actors/role_by_itself.h"
#include "tests/actors/test_ids.h"
#include "tests/sim/support/job_layouts.h"

namespace shoal::actors {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ClientId kAgain = kClient + 7;  // the next connection of the trainer of rank 0

Status gone() {
  return Status(Code::unavailable, "gone");
}

// Of a host with ranks 0 and 1 of a job of 2; the client of rank 0 is attached.
class AShardWriterByItself : public ::testing::Test {
 protected:
  static NodeConfig config() {
    NodeConfig config;
    config.generation = 1;
    config.epoch = 1;
    config.host = "host0";
    return config;
  }
  AShardWriterByItself() {
    local::Attach attach;
    attach.world_size = 2;
    role_.from_client(kClient, attach);
  }

  // Of as many ranks as hosts has; host[r] is that of rank r.
  void world_known(const std::vector<uint32_t>& hosts = {0, 1}) {
    world_known(hosts, sim::flat_job(static_cast<uint32_t>(hosts.size()), 0));
  }
  void world_known(const std::vector<uint32_t>& hosts, const std::vector<LayoutPtr>& layouts) {
    auto world = std::make_shared<World>();
    std::vector<LayoutId> ids;
    for (const LayoutPtr& layout : layouts) ids.push_back(layout->id());
    world->roster = *Roster::make(ids, hosts);
    world->layouts = {layouts[0]};
    world_ = world;
    role_.handle(event::WorldKnown{world_, {}});
  }
  void attach(Rank rank, int32_t pid = 0) {
    local::Attach attach;
    attach.rank = rank;
    attach.pid = pid;
    attach.world_size = 2;
    role_.from_client(kClient + rank, attach);
  }
  void close(Rank rank) {
    role_.from_client(kClient + rank, local::Detach{});
    role_.handle(event::ClientLost{kClient + rank});
  }
  std::string why_failed(uint64_t step) {
    const auto sent = role_.sent<wire::SaveFailed>(kCoordinatorNode);
    const auto failed = std::find_if(sent.begin(), sent.end(),
                                     [&](const wire::SaveFailed& each) { return each.key.step == step; });
    return failed == sent.end() ? "" : failed->why.message();
  }
  // The trainer of rank 0 attaches by another connection, kAgain.
  void attach_again() {
    local::Attach attach;
    attach.world_size = 2;
    role_.from_client(kAgain, attach);
  }
  // Then it offers step 5 once more, in slab 9.
  void offer_again() {
    attach_again();
    local::Staged staged;
    staged.step = 5;
    staged.attempt = 1;
    staged.again = true;
    staged.slab_id = 9;
    role_.from_client(kAgain, local::Slab{staged.slab_id, uint64_t{1} << 20});
    role_.from_client(kAgain, staged);
  }
  // `again`: it had offered that to an earlier node.
  void stage(uint64_t step, Rank rank = 0, bool again = false) {
    local::Staged staged;
    staged.step = step;
    staged.again = again;
    staged.attempt = 1;
    staged.slab_id = static_cast<uint32_t>(step);
    staged.user = user_;
    staged.replicas = replicas_;
    if (world_) {
      const SavePlan plan = *plan_save(*world_, rank, options_);
      staged.layout_id = world_->layouts[0]->id();
      staged.roster_id = plan.roster_id;
      staged.plan_id = plan.id;
      uint64_t offset = 0;
      for (const WriteItem& item : plan.items) {
        const uint64_t bytes = item.bytes;
        if (bytes == 0 && world_->layouts[0]->entries()[item.entry].kind == LayoutEntry::Kind::tensor)
          continue;
        staged.pieces.push_back({item.entry, item.local_box, item.local_offset, bytes, offset});
        offset += bytes;
      }
      std::sort(staged.pieces.begin(), staged.pieces.end(), [](const auto& a, const auto& b) {
        return std::tie(a.entry, a.local_box, a.local_offset) <
               std::tie(b.entry, b.local_box, b.local_offset);
      });
    }
    role_.from_client(kClient + rank, local::Slab{staged.slab_id, uint64_t{1} << 20});
    role_.from_client(kClient + rank, staged);
  }
  // Rank 0 stages step 5 under a roster of which this node has not heard.
  void stage_under_unknown_roster() {
    world_known();
    auto other = std::make_shared<World>(*world_);
    const LayoutId layout = world_->layouts[0]->id();
    other->roster = *Roster::make(std::vector<LayoutId>{layout, layout}, std::vector<uint32_t>{0, 0});
    world_ = other;
    stage(5);
  }
  static OperationResult tombstone(const AttemptKey& key, storage::Tombstone::Reason reason,
                                   const std::string& cause) {
    storage::Decision decision;
    decision.key = key;
    decision.body = storage::Tombstone{reason, cause};
    return std::make_shared<const storage::Decision>(std::move(decision));
  }
  static OperationResult aborted(const AttemptKey& key, const std::string& cause) {
    return tombstone(key, storage::Tombstone::Reason::aborted, cause);
  }
  static OperationResult deleted(const AttemptKey& key) {
    return tombstone(key, storage::Tombstone::Reason::deleted, "no rule keeps it");
  }
  // Sets the result of every read of a decision, for as long as decisions are read.
  void root_answers(const Result<OperationResult>& answer) {
    while (role_.answer<operation::ReadDecision>(answer)) {
    }
  }
  // All outcomes that this rank received for its saves, in order.
  std::vector<Status> notified(Rank rank = 0) const {
    std::vector<Status> outcomes;
    for (const auto& each : role_.notified<local::Decided>(kClient + rank)) outcomes.push_back(each.outcome);
    return outcomes;
  }
  std::string tombstone_cause(OperationId* id) {
    auto publish = role_.take_start<operation::PublishDecision>(id);
    return publish ? std::get<storage::Tombstone>(*publish->body).cause : "nothing was published";
  }

  RoleByItself role_{make_shard_writer(config())};
  std::shared_ptr<const World> world_;
  SaveOptions options_;
  UserMetadataPtr user_;
  plan::ReplicaDigestsPtr replicas_;
};

TEST_F(AShardWriterByItself, TellsItsClientWhyNoDecisionCanBePublished) {
  stage(5);
  role_.pass(300'000 * kMillisecond);
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(read_only_root()));
  const auto notified = role_.notified<local::Decided>(kClient);
  ASSERT_EQ(notified.size(), 1u);
  EXPECT_EQ(notified[0].outcome.code(), Code::refused);
  EXPECT_THAT(notified[0].outcome.message(), HasSubstr("Read-only file system"));
  EXPECT_EQ(role_.notified<local::SlabFree>(kClient).size(), 1u);
  role_.handle(event::Drain{});
  EXPECT_TRUE(role_.drained);
}

TEST_F(AShardWriterByItself, TriesToPublishItsTombstoneWithBackOffAndNotForEver) {
  stage(5);
  role_.pass(300'000 * kMillisecond);
  size_t tries = 0;
  while (role_.answer<operation::PublishDecision>(Status(Code::io, "input/output error"))) {
    ASSERT_LT(++tries, 100u);
    role_.pass(10'000 * kMillisecond);
  }
  EXPECT_GE(tries, 10u);
  EXPECT_LE(tries, 20u);
  const auto notified = role_.notified<local::Decided>(kClient);  // at the first failure, and once
  ASSERT_EQ(notified.size(), 1u);
  EXPECT_EQ(notified[0].outcome.code(), Code::io);
  role_.handle(event::Drain{});
  EXPECT_TRUE(role_.drained);
}

TEST_F(AShardWriterByItself, PublishesATombstoneWhenItHearsThatTheCoordinatorCannot) {
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Undecided{{1, 5, 1}, read_only_root()});
  OperationId id = 0;
  const std::string cause = tombstone_cause(&id);
  EXPECT_THAT(cause, HasSubstr("Read-only file system"));
  role_.handle(event::OperationDone{id, aborted({1, 5, 1}, cause)});
  EXPECT_THAT(role_.notified<local::Decided>(kClient).at(0).outcome.message(),
              HasSubstr("Read-only file system"));
}

TEST_F(AShardWriterByItself, TellsWhatFailedWhereTheCoordinatorCouldNotRecordTheAbort) {
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator,
                wire::Undecided{{1, 5, 1}, Status(Code::unavailable, "rank 3: disk full; the root is gone")});
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(Status(Code::unavailable, "the root is gone")));
  ASSERT_EQ(role_.notified<local::Decided>(kClient).size(), 1u);
  EXPECT_THAT(role_.notified<local::Decided>(kClient)[0].outcome.message(), HasSubstr("rank 3: disk full"));
}

TEST_F(AShardWriterByItself, WarnsOfAnOverdueSaveAndOfItsRanksThatHadNotSaved) {
  attach(1, 4711);
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator,
                wire::Decided{{1, 5, 1}, false, "nothing came from rank 1", true});
  EXPECT_THAT(role_.warnings,
              ElementsAre("step 5 (g1a1) is aborted: nothing came from rank 1",
                          "step 5 (g1a1): rank 1 had not called save for it, or had not staged all; "
                          "its trainer (pid 4711) is attached"));
}

// Regression: `shoal status` showed a healthy rank among the errors because the disk of another one was full.
TEST_F(AShardWriterByItself, WarnsOfNoHealthyRankIfAnotherOneFailed) {
  attach(1);
  stage(5);
  role_.log.clear();
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "rank 3: full"});
  EXPECT_THAT(role_.warnings, ElementsAre("step 5 (g1a1) is aborted: rank 3: full"));
  EXPECT_THAT(role_.log, Contains("step 5 (g1a1): rank 1 had not called save for it, or had not staged all; "
                                  "its trainer is attached"));
  role_.log.clear();
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "rank 3: full"});
  EXPECT_TRUE(role_.log.empty()) << role_.log.front();
}

// Regression: the log named the rank whose save had failed as one that had not called save.
TEST_F(AShardWriterByItself, NamesNoRankAsMissingThatHasReportedItsFailure) {
  attach(1);
  stage(5);
  role_.from_client(kClient + 1, local::NotStaged{5, 1, Status(Code::invalid_argument, "no such key")});
  role_.log.clear();
  role_.receive(kCoordinatorNode, RoleKind::coordinator,
                wire::Decided{{1, 5, 1}, false, "rank 1: no such key"});
  EXPECT_THAT(role_.log, ElementsAre("step 5 (g1a1) is aborted: rank 1: no such key"));
}

// Regression: a trainer that had closed its Checkpointer and lived was said to have ended.
TEST_F(AShardWriterByItself, TellsAClosedCheckpointerFromALostConnection) {
  attach(1);
  close(1);
  stage(5);
  role_.pass(config().timeouts.host_lost_ms * kMillisecond);
  EXPECT_EQ(why_failed(5), "its trainer closed its Checkpointer before it staged this save");
  stage(6);
  EXPECT_EQ(why_failed(6), "its trainer closed its Checkpointer before it staged this save");
  attach(1);
  role_.handle(event::ClientLost{kClient + 1});
  stage(7);
  EXPECT_EQ(why_failed(7), "its connection to the node ended before it staged this save");
}

// Regression: while one rank opened a Checkpointer anew, the saves of faster ranks were aborted.
TEST_F(AShardWriterByItself, WaitsForARankThatOpensItsCheckpointerAnew) {
  world_known({0, 0});
  attach(1);
  stage(5);
  close(1);
  stage(6);
  role_.pass((config().timeouts.host_lost_ms - 1) * kMillisecond);
  attach(1);
  role_.pass(config().timeouts.host_lost_ms * kMillisecond);
  stage(5, 1);
  stage(6, 1);
  EXPECT_TRUE(role_.sent<wire::SaveFailed>(kCoordinatorNode).empty());
}

// Regression: a node that was stopped for a while lost its trainers, which attached again at once. Their
// saves were aborted.
TEST_F(AShardWriterByItself, WaitsForARankWhoseProcessLives) {
  world_known({0, 0});
  attach(1);
  stage(5);
  role_.handle(event::ClientLost{.client = kClient + 1, .process_lives = true});
  stage(6);
  role_.pass((config().timeouts.host_lost_ms - 1) * kMillisecond);
  attach(1);
  role_.pass(config().timeouts.host_lost_ms * kMillisecond);
  EXPECT_TRUE(role_.sent<wire::SaveFailed>(kCoordinatorNode).empty());
  role_.handle(event::ClientLost{.client = kClient + 1, .process_lives = true});
  role_.pass(config().timeouts.host_lost_ms * kMillisecond);
  EXPECT_THAT(why_failed(5), HasSubstr("did not come back within"));
}

TEST_F(AShardWriterByItself, DoesNotWaitForARankThatClosedItsCheckpointerAndEnded) {
  attach(1);
  close(1);
  stage(5);
  role_.handle(event::TrainerEnded{1, "it ended with exit status 0"});
  const auto failed = role_.sent<wire::SaveFailed>(kCoordinatorNode);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_THAT(failed[0].why.message(), HasSubstr("it ended with exit status 0"));
}

TEST_F(AShardWriterByItself, WarnsOfTheAbortOfASaveForWhichNoneOfItsRanksCalled) {
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "nothing came"});
  ASSERT_EQ(role_.log.size(), 2u);
  EXPECT_EQ(role_.log[0], "step 5 (g1a1) is aborted: nothing came");
  EXPECT_THAT(role_.log[1], HasSubstr("rank 0 had not called save for it"));
}

// Regression: one error of the storage aborted the save.
TEST_F(AShardWriterByItself, ReadsARosterAgainAfterAnErrorOfTheStorage) {
  stage_under_unknown_roster();
  ASSERT_TRUE(role_.answer<operation::ReadRoster>(Status(Code::io, "Input/output error")));
  EXPECT_TRUE(role_.sent<wire::SaveFailed>(kCoordinatorNode).empty());
  EXPECT_EQ(role_.started<operation::ReadRoster>(), 0u) << "it backs off";
  role_.pass(10'000 * kMillisecond);
  ASSERT_TRUE(role_.answer<operation::ReadRoster>(
      OperationResult(storage::RosterRecord{world_, options_, kRuleVersion})));
  EXPECT_EQ(role_.started<operation::WriteShard>(), 1u);
}

// Regression: a trainer was told that its committed save had failed.
TEST_F(AShardWriterByItself, TellsACommitWhoseManifestCannotBeReadNow) {
  world_known();
  stage(5);
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, true, ""});
  for (int i = 0; i < 100 && notified().empty(); ++i) {
    role_.answer<operation::ReadDecision>(Status(Code::io, "Input/output error"));
    role_.pass(1'000 * kMillisecond);
  }
  const auto decided = role_.notified<local::Decided>(kClient);
  ASSERT_EQ(decided.size(), 1u);
  EXPECT_TRUE(decided[0].outcome.ok()) << decided[0].outcome.to_string();
  EXPECT_EQ(decided[0].warning, "its manifest could not be read: Input/output error");
}

TEST_F(AShardWriterByItself, FailsTheSaveIfItsRosterIsNowhere) {
  stage_under_unknown_roster();
  ASSERT_TRUE(role_.answer<operation::ReadRoster>(Status(Code::not_found, "no such roster")));
  const auto failed = role_.sent<wire::SaveFailed>(kCoordinatorNode);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_THAT(failed[0].why.message(), HasSubstr("cannot read the roster of this save: no such roster"));
}

// Regression: `shoal launch` waited two minutes for a node whose trainers had ended.
TEST_F(AShardWriterByItself, DrainsWithinSecondsWhereNoAbortCanBeRecordedAndNoTrainerWaits) {
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Undecided{{1, 5, 1}, read_only_root()});
  role_.handle(event::ClientLost{kClient});
  role_.handle(event::Drain{});
  size_t seconds = 0;
  for (; seconds < 60 && !role_.drained; ++seconds) {
    role_.answer<operation::PublishDecision>(Status(Code::unavailable, "the root is gone"));
    role_.answer<operation::WriteShard>(Status(Code::unavailable, "the root is gone"));
    role_.pass(1'000 * kMillisecond);
  }
  EXPECT_LE(seconds, 8u);
  EXPECT_TRUE(role_.drained);
}

TEST_F(AShardWriterByItself, WritesAndReportsTheMetadataThatATrainerGave) {
  world_known();
  user_ = std::make_shared<const UserMetadata>(UserMetadata{{"run", "a"}});
  stage(5);
  OperationId id = 0;
  auto write = role_.take_start<operation::WriteShard>(&id);
  ASSERT_TRUE(write.has_value());
  EXPECT_EQ(write->user, user_);
  role_.handle(event::OperationDone{id, OperationResult(storage::WrittenShard{})});
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  const auto reports = role_.sent<wire::ShardsWritten>(kCoordinatorNode);
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.back().user, user_);
}

// One node made the assignment durable, and the next one reports it, from the client's message.
TEST_F(AShardWriterByItself, ReportsTheMetadataOfWhatAnEarlierNodeWrote) {
  world_known();
  user_ = std::make_shared<const UserMetadata>(UserMetadata{{"run", "a"}});
  const SavePlan plan = *plan_save(*world_, 0, options_);
  local::Written written{5, 1, {plan.roster_id, plan.id, {}}, user_};
  for (uint32_t file = 0; file < plan.files; ++file) written.assignment.files.push_back({file, 4096, {}, 0});
  role_.from_client(kClient, written);
  root_answers(Status(Code::not_found, "undecided"));
  const auto reports = role_.sent<wire::ShardsWritten>(kCoordinatorNode);
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.back().user, user_);
}

TEST_F(AShardWriterByItself, ReportsWhatARankDigestedAndPassesTheWarningOfTheCommitOn) {
  world_known();
  replicas_ =
      std::make_shared<const plan::ReplicaDigests>(plan::ReplicaDigests{ReplicaCheck::warn, 3, {}, {7, 8}});
  stage(5);
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  const auto reports = role_.sent<wire::ShardsWritten>(kCoordinatorNode);
  ASSERT_FALSE(reports.empty());
  ASSERT_NE(reports.back().plans.at(0).replicas, nullptr);
  EXPECT_EQ(*reports.back().plans.at(0).replicas, *replicas_);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, true, "replicas differ"});
  EXPECT_THAT(role_.warnings, Contains("step 5 (g1a1) is committed, but replicas differ"));
  storage::Decision decision;
  decision.key = {1, 5, 1};
  storage::Manifest manifest;
  manifest.world = world_;
  decision.body = manifest;
  ASSERT_TRUE(role_.answer<operation::ReadDecision>(
      OperationResult(std::make_shared<const storage::Decision>(decision))));
  const auto notified = role_.notified<local::Decided>(kClient);
  ASSERT_EQ(notified.size(), 1u);
  EXPECT_TRUE(notified[0].outcome.ok()) << notified[0].outcome.to_string();
  EXPECT_EQ(notified[0].warning, "replicas differ");
}

TEST_F(AShardWriterByItself, ReportsTheDigestsOfWhatAnEarlierNodeWrote) {
  world_known();
  const SavePlan plan = *plan_save(*world_, 0, options_);
  local::Written written{5, 1, {plan.roster_id, plan.id, {}}};
  for (uint32_t file = 0; file < plan.files; ++file) written.assignment.files.push_back({file, 4096, {}, 0});
  written.replicas =
      std::make_shared<const plan::ReplicaDigests>(plan::ReplicaDigests{ReplicaCheck::warn, 3, {}, {7, 8}});
  role_.from_client(kClient, written);
  root_answers(Status(Code::not_found, "undecided"));
  const auto reports = role_.sent<wire::ShardsWritten>(kCoordinatorNode);
  ASSERT_FALSE(reports.empty());
  ASSERT_NE(reports.back().plans.at(0).replicas, nullptr);
  EXPECT_EQ(*reports.back().plans.at(0).replicas, *written.replicas);
}

TEST_F(AShardWriterByItself, FailsASaveOfWhichItsRanksGaveDifferentMetadata) {
  world_known();
  attach(1);
  stage(5);
  user_ = std::make_shared<const UserMetadata>(UserMetadata{{"run", "b"}});
  stage(5, 1);
  const auto failed = role_.sent<wire::SaveFailed>(kCoordinatorNode);
  ASSERT_FALSE(failed.empty());
  EXPECT_EQ(failed[0].rank, 1u);
  EXPECT_THAT(failed[0].why.message(), HasSubstr("'run' is missing on rank 0 and 'b' on rank 1"));
}

TEST_F(AShardWriterByItself, DrainsWithinSecondsWhenTheCoordinatorIsGone) {
  world_known();
  stage(5);
  role_.handle(event::ClientLost{kClient});  // else the next node goes on with it
  role_.handle(event::PeerLost{kCoordinatorNode, gone()});
  role_.handle(event::Drain{});
  role_.pass(4'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  role_.pass(2'000 * kMillisecond);
  OperationId id = 0;
  const std::string cause = tombstone_cause(&id);
  EXPECT_THAT(cause, HasSubstr("host0 was stopped while the coordinator could not be reached"));
  while (role_.answer<operation::WriteShard>(Status(Code::no_space, "full"))) {
  }
  role_.handle(event::OperationDone{id, aborted({1, 5, 1}, cause)});
  EXPECT_TRUE(role_.drained);
}

// Regression: it aborted the save, which the same node would not have done had it been killed.
TEST_F(AShardWriterByItself, LeavesASaveToTheNextNodeThoughItsCoordinatorWasStoppedFirst) {
  world_known();
  stage(5);
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  role_.handle(event::PeerLost{kCoordinatorNode, gone()});
  role_.handle(event::Drain{});
  role_.pass(6'000 * kMillisecond);
  EXPECT_TRUE(role_.drained);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  EXPECT_TRUE(notified().empty());
}

TEST_F(AShardWriterByItself, WaitsWhileDrainingForACoordinatorThatIsThere) {
  world_known();
  stage(5);
  role_.handle(event::PeerLost{kCoordinatorNode, gone()});
  role_.handle(event::Drain{});
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Pending{{1, 5, 1}});
  role_.pass(60'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
}

TEST_F(AShardWriterByItself, GivesUpASaveWhoseCoordinatorStaysAway) {
  world_known();
  stage(5);
  role_.handle(event::PeerLost{kCoordinatorNode, gone()});
  role_.pass(10'000 * kMillisecond);
  stage(6);  // waits as long as any other
  role_.pass(4'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  role_.pass(2'000 * kMillisecond);
  OperationId id = 0;
  EXPECT_EQ(tombstone_cause(&id),
            "host host0 received no decision within 15.00 s: it lost the coordinator (gone), and no "
            "coordinator came back");
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  role_.pass(10'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 1u);
}

TEST_F(AShardWriterByItself, WithoutACoordinatorCommitsWhatTheRootProvesUnlessItsOwnShardFailed) {
  world_known();
  stage(5);
  stage(6);
  role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}));
  role_.answer<operation::WriteShard>(Status(Code::io, "input/output error"));
  role_.handle(event::PeerLost{kCoordinatorNode, gone()});
  role_.pass(16'000 * kMillisecond);
  for (uint64_t step : {5, 6}) {
    OperationId id = 0;
    auto publish = role_.take_start<operation::PublishDecision>(&id);
    ASSERT_TRUE(publish.has_value());
    EXPECT_EQ(publish->key.step, step);
    EXPECT_EQ(publish->looks_first, step == 5);
  }
}

// Others may commit, while a write ends here, what this write makes.
TEST_F(AShardWriterByItself, TellsARankWhoseSaveIsCommittedWhileItWritesOnceItHasWritten) {
  world_known();
  enum class Is : uint8_t { named, not_named, deleted };
  for (const Is is : {Is::named, Is::not_named, Is::deleted}) {
    const uint64_t step = 5 + static_cast<uint64_t>(is);
    SCOPED_TRACE("step " + std::to_string(step));
    stage(step);
    role_.received.clear();
    role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, step, 1}, true, ""});
    EXPECT_TRUE(notified().empty());
    storage::WrittenShard written;
    written.header_digest.bytes[0] = std::byte{7};
    role_.answer<operation::WriteShard>(OperationResult(written));
    storage::Manifest manifest;
    manifest.world = world_;
    if (is == Is::named) {
      manifest.files.push_back({"rank-00000.safetensors", 1, written.header_digest, 0, 0u});
    }
    storage::Decision committed;
    committed.key = {1, step, 1};
    committed.body = std::move(manifest);
    root_answers(is == Is::deleted
                     ? deleted({1, step, 1})
                     : OperationResult(std::make_shared<const storage::Decision>(std::move(committed))));
    ASSERT_EQ(notified().size(), 1u);
    EXPECT_EQ(notified()[0].ok(), is != Is::not_named) << notified()[0].to_string();
    const std::string received = is == Is::not_named ? "another process of this rank saved it" : "";
    EXPECT_THAT(notified()[0].message(), HasSubstr(received));
    EXPECT_TRUE(role_.sent<wire::SaveFailed>(kCoordinatorNode).empty()) << "nothing is to be swept";
  }
}

// It was notified that another process of its rank had saved it. The coordinator found the save complete when
// it was about to abort it.
TEST_F(AShardWriterByItself, TellsARankThatHasWrittenOfACommitThoughAnotherRankHereHadFailed) {
  world_known({0, 0});
  attach(1);
  stage(5);
  role_.from_client(kClient + 1, local::NotStaged{5, 1, Status(Code::unavailable, "its connection ended")});
  role_.received.clear();
  role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}));
  ASSERT_EQ(role_.notified<local::SlabFree>(kClient).size(), 1u);
  EXPECT_TRUE(role_.notified<local::SlabFree>(kClient)[0].durable.has_value());
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, true, ""});
  root_answers(deleted({1, 5, 1}));
  EXPECT_THAT(notified(), ElementsAre(ok_status()));
}

TEST_F(AShardWriterByItself, GivesUpNothingWhoseCoordinatorCameBackInTime) {
  world_known();
  stage(5);
  role_.handle(event::PeerLost{kCoordinatorNode, gone()});
  role_.pass(10'000 * kMillisecond);
  role_.handle(event::PeerUp{kCoordinatorNode});
  role_.pass(60'000 * kMillisecond);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
}

TEST_F(AShardWriterByItself, SaysForWhomItSpeaksInEachNewSession) {
  attach(1);
  role_.sends.clear();
  role_.handle(event::PeerLost{kCoordinatorNode, gone()});
  role_.handle(event::PeerUp{kCoordinatorNode});
  role_.pass(60'000 * kMillisecond);
  const auto received = role_.sent<wire::RanksEnded>(kCoordinatorNode);
  ASSERT_GE(received.size(), 3u);  // one may be lost
  EXPECT_LE(received.size(), 6u);
  for (const auto& each : received) {
    EXPECT_EQ(each.host, "host0");
    EXPECT_THAT(each.here, ElementsAre(0u, 1u));
    EXPECT_TRUE(each.ranks.empty());
  }
}

// Regression: in mode collective no node joins, and the session exists before any client attaches.
TEST_F(AShardWriterByItself, SaysForWhomItSpeaksOnceItsRanksSaveCollectively) {
  role_.handle(event::PeerUp{kCoordinatorNode});
  role_.pass(60'000 * kMillisecond);
  role_.sends.clear();
  attach(1);
  SaveOptions options;
  options.mode = SaveMode::collective;
  const std::vector<LayoutPtr> layouts = sim::flat_job(2, 0);
  for (Rank rank : {0u, 1u}) role_.from_client(kClient + rank, local::LayoutUpdate{layouts[rank], options});
  role_.pass(60'000 * kMillisecond);
  const auto received = role_.sent<wire::RanksEnded>(kCoordinatorNode);
  ASSERT_GE(received.size(), 3u);  // one may be lost
  EXPECT_LE(received.size(), 6u);
  EXPECT_EQ(received[0].host, "host0");
  EXPECT_THAT(received[0].here, ElementsAre(0u, 1u));
  role_.sends.clear();
  role_.from_client(
      kClient, local::LayoutUpdate{sim::flat_job(2, 1)[0], options});  // another one, of a rank that is here
  role_.pass(60'000 * kMillisecond);
  EXPECT_TRUE(role_.sent<wire::RanksEnded>(kCoordinatorNode).empty());
}

// Regression: the node took rank 1 for a rank of another host, and the coordinator counted it as lost. Its
// trainer had received the decision from the node before, and that of rank 0 had not.
TEST_F(AShardWriterByItself, SaysForWhomItSpeaksIfOnlyOneOfItsRanksHasYetToLearnOfACommit) {
  SaveOptions options;
  options.mode = SaveMode::collective;
  role_.from_client(kClient, local::LayoutUpdate{sim::flat_job(2, 0)[0], options});
  stage(5, 0, true);
  root_answers(deleted({1, 5, 1}));  // it was committed
  ASSERT_EQ(notified(0).size(), 1u);
  attach(1);
  role_.from_client(kClient + 1, local::LayoutUpdate{sim::flat_job(2, 0)[0], options});
  role_.pass(60'000 * kMillisecond);
  const auto received = role_.sent<wire::RanksEnded>(kCoordinatorNode);
  ASSERT_FALSE(received.empty());
  EXPECT_THAT(received.back().here, ElementsAre(0u, 1u));
}

TEST(AShardWriterOfALaunchedNode, SaysWhichRanksItExpects) {
  NodeConfig config;
  config.host = "host0";
  config.expected_ranks = {0, 1};
  RoleByItself role(make_shard_writer(config));
  const auto last = [&] {
    role.handle(event::PeerUp{kCoordinatorNode});
    return role.sent<wire::RanksEnded>(kCoordinatorNode).back();
  };
  EXPECT_EQ(last().host, "host0");
  EXPECT_THAT(last().expected, ElementsAre(0u, 1u));
  EXPECT_THAT(last().here, ElementsAre());
  role.from_client(kClient, local::Attach{});  // rank 0
  EXPECT_THAT(last().expected, ElementsAre(1u));
  EXPECT_THAT(last().here, ElementsAre(0u));
}

TEST_F(AShardWriterByItself, ThatIsStoppedLeavesWhatItsLivingTrainersHaveInFlightToTheNextNode) {
  world_known();
  attach(1);
  stage(5);  // rank 1 has not staged it yet
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  role_.handle(event::Drain{});
  role_.pass(4'000 * kMillisecond);
  EXPECT_FALSE(role_.drained);  // it may still be decided
  role_.pass(2'000 * kMillisecond);
  EXPECT_TRUE(role_.drained);
  EXPECT_TRUE(role_.sent<wire::SaveFailed>(kCoordinatorNode).empty());
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  EXPECT_TRUE(notified(0).empty() && notified(1).empty());
  EXPECT_THAT(role_.sent<wire::RanksEnded>(kCoordinatorNode).back().staged, ElementsAre(AttemptKey{1, 5, 1}));
}

TEST_F(AShardWriterByItself, ThatIsStoppedFinishesWhatItWritesBeforeTheNextNodeComes) {
  world_known();
  stage(5);
  role_.handle(event::Drain{});
  role_.pass(60'000 * kMillisecond);
  EXPECT_FALSE(role_.drained);
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  EXPECT_TRUE(role_.drained);
  EXPECT_EQ(role_.notified<local::SlabFree>(kClient).size(), 1u);
  EXPECT_TRUE(notified(0).empty());
}

TEST_F(AShardWriterByItself, DrainsWithinSecondsWhenThereIsNoRoster) {
  stage(5);
  role_.handle(event::ClientLost{kClient});  // else the next node goes on with it
  role_.handle(event::Drain{});
  role_.pass(6'000 * kMillisecond);
  const auto failed = role_.sent<wire::SaveFailed>(kCoordinatorNode);
  ASSERT_FALSE(failed.empty());
  EXPECT_THAT(failed[0].why.message(), HasSubstr("before there was a roster"));
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "no roster"});
  EXPECT_TRUE(role_.drained);
}

TEST_F(AShardWriterByItself, NamesNoRankIfItsHostHasNoRoster) {
  attach(1);
  stage(5);
  role_.handle(event::PlanningFailed{Status(Code::invalid_argument, "rank 1 saves with others")});
  const auto failed = role_.sent<wire::SaveFailed>(kCoordinatorNode);
  ASSERT_FALSE(failed.empty());
  EXPECT_EQ(failed[0].rank, std::nullopt);
  EXPECT_EQ(failed[0].host, "host0");
  EXPECT_THAT(role_.log, Contains("step 5 (g1a1): host host0: there is no roster: rank 1 saves with others"));
  stage(6);
  EXPECT_EQ(role_.sent<wire::SaveFailed>(kCoordinatorNode).back().rank, std::nullopt);
}

TEST_F(AShardWriterByItself, FailsWhileDrainingASaveThatARankOfItsHostHasNotStaged) {
  NodeConfig of_two = config();
  of_two.expected_ranks = {0, 1};  // the second one never attached
  role_ = RoleByItself(make_shard_writer(of_two));
  attach(0);
  world_known();
  stage(5);
  role_.handle(event::ClientLost{kClient});  // else the next node goes on with it
  role_.handle(event::Drain{});
  role_.pass(6'000 * kMillisecond);
  const auto failed = role_.sent<wire::SaveFailed>(kCoordinatorNode);
  ASSERT_FALSE(failed.empty());
  EXPECT_EQ(failed[0].rank, 1u);
  EXPECT_THAT(failed[0].why.message(), HasSubstr("had not staged this save when its node was stopped"));
}

TEST_F(AShardWriterByItself, SaysWhenFilesOfAnAbortedSaveWereWrittenAfterItsSweep) {
  world_known();
  stage(5);
  ASSERT_GE(role_.started<operation::WriteShard>(), 1u);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "rank 1 was lost"});
  EXPECT_TRUE(role_.sent<wire::SaveFailed>(kCoordinatorNode).empty());
  role_.handle(event::Drain{});
  EXPECT_FALSE(role_.drained);  // files are still being written
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  EXPECT_EQ(role_.sent<wire::SaveFailed>(kCoordinatorNode).size(), 1u);
  EXPECT_EQ(role_.notified<local::SlabFree>(kClient).size(), 1u);
  EXPECT_TRUE(role_.drained);
}

// Regression: this message aborts an attempt that is undecided, and names an abort that nobody has published.
TEST_F(AShardWriterByItself, RequestsNoSweepOfASaveThatIsNotAborted) {
  world_known();
  attach(1);
  stage(5, 0, true);
  root_answers(Status(Code::not_found, "undecided"));
  stage(6, 1);
  ASSERT_EQ(role_.started<operation::WriteShard>(), 2u);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, true, ""});
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Undecided{{1, 6, 1}, read_only_root()});
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(read_only_root()));
  ASSERT_EQ(notified(1).size(), 1u) << "it is not known whether step 6 will be committed";
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  EXPECT_TRUE(role_.sent<wire::SaveFailed>(kCoordinatorNode).empty());
}

TEST_F(AShardWriterByItself, RequestsASweepOfAnAbortedSaveOnceTheLastOfItsRanksHasWritten) {
  world_known({0, 0});
  attach(1);
  stage(5, 0);
  stage(5, 1);
  ASSERT_EQ(role_.started<operation::WriteShard>(), 2u);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "lost"});
  ASSERT_TRUE(role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{})));
  EXPECT_TRUE(role_.sent<wire::SaveFailed>(kCoordinatorNode).empty());
  ASSERT_TRUE(role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{})));
  EXPECT_EQ(role_.sent<wire::SaveFailed>(kCoordinatorNode).size(), 1u);
}

TEST_F(AShardWriterByItself, KeepsTheSlabsOfATrainerThatDiedUntilTheyAreWritten) {
  world_known();
  for (bool is_aborted_first : {false, true}) {
    const uint64_t step = is_aborted_first ? 6 : 5;
    attach(0);
    stage(step);
    role_.forgotten.clear();
    if (is_aborted_first) {
      role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, step, 1}, false, "lost"});
    }
    role_.handle(event::ClientLost{kClient});
    EXPECT_THAT(role_.forgotten, ElementsAre()) << "the node reads them";
    ASSERT_TRUE(role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{})));
    EXPECT_THAT(role_.forgotten, ElementsAre(kClient));
  }
}

TEST_F(AShardWriterByItself, FreesNoSlabThatItReadsThoughTheSaveCannotBeDecided) {
  world_known();
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Undecided{{1, 5, 1}, Status(Code::io, "EIO")});
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(Status(Code::io, "EIO")));
  ASSERT_EQ(notified(0).size(), 1u);
  EXPECT_TRUE(role_.notified<local::SlabFree>(kClient).empty());
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, true, ""});
  EXPECT_TRUE(role_.notified<local::SlabFree>(kClient).empty());
  ASSERT_TRUE(role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{})));
  root_answers(deleted({1, 5, 1}));
  EXPECT_EQ(role_.notified<local::SlabFree>(kClient).size(), 1u);
  EXPECT_EQ(notified(0).size(), 1u) << "the save has ended for this trainer";
}

// Rank 0 writes two files, because it holds two pieces of one tensor.
TEST_F(AShardWriterByItself, CallsNoFilesDurableOfARankOneOfWhoseFilesCouldNotBeWritten) {
  for (bool is_aborted_first : {false, true}) {
    role_ = RoleByItself(make_shard_writer(config()));
    attach(0);
    LayoutBuilder builder;
    builder.add_tensor_boxes("weight", DType::f32, {8},
                             {{0, {{{0}, {2}}, {{4}, {2}}}}, {1, {{{2}, {2}}, {{6}, {2}}}}});
    world_known({0, 1}, std::vector<LayoutPtr>(2, std::move(builder).build().value()));
    stage(5);
    ASSERT_EQ(role_.started<operation::WriteShard>(), 2u);
    const wire::Decided committed{{1, 5, 1}, true, ""};
    if (is_aborted_first) role_.receive(kCoordinatorNode, RoleKind::coordinator, committed);
    ASSERT_TRUE(role_.answer<operation::WriteShard>(Status(Code::already_exists, "another file")));
    ASSERT_TRUE(role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{})));
    const auto freed = role_.notified<local::SlabFree>(kClient);
    ASSERT_EQ(freed.size(), 1u);
    EXPECT_FALSE(freed[0].durable);
    if (!is_aborted_first) continue;
    ASSERT_EQ(notified(0).size(), 1u);
    EXPECT_EQ(notified(0)[0].code(), Code::aborted) << "another process has saved this rank";
  }
}

TEST_F(AShardWriterByItself, WritesNothingOnceAnotherRunHasTheRoot) {
  world_known();
  role_.handle(event::CoordinatorSuperseded{Status(Code::superseded, "another job")});
  stage(5);
  EXPECT_EQ(role_.started<operation::WriteShard>(), 0u);
  OperationId id = 0;
  EXPECT_EQ(tombstone_cause(&id), "another job");
}

TEST_F(AShardWriterByItself, ThatIsStoppedFinishesAlsoWhatItWritesOfADecidedSave) {
  world_known();
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "lost"});
  role_.handle(event::Drain{});
  role_.pass(60'000 * kMillisecond);
  EXPECT_FALSE(role_.drained) << "the trainer is attached, and the next node would sweep too early";
  ASSERT_TRUE(role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{})));
  EXPECT_TRUE(role_.drained);
}

TEST_F(AShardWriterByItself, DoesNotCallCommittedWhatItsClientHasJustStagedAndNobodyWrote) {
  world_known();
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, true, ""});
  EXPECT_TRUE(role_.notified<local::Decided>(kClient).empty()) << "what it writes may be what is committed";
  role_.answer<operation::WriteShard>(Status(Code::already_exists, "another file has this name"));
  const auto notified = role_.notified<local::Decided>(kClient);
  ASSERT_EQ(notified.size(), 1u);
  EXPECT_EQ(notified[0].outcome.code(), Code::aborted);
  EXPECT_THAT(notified[0].outcome.message(), HasSubstr("step 5 (g1a1) was committed before this rank wrote"));
}

// Its trainers find the node that was started again one after the other.
TEST_F(AShardWriterByItself, TellsARankThatOffersAnAbortedSaveLaterThatItIsAborted) {
  world_known();
  attach(1);
  const AttemptKey key{1, 5, 1};
  stage(5, 0, true);
  root_answers(aborted(key, "rank 3 was lost"));
  EXPECT_THAT(notified(0), ElementsAre(Status(Code::aborted, "rank 3 was lost")));
  stage(5, 1, true);
  root_answers(aborted(key, "rank 3 was lost"));
  EXPECT_THAT(notified(1), ElementsAre(Status(Code::aborted, "rank 3 was lost")));
  EXPECT_EQ(role_.notified<local::SlabFree>(kClient + 1).size(), 1u);
}

TEST_F(AShardWriterByItself, TellsARankThatOffersACommittedSaveLaterThatItIsCommittedThoughDeletedSince) {
  world_known();
  attach(1);
  const AttemptKey key{1, 5, 1};
  stage(5, 0, true);
  root_answers(deleted(key));
  EXPECT_THAT(notified(0), ElementsAre(ok_status()));
  stage(5, 1, true);
  root_answers(Status(Code::not_found, "its folder has gone"));  // this node has seen that it was committed
  EXPECT_THAT(notified(1), ElementsAre(ok_status()));
  EXPECT_EQ(role_.notified<local::Decided>(kClient + 1)[0].checkpoint->key, key);
  EXPECT_THAT(role_.log, Contains(HasSubstr("the root holds nothing of it: its folder has gone")));
}

TEST_F(AShardWriterByItself, BelievesTheRootWhereATombstoneStandsForWhatItHeardIsCommitted) {
  world_known();
  stage(5, 0, true);
  root_answers(Status(Code::not_found, "undecided"));
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, true, ""});
  root_answers(aborted({1, 5, 1}, "rank 3 was lost"));
  EXPECT_THAT(notified(0), ElementsAre(Status(Code::aborted, "rank 3 was lost")));
}

// The root took no tombstone, and this node has closed the save without knowing what became of it.
class AShardWriterThatCouldNotDecide : public AShardWriterByItself {
 protected:
  AShardWriterThatCouldNotDecide() {
    attach(1);
    stage(5);
    role_.pass(300'000 * kMillisecond);
    EXPECT_TRUE(role_.answer<operation::PublishDecision>(read_only_root()));
    EXPECT_EQ(notified(0).size(), 1u);
  }
  void expect_not_decided(Rank rank) {
    ASSERT_EQ(notified(rank).size(), 1u);
    EXPECT_EQ(notified(rank)[0].code(), Code::refused);
    EXPECT_THAT(notified(rank)[0].message(), HasSubstr("not decided"));
  }
};

TEST_F(AShardWriterThatCouldNotDecide, SaysSoToARankThatOffersItLaterWhereNothingStands) {
  stage(5, 1, true);
  root_answers(Status(Code::not_found, "undecided"));
  expect_not_decided(1);
}

TEST_F(AShardWriterThatCouldNotDecide, SaysSoToARankThatStagesItOnlyThen) {
  stage(5, 1);
  expect_not_decided(1);
}

TEST_F(AShardWriterThatCouldNotDecide, TellsARankThatOffersItLaterWhatStandsByThen) {
  stage(5, 1, true);
  root_answers(deleted({1, 5, 1}));
  EXPECT_THAT(notified(1), ElementsAre(ok_status()));
}

// An earlier node had dropped the bytes because the save was committed, and had not reported it yet.
TEST_F(AShardWriterByItself, TellsARankWhoseBytesWereDroppedThatItsSaveIsCommitted) {
  world_known();
  attach(1);
  stage(5, 0, true);
  root_answers(deleted({1, 5, 1}));
  role_.from_client(kClient + 1, local::NotStaged{5, 1, Status(Code::aborted, "dropped")});
  root_answers(deleted({1, 5, 1}));
  EXPECT_THAT(notified(1), ElementsAre(ok_status()));
}

// Code::aborted states that a tombstone exists.
TEST_F(AShardWriterByItself, NotifiesNoRankOfAnAbortThatItCannotPublish) {
  world_known();
  attach(1);
  role_.from_client(kClient + 1, local::NotStaged{5, 1, Status(Code::aborted, "a node dropped it")});
  role_.receive(kCoordinatorNode, RoleKind::coordinator,
                wire::Undecided{{1, 5, 1}, Status(Code::no_space, "the disk is full")});
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(Status(Code::no_space, "the disk is full")));
  EXPECT_THAT(notified(1), ElementsAre(Status(Code::unavailable, "not decided: a node dropped it")));
}

TEST_F(AShardWriterByItself, ReportsAtOnceToACoordinatorThatComesLater) {
  world_known();
  stage(5);
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  ASSERT_EQ(role_.sent<wire::ShardsWritten>(kCoordinatorNode).size(), 1u);
  role_.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "closed by the peer")});
  role_.handle(event::PeerUp{kCoordinatorNode});
  EXPECT_GT(role_.sent<wire::ShardsWritten>(kCoordinatorNode).size(), 1u);
}

TEST_F(AShardWriterByItself, TellsTheOutcomeToATrainerThatHasAttachedAgain) {
  world_known();
  stage(5);
  offer_again();
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "lost"});
  EXPECT_EQ(role_.notified<local::Decided>(kAgain).size(), 1u);
}

// The node freed the slab without making its bytes durable. So the client has nothing to offer.
TEST_F(AShardWriterByItself, TellsTheOutcomeToATrainerThatHasAttachedAgainAfterItsWriteFailed) {
  world_known();
  stage(5);
  while (role_.answer<operation::WriteShard>(Status(Code::no_space, "the disk is full"))) {
  }
  role_.handle(event::ClientLost{kClient});
  attach_again();
  role_.from_client(kAgain, local::NotStaged{5, 1, Status(Code::aborted, "a node dropped it")});
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "the disk is full"});
  EXPECT_EQ(role_.notified<local::Decided>(kAgain).size(), 1u);
}

// The trainer would copy its next save into a slab of which the node still reads.
TEST_F(AShardWriterByItself, FreesTheSlabOfADecidedSaveOnlyWhenItIsWritten) {
  world_known();
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "lost"});
  role_.handle(event::ClientLost{kClient});
  offer_again();
  EXPECT_EQ(role_.notified<local::Decided>(kAgain).size(), 1u);
  EXPECT_TRUE(role_.notified<local::SlabFree>(kAgain).empty());
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  ASSERT_EQ(role_.notified<local::SlabFree>(kAgain).size(), 1u);
  EXPECT_EQ(role_.notified<local::SlabFree>(kAgain).front().slab_id, 9u);
}

// Regression: it freed slab 0. A trainer that stages in parts may fail to copy one.
TEST_F(AShardWriterByItself, FreesTheSlabThatATrainerStagedThoughTheTrainerGivesTheSaveUp) {
  world_known();
  stage(5);
  role_.from_client(kClient, local::NotStaged{5, 1, Status(Code::invalid_argument, "its copy failed")});
  while (role_.answer<operation::WriteShard>(Status(Code::aborted, "its copy failed"))) {
  }
  const auto freed = role_.notified<local::SlabFree>(kClient);
  ASSERT_EQ(freed.size(), 1u);
  EXPECT_EQ(freed[0].slab_id, 5u);
}

// Regression: it freed slab 0 of the new connection, which may hold a later save.
TEST_F(AShardWriterByItself, FreesNoSlabOfATrainerThatHasAttachedAgainAndGivesTheSaveUp) {
  world_known();
  stage(5);
  role_.handle(event::ClientLost{kClient});
  attach_again();
  role_.from_client(kAgain, local::NotStaged{5, 1, Status(Code::invalid_argument, "its node was stopped")});
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  EXPECT_TRUE(role_.notified<local::SlabFree>(kAgain).empty());
  EXPECT_TRUE(why_failed(5).find("its node was stopped") == std::string::npos) << "the node has its bytes";
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "lost"});
  EXPECT_EQ(role_.notified<local::Decided>(kAgain).size(), 1u);
}

TEST_F(AShardWriterByItself, FreesNoSlabOfATrainerThatOffersFilesOfAnAbortedSaveThatAreStillWritten) {
  world_known();
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "lost"});
  role_.handle(event::ClientLost{kClient});
  attach_again();
  role_.from_client(kAgain, local::Written{5, 1, {}, nullptr, nullptr});
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  EXPECT_TRUE(role_.notified<local::SlabFree>(kAgain).empty());
}

// The connection before may have missed that the save could not be decided.
TEST_F(AShardWriterByItself, TellsATrainerThatHasAttachedAgainThatItsSaveCannotBeDecided) {
  const Status full(Code::no_space, "the disk is full");
  world_known();
  stage(5);
  while (role_.answer<operation::WriteShard>(full)) {
  }
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Undecided{{1, 5, 1}, full});
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(full));
  ASSERT_EQ(notified(0).size(), 1u);
  role_.handle(event::ClientLost{kClient});
  attach_again();
  role_.from_client(kAgain, local::NotStaged{5, 1, Status(Code::aborted, "a node dropped it")});
  ASSERT_EQ(role_.notified<local::Decided>(kAgain).size(), 1u);
  EXPECT_EQ(role_.notified<local::Decided>(kAgain).front().outcome, notified(0).front());
}

class ARankLocalShardWriter : public AShardWriterByItself {
 protected:
  static std::shared_ptr<const World> world_of_one_layout(const LayoutPtr& layout) {
    auto world = std::make_shared<World>();
    world->roster = *Roster::make(std::vector<LayoutId>(2, layout->id()), std::vector<uint32_t>{0, 0});
    world->layouts = {layout};
    return world;
  }
  void publish_rank_local(uint64_t step) {
    world_known();
    options_.mode = SaveMode::rank_local;
    options_.dedupe = Dedupe::none;
    role_.handle(event::WorldKnown{world_, options_, Rank{0}});
    stage(step);
    while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
    }
    ASSERT_TRUE(role_.answer<operation::PublishRankManifest>(OperationResult(operation::Done{})));
  }
};

// Regression: the node crashed. A save may be declined after its layout was declared.
TEST_F(ARankLocalShardWriter, PublishesWhatItWritesWhileItsRankDeclaresManyLayouts) {
  world_known();
  options_.mode = SaveMode::rank_local;
  options_.dedupe = Dedupe::none;
  role_.handle(event::WorldKnown{world_, options_, Rank{0}});
  stage(5);
  for (uint64_t rows = 1; rows <= 2 * KnownWorlds::kMost; ++rows) {
    LayoutBuilder builder;
    builder.add_tensor("other", DType::f32, {rows}, Mesh::contiguous({2}), {Placement::replicate()});
    role_.handle(
        event::WorldKnown{world_of_one_layout(std::move(builder).build().value()), options_, Rank{0}});
  }
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  OperationId id = 0;
  const auto publish = role_.take_start<operation::PublishRankManifest>(&id);
  ASSERT_TRUE(publish);
  EXPECT_EQ(publish->manifest->layout->id(), world_->layouts[0]->id());
  EXPECT_EQ(publish->manifest->world_size, 2u);
}

// Regression: the node crashed. A trainer may open another Checkpointer while a save of the first is written.
TEST_F(ARankLocalShardWriter, FailsASaveOfAnotherModeThatItStillWrites) {
  world_known();
  stage(5);
  options_.mode = SaveMode::rank_local;
  options_.dedupe = Dedupe::none;
  role_.handle(event::WorldKnown{world_, options_, Rank{0}});
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  OperationId id = 0;
  EXPECT_THAT(tombstone_cause(&id), HasSubstr("changed to mode rank-local"));
}

TEST_F(ARankLocalShardWriter, ClaimsNothingOfARankLocalSaveWhoseFolderHasGone) {
  publish_rank_local(5);
  const auto gone = [] {
    return tombstone({1, 5, 1}, storage::Tombstone::Reason::deleted, std::string(storage::kFolderGone));
  };
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(gone()));
  EXPECT_TRUE(notified(0).empty()) << "the coordinator may know";
  role_.pass(100 * kMillisecond);
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(gone()));
  ASSERT_EQ(notified(0).size(), 1u);
  EXPECT_EQ(notified(0)[0].code(), Code::unavailable);
  EXPECT_THAT(notified(0)[0].message(), HasSubstr("the folder of step 5 (g1a1) is missing"));
}

// Regression: the node saw no commit before the checkpoint was deleted, gave up, and made its folder again.
TEST_F(ARankLocalShardWriter, PublishesNoTombstoneOutsideTheFolderOfWhatItHasPublished) {
  publish_rank_local(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator,
                wire::Undecided{{1, 5, 1}, Status(Code::unavailable, "gone")});
  ASSERT_EQ(role_.started<operation::PublishDecision>(), 1u);
  const auto publishes = [](const effect::Start& each) {
    return std::holds_alternative<operation::PublishDecision>(each.operation);
  };
  const auto publish = std::find_if(role_.starts.begin(), role_.starts.end(), publishes);
  EXPECT_TRUE(std::get<operation::PublishDecision>(publish->operation).has_folder);
  const auto gone = [] {
    return tombstone({1, 5, 1}, storage::Tombstone::Reason::deleted, std::string(storage::kFolderGone));
  };
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(gone()));
  EXPECT_TRUE(notified(0).empty()) << "the coordinator may know";
  role_.pass(100 * kMillisecond);
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(gone()));
  ASSERT_EQ(notified(0).size(), 1u);
  EXPECT_EQ(notified(0)[0].code(), Code::unavailable);
  EXPECT_THAT(notified(0)[0].message(), HasSubstr("the folder of step 5 (g1a1) is missing"));
}

// Regression: a node started again when the save had been committed and deleted. It published the manifest of
// a rank once more, failed, and aborted what other trainers had been told was committed.
TEST_F(ARankLocalShardWriter, PublishesNoTombstoneOutsideTheFolderOfFilesThatItKnows) {
  world_known();
  options_.mode = SaveMode::rank_local;
  options_.dedupe = Dedupe::none;
  role_.handle(event::WorldKnown{world_, options_, Rank{0}});
  stage(5);
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  ASSERT_TRUE(role_.answer<operation::PublishRankManifest>(Status(Code::not_found, "no such folder")));
  ASSERT_TRUE(role_.answer<operation::ReadDecision>(Status(Code::not_found, "no such folder")));
  const auto publish = std::ranges::find_if(role_.starts, [](const effect::Start& each) {
    return std::holds_alternative<operation::PublishDecision>(each.operation);
  });
  ASSERT_NE(publish, role_.starts.end());
  EXPECT_TRUE(std::get<operation::PublishDecision>(publish->operation).has_folder);
}

TEST_F(ARankLocalShardWriter, IsToldBySomebodyThatACheckpointWasCommittedWhoseFolderHasGone) {
  publish_rank_local(5);
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(
      tombstone({1, 5, 1}, storage::Tombstone::Reason::deleted, std::string(storage::kFolderGone))));
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, true, ""});
  ASSERT_TRUE(role_.answer<operation::ReadDecision>(deleted({1, 5, 1})));
  ASSERT_EQ(notified(0).size(), 1u);
  EXPECT_TRUE(notified(0)[0].ok()) << notified(0)[0].to_string();
}

TEST_F(ARankLocalShardWriter, TellsTheCauseOfAnotherNodesAbortThatHasSweptItsFolder) {
  world_known();
  options_.mode = SaveMode::rank_local;
  options_.dedupe = Dedupe::none;
  role_.handle(event::WorldKnown{world_, options_, Rank{0}});
  stage(5);
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  ASSERT_TRUE(role_.answer<operation::PublishRankManifest>(Status(Code::not_found, "no such folder")));
  ASSERT_TRUE(role_.answer<operation::ReadDecision>(aborted({1, 5, 1}, "rank 1: the disk is full")));
  EXPECT_THAT(notified(0), ElementsAre(Status(Code::aborted, "rank 1: the disk is full")));
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
}

TEST_F(ARankLocalShardWriter, ReportsTheManifestsOfItsRanks) {
  publish_rank_local(5);
  const auto reports = role_.sent<wire::ManifestsPublished>(kCoordinatorNode);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].key, (AttemptKey{1, 5, 1}));
  EXPECT_EQ(reports[0].ranks, 1u);
  EXPECT_EQ(reports[0].world_size, 2u);
}

TEST_F(ARankLocalShardWriter, ReportsNoManifestsWhileAnotherOfItsRanksHasPublishedNone) {
  attach(1);
  publish_rank_local(5);
  EXPECT_TRUE(role_.sent<wire::ManifestsPublished>(kCoordinatorNode).empty());
}

TEST_F(ARankLocalShardWriter, ReportsItsManifestsAgainToTheNextCoordinator) {
  publish_rank_local(5);
  role_.handle(event::PeerLost{kCoordinatorNode, Status(Code::unavailable, "killed")});
  role_.handle(event::PeerUp{kCoordinatorNode});
  EXPECT_EQ(role_.sent<wire::ManifestsPublished>(kCoordinatorNode).size(), 2u);
}

TEST_F(ARankLocalShardWriter, LooksAtTheSetAtOnceWhenTheCoordinatorCallsItComplete) {
  const wire::ManifestsPublished complete{{1, 5, 1}, 2, 2};
  const Status incomplete(Code::not_found, "the manifest of rank 1 of 2 is missing");
  publish_rank_local(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, complete);
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(incomplete));
  EXPECT_EQ(role_.started<operation::CompleteRankLocal>(), 1u) << "the look had begun before";
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(incomplete));
  EXPECT_EQ(role_.started<operation::CompleteRankLocal>(), 0u) << "the next look has time";
  role_.receive(kCoordinatorNode, RoleKind::coordinator, complete);
  EXPECT_EQ(role_.started<operation::CompleteRankLocal>(), 1u);
}

// Regression: on slow storage, a save that was complete stayed undecided when its job ended.
TEST_F(ARankLocalShardWriter, ThatStopsWaitsForALookThatMayFindTheSetComplete) {
  const TimeNs patience = TimeNs{Timeouts{}.drain_patience_ms} * kMillisecond;
  publish_rank_local(5);  // the look begins
  close(0);
  role_.handle(event::Drain{});
  role_.pass(2 * patience);
  EXPECT_FALSE(role_.drained);
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(deleted({1, 5, 1})));
  root_answers(deleted({1, 5, 1}));
  EXPECT_TRUE(role_.drained);
}

// Regression: the look had begun before the last manifest was published, and the save stayed undecided.
TEST_F(ARankLocalShardWriter, ThatStopsLooksOnceMoreAfterALookThatWasUnderWay) {
  const TimeNs patience = TimeNs{Timeouts{}.drain_patience_ms} * kMillisecond;
  publish_rank_local(5);  // the look begins
  close(0);
  role_.handle(event::Drain{});
  role_.pass(2 * patience);
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(
      Status(Code::not_found, "the manifest of rank 1 of 2 is missing")));
  EXPECT_FALSE(role_.drained);
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(deleted({1, 5, 1})));
  root_answers(deleted({1, 5, 1}));
  EXPECT_TRUE(role_.drained);
}

// Regression: only the node of rank 0 waited, and that node may have ended before.
TEST_F(ARankLocalShardWriter, ThatStopsWaitsForTheLookAtASetThatTheCoordinatorCallsComplete) {
  const TimeNs patience = TimeNs{Timeouts{}.drain_patience_ms} * kMillisecond;
  close(0);
  attach(1);
  world_known();
  options_.mode = SaveMode::rank_local;
  options_.dedupe = Dedupe::none;
  role_.handle(event::WorldKnown{world_, options_, Rank{1}});
  stage(5, 1);
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  ASSERT_TRUE(role_.answer<operation::PublishRankManifest>(OperationResult(operation::Done{})));
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::ManifestsPublished{{1, 5, 1}, 2, 2});
  ASSERT_TRUE(role_.answer<operation::ReadDecision>(Status(Code::not_found, "no decision")));
  close(1);
  role_.handle(event::Drain{});
  role_.pass(2 * patience);
  EXPECT_FALSE(role_.drained);
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(deleted({1, 5, 1})));
  root_answers(deleted({1, 5, 1}));
  EXPECT_TRUE(role_.drained);
}

TEST_F(ARankLocalShardWriter, ThatStopsLeavesASetThatItsLastLookFindsIncomplete) {
  const TimeNs patience = TimeNs{Timeouts{}.drain_patience_ms} * kMillisecond;
  const Status incomplete(Code::not_found, "the manifest of rank 1 of 2 is missing");
  publish_rank_local(5);
  close(0);
  role_.handle(event::Drain{});
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(incomplete));
  EXPECT_FALSE(role_.drained);
  role_.pass(patience);  // meanwhile another look begins
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(incomplete));
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(incomplete));
  EXPECT_TRUE(role_.drained);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
}

TEST_F(ARankLocalShardWriter, TellsTheCoordinatorWhatItHasFoundCommitted) {
  publish_rank_local(5);
  ASSERT_TRUE(role_.answer<operation::CompleteRankLocal>(deleted({1, 5, 1})));
  const auto found = role_.sent<wire::Decided>(kCoordinatorNode);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].committed);
}

TEST_F(AShardWriterByItself, RemembersTheOutcomeOfARollbackAmongAThousandOfLaterSteps) {
  for (uint64_t step = 0; step <= 1024; ++step) {
    const uint64_t which = step < 1024 ? 10'000 + step : 1;
    stage(which);
    role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, which, 1}, false, "lost"});
  }
  stage(1);
  EXPECT_EQ(role_.notified<local::Decided>(kClient).size(), 1026u);  // answered at once, not staged again
}

// Regression: a save whose writing took longer than node_deadline_ms was given up by its own node.
class AShardWriterThatWritesForLong : public AShardWriterByItself {
 protected:
  static constexpr TimeNs kLook = 40'000 * kMillisecond;  // a third of the coordinator's deadline
  AShardWriterThatWritesForLong() {
    world_known();
    stage(5);
  }
  // Until the next look, which finds so many bytes.
  void write_until(uint64_t bytes) {
    role_.pass(kLook);
    ASSERT_TRUE(role_.answer<operation::MeasureWrites>(OperationResult(bytes)));
  }
  size_t progress_sent() const { return role_.sent<wire::SaveProgress>(kCoordinatorNode).size(); }
};

TEST_F(AShardWriterThatWritesForLong, GoesOnWhileBytesAreWrittenAndReportsThis) {
  for (uint64_t look = 1; look <= 30; ++look) write_until(look);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  EXPECT_EQ(progress_sent(), 30u);
  EXPECT_EQ(role_.sent<wire::SaveProgress>(kCoordinatorNode).back().amount, 30u);
  EXPECT_EQ(role_.notified<local::StillWriting>(kClient).size(), 29u) << "the first follows from the start";
}

TEST_F(AShardWriterThatWritesForLong, GivesUpWithinTheDeadlineAfterTheLastByte) {
  for (uint64_t look = 1; look <= 10; ++look) write_until(look);  // the last byte: after the ninth look
  for (int look = 0; look < 6; ++look) write_until(10);
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  role_.pass(kLook);
  OperationId id = 0;
  EXPECT_THAT(tombstone_cause(&id), HasSubstr("rank 0 is still writing, and makes no progress"));
  EXPECT_EQ(progress_sent(), 10u);
}

TEST_F(AShardWriterThatWritesForLong, CountsWhatEarlierSavesOfThisNodeWriteButNotLaterOnes) {
  role_.pass(kLook / 2);
  stage(6);
  role_.pass(kLook / 2);
  OperationId id = 0;
  EXPECT_THAT(role_.take_start<operation::MeasureWrites>(&id)->keys, ElementsAre(AttemptKey{1, 5, 1}));
  role_.pass(kLook / 2);
  EXPECT_THAT(role_.take_start<operation::MeasureWrites>(&id)->keys,
              ElementsAre(AttemptKey{1, 5, 1}, AttemptKey{1, 6, 1}));
}

TEST_F(AShardWriterThatWritesForLong, WaitsForOtherHostsOfWhichTheCoordinatorHasNews) {
  while (role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{}))) {
  }
  for (uint64_t news = 1; news <= 10; ++news) {
    role_.pass(100'000 * kMillisecond);
    role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::SaveProgress{{1, 5, 1}, news});
  }
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 0u);
  for (int i = 0; i < 3; ++i) {
    role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::SaveProgress{{1, 5, 1}, 10});
    role_.pass(100'000 * kMillisecond);
  }
  EXPECT_EQ(role_.started<operation::PublishDecision>(), 1u) << "nothing new for the whole deadline";
}

// Regression: the message was dropped, and the other ranks waited for the manifest of this one.
TEST_F(AShardWriterByItself, AbortsARankLocalSaveThatARankDoesNotStageAlsoBeyondTheBoundOfSaves) {
  world_known();
  options_.mode = SaveMode::rank_local;
  options_.dedupe = Dedupe::none;
  role_.handle(event::WorldKnown{world_, options_, Rank{0}});
  for (uint64_t step = 1; step <= kMaxSavesInFlight; ++step) stage(step);
  role_.from_client(kClient, local::NotStaged{999, 1, Status(Code::busy, "too many saves are in flight")});
  OperationId id = 0;
  EXPECT_THAT(tombstone_cause(&id), HasSubstr("rank 0 (host host0): busy: too many saves are in flight"));
  role_.handle(event::OperationDone{id, aborted({1, 999, 1}, "rank 0: busy")});
  ASSERT_EQ(notified(0).size(), 1u);
  EXPECT_EQ(notified(0)[0].code(), Code::aborted);
}

// A model so small that one of two ranks writes all of it.
class AShardWriterOfASmallModel : public AShardWriterByItself {
 protected:
  AShardWriterOfASmallModel() {
    attach(1);
    world_known({0, 0}, sim::replicated_job(2));
    idle_ = plan_save(*world_, 0, {})->files == 0 ? 0 : 1;
    EXPECT_EQ(plan_save(*world_, idle_, {})->files, 0u);
  }
  size_t reports() const { return role_.sent<wire::ShardsWritten>(kCoordinatorNode).size(); }

  Rank idle_ = 0;
};

TEST_F(AShardWriterOfASmallModel, ReportsARankThatWritesNothingOnceItsRecordIsDurable) {
  for (Rank rank : {0u, 1u}) stage(5, rank);
  ASSERT_TRUE(role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{})));
  EXPECT_FALSE(role_.answer<operation::WriteShard>(OperationResult(storage::WrittenShard{})));
  EXPECT_EQ(reports(), 0u);
  OperationId id = 0;
  auto staged = role_.take_start<operation::RecordStaged>(&id);
  ASSERT_TRUE(staged.has_value());
  EXPECT_EQ(staged->rank, idle_);
  EXPECT_EQ(staged->layout_id, world_->layouts[0]->id());
  EXPECT_EQ(staged->assignment_id, assignment_id_of(*plan_save(*world_, idle_, {})));
  EXPECT_EQ(role_.started<operation::RecordStaged>(), 0u) << "none of the rank that writes";
  role_.handle(event::OperationDone{id, OperationResult(operation::Done{})});
  ASSERT_EQ(reports(), 1u);
  EXPECT_EQ(role_.sent<wire::ShardsWritten>(kCoordinatorNode)[0].plans.size(), 2u);
}

TEST_F(AShardWriterOfASmallModel, FailsTheSaveOfARankWhoseRecordCannotBeWritten) {
  for (Rank rank : {0u, 1u}) stage(5, rank);
  ASSERT_TRUE(role_.answer<operation::RecordStaged>(Status(Code::no_space, "full")));
  EXPECT_EQ(reports(), 0u);
  const auto failed = role_.sent<wire::SaveFailed>(kCoordinatorNode);
  ASSERT_FALSE(failed.empty());
  EXPECT_EQ(failed[0].rank, idle_);
  EXPECT_EQ(failed[0].why.code(), Code::no_space);
}

// An earlier node may have been of a program that wrote no records.
TEST_F(AShardWriterOfASmallModel, RecordsWhatAnEarlierNodeSaidIsDurable) {
  const SavePlan plan = *plan_save(*world_, idle_, {});
  role_.from_client(kClient + idle_, local::Written{5, 1, {plan.roster_id, plan.id, {}}, nullptr});
  root_answers(Status(Code::not_found, "undecided"));
  EXPECT_EQ(role_.started<operation::RecordStaged>(), 1u);
}

// A host of eight ranks that have staged, whose files become ready one after the other.
class AShardWriterOfEightRanks : public AShardWriterByItself {
 protected:
  static constexpr Rank kRanks = 8;

  AShardWriterOfEightRanks() {
    for (Rank rank = 1; rank < kRanks; ++rank) {
      local::Attach attach;
      attach.rank = rank;
      attach.world_size = kRanks;
      role_.from_client(kClient + rank, attach);
    }
    world_known(std::vector<uint32_t>(kRanks, 0));
  }
  void write_next() {
    OperationId id = 0;
    auto write = role_.take_start<operation::WriteShard>(&id);
    ASSERT_TRUE(write.has_value());
    storage::WrittenShard written;
    for (const storage::ShardPiece& piece : write->pieces) written.payload_bytes += piece.bytes;
    role_.handle(event::OperationDone{id, OperationResult(written)});
  }
  void pass_seconds(int64_t seconds) {
    role_.pass(seconds * 1'000 * kMillisecond);
    for (const auto& report : role_.sent<wire::ShardsWritten>(kCoordinatorNode)) {
      ranks_reported_.push_back(report.plans.size());
    }
    role_.sends.clear();
    role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Pending{{1, 5, 1}});
  }

  std::vector<size_t> ranks_reported_;
};

// Regression: each host of a large job reported several times, because its files take seconds each.
TEST_F(AShardWriterOfEightRanks, ReportsOnceIfItsRanksAreWrittenOneAfterTheOther) {
  for (Rank rank = 0; rank < kRanks; ++rank) stage(5, rank);
  for (Rank rank = 0; rank + 1 < kRanks; ++rank) {
    write_next();
    pass_seconds(1);
  }
  EXPECT_THAT(ranks_reported_, ::testing::IsEmpty());
  write_next();
  pass_seconds(0);
  EXPECT_THAT(ranks_reported_, ElementsAre(8u));  // at once
}

TEST_F(AShardWriterOfEightRanks, ReportsWithoutThoseThatAreWrittenNoFurther) {
  for (Rank rank = 0; rank < kRanks; ++rank) stage(5, rank);
  for (Rank rank = 0; rank < 6; ++rank) write_next();
  pass_seconds(1);
  EXPECT_THAT(ranks_reported_, ::testing::IsEmpty());
  for (int second = 0; second < 5; ++second) pass_seconds(1);  // 2 s, in which five were written, and 4 s
  EXPECT_THAT(ranks_reported_, ElementsAre(6u));
}

// It reports less often the longer it takes.
TEST_F(AShardWriterOfEightRanks, ReportsWithoutARankThatDoesNotStage) {
  for (Rank rank = 0; rank + 1 < kRanks; ++rank) stage(5, rank);
  for (Rank rank = 0; rank + 1 < kRanks; ++rank) {  // one every second
    write_next();
    pass_seconds(1);
  }
  EXPECT_THAT(ranks_reported_, ElementsAre(2u, 6u));  // after 2 s, and 4 s after that
}

}  // namespace
}  // namespace shoal::actors
