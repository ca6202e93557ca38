// The ShardWriter by itself: how its saves end when the coordinator, the root or other ranks do not come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "tests/sim/job_layouts.h"
#include "tests/sim/role_by_itself.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

constexpr ClientId kClient = 7;

Status read_only() {
  return Status(Code::refused, "/root: cannot create: not writable: Read-only file system");
}
Status gone() {
  return Status(Code::unavailable, "gone");
}

// Of a host with ranks 0 and 1 of a job of 2; the client of rank 0 is attached.
class AShardWriterByItself : public ::testing::Test {
 protected:
  static NodeFacts facts() {
    NodeFacts facts;
    facts.generation = 1;
    facts.epoch = 1;
    facts.host = "host0";
    return facts;
  }
  AShardWriterByItself() {
    local::Attach attach;
    attach.world_size = 2;
    role_.from_client(kClient, attach);
  }

  // Of as many ranks as hosts has; host[r] is that of rank r.
  void world_known(const std::vector<uint32_t>& hosts = {0, 1}) {
    const std::vector<LayoutPtr> layouts = flat_job(static_cast<uint32_t>(hosts.size()), 0);
    auto world = std::make_shared<World>();
    std::vector<LayoutId> ids;
    for (const LayoutPtr& layout : layouts) ids.push_back(layout->id());
    world->roster = *Roster::make(ids, hosts);
    world->layouts = {layouts[0]};
    world_ = world;
    role_.handle(event::WorldKnown{world_, {}});
  }
  void stage(uint64_t step, Rank rank = 0) {
    local::Staged staged;
    staged.step = step;
    staged.attempt = 1;
    staged.slab_id = static_cast<uint32_t>(step);
    if (world_) {
      const SavePlan plan = *plan_save(*world_, rank, {});
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
  static OperationResult aborted(const AttemptKey& key, const std::string& cause) {
    Decision decision;
    decision.key = key;
    decision.body = Tombstone{Tombstone::Reason::aborted, cause};
    return std::make_shared<const Decision>(std::move(decision));
  }
  std::string tombstone_cause(OperationId* id) {
    auto publish = role_.take_start<operation::PublishDecision>(id);
    return publish ? std::get<Tombstone>(*publish->body).cause : "nothing was published";
  }

  RoleByItself role_{make_shard_writer(facts())};
  std::shared_ptr<const World> world_;
};

TEST_F(AShardWriterByItself, TellsItsClientWhyNoDecisionCanBePublished) {
  stage(5);
  role_.pass(300'000 * kMillisecond);
  ASSERT_TRUE(role_.answer<operation::PublishDecision>(read_only()));
  const auto told = role_.told<local::Decided>(kClient);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].outcome.code(), Code::refused);
  EXPECT_THAT(told[0].outcome.message(), HasSubstr("Read-only file system"));
  EXPECT_EQ(role_.told<local::SlabFree>(kClient).size(), 1u);
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
  const auto told = role_.told<local::Decided>(kClient);  // at the first failure, and once
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].outcome.code(), Code::io);
  role_.handle(event::Drain{});
  EXPECT_TRUE(role_.drained);
}

TEST_F(AShardWriterByItself, PublishesATombstoneWhenItHearsThatTheCoordinatorCannot) {
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Undecided{{1, 5, 1}, read_only()});
  OperationId id = 0;
  const std::string cause = tombstone_cause(&id);
  EXPECT_THAT(cause, HasSubstr("Read-only file system"));
  role_.handle(event::OperationDone{id, aborted({1, 5, 1}, cause)});
  EXPECT_THAT(role_.told<local::Decided>(kClient).at(0).outcome.message(),
              HasSubstr("Read-only file system"));
}

TEST_F(AShardWriterByItself, DrainsWithinSecondsWhenTheCoordinatorIsGone) {
  world_known();
  stage(5);
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
  EXPECT_EQ(role_.told<local::Decided>(kClient).at(0).outcome.message(), cause);
  EXPECT_TRUE(role_.drained);
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

TEST_F(AShardWriterByItself, DrainsWithinSecondsWhenThereIsNoRoster) {
  stage(5);
  role_.handle(event::Drain{});
  role_.pass(6'000 * kMillisecond);
  const auto failed = role_.sent<wire::SaveFailed>(kCoordinatorNode);
  ASSERT_FALSE(failed.empty());
  EXPECT_THAT(failed[0].why.message(), HasSubstr("before there was a roster"));
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, false, "no roster"});
  EXPECT_TRUE(role_.drained);
}

TEST_F(AShardWriterByItself, FailsWhileDrainingASaveThatARankOfItsHostHasNotStaged) {
  world_known();
  local::Attach attach;
  attach.rank = 1;
  attach.world_size = 2;
  role_.from_client(kClient + 1, attach);
  stage(5);
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
  while (role_.answer<operation::WriteShard>(OperationResult(WrittenShard{}))) {
  }
  EXPECT_EQ(role_.sent<wire::SaveFailed>(kCoordinatorNode).size(), 1u);
  EXPECT_EQ(role_.told<local::SlabFree>(kClient).size(), 1u);
  EXPECT_TRUE(role_.drained);
}

TEST_F(AShardWriterByItself, DoesNotCallCommittedWhatItsClientHasJustStagedAndNobodyWrote) {
  world_known();
  stage(5);
  role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, 5, 1}, true, ""});
  const auto told = role_.told<local::Decided>(kClient);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].outcome.code(), Code::aborted);
  EXPECT_THAT(told[0].outcome.message(),
              HasSubstr("step 5 (g1a1) was committed before this rank had written"));
}

TEST_F(AShardWriterByItself, RemembersTheOutcomeOfARollbackAmongAThousandOfLaterSteps) {
  for (uint64_t step = 0; step <= 1024; ++step) {
    const uint64_t which = step < 1024 ? 10'000 + step : 1;
    stage(which);
    role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Decided{{1, which, 1}, false, "lost"});
  }
  stage(1);
  EXPECT_EQ(role_.told<local::Decided>(kClient).size(), 1026u);  // answered at once, not staged again
}

// Of a host whose files are ready one after the other, which in a job of many hosts all say so.
TEST_F(AShardWriterByItself, ReportsWithoutTheRestLessOftenTheLongerItTakes) {
  constexpr Rank kRanks = 8;
  for (Rank rank = 1; rank < kRanks; ++rank) {
    local::Attach attach;
    attach.rank = rank;
    attach.world_size = kRanks;
    role_.from_client(kClient + rank, attach);
  }
  world_known(std::vector<uint32_t>(kRanks, 0));
  for (Rank rank = 0; rank < kRanks; ++rank) stage(5, rank);
  std::vector<size_t> ranks_reported;
  auto write_next = [&] {
    OperationId id = 0;
    auto write = role_.take_start<operation::WriteShard>(&id);
    ASSERT_TRUE(write.has_value());
    WrittenShard written;
    for (const ShardPiece& piece : write->pieces) written.payload_bytes += piece.bytes;
    role_.handle(event::OperationDone{id, OperationResult(written)});
  };
  auto listen = [&] {
    for (const auto& report : role_.sent<wire::ShardsWritten>(kCoordinatorNode)) {
      ranks_reported.push_back(report.plans.size());
    }
    role_.sends.clear();
    role_.receive(kCoordinatorNode, RoleKind::coordinator, wire::Pending{{1, 5, 1}});
  };
  for (Rank rank = 0; rank + 1 < kRanks; ++rank) {  // one every second
    write_next();
    role_.pass(1'000 * kMillisecond);
    listen();
  }
  EXPECT_EQ(ranks_reported, (std::vector<size_t>{2, 6}));  // after 2 s, and 4 s after that
  write_next();
  listen();
  EXPECT_EQ(ranks_reported, (std::vector<size_t>{2, 6, 8}));  // at once
}

}  // namespace
}  // namespace shoal
