// A relay with real child nodes. A list replaces the coordinator's session.
#include "actors/node/links/relay_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "actors/messages/messages.h"
#include "actors/node/links/peer_links.h"
#include "base/host_port.h"
#include "tests/actors/node/links/transport_options.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kRelayPatience{20};

actors::WireMessage pending(uint64_t step) {
  return {actors::RoleKind::coordinator, actors::RoleKind::shard_writer,
          std::make_shared<actors::WireBody>(actors::wire::Pending{.key = {1, step, 1}})};
}

// The messages that the coordinator receives, and how full its session is.
class Coordinator {
 public:
  Status take(const Bytes& message) {
    std::lock_guard lock(mutex_);
    if (is_full_) return Status(Code::busy, "full");
    auto received = actors::decode_link(message);
    EXPECT_TRUE(received.ok() && received->has_value());
    if (received.ok() && *received) heard_.push_back(**received);
    changed_.notify_all();
    return ok_status();
  }
  void set_full(bool is_full) {
    std::lock_guard lock(mutex_);
    is_full_ = is_full;
  }
  template <class Word>
  std::vector<Word> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    std::vector<Word> found;
    changed_.wait_for(lock, kRelayPatience, [&] {
      found.clear();
      for (const actors::LinkMessage& each : heard_) {
        if (const auto* word = std::get_if<Word>(&each)) found.push_back(*word);
      }
      return found.size() >= count;
    });
    EXPECT_GE(found.size(), count);
    found.resize(count);
    return found;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_full_ = false;
  std::vector<actors::LinkMessage> heard_;
};

// One node that goes by way of the relay.
class Child final : public transport::TransportHandler {
 public:
  explicit Child(transport::TransportOptions options)
      : transport_(transport::make_transport(std::move(options))) {
    EXPECT_TRUE(transport_->start(*this).ok());
  }
  ~Child() override { transport_->stop(0); }
  void connect(const std::string& address) { peer_ = transport_->connect(address); }
  void notify(uint64_t step) {
    EXPECT_TRUE(transport_->send(peer_, actors::encode_wire(pending(step))).ok());
  }
  void on_peer_up(transport::PeerId, const transport::Identity& identity) override {
    note("up in epoch " + std::to_string(identity.epoch));
  }
  void on_message(transport::PeerId, Bytes message) override {
    note(actors::describe(*actors::decode_wire(message)->body));
  }
  void on_peer_lost(transport::PeerId, const Status& why) override { note("lost: " + why.to_string()); }
  std::string wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    bool came = changed_.wait_for(lock, kRelayPatience, [&] { return notes_.size() >= count; });
    return came ? notes_[count - 1] : "nothing";
  }

 private:
  void note(const std::string& line) {
    std::lock_guard lock(mutex_);
    notes_.push_back(line);
    changed_.notify_all();
  }
  std::unique_ptr<transport::Transport> transport_;
  transport::PeerId peer_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> notes_;
};

class Relay : public ::testing::Test {
 protected:
  Relay() {
    followed_.epoch = 5;
    relay_.open("127.0.0.1:7070", followed_, 4);
    address_ = coordinator_.wait_for<actors::link::RelayReady>(1)[0].address;
  }
  std::vector<std::string> warnings() {
    std::lock_guard lock(warnings_mutex_);
    return warnings_;
  }
  Coordinator coordinator_;
  transport::Identity followed_;
  std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;
  actors::RelayServer relay_{
      actors::RelayServer::Settings{transport_options("relay"), 0, [](const std::string&) {},
                                    [this](const std::string& line) {
                                      std::lock_guard lock(warnings_mutex_);
                                      warnings_.push_back(line);
                                    }},
      [this](const Bytes& message) { return coordinator_.take(message); }};
  std::string address_;
};

TEST_F(Relay, ListensWhereTheCoordinatorSeesItAndSpeaksForItsChildren) {
  EXPECT_THAT(address_, ::testing::StartsWith("127.0.0.1:"));
  Child a(transport_options("a"));
  a.connect(address_);
  EXPECT_EQ(a.wait_for(1), "up in epoch 5") << "the coordinator's";
  actors::link::ChildUp up = coordinator_.wait_for<actors::link::ChildUp>(1)[0];
  EXPECT_EQ(up.name, "a");
  for (uint64_t step = 1; step <= 50; ++step) a.notify(step);
  auto received = coordinator_.wait_for<actors::link::FromChild>(50);
  for (uint64_t step = 1; step <= 50; ++step) {
    EXPECT_EQ(received[step - 1].child, up.child);
    EXPECT_EQ(received[step - 1].message, actors::encode_wire(pending(step))) << "in order, as it was sent";
  }
  relay_.to_child(up.child, actors::encode_wire(pending(7)));
  EXPECT_EQ(a.wait_for(2), actors::describe(*pending(7).body));
}

TEST_F(Relay, LetsInNobodyWithoutTheToken) {
  Child stranger(transport_options("stranger", "another secret"));
  stranger.connect(address_);
  EXPECT_THAT(stranger.wait_for(1), HasSubstr("token"));
  Child a(transport_options("a"));
  a.connect(address_);
  EXPECT_EQ(coordinator_.wait_for<actors::link::ChildUp>(1)[0].name, "a")
      << "the coordinator hears of no stranger";
  EXPECT_THAT(warnings(), ::testing::Contains(HasSubstr("rejected at the listener of the relay: ")));
}

TEST(RelayListener, IsWithinThePorts) {
  transport::TransportOptions transport = transport_options("relay");
  transport.network.ports = free_ports();
  transport.network.interface = "no-such-0";  // of no use where the coordinator is on the loopback
  Coordinator coordinator;
  actors::RelayServer relay(actors::RelayServer::Settings{transport, 0, [](const std::string&) {}, nullptr},
                            [&](const Bytes& message) { return coordinator.take(message); });
  relay.open("127.0.0.1:7070", transport::Identity(), 4);
  const base::HostPort at =
      *base::parse_host_port(coordinator.wait_for<actors::link::RelayReady>(1)[0].address);
  EXPECT_EQ(at.host, "127.0.0.1");
  EXPECT_GE(at.port, transport.network.ports.first);
  EXPECT_LE(at.port, transport.network.ports.last);
}

TEST(RelayListener, IsAtTheInterfaceThatWasAskedFor) {
  transport::TransportOptions transport = transport_options("relay");
  transport.network.interface = "no-such-0";
  Coordinator coordinator;
  actors::RelayServer relay(actors::RelayServer::Settings{transport, 0, [](const std::string&) {}, nullptr},
                            [&](const Bytes& message) { return coordinator.take(message); });
  relay.open("203.0.113.1:7070", transport::Identity(), 4);  // an address for documentation, nobody's
  EXPECT_THAT(coordinator.wait_for<actors::link::RelayFailed>(1)[0].cause,
              HasSubstr("no interface 'no-such-0'"));
}

TEST_F(Relay, HoldsBackWhatTheCoordinatorHasNoRoomForUpToItsBound) {
  Child a(transport_options("a"));
  a.connect(address_);
  coordinator_.wait_for<actors::link::ChildUp>(1);
  auto deadline = std::chrono::steady_clock::now() + kRelayPatience;
  // RelayReady and ChildUp are heard before they give back their places.
  while (relay_.counts().messages_up < 2 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  coordinator_.set_full(true);
  for (uint64_t step = 1; step <= 2 * actors::kMaxHeldPerChild; ++step) a.notify(step);
  while (relay_.counts().dropped < actors::kMaxHeldPerChild && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(relay_.counts().dropped, actors::kMaxHeldPerChild);
  coordinator_.set_full(false);
  auto received = coordinator_.wait_for<actors::link::FromChild>(actors::kMaxHeldPerChild);
  EXPECT_EQ(received.front().message, actors::encode_wire(pending(1)));
  EXPECT_EQ(received.back().message, actors::encode_wire(pending(actors::kMaxHeldPerChild)));
}

TEST_F(Relay, LetsItsChildrenGoWhenTheSessionThatMadeItOneEnds) {
  Child a(transport_options("a"));
  a.connect(address_);
  coordinator_.wait_for<actors::link::ChildUp>(1);
  relay_.close();
  EXPECT_THAT(a.wait_for(2), HasSubstr("closed by the peer: the relay has lost the coordinator"));
  relay_.open("127.0.0.1:7070", followed_, 4);
  std::string again = coordinator_.wait_for<actors::link::RelayReady>(2)[1].address;
  a.connect(again);
  EXPECT_EQ(a.wait_for(3), "up in epoch 5");
  relay_.drop_child(coordinator_.wait_for<actors::link::ChildUp>(2)[1].child,
                    Status(Code::refused, "it spoke nonsense"));
  EXPECT_THAT(a.wait_for(4), HasSubstr("it spoke nonsense"));
  coordinator_.wait_for<actors::link::ChildLost>(1);
}

// A code of a rejection would end a node that starts and has been looking for its coordinator for a while.
TEST_F(Relay, LetsAChildThatTheCoordinatorDropsComeAgain) {
  Child a(transport_options("a"));
  a.connect(address_);
  const uint64_t child = coordinator_.wait_for<actors::link::ChildUp>(1)[0].child;
  auto not_started = transport::make_transport(transport_options("relay"));
  actors::PeerLinks links(*not_started, "127.0.0.1:7070");
  links.set_relay(&relay_);
  links.look_for_coordinator();
  links.on_peer_up(1, followed_);
  links.on_message(1, actors::encode_link(actors::link::DropChild{child, "the relay is full"}));
  EXPECT_THAT(a.wait_for(2), HasSubstr("lost: unavailable: "));
  EXPECT_THAT(a.wait_for(2), HasSubstr("the relay is full"));
}

}  // namespace
}  // namespace shoal::testing
