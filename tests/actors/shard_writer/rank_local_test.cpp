// Rank-local saves on virtual time. Nodes need no messages about them. A set of manifests is a checkpoint
// once it is complete, never before, and never after a tombstone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/decisions/rank_manifest.h"
#include "storage/retention/retention.h"
#include "storage/root/run_root.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/sixteen_ranks.h"

namespace shoal::actors {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr TimeNs kUntilDecided = 400'000 * kMillisecond;  // beyond every deadline

// A node whose transport loses each hint about a save, and aborts the test on any other message but
// RanksEnded.
class MuteEngine final : public sim::NodeEngine, sim::VirtualWorld {
 public:
  MuteEngine(sim::VirtualWorld& world, std::vector<std::unique_ptr<Role>> roles,
             const sim::VirtualDelays& delays, bool coordinates)
      : world_(world), engine_(sim::make_direct_engine(*this, std::move(roles), delays, coordinates)) {}

  void deliver(RoleKind role, Event event) override { engine_->deliver(role, std::move(event)); }

 private:
  TimeNs now() const override { return world_.now(); }
  void schedule(TimeNs at, std::function<void()> action) override { world_.schedule(at, std::move(action)); }
  void send(NodeId to, const WireMessage& message, SendId id) override {
    if (std::holds_alternative<wire::RanksEnded>(*message.body)) return world_.send(to, message, id);
    if (std::holds_alternative<wire::ManifestsPublished>(*message.body)) return;
    if (std::holds_alternative<wire::Decided>(*message.body)) return;
    ADD_FAILURE() << "sent: " << describe(*message.body);
    std::abort();
  }
  void send_to(const std::string&, const WireMessage& message) override { send(kThisNode, message, 0); }
  void to_client(ClientId client, const std::shared_ptr<const local::LocalMessage>& message) override {
    world_.to_client(client, message);
  }
  void forget_client(ClientId client) override { world_.forget_client(client); }
  Result<OperationResult> run(const Operation& operation) override { return world_.run(operation); }
  void end_session(NodeId node) override { world_.end_session(node); }
  void redirect(const effect::Redirect& to) override { world_.redirect(to); }
  void retired(const storage::EpochRecord& by) override { world_.retired(by); }
  void drained(RoleKind role) override { world_.drained(role); }

  sim::VirtualWorld& world_;
  std::unique_ptr<sim::NodeEngine> engine_;
};

std::unique_ptr<sim::NodeEngine> make_mute_engine(sim::VirtualWorld& world,
                                                  std::vector<std::unique_ptr<Role>> roles,
                                                  const sim::VirtualDelays& delays, bool coordinates) {
  return std::make_unique<MuteEngine>(world, std::move(roles), delays, coordinates);
}

class RankLocal : public sim::SixteenRanks {
 protected:
  explicit RankLocal(sim::VirtualDelays delays = {}, sim::NodeEngineFactory engines = make_mute_engine)
      : sim::SixteenRanks(SaveMode::rank_local, engines, delays) {}

  Status refusal_of_load(std::optional<uint64_t> step) {
    sim::VirtualJob next =
        sim::VirtualJob::start(host_, sim::facts_of(2), 1, 1, sim::flat_job(1, kRanks - 1));
    next.trainers[0]->load(step);
    host_.run_for(20'000 * kMillisecond);
    next.run(kPatience);
    EXPECT_TRUE(next.trainers[0]->found().has_value());
    return next.trainers[0]->found()->outcome;
  }
  // As if every node had died before it saw the set complete.
  void save_unmerged(uint64_t step) {
    kill_all();
    sim::VirtualHost other;
    sim::VirtualJob job =
        sim::VirtualJob::start(other, sim::facts_of(1), 4, kRanks, sim::pipeline_job(kRanks, 2, 2));
    for (auto& trainer : job.trainers) trainer->declare(sim::in_mode(SaveMode::rank_local));
    for (auto& trainer : job.trainers) trainer->save(step);
    job.run(kPatience);
    const std::string folder = storage::attempt_folder({1, step, 1});
    const std::vector<storage::ObjectInfo> listed = other.storage().list(folder).value();
    ASSERT_GE(listed.size(), kRanks * 2);
    for (const storage::ObjectInfo& object : listed) {
      if (object.name == storage::kDecisionName) continue;
      const std::string path = folder + "/" + object.name;
      ASSERT_TRUE(*host_.storage().create_exclusive(path, other.storage().read(path, 1 << 20).value()));
    }
  }
};

TEST_F(RankLocal, CommitsWithoutAMessageBetweenNodes) {
  host_.run_for(10'000 * kMillisecond);  // each node has reported its ranks
  job_.run(kPatience);
  const uint64_t before = host_.wire_messages();
  save_all(1);
  save_all(2);
  host_.run_for(60'000 * kMillisecond);
  job_.run(kPatience);
  expect_committed(1);
  expect_committed(2);
  EXPECT_EQ(host_.wire_messages(), before);
}

// With hints of the coordinator.
class HintedRankLocal : public RankLocal {
 protected:
  HintedRankLocal() : RankLocal({}, sim::make_direct_engine) {}
};

TEST_F(HintedRankLocal, IsKnownToAllHostsBeforeAnyHasPolled) {
  job_.run(kPatience);
  const uint64_t before = host_.wire_messages();
  save_all(1);
  const TimeNs poll = Timeouts{}.poll_ms * kMillisecond;
  host_.run_for(poll / 2);
  job_.run(1);
  expect_committed(1);
  // Three hosts report to the fourth, which answers one of them and tells all. Several may find the commit.
  EXPECT_LE(host_.wire_messages() - before, 3u * kHosts);
}

// Regression: nodes that had not polled yet could not find out, and reported the save as unknown.
TEST_F(HintedRankLocal, IsKnownToAllHostsThoughItIsDeletedAtOnce) {
  job_.run(kPatience);
  save_all(1);
  const AttemptKey key{1, 1, 1};
  while (!storage::read_decision(host_.storage(), key).ok()) host_.run_for(kMillisecond / 100);
  ASSERT_EQ(
      storage::delete_checkpoint(host_.storage(), {key, "by hand", host_.root_id(), Nonce{}, 0, 1})->outcome,
      storage::DeletionResult::Outcome::gone);
  host_.run_for(10'000 * kMillisecond);
  job_.run(1);
  for (const auto& trainer : job_.trainers) {
    ASSERT_TRUE(trainer->decided().contains({1, 1}));
    EXPECT_TRUE(trainer->decided().at({1, 1}).outcome.ok())
        << trainer->decided().at({1, 1}).outcome.to_string();
  }
}

TEST_F(RankLocal, CommitsWhatIsStagedBeforeTheNodeHasAnswered) {
  save_all(1);
  job_.run(kPatience);
  expect_committed(1);
}

TEST_F(RankLocal, IsLoadedByOtherRanksOfAnotherMesh) {
  job_.run(kPatience);
  save_all(1);
  job_.run(kPatience);
  expect_loads(std::nullopt, 1);
}

TEST_F(RankLocal, HoldsTheSameValuesAsACollectiveFreeSave) {
  job_.run(kPatience);
  save_all(1);
  job_.run(kPatience);
  sim::VirtualHost other;
  sim::VirtualJob together =
      sim::VirtualJob::start(other, sim::facts_of(1), 4, kRanks, sim::pipeline_job(kRanks, 2, 2));
  for (auto& trainer : together.trainers) trainer->declare();
  for (auto& trainer : together.trainers) trainer->save(1);
  together.run(kPatience);
  const Metadata ours = *job_.trainers[0]->decided().at({1, 1}).checkpoint;
  const Metadata theirs = *together.trainers[0]->decided().at({1, 1}).checkpoint;
  ASSERT_EQ(ours.state_dict_metadata.size(), theirs.state_dict_metadata.size());
  for (size_t i = 0; i < ours.state_dict_metadata.size(); ++i) {
    EXPECT_EQ(ours.state_dict_metadata[i].fqn, theirs.state_dict_metadata[i].fqn);
    EXPECT_EQ(ours.state_dict_metadata[i].shape, theirs.state_dict_metadata[i].shape);
    EXPECT_EQ(ours.state_dict_metadata[i].dtype, theirs.state_dict_metadata[i].dtype);
  }
}

TEST_F(RankLocal, NeedsNoCoordinator) {
  host_.kill_node(0);
  replace_node(0, false);
  job_.run(kPatience);
  save_all(1);
  job_.run(kPatience);
  expect_committed(1);
}

TEST_F(RankLocal, IsAbortedForAllWhereATrainerEndsBeforeItHasStaged) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank != 9) job_.trainers[rank]->save(1);
  }
  job_.trainers[9]->end();
  host_.run_for(10'000 * kMillisecond);
  job_.run(kPatience);
  expect_aborted(1, {0, 8, 15}, "rank 9 (host host2): its connection to the node ended");
  auto info = storage::inspect_attempt(host_.storage(), {1, 1, 1});
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->leftover_files, 0u);  // swept
}

// Regression: the next three held every other rank for node_deadline_ms, five minutes.
TEST_F(RankLocal, IsAbortedWhereAHostDies) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank / kRanksAHost != 2) job_.trainers[rank]->save(1);
  }
  host_.run_for(1'000 * kMillisecond);
  host_.kill_node(2);
  host_.run_for(16'000 * kMillisecond);  // 2.5 s until it is known
  EXPECT_EQ(storage::read_decision(host_.storage(), {1, 1, 1}).status().code(), Code::not_found);
  host_.run_for(6'000 * kMillisecond);
  job_.run(1);
  const std::string cause = "host host2 (ranks 8, 9, 10, 11) is lost";
  expect_aborted(1, {0, 15}, cause);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank / kRanksAHost != 2) job_.trainers[rank]->save(2);
  }
  host_.run_for(5'000 * kMillisecond);
  job_.run(1);
  expect_aborted(2, {0, 15}, cause);
}

TEST_F(RankLocal, IsAbortedWhereTheHostOfTheCoordinatorDies) {
  host_.run_for(10'000 * kMillisecond);
  for (Rank rank = kRanksAHost; rank < kRanks; ++rank) job_.trainers[rank]->save(1);
  host_.run_for(1'000 * kMillisecond);
  host_.kill_node(0);
  host_.run_for(16'000 * kMillisecond);
  EXPECT_EQ(storage::read_decision(host_.storage(), {1, 1, 1}).status().code(), Code::not_found);
  host_.run_for(6'000 * kMillisecond);
  job_.run(1);
  expect_aborted(1, {4, 15}, "the coordinator's host host0 (ranks 0, 1, 2, 3) is lost");
}

TEST_F(RankLocal, IsCommittedWhereAHostDiesThatHasPublished) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  host_.run_for(5'000 * kMillisecond);
  host_.kill_node(2);
  host_.run_for(60'000 * kMillisecond);
  job_.trainers[kRanks - 1]->save(1);
  host_.run_for(10'000 * kMillisecond);
  EXPECT_TRUE(storage::read_decision(host_.storage(), {1, 1, 1}).value().committed());
}

TEST_F(RankLocal, IsCommittedWhereTheLostHostIsFollowed) {
  job_.run(kPatience);
  host_.kill_node(2);
  host_.run_for(60'000 * kMillisecond);
  replace_node(2, false);
  host_.run_for(1'000 * kMillisecond);
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  host_.run_for(60'000 * kMillisecond);
  job_.trainers[kRanks - 1]->save(1);
  host_.run_for(10'000 * kMillisecond);
  job_.run(1);
  expect_committed(1);
}

// Writing takes longer than any timeout.
class SlowRankLocal : public RankLocal {
 protected:
  static sim::VirtualDelays slow() {
    sim::VirtualDelays delays;
    delays.operation_ns = 20'000 * kMillisecond;
    return delays;
  }
  SlowRankLocal() : RankLocal(slow()) {}
};

TEST_F(SlowRankLocal, IsCommittedWhereNoHostIsLost) {
  host_.run_for(60'000 * kMillisecond);
  save_all(1);
  host_.run_for(280'000 * kMillisecond);
  job_.run(1);
  expect_committed(1);
}

TEST_F(SlowRankLocal, IsCommittedThoughTheCoordinatorCannotBeReached) {
  host_.run_for(60'000 * kMillisecond);
  for (size_t node : {1, 2, 3}) host_.cut(node, true);
  save_all(1);
  host_.run_for(280'000 * kMillisecond);
  job_.run(1);
  expect_committed(1);
}

TEST_F(RankLocal, IsAbortedAtTheDeadlineNamingTheManifestsThatAreMissing) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank != 3 && rank != 9) job_.trainers[rank]->save(1);
  }
  for (TimeNs passed = 0; passed < kUntilDecided; passed += 10'000 * kMillisecond) {
    host_.run_for(10'000 * kMillisecond);
    job_.run(1);
  }
  expect_aborted(1, {0, 15}, "the manifests of ranks 3, 9 of 16 are missing");
}

TEST_F(RankLocal, CommitsWhereANodeWasKilledAndCameBack) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < 8; ++rank) job_.trainers[rank]->save(1);
  bool has_published = false;
  host_.on_operation([&](size_t node, const Operation& operation) {
    if (node != 2 || has_published || !std::holds_alternative<operation::PublishRankManifest>(operation))
      return;
    has_published = true;
    host_.kill_node(2);
  });
  for (Rank rank = 8; rank < kRanks; ++rank) job_.trainers[rank]->save(1);
  job_.run(kPatience);
  ASSERT_TRUE(has_published);
  replace_node(2, false);
  host_.run_for(10'000 * kMillisecond);
  job_.run(kPatience);
  expect_committed(1);
}

TEST_F(RankLocal, IsLeftToItsRanksByACoordinatorThatComesBack) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  job_.run(kPatience);
  host_.kill_node(0);
  replace_node(0, true);
  host_.run_for(200'000 * kMillisecond);  // beyond a coordinator's deadline
  job_.trainers[kRanks - 1]->save(1);
  host_.run_for(10'000 * kMillisecond);
  job_.run(kPatience);
  expect_committed(1);
}

TEST_F(RankLocal, ACompleteSetThatNobodyMergedIsTheLatest) {
  save_unmerged(1);
  ASSERT_EQ(storage::read_decision(host_.storage(), {1, 1, 1}).status().code(), Code::not_found);
  expect_loads(std::nullopt, 1);
}

TEST_F(RankLocal, ACompleteSetThatNobodyMergedIsLoadedByItsStep) {
  save_unmerged(1);
  expect_loads(1, 1);
}

TEST_F(RankLocal, AStepWhoseManifestIsMissingIsRefusedByRank) {
  save_unmerged(1);
  ASSERT_TRUE(host_.storage().remove(storage::rank_manifest_path({1, 1, 1}, {7, kRanks})).ok());
  // At once: before the next coordinator has found it abandoned.
  sim::VirtualJob next = sim::VirtualJob::start(host_, sim::facts_of(1), 1, 1, sim::flat_job(1, kRanks - 1));
  next.trainers[0]->load(1);
  host_.run_for(100 * kMillisecond);
  next.run(1);
  ASSERT_TRUE(next.trainers[0]->found().has_value());
  EXPECT_EQ(next.trainers[0]->found()->outcome.code(), Code::not_found);
  EXPECT_THAT(next.trainers[0]->found()->outcome.message(),
              HasSubstr("the manifest of rank 7 of 16 is missing"));
}

TEST_F(RankLocal, AnIncompleteSetIsNeverTheLatestAndIsVoided) {
  save_unmerged(1);
  ASSERT_TRUE(host_.storage().remove(storage::rank_manifest_path({1, 1, 1}, {7, kRanks})).ok());
  EXPECT_EQ(refusal_of_load(std::nullopt).code(), Code::not_found);
  auto decision = storage::read_decision(host_.storage(), {1, 1, 1});
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  ASSERT_FALSE(decision->committed());
  EXPECT_THAT(decision->tombstone().cause, HasSubstr("the manifest of rank 7 of 16 is missing"));
}

// Regression: nodes waited for it as long as for a set that is still being written.
TEST_F(RankLocal, ACompleteSetThatStaysDamagedIsGivenUpAtOnceNamingTheFile) {
  save_unmerged(1);
  host_.file_system().flip_bit(storage::rank_manifest_path({1, 1, 1}, {7, kRanks}), 8 * 200);
  sim::VirtualJob next = sim::VirtualJob::start(host_, sim::facts_of(2), 1, 1, sim::flat_job(1, kRanks - 1));
  host_.run_for(1'000 * kMillisecond);
  auto decision = storage::read_decision(host_.storage(), {1, 1, 1});
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  ASSERT_FALSE(decision->committed());
  EXPECT_THAT(decision->tombstone().cause,
              AllOf(HasSubstr("/rank-00007-of-00016.manifest.shoal"), HasSubstr("digest")));
}

// Regression: nodes looked for the decision until their deadline and then reported the save as aborted. Later
// they reported it as committed, which nothing proves once its folder is gone.
TEST_F(RankLocal, OfACheckpointThatIsDeletedBeforeAllHaveSeenItNothingIsClaimed) {
  job_.run(kPatience);
  save_all(1);
  const AttemptKey key{1, 1, 1};
  TimeNs passed = 0;
  auto is_complete = [&] {
    auto info = storage::inspect_attempt(host_.storage(), key);
    return info.ok() && info->is_complete_set();
  };
  for (; !is_complete() && passed < kPatience; passed += kMillisecond / 100)
    host_.run_for(kMillisecond / 100);
  ASSERT_TRUE(storage::complete_rank_local(host_.storage(), key, {Nonce{}, host_.root_id(), 0})
                  ->committed());  // a load
  auto removed =
      storage::delete_checkpoint(host_.storage(), {key, "by hand", host_.root_id(), Nonce{}, 0, 1});
  ASSERT_TRUE(removed.ok());
  ASSERT_EQ(removed->outcome, storage::DeletionResult::Outcome::gone) << removed->why;
  host_.run_for(10'000 * kMillisecond);
  job_.run(1);
  for (const auto& trainer : job_.trainers) {
    ASSERT_TRUE(trainer->decided().contains({1, 1}));
    const local::Decided& received = trainer->decided().at({1, 1});
    EXPECT_EQ(received.outcome.code(), Code::unavailable) << received.outcome.to_string();
    EXPECT_THAT(received.outcome.message(), HasSubstr("the folder of step 1 (g1a1) is missing"));
    EXPECT_EQ(received.checkpoint, nullptr);
  }
}

TEST_F(RankLocal, ATombstoneThatCameFirstVoidsTheSet) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  job_.run(kPatience);
  storage::Decision tombstone{{1, 1, 1},
                              Nonce{},
                              host_.root_id(),
                              0,
                              storage::Tombstone{storage::Tombstone::Reason::aborted, "by hand"}};
  ASSERT_TRUE(storage::publish_decision(host_.storage(), tombstone).ok());
  job_.trainers[kRanks - 1]->save(1);
  host_.run_for(10'000 * kMillisecond);
  job_.run(kPatience);
  expect_aborted(1, {0, 15}, "by hand");
  kill_all();
  EXPECT_EQ(refusal_of_load(1).code(), Code::not_found);
}

// Regression: its trainers received `unavailable`, although the next node would have seen the save committed.
TEST_F(RankLocal, ANodeThatIsStoppedLeavesWhatIsPublishedToTheNextOne) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  host_.run_for(1000 * kMillisecond);
  host_.drain(2);
  host_.run_for(10'000 * kMillisecond);
  job_.run(1);
  EXPECT_TRUE(host_.drained(2));
  EXPECT_TRUE(job_.trainers[8]->decided().empty());
  host_.kill_node(2);
  replace_node(2, false);
  job_.trainers[kRanks - 1]->save(1);
  host_.run_for(10'000 * kMillisecond);
  job_.run(1);
  expect_committed(1);
}

TEST_F(RankLocal, ADrainEndsOnceWhatIsStagedIsPublishedThoughItsTrainersHaveEnded) {
  job_.run(kPatience);
  for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  host_.run_for(1000 * kMillisecond);
  for (Rank rank = 0; rank < kRanksAHost; ++rank) job_.trainers[rank]->end();
  host_.drain(0);
  host_.run_for(10'000 * kMillisecond);
  EXPECT_TRUE(host_.drained(0));
  job_.trainers[kRanks - 1]->save(1);
  host_.run_for(10'000 * kMillisecond);
  job_.run(1);
  EXPECT_TRUE(storage::read_decision(host_.storage(), {1, 1, 1}).value().committed());
  EXPECT_TRUE(job_.trainers[kRanks - 1]->decided().at({1, 1}).outcome.ok());
}

TEST_F(RankLocal, ALayoutThatNamesARankBeyondTheWorldIsRefusedByItsOwnRank) {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {8}, Mesh::single(40), {Placement::shard(0)});
  job_.trainers[2]->change(*std::move(builder).build());
  job_.run(kPatience);
  ASSERT_TRUE(job_.trainers[2]->failed().has_value());
  EXPECT_THAT(job_.trainers[2]->failed()->why.message(),
              HasSubstr("'w' names a rank that is not in a world of 16"));
}

}  // namespace
}  // namespace shoal::actors
