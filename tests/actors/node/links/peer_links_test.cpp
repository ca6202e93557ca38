// Sessions as nodes: which id each peer has, what happens to messages, and how a lost coordinator is found
// again. The transport is a fake that the test controls.
#include "actors/node/links/peer_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "actors/node/watch/line_budget.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Status kGone(Code::unavailable, "gone");

class FakeTransport final : public transport::Transport {
 public:
  Status start(transport::TransportHandler&) override { return ok_status(); }
  void stop(uint32_t, const Status&) override {}
  std::string listen_address() const override { return ""; }
  transport::PeerId connect(const std::string& address) override {
    connects.push_back(address);
    return ++last_peer;
  }
  Status send(transport::PeerId peer, Bytes message) override {
    sent.push_back(peer);
    auto body = actors::decode_link(message);
    if (body.ok() && *body) {
      words.emplace_back(peer, **body);
    }
    return ok_status();
  }
  bool has_room(transport::PeerId, size_t) const override { return true; }
  // The last word of this kind, and the session that it went to.
  template <class Word>
  std::pair<transport::PeerId, Word> last() const {
    for (auto each = words.rbegin(); each != words.rend(); ++each) {
      if (const auto* word = std::get_if<Word>(&each->second)) return {each->first, *word};
    }
    return {0, Word()};
  }
  void disconnect(transport::PeerId peer, const Status& why) override {
    disconnected.emplace_back(peer, why);
  }
  void set_generation(uint32_t, uint32_t) override {}
  transport::TransportStats stats() const override { return {}; }

  std::vector<std::string> connects;
  std::vector<transport::PeerId> sent;
  std::vector<std::pair<transport::PeerId, actors::LinkMessage>> words;
  std::vector<std::pair<transport::PeerId, Status>> disconnected;
  transport::PeerId last_peer = 100;
};

struct HeardOfPeers final : actors::PeerEvents {
  bool received(actors::NodeId from, actors::WireMessage, size_t) override {
    from_nodes.push_back(from);
    return true;
  }
  void peer_up(actors::NodeId node, const transport::Identity& identity) override {
    up.push_back(node);
    names.push_back(identity.name);
  }
  void peer_lost(actors::NodeId node, const Status&) override { lost.push_back(node); }
  void peer_refused(const std::string& address, const Status& why) override {
    refused.push_back(address + ": " + why.message());
  }
  std::vector<actors::NodeId> from_nodes, up, lost;
  std::vector<std::string> refused, names;
};

actors::WireMessage pending() {
  return {actors::RoleKind::coordinator, actors::RoleKind::shard_writer,
          std::make_shared<actors::WireBody>(actors::wire::Pending{.key = {1, 2, 3}})};
}
transport::Identity identity_in_epoch(uint32_t epoch) {
  transport::Identity identity;
  identity.generation = 3;
  identity.epoch = epoch;
  return identity;
}

// Links of a node whose coordinator is at c:1, and that has just sent to it.
struct SentToCoordinator {
  SentToCoordinator() {
    links.serve(notified);
    links.send(actors::kCoordinatorNode, pending());
  }
  FakeTransport transport;
  HeardOfPeers notified;
  actors::PeerLinks links{transport, "c:1"};
};

TEST(PeerLinks, CallTheCoordinatorByItsNameAndOthersByNumbersNeverUsedTwice) {
  SentToCoordinator node;
  auto& [transport, notified, links] = node;
  EXPECT_THAT(transport.connects, ElementsAre("c:1"));
  links.on_peer_up(101, identity_in_epoch(1));
  links.on_peer_up(7, identity_in_epoch(1));
  links.on_message(101, actors::encode_wire(pending()));
  links.on_message(7, actors::encode_wire(pending()));
  links.on_peer_lost(7, kGone);
  links.on_peer_up(8, identity_in_epoch(1));
  links.on_message(8, actors::encode_wire(pending()));
  EXPECT_THAT(notified.up, ElementsAre(actors::kCoordinatorNode, 16, 17));
  EXPECT_THAT(notified.from_nodes, ElementsAre(actors::kCoordinatorNode, 16, 17));
  EXPECT_THAT(notified.lost, ElementsAre(16));
  links.send(17, pending());
  links.send(16, pending());
  EXPECT_THAT(transport.sent, ElementsAre(101, 8)) << "what is for a lost node is dropped";
  EXPECT_EQ(links.sends_dropped(), 1u);
  EXPECT_EQ(links.peers_up(), 2u);
}

TEST(PeerLinks, EndTheSessionOfWhoSendsWhatIsNoMessage) {
  FakeTransport transport;
  HeardOfPeers notified;
  actors::PeerLinks links(transport, "");
  links.serve(notified);
  links.on_peer_up(7, identity_in_epoch(1));
  links.on_message(7, Bytes(16, std::byte{0xff}));
  ASSERT_EQ(transport.disconnected.size(), 1u);
  EXPECT_EQ(transport.disconnected[0].first, 7u);
  EXPECT_TRUE(notified.from_nodes.empty());
}

TEST(PeerLinks, ConnectAgainToALostCoordinatorButNotAtOnce) {
  SentToCoordinator node;
  auto& [transport, notified, links] = node;
  links.on_peer_up(101, identity_in_epoch(1));
  links.on_peer_lost(101, kGone);
  EXPECT_THAT(notified.lost, ElementsAre(actors::kCoordinatorNode));
  links.send(actors::kCoordinatorNode, pending());
  EXPECT_EQ(transport.connects.size(), 1u) << "the back-off has only begun";
  while (transport.connects.size() < 2) {
    links.send(actors::kCoordinatorNode, pending());
    std::this_thread::yield();
  }
  links.on_peer_up(102, identity_in_epoch(2));
  EXPECT_THAT(notified.up, ElementsAre(actors::kCoordinatorNode, actors::kCoordinatorNode));
}

TEST(PeerLinks, ComeAgainToACoordinatorThatIsNotReadyAlsoOnceTheyServe) {
  SentToCoordinator node;
  auto& [transport, notified, links] = node;
  links.on_peer_up(101, identity_in_epoch(1));
  links.on_peer_lost(101, kGone);  // its node starts again
  const auto connect_again = [&](size_t connects) {
    while (node.transport.connects.size() < connects) {
      node.links.look_for_coordinator();
      std::this_thread::yield();
    }
  };
  connect_again(2);
  links.on_peer_up(102, identity_in_epoch(0));
  EXPECT_THAT(notified.up, ElementsAre(actors::kCoordinatorNode)) << "what roles sent now would be dropped";
  ASSERT_EQ(transport.disconnected.size(), 1u);
  EXPECT_EQ(transport.disconnected[0].first, 102u);
  EXPECT_EQ(transport.disconnected[0].second.message(), actors::kCoordinatorNotReady);
  EXPECT_THAT(notified.lost, ElementsAre(actors::kCoordinatorNode)) << "the first session";
  links.on_peer_lost(102, kGone);
  connect_again(3);
  links.on_peer_up(103, identity_in_epoch(2));
  EXPECT_THAT(notified.up, ElementsAre(actors::kCoordinatorNode, actors::kCoordinatorNode));
  EXPECT_THAT(notified.lost, ElementsAre(actors::kCoordinatorNode));
}

TEST(PeerLinks, EndTheSessionOfANoticeOnceItHasLeft) {
  FakeTransport transport;
  HeardOfPeers notified;
  actors::PeerLinks links(transport, "", 1);
  links.serve(notified);
  links.notify("earlier:1", pending());
  links.on_peer_up(101, identity_in_epoch(1));
  EXPECT_TRUE(notified.up.empty());
  EXPECT_TRUE(transport.disconnected.empty());
  links.on_sent(101, 1);
  ASSERT_EQ(transport.disconnected.size(), 1u);
  EXPECT_EQ(transport.disconnected[0].first, 101u);
  links.on_peer_up(7, identity_in_epoch(1));
  EXPECT_THAT(transport.sent, ElementsAre(101, 7));
  EXPECT_EQ(transport.last<actors::link::Welcome>().first, 7u) << "the notice takes the place of no node";
  links.on_peer_lost(101, kGone);
  EXPECT_TRUE(notified.lost.empty());
  EXPECT_EQ(links.peers_up(), 1u);
}

TEST(PeerLinks, SayThatALaterCoordinatorIsNotReachedAlsoWhereTheyCoordinated) {
  FakeTransport transport;
  HeardOfPeers notified;
  actors::PeerLinks links(transport, "", 1);
  links.serve(notified);
  EXPECT_EQ(links.unreachable_line(), std::nullopt);
  links.redirect(2, "later:1");
  links.on_peer_lost(101, Status(Code::unavailable, "no route"));
  std::optional<std::string> line;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!line && std::chrono::steady_clock::now() < until) {
    line = links.unreachable_line();
    std::this_thread::yield();
  }
  EXPECT_THAT(line.value_or(""), HasSubstr("cannot reach the coordinator at later:1"));
}

TEST(PeerLinks, FindTheCoordinatorOnceItHasItsEpoch) {
  FakeTransport transport;
  actors::PeerLinks links(transport, "c:1");
  int asked = 0;
  auto found = links.find_coordinator(60'000, actors::kRefusedPatienceMs, [&] {
    ++asked;
    if (transport.last_peer == 101 && asked == 2) links.on_peer_up(101, identity_in_epoch(0));
    if (transport.last_peer == 102) links.on_peer_up(102, identity_in_epoch(5));
    if (transport.last_peer == 102 && asked > 5)
      links.on_message(102, actors::encode_link(actors::link::Welcome{}));
    return false;
  });
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->epoch, 5u);
  ASSERT_EQ(transport.disconnected.size(), 1u);
  EXPECT_EQ(transport.disconnected[0].first, 101u);
}

TEST(PeerLinks, SayWhereNobodyWasFoundAndWhy) {
  FakeTransport transport;
  actors::PeerLinks links(transport, "c:1");
  Status none = links.find_coordinator(0, actors::kRefusedPatienceMs, [] { return false; }).status();
  EXPECT_EQ(none.code(), Code::unavailable);
  EXPECT_THAT(none.message(), HasSubstr("c:1"));
  links.find_coordinator(60'000, actors::kRefusedPatienceMs, [&] { return !transport.connects.empty(); })
      .status()
      .ok();
  links.on_peer_lost(transport.last_peer, Status(Code::refused, "the jobs differ"));
  Status refused = links.find_coordinator(0, actors::kRefusedPatienceMs, [] { return false; }).status();
  EXPECT_EQ(refused.code(), Code::refused);
  EXPECT_THAT(refused.message(), HasSubstr("the jobs differ"));
}

TEST(PeerLinks, FollowALaterCoordinatorToItsAddressAndNoEarlierOne) {
  SentToCoordinator node;
  auto& [transport, notified, links] = node;
  links.on_peer_up(101, identity_in_epoch(2));
  links.redirect(1, "b:1");
  EXPECT_THAT(transport.connects, ElementsAre("c:1"));
  links.redirect(3, "d:1");
  EXPECT_THAT(transport.connects, ElementsAre("c:1", "d:1"));
  links.on_peer_lost(101, kGone);  // the one that was left
  EXPECT_TRUE(notified.lost.empty());
  links.on_peer_up(102, identity_in_epoch(3));
  links.redirect(3, "d:1");  // it is up already, and told as such
  EXPECT_THAT(notified.up,
              ElementsAre(actors::kCoordinatorNode, actors::kCoordinatorNode, actors::kCoordinatorNode));
  links.on_message(102, actors::encode_wire(pending()));
  EXPECT_THAT(notified.from_nodes, ElementsAre(actors::kCoordinatorNode));
  links.redirect(9, "no address");
  EXPECT_EQ(transport.connects.size(), 2u);
}

Bytes of(actors::LinkMessage word) {
  return actors::encode_link(word);
}
transport::Identity identity_of(uint8_t number) {
  transport::Identity identity = identity_in_epoch(1);
  identity.incarnation.bytes[0] = std::byte{number};
  return identity;
}

// One direct node, in session 7, called 16, that serves as a relay; the coordinator has no more of its own.
class LinksOfACoordinator : public ::testing::Test {
 protected:
  LinksOfACoordinator() {
    links_.serve(heard_);
    links_.on_peer_up(7, identity_of(1));
    links_.on_peer_up(8, identity_of(2));
    EXPECT_EQ(transport_.last<actors::link::ServeAsRelay>().first, 7u);
    EXPECT_EQ(transport_.last<actors::link::UseRelay>().first, 8u);
    EXPECT_EQ(transport_.last<actors::link::UseRelay>().second.address, "") << "not ready yet";
    links_.on_peer_lost(8, kGone);
    links_.on_message(7, of(actors::link::RelayReady{"relay:1", 10}));
    links_.on_peer_up(9, identity_of(2));
    EXPECT_EQ(transport_.last<actors::link::UseRelay>().second.address, "relay:1");
    EXPECT_THAT(heard_.up, ElementsAre(16)) << "roles hear nothing of who is sent on";
  }
  FakeTransport transport_;
  HeardOfPeers heard_;
  actors::PeerLinks links_{transport_, "", 1};
};

TEST_F(LinksOfACoordinator, KnowChildrenByNumbersOfTheirOwnAndReachThemThroughTheirRelay) {
  links_.on_message(7, of(actors::link::ChildUp{5, "b", identity_of(2).incarnation}));
  ASSERT_EQ(heard_.up.size(), 2u);
  actors::NodeId child = heard_.up.back();
  EXPECT_NE(child, 16u);
  EXPECT_EQ(transport_.last<actors::link::ToChild>().second.message, of(actors::link::Welcome{}));
  links_.on_message(7, of(actors::link::FromChild{5, actors::encode_wire(pending())}));
  links_.on_message(7, actors::encode_wire(pending()));
  EXPECT_THAT(heard_.from_nodes, ElementsAre(child, 16));
  links_.send(child, pending());
  EXPECT_EQ(transport_.last<actors::link::ToChild>().first, 7u);
  EXPECT_EQ(transport_.last<actors::link::ToChild>().second.child, 5u);
  EXPECT_EQ(transport_.last<actors::link::ToChild>().second.message, actors::encode_wire(pending()));
  links_.on_message(7, of(actors::link::ChildLost{5, "it died"}));
  EXPECT_THAT(heard_.lost, ElementsAre(child));
  links_.on_message(7, of(actors::link::FromChild{5, actors::encode_wire(pending())}));
  EXPECT_EQ(heard_.from_nodes.size(), 2u) << "nobody is known by that number";
  EXPECT_EQ(transport_.last<actors::link::DropChild>().second.child, 5u);
}

struct HeardOfAStatus final : actors::StatusEvents {
  void job_status_requested(actors::NodeId from) override { requested_by.push_back(from); }
  void host_status_received(actors::NodeId from, Bytes) override { received_from.push_back(from); }
  void host_status_requested() override { ++requests; }
  void job_status_received(Bytes status) override { table = std::move(status); }
  std::vector<actors::NodeId> requested_by, received_from;
  int requests = 0;
  Bytes table;
};

TEST_F(LinksOfACoordinator, PassOnWhatServesAStatusAlsoThroughARelay) {
  HeardOfAStatus status;
  links_.set_status(&status);
  links_.on_message(7, of(actors::link::ChildUp{5, "b", identity_of(2).incarnation}));
  const actors::NodeId child = heard_.up.back();
  links_.on_message(7, of(actors::link::JobStatusRequest{}));
  links_.on_message(7, of(actors::link::FromChild{5, of(actors::link::JobStatusRequest{})}));
  links_.on_message(7, of(actors::link::FromChild{5, of(actors::link::HostStatusReport{Bytes(8)})}));
  EXPECT_THAT(status.requested_by, ElementsAre(16, child));
  EXPECT_THAT(status.received_from, ElementsAre(child));
  EXPECT_TRUE(heard_.from_nodes.empty()) << "roles hear nothing of it";
  links_.send_status(child, actors::link::HostStatusRequest{});
  EXPECT_EQ(transport_.last<actors::link::ToChild>().second.message, of(actors::link::HostStatusRequest{}));
}

TEST(PeerLinks, TakeTheRequestForAStatusAndTheTableOnlyFromTheCoordinator) {
  SentToCoordinator node;
  auto& [transport, notified, links] = node;
  HeardOfAStatus status;
  links.set_status(&status);
  links.on_peer_up(101, identity_in_epoch(1));
  links.on_peer_up(7, identity_in_epoch(1));
  for (transport::PeerId stranger_first : {7, 101}) {
    EXPECT_EQ(status.requests, 0);
    links.on_message(stranger_first, of(actors::link::HostStatusRequest{}));
    links.on_message(stranger_first, of(actors::link::JobStatusTable{Bytes(8)}));
  }
  EXPECT_EQ(status.requests, 1);
  EXPECT_EQ(status.table, Bytes(8));
}

TEST_F(LinksOfACoordinator, LoseTheChildrenOfARelayThatIsLost) {
  links_.on_message(7, of(actors::link::ChildUp{5, "b", identity_of(2).incarnation}));
  actors::NodeId child = heard_.up.back();
  links_.on_peer_lost(7, kGone);
  EXPECT_THAT(heard_.lost, ElementsAre(16, child));
  EXPECT_EQ(links_.peers_up(), 0u);
}

TEST_F(LinksOfACoordinator, DropAChildThatSendsNonsenseAndNotItsRelay) {
  links_.on_message(7, of(actors::link::ChildUp{5, "b", identity_of(2).incarnation}));
  links_.on_message(7, of(actors::link::FromChild{5, Bytes(16, std::byte{0xff})}));
  EXPECT_TRUE(transport_.disconnected.empty());
  EXPECT_EQ(transport_.last<actors::link::DropChild>().second.child, 5u);
}

TEST_F(LinksOfACoordinator, TakeNoWordOfWhoIsSentOn) {
  links_.on_message(
      9, actors::encode_wire({actors::RoleKind::planner, actors::RoleKind::coordinator,
                              std::make_shared<actors::WireBody>(actors::wire::Pending{.key = {1, 2, 3}})}));
  EXPECT_TRUE(heard_.from_nodes.empty());
  links_.on_message(9, actors::encode_wire(pending()));
  EXPECT_EQ(heard_.from_nodes.size(), 1u) << "but that of another coordinator";
}

TEST(PeerLinks, GoByWayOfARelayAndBackToTheCoordinatorWhenItIsLost) {
  SentToCoordinator node;
  auto& [transport, notified, links] = node;
  links.on_peer_up(101, identity_in_epoch(1));
  links.on_message(101, of(actors::link::UseRelay{"relay:1", ""}));
  EXPECT_THAT(transport.connects, ElementsAre("c:1", "relay:1"));
  EXPECT_TRUE(notified.lost.empty()) << "roles hear only where it leads";
  links.on_peer_lost(101, kGone);
  transport::Identity relay = identity_in_epoch(1);
  relay.name = "h7:12";
  links.on_peer_up(102, relay);
  EXPECT_EQ(notified.names.back(), "through the relay h7:12") << "the coordinator has another name";
  links.on_message(102, actors::encode_wire(pending()));
  EXPECT_THAT(notified.from_nodes, ElementsAre(actors::kCoordinatorNode));
  links.on_peer_lost(102, kGone);
  EXPECT_THAT(notified.lost, ElementsAre(actors::kCoordinatorNode));
  while (transport.connects.size() < 3) {
    links.look_for_coordinator();
    std::this_thread::yield();
  }
  EXPECT_EQ(transport.connects.back(), "c:1");
}

TEST(PeerLinks, TellThatTheCoordinatorIsLostWhereTheRelayIsNotReached) {
  FakeTransport transport;
  HeardOfPeers notified;
  actors::PeerLinks links(transport, "c:1");
  links.serve(notified);
  links.look_for_coordinator();
  links.on_peer_up(101, identity_in_epoch(1));
  links.on_message(101, of(actors::link::UseRelay{"relay:1", ""}));
  links.on_peer_lost(102, kGone);
  EXPECT_THAT(notified.lost, ElementsAre(actors::kCoordinatorNode));
}

TEST(PeerLinks, TellWhoWasRefused) {
  FakeTransport transport;
  HeardOfPeers notified;
  actors::PeerLinks links(transport, "");
  links.on_refused("10.0.0.9:7", Status(Code::refused, "before anybody listens"));
  links.serve(notified);
  links.on_refused("10.0.0.9:7", Status(Code::refused, "the tokens differ"));
  EXPECT_THAT(notified.refused, ElementsAre("10.0.0.9:7: the tokens differ"));
}

TEST(ALineBudget, LetsSoManyThroughAtOnceAndCountsTheOthers) {
  actors::LineBudget budget(2, 1000);
  actors::TimeNs now = 1;
  EXPECT_EQ(budget.take(now), 0u);
  EXPECT_EQ(budget.take(now), 0u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(budget.take(now), std::nullopt);
  EXPECT_EQ(budget.take(now + 1000 * actors::kMillisecond), 5u);
  EXPECT_EQ(budget.take(now + 1000 * actors::kMillisecond), std::nullopt);
  now += 1'000'000 * actors::kMillisecond;  // no more is saved up
  EXPECT_EQ(budget.take(now), 1u);
  EXPECT_EQ(budget.take(now), 0u);
  EXPECT_EQ(budget.take(now), std::nullopt);
}

TEST(UnreachableNotice, ComesWithinThreeSecondsAndThenLessAndLessOften) {
  actors::UnreachableNotice notice;
  std::vector<actors::TimeNs> seconds;
  std::string first;
  for (actors::TimeNs ms = 0; ms <= 300'000; ms += 20) {
    auto line = notice.due(ms * actors::kMillisecond, false, "10.0.0.1:7070", "connection refused");
    if (!line) continue;
    if (seconds.empty()) first = *line;
    seconds.push_back(ms / 1000);
  }
  EXPECT_EQ(
      first,
      "this node cannot reach the coordinator at 10.0.0.1:7070 for 2 s: connection refused; it tries again");
  EXPECT_THAT(seconds, ElementsAre(2, 6, 14, 30, 62, 122, 182, 242));
}

TEST(UnreachableNotice, BeginsAgainWhereTheCoordinatorWasReachedMeanwhile) {
  actors::UnreachableNotice notice;
  auto at = [&](actors::TimeNs ms, bool is_reached) {
    return notice.due(ms * actors::kMillisecond, is_reached, "a:1", "gone").has_value();
  };
  EXPECT_FALSE(at(0, false));
  EXPECT_TRUE(at(2'000, false));
  EXPECT_FALSE(at(2'020, true));
  EXPECT_FALSE(at(9'000, false));
  EXPECT_FALSE(at(10'900, false));
  EXPECT_TRUE(at(11'000, false));
}

}  // namespace
}  // namespace shoal::testing
