// What `shoal status` prints of the answers of nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/node/node_view.h"

namespace shoal::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NodeText : public ::testing::Test {
 protected:
  NodeText() {
    node_.status.world_size = 4;
    node_.status.coordinator = "10.0.0.1:7070";
    node_.status.peers = {{"a:78", true}};
    node_.status.ranks = {2, 3};
    node_.status.trainers = {{2, 4711, false}, {3, 4712, true}};
    local::SaveStatus save;
    save.key = {1, 10, 1};
    node_.status.saves = {save};
    node_.bytes_on_disk = {std::nullopt};
  }
  local::SaveStatus& save() { return node_.status.saves[0]; }
  void awaits(std::vector<Rank> ranks) {
    save().awaited = std::move(ranks);
    save().awaited_count = save().awaited.size();
  }
  std::string text() const {
    JobView view;
    view.nodes = {node_};
    return as_text(view);
  }
  NodeView node_;
};

TEST_F(NodeText, NamesTheProcessOfTheOnlyTrainerThatASaveWaitsFor) {
  awaits({2});
  EXPECT_THAT(text(), HasSubstr("rank 2 (pid 4711)"));
  awaits({3});
  EXPECT_THAT(text(), HasSubstr("rank 3 (pid 4712, stopped)"));
  awaits({0});
  EXPECT_THAT(text(), Not(HasSubstr("pid 471"))) << "a rank of another host";
}

TEST_F(NodeText, HasTheNewestAbortOfTheRootBesideALiveNode) {
  JobView view;
  view.nodes = {node_};
  view.root.emplace();
  view.root->aborted = 2;
  view.root->last_abort = {{1, 9, 1}, "rank 3 (host b): no space"};
  EXPECT_THAT(as_text(view),
              HasSubstr("aborted: 2 attempts; the newest is step 9 (g1a1): rank 3 (host b): no space"));
}

TEST_F(NodeText, NamesEachStoppedTrainerThatASaveWaitsFor) {
  awaits({0, 2, 3});
  EXPECT_THAT(text(), HasSubstr("rank 0, 2-3; rank 3 (pid 4712) is stopped"));
}

TEST_F(NodeText, SaysWhatASaveWaitsForIfAllRanksHaveWritten) {
  save().phase = local::SavePhase::waiting;
  EXPECT_THAT(text(), HasSubstr("the decision"));
  EXPECT_THAT(text(), Not(HasSubstr("not connected")));
}

TEST_F(NodeText, SaysThatTheCoordinatorIsNotConnected) {
  save().phase = local::SavePhase::waiting;
  node_.status.peers.clear();
  EXPECT_THAT(text(), HasSubstr("coordinator at 10.0.0.1:7070 (not connected)"));
  EXPECT_THAT(text(), HasSubstr("the decision; the coordinator is not connected"));
  node_.status.coordinates = true;
  EXPECT_THAT(text(), Not(HasSubstr("not connected")));
}

}  // namespace
}  // namespace shoal::cli
