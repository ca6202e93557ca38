// Thousands of unauthenticated connections, held open and opened again as soon as they are closed. A peer
// that knows the token can still connect.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/host_port.h"
#include "base/owned_fd.h"
#include "tests/transport/live/recording_handler.h"
#include "transport/tcp/resolver.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kStrangers = 3000;

// Keeps this number of connections to an address. Each sends `words` and nothing more.
class Strangers {
 public:
  Strangers(const std::string& address, size_t count, Bytes words)
      : address_(*transport::resolve(*base::parse_host_port(address), true)), words_(std::move(words)) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    rlimit more = files;
    more.rlim_cur = std::min<rlim_t>(files.rlim_max, count + 1000);
    setrlimit(RLIMIT_NOFILE, &more);
    count_ = std::min<size_t>(count, more.rlim_cur - std::min<rlim_t>(more.rlim_cur, 500));
    thread_ = std::thread([this] { run(); });
  }
  ~Strangers() {
    stops_ = true;
    thread_.join();
  }
  size_t count() const { return count_; }
  // Connections that were closed, and made again.
  size_t came_back() const { return came_back_; }
  // False: not in time.
  bool wait_came_back(size_t count) const {
    auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (came_back_ < count) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  void connect_one() {
    auto socket = transport::begin_connecting(address_);
    if (!socket.ok()) return;
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.fd = socket->get()}};
    epoll_ctl(poll_.get(), EPOLL_CTL_ADD, socket->get(), &event);
    sockets_.emplace(socket->get(), std::move(*socket));
  }

  void run() {
    epoll_event events[256];
    while (!stops_) {
      for (int i = 0; i < 64 && sockets_.size() < count_; ++i) connect_one();
      const int ready = epoll_wait(poll_.get(), events, 256, 10);
      for (int i = 0; i < ready; ++i) {
        const int fd = events[i].data.fd;
        char dropped[64];
        const bool is_closed =
            (events[i].events & (EPOLLHUP | EPOLLERR)) != 0 ||
            ((events[i].events & EPOLLIN) != 0 && ::recv(fd, dropped, sizeof dropped, 0) <= 0);
        if (is_closed) {
          sockets_.erase(fd);
          ++came_back_;
          connect_one();
        } else if ((events[i].events & EPOLLOUT) != 0 && !words_.empty()) {
          (void)!::send(fd, words_.data(), words_.size(), MSG_NOSIGNAL);
        }
      }
    }
  }

  transport::SocketAddress address_;
  Bytes words_;
  size_t count_ = 0;
  base::OwnedFd poll_{epoll_create1(EPOLL_CLOEXEC)};
  std::unordered_map<int, base::OwnedFd> sockets_;
  std::atomic<size_t> came_back_ = 0;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

class Flood : public OfEachTransport {
 protected:
  // Each attempt is bounded by the transport's own deadlines; few are needed, and the strangers never stop.
  void expect_gets_in(Bytes words) {
    constexpr int kAttempts = 5;
    Node listener(make_options(true, "listener")), node(make_options(false, "node"));
    ASSERT_TRUE(listener.start().ok() && node.start().ok());
    Strangers strangers(listener.address(), kStrangers, std::move(words));
    ASSERT_TRUE(strangers.wait_came_back(strangers.count()));
    transport::PeerId peer = 0;
    int attempt = 0;
    do {
      peer = node.transport->connect(listener.address());
    } while (!node.handler.wait_up(peer) && ++attempt < kAttempts);
    ASSERT_LT(attempt, kAttempts) << node.handler.wait_lost(peer).to_string();
    EXPECT_TRUE(strangers.wait_came_back(strangers.came_back() + strangers.count())) << "they go on";
    ASSERT_TRUE(node.transport->send(peer, make_message(9 << 20, 1)).ok());
    transport::PeerId from = listener.handler.wait_nth_up(1);
    EXPECT_TRUE(listener.handler.wait_messages(from, 1));
    EXPECT_TRUE(listener.handler.record(from).lost.empty());
    std::vector<Status> refused;
    EXPECT_TRUE(listener.handler.wait([&](auto& self) {
      refused = self.refused();
      return !refused.empty();
    }));
    EXPECT_THAT(refused.front().message(),
                HasSubstr("connections that had not proved that they belong to this job"));
    EXPECT_THAT(refused.front().message(), HasSubstr("of them came from 127.0.0.1"));
  }
};

INSTANTIATE_TEST_SUITE_P(Of, Flood, kEachTransport(), kNameOfTransport);

// No authenticated connection is closed to make room for another one.
TEST_P(Flood, OfNodesThatComeAtOnceIsLetIn) {
  constexpr size_t kNodes = 24;
  transport::TransportOptions options = make_options(true, "listener");
  options.limits.unproven_sessions = 2;
  options.limits.unproven_life_min_ms = options.limits.offered_life_min_ms =
      options.limits.unproven_life_max_ms = 60'000;  // however slow the machine
  Node listener(std::move(options));
  ASSERT_TRUE(listener.start().ok());
  std::list<Node> nodes;
  std::vector<transport::PeerId> peers;
  for (size_t i = 0; i < kNodes; ++i) {
    ASSERT_TRUE(nodes.emplace_back(make_options(false, "node-" + std::to_string(i))).start().ok());
  }
  for (Node& node : nodes) peers.push_back(node.transport->connect(listener.address()));
  size_t i = 0;
  for (Node& node : nodes) {
    EXPECT_TRUE(node.handler.wait_up(peers[i])) << i << ": " << node.handler.wait_lost(peers[i]).to_string();
    ++i;
  }
}

TEST_P(Flood, OfThoseWhoSayNothingKeepsNobodyOut) {
  expect_gets_in({});
}

TEST_P(Flood, OfThoseWhoBeginATlsRecordKeepsNobodyOut) {
  expect_gets_in({std::byte{0x16}, std::byte{3}, std::byte{1}, std::byte{1}, std::byte{0}, std::byte{1}});
}

}  // namespace
}  // namespace shoal::testing
