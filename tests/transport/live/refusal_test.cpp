// Nodes of different jobs, live. The connecting node gets the cause, the listening node counts it, and a good
// peer is not affected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/live/recording_handler.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  const char* name;
  void (*change)(transport::TransportOptions&);
  const char* words;
};

class Refusal : public ::testing::TestWithParam<std::tuple<Case, transport::TransportKind>> {
 protected:
  Refusal() { transport_of_listeners = std::get<1>(GetParam()); }
  ~Refusal() override { transport_of_listeners = transport::TransportKind::tcp; }
};

TEST_P(Refusal, IsToldToTheConnectorAndCountedByTheListener) {
  Node listener(make_options(true, "listener")), good(make_options(false, "good"));
  transport::TransportOptions options = make_options(false, "bad");
  const Case& tested = std::get<0>(GetParam());
  tested.change(options);
  Node bad(std::move(options));
  ASSERT_TRUE(listener.start().ok() && good.start().ok() && bad.start().ok());
  transport::PeerId good_peer = good.transport->connect(listener.address());
  ASSERT_TRUE(good.handler.wait_up(good_peer));

  transport::PeerId peer = bad.transport->connect(listener.address());
  Status why = bad.handler.wait_lost(peer);
  EXPECT_EQ(why.code(), Code::refused);
  EXPECT_THAT(why.message(), AllOf(StartsWith(listener.address() + ": "), HasSubstr(tested.words)));
  EXPECT_FALSE(bad.handler.record(peer).up.has_value());
  EXPECT_EQ(bad.transport->send(peer, make_message(8, 0)).code(), Code::unavailable);

  ASSERT_TRUE(good.transport->send(good_peer, make_message(64, 1)).ok());
  transport::PeerId from = listener.handler.wait_nth_up(1);
  EXPECT_TRUE(listener.handler.wait_messages(from, 1));
  EXPECT_EQ(listener.transport->stats().handshakes_rejected, 1u);
  EXPECT_EQ(listener.transport->stats().peers_up, 1u);
  EXPECT_TRUE(listener.handler.wait([](auto& self) { return self.records().size() == 1; }))
      << "the listener's user never hears of the refused one";
}

INSTANTIATE_TEST_SUITE_P(
    Of, Refusal,
    ::testing::Combine(
        ::testing::Values(
            Case{"AnotherToken", [](transport::TransportOptions& o) { o.token.back() ^= std::byte{1}; },
                 "token"},
            Case{"AnotherRoot", [](transport::TransportOptions& o) { o.identity.root_id = {}; },
                 "roots differ"},
            Case{"AnotherJob", [](transport::TransportOptions& o) { o.identity.job_id = "job-2"; },
                 "jobs differ: the peer belongs to 'job-2', but this node to 'job-1'"},
            Case{"AnotherGeneration", [](transport::TransportOptions& o) { o.identity.generation = 4; },
                 "generations differ: the peer is in 4, but this node is in 3"}),
        kEachTransport()),
    [](const auto& tested) {
      return std::string(std::get<0>(tested.param).name) + "By" +
             transport::to_string(std::get<1>(tested.param));
    });

TEST(Refusals, EndOnceTheGenerationIsSetRight) {
  transport::TransportOptions options = make_options(false, "late");
  options.identity.generation = 2;
  Node listener(make_options(true, "listener")), late(std::move(options));
  ASSERT_TRUE(listener.start().ok() && late.start().ok());
  EXPECT_EQ(late.handler.wait_lost(late.transport->connect(listener.address())).code(), Code::refused);
  late.transport->set_generation(3, 9);
  EXPECT_TRUE(late.handler.wait_up(late.transport->connect(listener.address())));
  transport::PeerId peer = listener.handler.wait_nth_up(1);
  EXPECT_EQ(listener.handler.record(peer).up->epoch, 9u);
}

TEST(Refusals, OfOptionsThatMakeNoSense) {
  RecordingHandler handler;
  auto start = [&](void (*change)(transport::TransportOptions&)) {
    transport::TransportOptions options = make_options(true, "node");
    change(options);
    return transport::make_transport(std::move(options))->start(handler).code();
  };
  EXPECT_EQ(start([](transport::TransportOptions& o) { o.token.clear(); }), Code::invalid_argument);
  EXPECT_EQ(start([](transport::TransportOptions& o) { o.token.resize(5000); }), Code::invalid_argument);
  EXPECT_EQ(start([](transport::TransportOptions& o) { o.identity.name = "a\nb"; }), Code::invalid_argument);
  EXPECT_EQ(start([](transport::TransportOptions& o) { o.identity.job_id.assign(1000, 'x'); }),
            Code::invalid_argument);
  EXPECT_EQ(start([](transport::TransportOptions& o) { o.listen = "nowhere"; }), Code::invalid_argument);
  EXPECT_EQ(start([](transport::TransportOptions& o) { o.listen = "192.0.2.77:1"; }), Code::unavailable);
  EXPECT_EQ(start([](transport::TransportOptions& o) { o.limits.peer_lost_after_ms = 500; }),
            Code::invalid_argument);
}

}  // namespace
}  // namespace shoal::testing
