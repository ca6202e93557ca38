// Which nodes connect directly, which ones relay, and where the child nodes of a lost relay go. Only
// decisions, without a network.
#include "actors/node/links/relay_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Nonce process(uint8_t number) {
  Nonce nonce;
  nonce.bytes[0] = std::byte{number};
  return nonce;
}

// Two direct nodes, 16 and 17; 16 was asked to serve, and does.
class OfTwo : public ::testing::Test {
 protected:
  OfTwo() {
    EXPECT_TRUE(tree_.came(16, process(1)).is_direct);
    EXPECT_TRUE(tree_.came(17, process(2)).is_direct);
    actors::RelayTree::Answer third = tree_.came(18, process(3));
    EXPECT_FALSE(third.is_direct);
    EXPECT_EQ(third.go_by, "") << "there is no relay before one was needed";
    EXPECT_EQ(third.asks, 16u);
    tree_.serves(16, "relay:16", 100);
  }
  actors::RelayTree tree_{2};
};

TEST_F(OfTwo, WhoComesThenIsSentToTheRelayAndKnownByItsWay) {
  EXPECT_EQ(tree_.came(19, process(3)).go_by, "relay:16");
  EXPECT_TRUE(tree_.child_up(16, 5, 20, process(3)));
  ASSERT_TRUE(tree_.way_to(20).has_value());
  EXPECT_EQ(tree_.way_to(20)->relay, 16u);
  EXPECT_EQ(tree_.way_to(20)->child, 5u);
  EXPECT_EQ(tree_.child_of(16, 5), 20u);
  EXPECT_FALSE(tree_.way_to(17).has_value());
  EXPECT_EQ(tree_.child_lost(16, 5), 20u);
  EXPECT_FALSE(tree_.way_to(20).has_value());
  EXPECT_EQ(tree_.child_lost(16, 5), std::nullopt) << "once";
}

TEST_F(OfTwo, AnotherIsAskedToServeOnlyOnceThoseThatDoAreFilled) {
  EXPECT_EQ(tree_.came(19, process(3)).asks, std::nullopt);
  tree_.child_up(16, 1, 100, process(3));
  EXPECT_EQ(tree_.came(20, process(4)).asks, std::nullopt);
  tree_.child_up(16, 2, 101, process(4));
  actors::RelayTree::Answer fifth = tree_.came(21, process(5));
  EXPECT_EQ(fifth.go_by, "") << "a relay takes no more children than the coordinator has direct nodes";
  EXPECT_EQ(fifth.asks, 17u);
  EXPECT_EQ(tree_.came(22, process(5)).asks, std::nullopt) << "it has been asked";
  tree_.serves(17, "relay:17", 100);
  EXPECT_EQ(tree_.came(23, process(5)).go_by, "relay:17");
  EXPECT_FALSE(tree_.child_up(16, 3, 102, process(6))) << "uninvited, and beyond the bound";
}

TEST_F(OfTwo, ALostRelayTakesItsChildrenAlongAndTheyFindAPlaceAgain) {
  tree_.came(19, process(3));
  tree_.child_up(16, 1, 100, process(3));
  tree_.came(20, process(4));
  tree_.child_up(16, 2, 101, process(4));
  EXPECT_THAT(tree_.lost(16), ElementsAre(100, 101));
  EXPECT_EQ(tree_.relayed_nodes(), 0u);
  EXPECT_TRUE(tree_.came(21, process(3)).is_direct) << "the relay's own place is free";
  actors::RelayTree::Answer other = tree_.came(22, process(4));
  EXPECT_EQ(other.asks, 17u);
  tree_.serves(17, "relay:17", 100);
  EXPECT_EQ(tree_.came(23, process(4)).go_by, "relay:17");
  EXPECT_FALSE(tree_.child_up(16, 3, 104, process(3))) << "the old relay is none any more";
}

TEST_F(OfTwo, WhoDoesNotReachARelayIsSentToAnother) {
  EXPECT_EQ(tree_.came(19, process(3)).go_by, "relay:16");
  actors::RelayTree::Answer again = tree_.came(20, process(3));
  EXPECT_EQ(again.asks, 17u);
  tree_.serves(17, "relay:17", 100);
  EXPECT_EQ(tree_.came(21, process(4)).go_by, "relay:17") << "the other one has been promised a child";
  EXPECT_EQ(tree_.came(22, process(3)).go_by, "relay:17") << "it did not get to the first";
}

TEST_F(OfTwo, PromisesThatAreNotKeptHoldNoPlaceForEver) {
  for (uint8_t i = 10; i < 30; ++i) {
    EXPECT_EQ(tree_.came(i, process(i)).go_by, "relay:16") << "nobody whom it sent there has come";
  }
}

TEST_F(OfTwo, ANodeThatCannotServeIsNotAskedAgain) {
  tree_.lost(16);
  tree_.came(30, process(7));
  actors::RelayTree::Answer next = tree_.came(31, process(8));
  ASSERT_EQ(next.asks, 17u);
  tree_.cannot_serve(17, "too few descriptors");
  EXPECT_EQ(tree_.came(32, process(8)).asks, 30u);
  tree_.cannot_serve(30, "none either");
  EXPECT_EQ(tree_.came(33, process(8)).asks, std::nullopt);
  EXPECT_THAT(tree_.no_relay_cause(), ::testing::HasSubstr("none either"));
}

TEST(RelayTree, LosesNothingWhateverTheOrder) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    size_t direct_max = 1 + random() % 4;
    actors::RelayTree tree(direct_max);
    std::map<actors::NodeId, std::vector<actors::NodeId>> direct;  // with their children
    actors::NodeId next = actors::kFirstPeerNode;
    for (int event = 0; event < 300; ++event) {
      if (random() % 4 != 0 || direct.empty()) {
        actors::RelayTree::Answer answer = tree.came(next, process(static_cast<uint8_t>(random() % 40)));
        ASSERT_TRUE(answer.is_direct || direct.size() == direct_max) << "seed " << seed;
        if (answer.is_direct) direct[next];
        ++next;
        if (answer.asks) tree.serves(*answer.asks, std::to_string(*answer.asks), 100);
        if (!answer.go_by.empty()) {
          actors::NodeId relay = std::stoull(answer.go_by);
          ASSERT_TRUE(direct.contains(relay)) << "seed " << seed;
          bool has_room = direct[relay].size() < direct_max;
          ASSERT_EQ(tree.child_up(relay, next, next, process(200)), has_room) << "seed " << seed;
          if (has_room) direct[relay].push_back(next);
          ++next;
        }
      } else {
        auto victim = std::next(direct.begin(), static_cast<ptrdiff_t>(random() % direct.size()));
        ASSERT_EQ(tree.lost(victim->first), victim->second) << "seed " << seed;
        direct.erase(victim);
      }
      size_t children = 0;
      for (const auto& [relay, those] : direct) children += those.size();
      ASSERT_EQ(tree.relayed_nodes(), children) << "seed " << seed;
      ASSERT_EQ(tree.direct_nodes(), direct.size()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace shoal::testing
