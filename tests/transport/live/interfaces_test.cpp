// Network interfaces that come up after a node has started. Each node runs in its own network namespace; if
// namespaces are not permitted, the tests are skipped.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/transport/live/network_host.h"
#include "tests/transport/live/recording_handler.h"
#include "transport/frame.h"

namespace shoal::testing {
namespace {

using ::testing::StartsWith;

constexpr const char* kNear = "10.78.0.1";
constexpr const char* kFar = "10.78.0.2";
constexpr const char* kSecondNear = "10.78.1.1";
constexpr const char* kSecondFar = "10.78.1.2";

// A link whose two ends are on this host, both up, the first with its address.
bool make_link(NetworkHost& host, const std::string& first, const std::string& second,
               const std::string& address) {
  return host.ip(fmt::format("link add {} type veth peer name {}", first, second)) &&
         host.ip(fmt::format("address add {}/24 dev {}", address, first)) &&
         host.ip(fmt::format("link set {} up", first)) && host.ip(fmt::format("link set {} up", second));
}

// Its second end goes to another host, and comes up there.
bool hand_over(NetworkHost& from, const std::string& name, NetworkHost& to, const std::string& address) {
  return from.ip(fmt::format("link set {} netns {}", name, to.pid())) &&
         to.ip(fmt::format("address add {}/24 dev {}", address, name)) &&
         to.ip(fmt::format("link set {} up", name)) && to.ask("running " + name) == "ok";
}

std::string port_of(const std::string& address) {
  return address.substr(address.rfind(':'));
}

// Connects until it is accepted, as a node does. Returns the id of the peer.
std::string connect_patiently(NetworkHost& host, const std::string& address) {
  auto give_up = std::chrono::steady_clock::now() + kPatience;
  std::string answer;
  while (!answer.starts_with("up ") && std::chrono::steady_clock::now() < give_up) {
    answer = host.ask("connect " + address);
  }
  EXPECT_THAT(answer, StartsWith("up "));
  return answer.starts_with("up ") ? answer.substr(3) : "";
}

void expect_messages_pass(NetworkHost& from, const std::string& peer, NetworkHost& to, size_t* received) {
  EXPECT_EQ(from.ask(fmt::format("send {} 64", peer)), "ok");
  EXPECT_EQ(from.ask(fmt::format("send {} {}", peer, transport::kRendezvousChunkBytes + 8)), "ok");
  *received += 2;
  EXPECT_EQ(to.ask(fmt::format("receive {}", *received)), "ok");
}

// Regression: UCX lists the interfaces once, when its context is made; a node older than its network never
// connected.
TEST(Interfaces, AConnectorOlderThanItsNetworkConnects) {
  NetworkHost a, b;
  if (!a.why_not().empty()) GTEST_SKIP() << a.why_not();
  size_t received = 0;
  ASSERT_TRUE(make_link(a, "v0", "v1", kNear));
  std::string address = a.ask(fmt::format("node listener {}:0", kNear));
  ASSERT_EQ(b.ask("node connector"), "ok");
  EXPECT_THAT(b.ask("connect " + address), StartsWith("lost: ")) << "there is no network yet";
  ASSERT_TRUE(hand_over(a, "v1", b, kFar));
  std::string peer = connect_patiently(b, address);
  ASSERT_NE(peer, "");
  expect_messages_pass(b, peer, a, &received);
}

TEST(Interfaces, AListenerOlderThanItsNetworkLetsIn) {
  NetworkHost a, b;
  if (!a.why_not().empty()) GTEST_SKIP() << a.why_not();
  size_t received = 0;
  ASSERT_TRUE(make_link(b, "v1", "v0", kFar));
  std::string port = port_of(a.ask("node listener 0.0.0.0:0"));
  ASSERT_EQ(b.ask("node connector"), "ok");
  ASSERT_TRUE(hand_over(b, "v0", a, kNear));
  std::string peer = connect_patiently(b, kNear + port);
  ASSERT_NE(peer, "");
  expect_messages_pass(b, peer, a, &received);
}

TEST(Interfaces, SessionsGoOnWhenOtherNetworksComeAndGo) {
  NetworkHost a, b, c;
  if (!a.why_not().empty()) GTEST_SKIP() << a.why_not();
  size_t received = 0;
  ASSERT_TRUE(make_link(a, "v0", "v1", kNear) && hand_over(a, "v1", b, kFar));
  std::string port = port_of(a.ask("node listener 0.0.0.0:0"));
  ASSERT_TRUE(b.ask("node early") == "ok" && c.ask("node late") == "ok");
  std::string first = connect_patiently(b, kNear + port);
  ASSERT_NE(first, "");
  for (int round = 0; round < 6; ++round) {  // more often than UCX may be opened at a time
    std::string name = fmt::format("w{}", round);
    ASSERT_TRUE(make_link(a, name, name + "c", kSecondNear) && hand_over(a, name + "c", c, kSecondFar));
    std::string peer = connect_patiently(c, kSecondNear + port);
    ASSERT_NE(peer, "") << "round " << round;
    expect_messages_pass(c, peer, a, &received);
    expect_messages_pass(b, first, a, &received);
    EXPECT_EQ(c.ask("disconnect " + peer), "ok");
    ASSERT_TRUE(a.ip("link del " + name));
  }
  EXPECT_EQ(b.ask("state " + first), "up " + first);
}

}  // namespace
}  // namespace shoal::testing
