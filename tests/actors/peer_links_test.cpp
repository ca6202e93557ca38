// Sessions as nodes: who is called what, what happens to messages, and how a lost coordinator is found again.
// The transport is a fake that does what the test says.
#include "actors/node/peer_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "actors/node/line_budget.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Status kGone(Code::unavailable, "gone");

class FakeTransport final : public Transport {
 public:
  Status start(TransportHandler&) override { return ok_status(); }
  void stop(uint32_t) override {}
  std::string listen_address() const override { return ""; }
  PeerId connect(const std::string& address) override {
    connects.push_back(address);
    return ++last_peer;
  }
  Status send(PeerId peer, Bytes) override {
    sent.push_back(peer);
    return ok_status();
  }
  void disconnect(PeerId peer, const Status& why) override { disconnected.emplace_back(peer, why); }
  void set_generation(uint32_t, uint32_t) override {}
  TransportStats stats() const override { return {}; }

  std::vector<std::string> connects;
  std::vector<PeerId> sent;
  std::vector<std::pair<PeerId, Status>> disconnected;
  PeerId last_peer = 100;
};

struct Heard final : PeerEvents {
  bool received(NodeId from, WireMessage, size_t) override {
    from_nodes.push_back(from);
    return true;
  }
  void peer_up(NodeId node, const Identity&) override { up.push_back(node); }
  void peer_lost(NodeId node, const Status&) override { lost.push_back(node); }
  void peer_refused(const std::string& address, const Status& why) override {
    refused.push_back(address + ": " + why.message());
  }
  std::vector<NodeId> from_nodes, up, lost;
  std::vector<std::string> refused;
};

WireMessage pending() {
  return {RoleKind::coordinator, RoleKind::shard_writer,
          std::make_shared<WireBody>(wire::Pending{.key = {1, 2, 3}})};
}
Identity identity_in_epoch(uint32_t epoch) {
  Identity identity;
  identity.generation = 3;
  identity.epoch = epoch;
  return identity;
}

TEST(PeerLinks, CallTheCoordinatorByItsNameAndOthersByNumbersNeverUsedTwice) {
  FakeTransport transport;
  Heard heard;
  PeerLinks links(transport, "c:1");
  links.serve(heard);
  links.send(kCoordinatorNode, pending());
  EXPECT_THAT(transport.connects, ElementsAre("c:1"));
  links.on_peer_up(101, identity_in_epoch(1));
  links.on_peer_up(7, identity_in_epoch(1));
  links.on_message(101, encode_wire(pending()));
  links.on_message(7, encode_wire(pending()));
  links.on_peer_lost(7, kGone);
  links.on_peer_up(8, identity_in_epoch(1));
  links.on_message(8, encode_wire(pending()));
  EXPECT_THAT(heard.up, ElementsAre(kCoordinatorNode, 16, 17));
  EXPECT_THAT(heard.from_nodes, ElementsAre(kCoordinatorNode, 16, 17));
  EXPECT_THAT(heard.lost, ElementsAre(16));
  links.send(17, pending());
  links.send(16, pending());
  EXPECT_THAT(transport.sent, ElementsAre(101, 8)) << "what is for a lost node is dropped";
  EXPECT_EQ(links.sends_dropped(), 1u);
  EXPECT_EQ(links.peers_up(), 2u);
}

TEST(PeerLinks, EndTheSessionOfWhoSendsWhatIsNoMessage) {
  FakeTransport transport;
  Heard heard;
  PeerLinks links(transport, "");
  links.serve(heard);
  links.on_peer_up(7, identity_in_epoch(1));
  links.on_message(7, Bytes(16, std::byte{0xff}));
  ASSERT_EQ(transport.disconnected.size(), 1u);
  EXPECT_EQ(transport.disconnected[0].first, 7u);
  EXPECT_TRUE(heard.from_nodes.empty());
}

TEST(PeerLinks, ConnectAgainToALostCoordinatorButNotAtOnce) {
  FakeTransport transport;
  Heard heard;
  PeerLinks links(transport, "c:1");
  links.serve(heard);
  links.send(kCoordinatorNode, pending());
  links.on_peer_up(101, identity_in_epoch(1));
  links.on_peer_lost(101, kGone);
  EXPECT_THAT(heard.lost, ElementsAre(kCoordinatorNode));
  links.send(kCoordinatorNode, pending());
  EXPECT_EQ(transport.connects.size(), 1u) << "the back-off has only begun";
  while (transport.connects.size() < 2) {
    links.send(kCoordinatorNode, pending());
    std::this_thread::yield();
  }
  links.on_peer_up(102, identity_in_epoch(2));
  EXPECT_THAT(heard.up, ElementsAre(kCoordinatorNode, kCoordinatorNode));
}

TEST(PeerLinks, FindTheCoordinatorOnceItHasItsEpoch) {
  FakeTransport transport;
  PeerLinks links(transport, "c:1");
  int asked = 0;
  auto found = links.find_coordinator(60'000, [&] {
    ++asked;
    if (transport.last_peer == 101 && asked == 2) links.on_peer_up(101, identity_in_epoch(0));
    if (transport.last_peer == 102) links.on_peer_up(102, identity_in_epoch(5));
    return false;
  });
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->epoch, 5u);
  ASSERT_EQ(transport.disconnected.size(), 1u);
  EXPECT_EQ(transport.disconnected[0].first, 101u);
}

TEST(PeerLinks, SayWhereNobodyWasFoundAndWhy) {
  FakeTransport transport;
  PeerLinks links(transport, "c:1");
  Status none = links.find_coordinator(0, [] { return false; }).status();
  EXPECT_EQ(none.code(), Code::unavailable);
  EXPECT_THAT(none.message(), HasSubstr("c:1"));
  links.find_coordinator(60'000, [&] { return !transport.connects.empty(); }).status().ok();
  links.on_peer_lost(transport.last_peer, Status(Code::refused, "the jobs differ"));
  Status refused = links.find_coordinator(0, [] { return false; }).status();
  EXPECT_EQ(refused.code(), Code::refused);
  EXPECT_THAT(refused.message(), HasSubstr("the jobs differ"));
}

TEST(PeerLinks, FollowALaterCoordinatorToItsAddressAndNoEarlierOne) {
  FakeTransport transport;
  Heard heard;
  PeerLinks links(transport, "c:1");
  links.serve(heard);
  links.send(kCoordinatorNode, pending());
  links.on_peer_up(101, identity_in_epoch(2));
  links.redirect(1, "b:1");
  EXPECT_THAT(transport.connects, ElementsAre("c:1"));
  links.redirect(3, "d:1");
  EXPECT_THAT(transport.connects, ElementsAre("c:1", "d:1"));
  links.on_peer_lost(101, kGone);  // the one that was left
  EXPECT_TRUE(heard.lost.empty());
  links.on_peer_up(102, identity_in_epoch(3));
  links.redirect(3, "d:1");  // it is up already, and told as such
  EXPECT_THAT(heard.up, ElementsAre(kCoordinatorNode, kCoordinatorNode, kCoordinatorNode));
  links.on_message(102, encode_wire(pending()));
  EXPECT_THAT(heard.from_nodes, ElementsAre(kCoordinatorNode));
  links.redirect(9, "no address");
  EXPECT_EQ(transport.connects.size(), 2u);
}

TEST(PeerLinks, TellWhoWasRefused) {
  FakeTransport transport;
  Heard heard;
  PeerLinks links(transport, "");
  links.on_refused("10.0.0.9:7", Status(Code::refused, "before anybody listens"));
  links.serve(heard);
  links.on_refused("10.0.0.9:7", Status(Code::refused, "the tokens differ"));
  EXPECT_THAT(heard.refused, ElementsAre("10.0.0.9:7: the tokens differ"));
}

TEST(ALineBudget, LetsSoManyThroughAtOnceAndCountsTheOthers) {
  LineBudget budget(2, 1000);
  TimeNs now = 1;
  EXPECT_EQ(budget.take(now), 0u);
  EXPECT_EQ(budget.take(now), 0u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(budget.take(now), std::nullopt);
  EXPECT_EQ(budget.take(now + 1000 * kMillisecond), 5u);
  EXPECT_EQ(budget.take(now + 1000 * kMillisecond), std::nullopt);
  now += 1'000'000 * kMillisecond;  // no more is saved up
  EXPECT_EQ(budget.take(now), 1u);
  EXPECT_EQ(budget.take(now), 0u);
  EXPECT_EQ(budget.take(now), std::nullopt);
}

}  // namespace
}  // namespace shoal::testing
