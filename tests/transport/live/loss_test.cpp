// Peers that die, stop, return, or never existed. Each is reported once, within three seconds, and other
// peers are not affected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>

#include "tests/transport/live/child.h"
#include "tests/transport/live/recording_handler.h"
#include "transport/frame.h"

namespace shoal::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr milliseconds kReportedWithin{3000};

class Loss : public OfEachTransport {
 protected:
  Loss() : node_(make_options(true, "node")), good_(make_options(false, "good")) {
    EXPECT_TRUE(node_.start().ok() && good_.start().ok());
    good_to_node_ = good_.transport->connect(node_.address());
    EXPECT_TRUE(good_.handler.wait_up(good_to_node_));
    good_at_node_ = node_.handler.wait_nth_up(1);
  }

  void expect_reported_once(transport::PeerId peer, steady_clock::time_point since) {
    Status why = node_.handler.wait_lost(peer);
    EXPECT_EQ(why.code(), Code::unavailable);
    EXPECT_THAT(why.message(), StartsWith("child (127.0.0.1:"));
    auto record = node_.handler.record(peer);
    EXPECT_LE(record.lost_at - since, kReportedWithin) << why.message();
    EXPECT_EQ(record.lost.size(), 1u);
    EXPECT_EQ(node_.transport->send(peer, make_message(8, 0)).code(), Code::unavailable);
  }

  void expect_good_peer_unharmed() {
    size_t before = node_.handler.record(good_at_node_).messages.size();
    ASSERT_TRUE(good_.transport->send(good_to_node_, make_message(1 << 20, 1)).ok());
    EXPECT_TRUE(node_.handler.wait_messages(good_at_node_, before + 1));
    EXPECT_TRUE(node_.handler.record(good_at_node_).lost.empty());
    EXPECT_TRUE(good_.handler.record(good_to_node_).lost.empty());
  }

  Node node_, good_;
  transport::PeerId good_to_node_ = 0, good_at_node_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Of, Loss, kEachTransport(), kNameOfTransport);

TEST_P(Loss, OfAKilledPeerIsReported) {
  Child child(node_.address());
  transport::PeerId peer = node_.handler.wait_nth_up(2);
  auto since = steady_clock::now();
  child.signal(SIGKILL);
  expect_reported_once(peer, since);
  expect_good_peer_unharmed();
}

TEST_P(Loss, OfAStoppedPeerIsReported) {
  Child child(node_.address());
  transport::PeerId peer = node_.handler.wait_nth_up(2);
  auto since = steady_clock::now();
  child.stop();
  expect_reported_once(peer, since);
  expect_good_peer_unharmed();
}

TEST_P(Loss, OfAPeerWithFullQueuesIsReported) {
  Bytes small = make_message(4096, 1), large = make_message(4 << 20, 2);
  for (int number : {SIGKILL, SIGSTOP}) {
    Child child(node_.address());
    transport::PeerId peer = node_.handler.wait_nth_up(number == SIGKILL ? 2 : 3);
    child.stop();
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(node_.transport->send(peer, small).ok());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(node_.transport->send(peer, large).ok());
    auto since = steady_clock::now();
    if (number == SIGKILL) child.signal(SIGKILL);
    expect_reported_once(peer, since);
  }
  expect_good_peer_unharmed();
}

// Killed at some moment while megabytes pass both ways.
TEST_P(Loss, InTheMiddleOfBulkDataIsReported) {
  for (size_t round = 0; round < 5; ++round) {
    Child child(node_.address());
    transport::PeerId peer = node_.handler.wait_nth_up(2 + round);
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(node_.transport->send(peer, make_message(8 << 20, i)).ok());
    EXPECT_TRUE(node_.handler.wait_messages(peer, round % 4));
    auto since = steady_clock::now();
    child.signal(SIGKILL);
    expect_reported_once(peer, since);
  }
  expect_good_peer_unharmed();
}

TEST_P(Loss, IsNotReportedForAShortStop) {
  Child child(node_.address());
  transport::PeerId peer = node_.handler.wait_nth_up(2);
  child.stop();
  auto until = steady_clock::now() + milliseconds(900);
  while (steady_clock::now() < until) expect_good_peer_unharmed();
  child.signal(SIGCONT);
  ASSERT_TRUE(node_.transport->send(peer, make_message(64, 1)).ok());
  EXPECT_TRUE(node_.handler.wait_messages(peer, 1));
  EXPECT_TRUE(node_.handler.record(peer).lost.empty());
}

// The child calls a peer lost after 500 ms of silence; it is itself stopped for longer, and then finds all
// that the node has sent meanwhile.
TEST_P(Loss, IsNotReportedByOneWhoWasStoppedItself) {
  Child child(node_.address(), 500);
  transport::PeerId peer = node_.handler.wait_nth_up(2);
  child.stop();
  auto until = steady_clock::now() + milliseconds(1200);
  while (steady_clock::now() < until) expect_good_peer_unharmed();
  child.signal(SIGCONT);
  ASSERT_TRUE(node_.transport->send(peer, make_message(64, 1)).ok());
  EXPECT_TRUE(node_.handler.wait_messages(peer, 1));
  EXPECT_EQ(child.status(), -1) << "it has given up its peer";
}

TEST_P(Loss, IsFollowedByANewSessionForWhoeverConnectsAgain) {
  transport::PeerId first = good_to_node_;
  node_.transport->disconnect(good_at_node_, Status(Code::aborted, "try again"));
  Status why = good_.handler.wait_lost(first);
  EXPECT_EQ(why.code(), Code::aborted);
  EXPECT_THAT(why.message(), HasSubstr("closed by the peer: try again"));
  EXPECT_EQ(node_.handler.wait_lost(good_at_node_).code(), Code::aborted);
  good_to_node_ = good_.transport->connect(node_.address());
  EXPECT_NE(good_to_node_, first);
  ASSERT_TRUE(good_.handler.wait_up(good_to_node_));
  good_at_node_ = node_.handler.wait_nth_up(2);
  expect_good_peer_unharmed();
}

TEST_P(Loss, OfAListenerIsFollowedByANewSessionWithItsSuccessor) {
  auto first = std::make_unique<Node>(make_options(true, "first"));
  ASSERT_TRUE(first->start().ok());
  std::string address = first->address();
  transport::PeerId peer = good_.transport->connect(address);
  ASSERT_TRUE(good_.handler.wait_up(peer));
  first.reset();
  EXPECT_EQ(good_.handler.wait_lost(peer).code(), Code::unavailable);
  transport::TransportOptions options = make_options(true, "second");
  options.listen = address;
  Node second(std::move(options));
  ASSERT_TRUE(second.start().ok()) << "the port is free again";
  peer = good_.transport->connect(address);
  ASSERT_TRUE(good_.handler.wait_up(peer));
  EXPECT_EQ(good_.handler.record(peer).up->name, "second");
}

TEST_P(Loss, OfWhatNeverWasNamesTheAddress) {
  std::string address;
  {
    Node gone(make_options(true, "gone"));
    ASSERT_TRUE(gone.start().ok());
    address = gone.address();
  }
  Status why = good_.handler.wait_lost(good_.transport->connect(address));
  EXPECT_EQ(why.code(), Code::unavailable);
  EXPECT_THAT(why.message(), StartsWith(address + ": "));
  for (std::string nonsense : {"no-such-host.invalid:1", "here", "127.0.0.1:0"}) {
    why = good_.handler.wait_lost(good_.transport->connect(nonsense));
    EXPECT_FALSE(why.ok()) << nonsense;
    EXPECT_THAT(why.message(), StartsWith(nonsense + ": "));
  }
  expect_good_peer_unharmed();
}

}  // namespace
}  // namespace shoal::testing
