// Which replicas differ, by the digests that ranks send, and what the coordinator does about it.
#include "actors/coordinator/replica_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rank_names.h"
#include "tests/actors/coordinator/coordinator_by_itself.h"
#include "tests/actors/units.h"

namespace shoal::actors {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Four ranks hold "a", 40 MiB, and each pair of ranks {0, 1} and {2, 3} half of "b", 80 MiB.
World some_replicas() {
  LayoutBuilder builder;
  const Mesh mesh = Mesh::contiguous({2, 2});
  builder.add_tensor("a", DType::u8, {40, kMiB}, mesh, {Placement::replicate(), Placement::replicate()});
  builder.add_tensor("b", DType::u8, {80, kMiB}, mesh, {Placement::shard(0), Placement::replicate()});
  const LayoutPtr layout = std::move(builder).build().value();
  const std::vector<LayoutId> ids(4, layout->id());
  const std::vector<uint32_t> hosts = {0, 0, 1, 1};
  return {Roster::make(ids, hosts).value(), {layout}};
}

// What a rank sends in window 3 if all ranks hold the same bytes: blocks 6 and 7 of "a", 6 and 7 of its half
// of "b".
plan::ReplicaDigests digests_of(const World& world, Rank rank, uint32_t window = 3) {
  const plan::ReplicaBlocks blocks(world.layouts[world.roster.layout_of(rank)], rank);
  const std::vector<plan::ReplicaBlock> of_window = blocks.window(window);
  plan::ReplicaDigests digests{ReplicaCheck::warn, window, blocks.hash_of(of_window), {}};
  for (const plan::ReplicaBlock& block : of_window)
    digests.digests.push_back(blocks.id_of(block).low64() | 1);
  return digests;
}

class ReplicasCompared : public ::testing::Test {
 protected:
  plan::ReplicaDigests digests(Rank rank, uint32_t window = 3) const {
    return digests_of(world_, rank, window);
  }
  void take(Rank rank, const plan::ReplicaDigests& digests) {
    comparison_.take(rank, std::make_shared<const plan::ReplicaDigests>(digests));
  }
  std::string found() const {
    const auto difference = comparison_.compare(world_);
    if (!difference.ok()) return difference.status().to_string();
    if (!*difference) return "nothing";
    return describe(**difference, [](const auto& ranks) { return base::name_ranks(ranks); });
  }

  const World world_ = some_replicas();
  ReplicaComparison comparison_;
};

TEST_F(ReplicasCompared, EqualOnesAreEqual) {
  EXPECT_TRUE(comparison_.empty());
  EXPECT_EQ(comparison_.policy(), ReplicaCheck::off);
  for (Rank rank = 0; rank < 4; ++rank) take(rank, digests(rank));
  EXPECT_EQ(digests(0).digests.size(), 4u);
  EXPECT_EQ(found(), "nothing");
  EXPECT_EQ(comparison_.policy(), ReplicaCheck::warn);
}

TEST_F(ReplicasCompared, TheOneThatDiffersFromTheOthersIsNamed) {
  for (Rank rank = 0; rank < 4; ++rank) {
    plan::ReplicaDigests of_rank = digests(rank);
    if (rank == 1) of_rank.digests[1] ^= 1u << 7;
    take(rank, of_rank);
  }
  EXPECT_EQ(found(),
            "replicas differ: 'a' [0:40, 0:1048576], block 7 (bytes 7340032 to 8388608 of 41943040): "
            "rank 1 holds other bytes than ranks 0, 2, 3");
}

TEST_F(ReplicasCompared, WithoutAMajorityAllAreNamed) {
  for (Rank rank = 0; rank < 4; ++rank) {
    plan::ReplicaDigests of_rank = digests(rank);
    if (rank == 3) of_rank.digests[2] ^= 1;
    take(rank, of_rank);
  }
  EXPECT_EQ(found(),
            "replicas differ: 'b' [40:80, 0:1048576], block 6 (bytes 6291456 to 7340032 of 41943040): "
            "rank 2 and rank 3 hold different bytes");
}

TEST_F(ReplicasCompared, TheFirstOfSeveralDifferencesIsNamedAndTheOthersAreCounted) {
  for (Rank rank = 0; rank < 4; ++rank) {
    plan::ReplicaDigests of_rank = digests(rank);
    for (uint64_t& digest : of_rank.digests) digest += rank == 2;
    take(rank, of_rank);
  }
  EXPECT_THAT(found(),
              AllOf(HasSubstr("'a' [0:40, 0:1048576], block 6 "),
                    HasSubstr("rank 2 holds other bytes than ranks 0, 1, 3; 3 further blocks differ")));
}

TEST_F(ReplicasCompared, RanksThatDigestNothingAreLeftOut) {
  plan::ReplicaDigests first = digests(0);
  first.digests[0] = 0;  // it could not read that block
  take(0, first);
  comparison_.take(1, nullptr);
  take(2, digests(2));
  EXPECT_EQ(found(), "nothing");
}

TEST_F(ReplicasCompared, ARepetitionAddsNoRank) {
  for (int i = 0; i < 3; ++i) take(0, digests(0));
  plan::ReplicaDigests other = digests(1);
  other.digests[0] ^= 1;
  take(1, other);
  EXPECT_THAT(found(), HasSubstr("rank 0 and rank 1 hold different bytes"));
}

TEST_F(ReplicasCompared, TheStrictestPolicyCounts) {
  plan::ReplicaDigests first = digests(0);
  first.policy = ReplicaCheck::abort;
  take(0, first);
  take(1, digests(1));
  EXPECT_EQ(comparison_.policy(), ReplicaCheck::abort);
}

TEST_F(ReplicasCompared, RanksWithDifferentWindowsAreNotComparedAndNamed) {
  take(0, digests(0));
  EXPECT_EQ(comparison_.unequal_windows(), "");
  take(1, digests(1, 4));
  EXPECT_EQ(found(), "nothing");
  EXPECT_THAT(comparison_.unequal_windows(),
              HasSubstr("rank 0 digested window 3 of its replicas, and rank 1 window 4"));
}

TEST_F(ReplicasCompared, ARankThatDigestedOtherBlocksThanItsLayoutGivesIsNamed) {
  take(0, digests(0));
  take(1, digests(2));  // of the other half of "b"
  EXPECT_THAT(found(), HasSubstr("rank 1 digested other blocks"));
}

// --- in the role ---

class ACoordinatorThatCompares : public ACoordinatorByItself {
 protected:
  // Each rank of pipeline_job(2, 1, 1) shares values that are declared replicated with the other one.
  wire::ShardsWritten report_of(Rank rank, ReplicaCheck policy, uint64_t change) const {
    wire::ShardsWritten message = report(kKey, rank);
    const plan::ReplicaBlocks blocks(world_->layouts[world_->roster.layout_of(rank)], rank);
    for (uint32_t window = 0; window < plan::kReplicaWindows; ++window) {
      const std::vector<plan::ReplicaBlock> of_window = blocks.window(window);
      if (of_window.empty()) continue;
      plan::ReplicaDigests digests{policy, window, blocks.hash_of(of_window), {}};
      for (size_t i = 0; i < of_window.size(); ++i) digests.digests.push_back(7 + i + change);
      message.plans[0].replicas = std::make_shared<const plan::ReplicaDigests>(std::move(digests));
      return message;
    }
    return message;
  }
  void both_report_with(ReplicaCheck policy, uint64_t change) {
    role_.receive(kNode, RoleKind::shard_writer, report_of(0, policy, 0));
    role_.receive(kOther, RoleKind::shard_writer, report_of(1, policy, change));
    role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
    role_.answer<operation::CheckFiles>(OperationResult(operation::Done{}));
    no_later_epoch();
  }
  std::optional<operation::PublishDecision> published() {
    return role_.take_start<operation::PublishDecision>(&id_);
  }
  void is_committed(const operation::PublishDecision& made) {
    storage::Decision decision;
    decision.key = kKey;
    decision.body = *made.body;
    role_.handle(event::OperationDone{
        id_, OperationResult(std::make_shared<const storage::Decision>(std::move(decision)))});
    role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
  }

  static constexpr AttemptKey kKey{1, 5, 1};
  OperationId id_ = 0;
};

TEST_F(ACoordinatorThatCompares, CommitsWithoutAWordWhereReplicasAreEqual) {
  roster_exists();
  both_report_with(ReplicaCheck::abort, 0);
  const auto made = published();
  ASSERT_TRUE(made.has_value());
  ASSERT_TRUE(std::holds_alternative<storage::Manifest>(*made->body));
  is_committed(*made);
  const auto decided = role_.sent<wire::Decided>(kNode);
  ASSERT_EQ(decided.size(), 1u);
  EXPECT_TRUE(decided[0].committed);
  EXPECT_EQ(decided[0].cause, "");
}

TEST_F(ACoordinatorThatCompares, CommitsWithAWarningToAllNodesAndTheLog) {
  roster_exists();
  both_report_with(ReplicaCheck::warn, 1);
  const auto made = published();
  ASSERT_TRUE(made.has_value());
  ASSERT_TRUE(std::holds_alternative<storage::Manifest>(*made->body));
  is_committed(*made);
  for (NodeId node : {kNode, kOther}) {
    const auto decided = role_.sent<wire::Decided>(node);
    ASSERT_EQ(decided.size(), 1u);
    EXPECT_TRUE(decided[0].committed);
    EXPECT_THAT(decided[0].cause, AllOf(HasSubstr("replicas differ: '"), HasSubstr("hold different bytes")));
  }
  EXPECT_THAT(role_.log, ::testing::Contains(AllOf(HasSubstr("step 5 (g1a1): replicas differ"),
                                                   HasSubstr("committed nevertheless"))));
  role_.sends.clear();
  role_.receive(kNode, RoleKind::shard_writer, report_of(0, ReplicaCheck::warn, 0));
  ASSERT_EQ(role_.sent<wire::Decided>(kNode).size(), 1u);
  EXPECT_NE(role_.sent<wire::Decided>(kNode)[0].cause, "") << "whoever asks later gets it too";
}

TEST_F(ACoordinatorThatCompares, AbortsWithThatCauseIfThePolicySaysSo) {
  roster_exists();
  both_report_with(ReplicaCheck::abort, 1);
  const auto made = published();
  ASSERT_TRUE(made.has_value());
  ASSERT_TRUE(std::holds_alternative<storage::Tombstone>(*made->body));
  EXPECT_THAT(std::get<storage::Tombstone>(*made->body).cause,
              AllOf(HasSubstr("replicas differ: '"), HasSubstr("hold different bytes")));
  EXPECT_FALSE(made->looks_first) << "what is wrong is never committed from the root";
  EXPECT_EQ(role_.started<operation::CheckFiles>(), 0u);
}

TEST_F(ACoordinatorThatCompares, ComparesNothingWhereNoRankSendsDigests) {
  roster_exists();
  both_report(kKey);
  const auto made = published();
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(std::holds_alternative<storage::Manifest>(*made->body));
}

}  // namespace
}  // namespace shoal::actors
