// The number of file descriptors per peer, and the behavior when none are left.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "tests/transport/live/child.h"
#include "tests/transport/live/recording_handler.h"

namespace shoal::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class Descriptors : public OfEachTransport {};
INSTANTIATE_TEST_SUITE_P(Of, Descriptors, kEachTransport(), kNameOfTransport);

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Waits until no more are open; how many the last look found.
size_t settle_at_most(size_t count) {
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  size_t open = open_descriptors();
  for (; open > count && std::chrono::steady_clock::now() < deadline; open = open_descriptors()) usleep(1000);
  return open;
}

// Waits until just so many are open; how many the last look found.
size_t settle_at(size_t count) {
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  size_t open = open_descriptors();
  for (; open != count && std::chrono::steady_clock::now() < deadline; open = open_descriptors())
    usleep(1000);
  return open;
}

// The peer may hear of its refusal before the listener has counted it.
uint64_t settle_at_refusals(const Node& listener, uint64_t count) {
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (listener.transport->stats().handshakes_rejected < count &&
         std::chrono::steady_clock::now() < deadline) {
    usleep(1000);
  }
  return listener.transport->stats().handshakes_rejected;
}

TEST_P(Descriptors, OfAPeerAreAsManyAsStated) {
  constexpr size_t kPeers = 6, kOfTcp = 4, kOfWorker = 9;  // docs/reference/transport.md
  const bool by_ucx = GetParam() == transport::TransportKind::ucx;
  const size_t per_peer = by_ucx ? transport::kDescriptorsPerPeer : 1;
  Node listener(make_options(true, "listener"));
  const size_t before_start = open_descriptors();
  ASSERT_TRUE(listener.start().ok());
  EXPECT_EQ(open_descriptors() - before_start, kOfTcp);
  const size_t own = before_start + kOfTcp + (by_ucx ? kOfWorker : 0);  // UCX is opened with the first peer
  EXPECT_LE(own - before_start, transport::kDescriptorsOfTransport);
  std::vector<std::unique_ptr<Child>> children;
  for (size_t i = 1; i <= kPeers; ++i) {
    children.push_back(std::make_unique<Child>(listener.address()));
    ASSERT_NE(listener.handler.wait_nth_up(i), 0u);
    EXPECT_LE(open_descriptors(), own + i * per_peer + 2)
        << "one connection in the handshake, one port for data";
  }
  EXPECT_EQ(settle_at(own + kPeers * per_peer), own + kPeers * per_peer);
  children.clear();
  EXPECT_LE(settle_at_most(own), own) << "all are given back";
}

TEST_P(Descriptors, BeyondTheBoundOfPeersARefusalSaysSo) {
  transport::TransportOptions options = make_options(true, "listener");
  options.limits.peers = 1;
  Node listener(std::move(options)), first(make_options(false, "first")),
      second(make_options(false, "second"));
  ASSERT_TRUE(listener.start().ok() && first.start().ok() && second.start().ok());
  ASSERT_TRUE(first.handler.wait_up(first.transport->connect(listener.address())));
  Status why = second.handler.wait_lost(second.transport->connect(listener.address()));
  EXPECT_EQ(why.code(), Code::busy);
  EXPECT_THAT(why.message(), HasSubstr("this node accepts at most 1 peers"));
  EXPECT_EQ(settle_at_refusals(listener, 1), 1u);
  EXPECT_EQ(listener.transport->stats().peers_lost, 0u);
}

// All descriptors of this process but so many, as long as it lives.
class Exhausted {
 public:
  explicit Exhausted(size_t left) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few{kFew, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = open("/dev/null", O_RDONLY | O_CLOEXEC); fd >= 0; fd = dup(fd)) taken_.push_back(fd);
    for (; left > 0; --left) {
      close(taken_.back());
      taken_.pop_back();
    }
  }
  ~Exhausted() {
    for (int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  static constexpr rlim_t kFew = 200;
  rlimit before_{};
  std::vector<int> taken_;
};

TEST_P(Descriptors, WhereNoneIsLeftARefusalSaysSoAndOthersGoOn) {
#if defined(SHOAL_ADDRESS_SANITIZER)
  GTEST_SKIP() << "the sanitizer needs descriptors of its own to look at memory";
#endif
  Node listener(make_options(true, "listener")), good(make_options(false, "good")),
      late(make_options(false, "late"));
  ASSERT_TRUE(listener.start().ok() && good.start().ok() && late.start().ok());
  transport::PeerId to_listener = good.transport->connect(listener.address());
  ASSERT_TRUE(good.handler.wait_up(to_listener));
  transport::PeerId at_listener = listener.handler.wait_nth_up(1);
  {
    Exhausted all_but(1);  // for the connector's socket
    Status why = late.handler.wait_lost(late.transport->connect(listener.address()));
    // One process plays all three nodes, so it differs who runs out, and where; the listener's own words,
    // where it is the listener that has none, are those of local_server_test too.
    EXPECT_FALSE(why.ok());
    EXPECT_THAT(why.message(),
                AnyOf(HasSubstr("this process has no file descriptor left (limit 200; ulimit -n"),
                      HasSubstr("a port for data"), HasSubstr("no data connection"),
                      HasSubstr("UCX cannot open its transports")));
    ASSERT_TRUE(good.transport->send(to_listener, make_message(64, 1)).ok());
    EXPECT_TRUE(listener.handler.wait_messages(at_listener, 1));
  }
  EXPECT_TRUE(late.handler.wait_up(late.transport->connect(listener.address())));
  EXPECT_TRUE(listener.handler.record(at_listener).lost.empty());
}

}  // namespace
}  // namespace shoal::testing
