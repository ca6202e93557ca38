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

}  // namespace
}  // namespace shoal::actors
