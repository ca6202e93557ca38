// RankPresence: ranks that more than one node reports, and what remains of them when one of these nodes takes
// its report back or is lost.
#include "actors/coordinator/rank_presence.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace shoal::actors {
namespace {

constexpr NodeId kOwn = kFirstPeerNode, kForeign = kFirstPeerNode + 1;
constexpr TimeNs kHostLost = 15'000 * kMillisecond;
constexpr Rank kRank = 3;

wire::RanksEnded end_of(Rank rank, const std::string& how) {
  wire::RanksEnded message;
  message.ranks.push_back({rank, how});
  return message;
}

class ARankOnTwoHosts : public ::testing::Test {
 protected:
  ARankOnTwoHosts() {
    presence_.reported(kOwn, {2, kRank}, "own");
    presence_.reported(kForeign, {8, kRank}, "foreign");
  }
  RankPresence presence_{kHostLost};
};

TEST_F(ARankOnTwoHosts, IsNotGoneWhenItHasEndedOnOne) {
  presence_.take(1, kForeign, end_of(kRank, "killed"));
  EXPECT_TRUE(presence_.gone().empty());
  EXPECT_EQ(*presence_.ranks_of(kForeign), std::vector<Rank>{8});
  EXPECT_EQ(presence_.host_of_rank(kRank), "own");
  EXPECT_EQ(presence_.ranks_reported(), 3u);
}

TEST_F(ARankOnTwoHosts, IsNotGoneWhenTheNodeThatReportedItFirstTakesThatBack) {
  presence_.take(1, kOwn, end_of(kRank, ""));
  EXPECT_TRUE(presence_.gone().empty());
  EXPECT_EQ(presence_.host_of_rank(kRank), "foreign");
}

TEST_F(ARankOnTwoHosts, IsGoneWhenItHasEndedOnBoth) {
  presence_.take(1, kForeign, end_of(kRank, "killed"));
  presence_.take(2, kOwn, end_of(kRank, "signal 9"));
  ASSERT_TRUE(presence_.gone().contains(kRank));
  EXPECT_EQ(presence_.gone().at(kRank).node, kOwn);
  EXPECT_EQ(presence_.gone().at(kRank).end, "signal 9");
  presence_.take(3, kForeign, end_of(kRank, "killed"));  // the node repeats what it reported
  EXPECT_TRUE(presence_.gone().contains(kRank));
}

TEST_F(ARankOnTwoHosts, IsLostOnlyWithBothNodes) {
  presence_.lose_node(1, kOwn, "");
  EXPECT_FALSE(presence_.lost().contains(kRank));
  EXPECT_TRUE(presence_.lost().contains(2));
  presence_.lose_node(2, kForeign, "");
  ASSERT_TRUE(presence_.lost().contains(kRank));
  EXPECT_EQ(presence_.lost().at(kRank).host, "foreign");
}

TEST_F(ARankOnTwoHosts, IsLostWithItsOwnNodeOnceItHasEndedOnTheOther) {
  presence_.take(1, kForeign, end_of(kRank, "killed"));
  presence_.lose_node(2, kOwn, "");
  EXPECT_TRUE(presence_.lost().contains(kRank));
}

// A rank that ended on the first host came to the second one, and the first node still has its session.
TEST(ARankThatMoved, IsGoneWhenItEndsOnItsNewHost) {
  RankPresence presence(kHostLost);
  presence.reported(kOwn, {kRank}, "own");
  presence.take(1, kOwn, end_of(kRank, "killed"));
  presence.reported(kForeign, {kRank}, "foreign");
  EXPECT_TRUE(presence.gone().empty());
  presence.take(2, kForeign, end_of(kRank, "killed again"));
  ASSERT_TRUE(presence.gone().contains(kRank));
  EXPECT_EQ(presence.gone().at(kRank).node, kForeign);
}

TEST(ARankThatIsReportedTwiceByOneNode, CountsOnce) {
  RankPresence presence(kHostLost);
  presence.reported(kOwn, {kRank});
  presence.reported(kOwn, {kRank});
  EXPECT_EQ(presence.ranks_reported(), 1u);
  presence.lose_node(1, kOwn, "");
  EXPECT_TRUE(presence.lost().contains(kRank));
  EXPECT_EQ(presence.ranks_reported(), 0u);
}

}  // namespace
}  // namespace shoal::actors
