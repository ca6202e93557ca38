// The sharing links of two nodes in one process. Lists replace the Loaders that receive the messages.
#include "actors/node/links/sharing_links.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "base/host_port.h"
#include "tests/actors/node/links/transport_options.h"

namespace shoal::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::chrono::seconds kSharingPatience{20};
constexpr actors::wire::LoadId kLoad{false, 7, 0, 0};

actors::WireMessage between_loaders(actors::WireBody body) {
  return {actors::RoleKind::loader, actors::RoleKind::loader,
          std::make_shared<const actors::WireBody>(std::move(body))};
}

actors::WireMessage wanted(std::vector<uint64_t> chunks) {
  return between_loaders(actors::wire::ChunkRequest{kLoad, std::move(chunks)});
}

actors::ChunkPtr some_chunk(size_t bytes) {
  auto chunk = std::make_shared<actors::Chunk>();
  chunk->bytes.resize(bytes);
  for (size_t i = 0; i < bytes; ++i) chunk->bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  chunk->size = bytes;
  return chunk;
}

bool came_to(std::chrono::steady_clock::time_point deadline) {
  std::this_thread::yield();
  return std::chrono::steady_clock::now() < deadline;
}

class SharingNode {
 public:
  explicit SharingNode(const std::string& name, uint32_t idle_ms = actors::kSharingIdleMs)
      : links_(settings(name, idle_ms), [this](actors::NodeId from, actors::WireMessage message, size_t) {
          std::lock_guard lock(mutex_);
          heard_.push_back({from, std::move(message)});
          changed_.notify_all();
          return has_room_.load();
        }) {}

  actors::SharingLinks& links() { return links_; }
  std::string listen() {
    auto address = links_.listen();
    EXPECT_TRUE(address.ok()) << address.status().to_string();
    return address.ok() ? *address : "";
  }
  struct Heard {
    actors::NodeId from = 0;
    actors::WireMessage message;
  };
  std::vector<Heard> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSharingPatience, [&] { return heard_.size() >= count; });
    EXPECT_GE(heard_.size(), count);
    std::vector<Heard> out = heard_;
    out.resize(count);
    return out;
  }
  template <class Until>
  actors::SharingCounts counts_when(Until until) {
    auto deadline = std::chrono::steady_clock::now() + kSharingPatience;
    while (!until(links_.counts()) && came_to(deadline)) {
    }
    return links_.counts();
  }
  std::vector<actors::SendId> wait_left(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSharingPatience, [&] { return left_.size() >= count; });
    return left_;
  }
  std::vector<actors::SendId> left() {
    std::lock_guard lock(mutex_);
    return left_;
  }
  std::vector<std::string> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }
  void set_full() { has_room_ = false; }

 private:
  actors::SharingLinks::Settings settings(const std::string& name, uint32_t idle_ms) {
    actors::SharingLinks::Settings out;
    out.transport = transport_options(name);
    out.own_host = [] { return Result<std::string>("127.0.0.1"); };
    out.idle_ms = idle_ms;
    out.on_left = [this](actors::SendId id) {
      std::lock_guard lock(mutex_);
      left_.push_back(id);
      changed_.notify_all();
    };
    out.log = [this](const std::string& line) {
      std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    return out;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Heard> heard_;
  std::vector<std::string> lines_;
  std::vector<actors::SendId> left_;
  std::atomic<bool> has_room_{true};
  actors::SharingLinks links_;
};

// A peer that connects to the address with its own transport.
class Visitor final : public transport::TransportHandler {
 public:
  explicit Visitor(transport::TransportOptions options)
      : transport_(transport::make_transport(std::move(options))) {
    EXPECT_TRUE(transport_->start(*this).ok());
  }
  ~Visitor() override {
    {
      std::lock_guard lock(mutex_);
      stands_still_ = false;
    }
    changed_.notify_all();
    transport_->stop(0);
  }
  // In one session: what follows its end goes nowhere.
  void command(const std::string& address, const std::vector<actors::WireMessage>& messages) {
    const transport::PeerId peer = transport_->connect(address);
    for (const actors::WireMessage& message : messages)
      (void)transport_->send(peer, actors::encode_wire(message));
  }
  // From the first message on it takes nothing in, until it goes.
  void stand_still() { stands_still_ = true; }
  void on_peer_up(transport::PeerId, const transport::Identity&) override {}
  void on_message(transport::PeerId, Bytes) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !stands_still_; });
  }
  void on_peer_lost(transport::PeerId, const Status& why) override {
    std::lock_guard lock(mutex_);
    lost_ = why;
    changed_.notify_all();
  }
  Status wait_lost() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSharingPatience, [&] { return !lost_.ok(); });
    return lost_;
  }

 private:
  std::unique_ptr<transport::Transport> transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stands_still_ = false;
  Status lost_;
};

TEST(SharingLinks, PassChunksOnToWhoeverAskedForThem) {
  SharingNode a("a"), b("b");
  const std::string at_b = b.listen();
  EXPECT_THAT(at_b, StartsWith("127.0.0.1:"));
  EXPECT_EQ(b.listen(), at_b) << "the same each time";
  a.listen();
  a.links().send_to(at_b, wanted({1, 2, 3}));
  SharingNode::Heard asked = b.wait_for(1)[0];
  EXPECT_GE(asked.from, actors::kFirstSharer);
  EXPECT_EQ(std::get<actors::wire::ChunkRequest>(*asked.message.body).chunks,
            (std::vector<uint64_t>{1, 2, 3}));

  // Far more than the transport takes at once.
  const actors::ChunkPtr chunk = some_chunk(actors::kChunkBytes);
  constexpr uint64_t kChunks = 32;
  for (uint64_t i = 0; i < kChunks; ++i) {
    b.links().send(asked.from, between_loaders(actors::wire::ChunkData{kLoad, i, chunk}));
  }
  auto received = a.wait_for(kChunks);
  for (uint64_t i = 0; i < kChunks; ++i) {
    const auto& is = std::get<actors::wire::ChunkData>(*received[i].message.body);
    EXPECT_EQ(is.number, i) << "in order";
    EXPECT_EQ(is.chunk->bytes, chunk->bytes);
    EXPECT_EQ(received[i].from, received[0].from);
  }
  EXPECT_GE(received[0].from, actors::kFirstSharer);

  a.links().send(received[0].from, wanted({9}));
  a.links().send_to(at_b, wanted({10}));
  auto again = b.wait_for(3);
  EXPECT_EQ(again[1].from, asked.from);
  EXPECT_EQ(again[2].from, asked.from) << "one session serves both ways";
  EXPECT_EQ(a.links().counts().bytes_received, kChunks * actors::kChunkBytes);
  EXPECT_EQ(a.links().counts().dropped, 0u);
  actors::SharingCounts sent =
      b.counts_when([&](const actors::SharingCounts& now) { return now.chunks_sent == kChunks; });
  EXPECT_EQ(sent.bytes_sent, kChunks * actors::kChunkBytes);
  EXPECT_EQ(sent.sessions, 1u);
}

TEST(SharingLinks, TellWhenWhatWasSentHasLeft) {
  SharingNode a("a"), b("b");
  a.listen();
  a.links().send_to(b.listen(), wanted({1}));
  const actors::NodeId from = b.wait_for(1)[0].from;
  const actors::ChunkPtr chunk = some_chunk(actors::kChunkBytes);
  std::vector<actors::SendId> ids(16);
  std::iota(ids.begin(), ids.end(), 1);
  for (actors::SendId id : ids)
    b.links().send(from, between_loaders(actors::wire::ChunkData{kLoad, id, chunk}), id);
  a.wait_for(ids.size());
  EXPECT_EQ(b.wait_left(ids.size()), ids);
  b.links().send(from + 77, wanted({2}), 17);
  EXPECT_EQ(b.wait_left(17).back(), 17u) << "what cannot be sent is held no more either";
}

// The session ends on its own if the other side stops sending.
TEST(SharingLinks, HoldNothingForAPeerThatTakesNothingInOnceItsSessionHasEnded) {
  for (bool ends_it : {true, false}) {
    SharingNode a("a");
    Visitor visitor(transport_options("visitor"));
    visitor.stand_still();
    visitor.command(a.listen(), {wanted({1})});
    const actors::NodeId from = a.wait_for(1)[0].from;
    const actors::ChunkPtr chunk = some_chunk(actors::kChunkBytes);
    constexpr actors::SendId kSends = 16;
    for (actors::SendId id = 1; id <= kSends; ++id) {
      a.links().send(from, between_loaders(actors::wire::ChunkData{kLoad, id, chunk}), id);
    }
    a.wait_left(1);
    EXPECT_LT(a.left().size(), kSends);
    EXPECT_GT(chunk.use_count(), 2) << "it is held";
    if (ends_it) a.links().end_session(from, Status(Code::unavailable, "takes nothing in"));
    EXPECT_EQ(a.wait_left(kSends).size(), kSends);
    EXPECT_EQ(a.counts_when([](const actors::SharingCounts& now) { return now.sessions == 0; }).sessions, 0u);
    const auto deadline = std::chrono::steady_clock::now() + kSharingPatience;
    while (chunk.use_count() != 1 && came_to(deadline)) {  // the sender may be about to encode one
    }
    EXPECT_EQ(chunk.use_count(), 1);
  }
}

TEST(SharingLinks, LetInNobodyWithoutTheToken) {
  SharingNode a("a");
  const std::string at_a = a.listen();
  Visitor stranger(transport_options("stranger", "another secret"));
  stranger.command(at_a, {wanted({1})});
  EXPECT_THAT(stranger.wait_lost().message(), HasSubstr("token"));
  transport::TransportOptions other_run = transport_options("other run");
  other_run.identity.generation = 4;
  Visitor late(other_run);
  late.command(at_a, {wanted({1})});
  EXPECT_THAT(late.wait_lost().message(), HasSubstr("generations differ"));
  Visitor b(transport_options("b"));
  b.command(at_a, {wanted({2})});
  EXPECT_EQ(std::get<actors::wire::ChunkRequest>(*a.wait_for(1)[0].message.body).chunks[0], 2u);
  EXPECT_THAT(a.lines(), Contains(HasSubstr("rejected at the listener for shared loads: ")));
}

TEST(SharingLinks, ListenWithinThePorts) {
  transport::TransportOptions transport = transport_options("a");
  transport.network.ports = free_ports();
  actors::SharingLinks::Settings settings;
  settings.transport = transport;
  settings.own_host = [] { return Result<std::string>("127.0.0.1"); };
  settings.log = [](const std::string&) {};
  actors::SharingLinks links(std::move(settings),
                             [](actors::NodeId, actors::WireMessage, size_t) { return true; });
  const base::HostPort at = *base::parse_host_port(links.listen().value());
  EXPECT_GE(at.port, transport.network.ports.first);
  EXPECT_LE(at.port, transport.network.ports.last);
}

TEST(SharingLinks, EndTheSessionOfWhoeverSaysAnythingElse) {
  SharingNode a("a");
  const std::string at_a = a.listen();
  const std::vector<actors::WireMessage> not_said_here = {
      {actors::RoleKind::loader, actors::RoleKind::coordinator, wanted({1}).body},
      {actors::RoleKind::planner, actors::RoleKind::loader, wanted({1}).body},
      between_loaders(actors::wire::Pending{.key = {3, 1, 1}}),
      {actors::RoleKind::shard_writer, actors::RoleKind::coordinator,
       std::make_shared<const actors::WireBody>(
           actors::wire::SaveFailed{{3, 1, 1}, 0, Status(Code::io, "no disk")})}};
  for (const actors::WireMessage& message : not_said_here) {
    Visitor visitor(transport_options("visitor"));
    visitor.command(at_a, {message, wanted({66})});
    EXPECT_THAT(visitor.wait_lost().message(), HasSubstr("in a session for shared loads"))
        << actors::describe(*message.body);
  }
  Visitor b(transport_options("b"));
  b.command(at_a, {wanted({2})});
  EXPECT_EQ(std::get<actors::wire::ChunkRequest>(*a.wait_for(1)[0].message.body).chunks[0], 2u)
      << "the first heard";
  EXPECT_THAT(a.lines(), Contains(HasSubstr("this node ends the session with visitor")));
}

TEST(SharingLinks, DropWhatCannotBeSent) {
  SharingNode a("a");
  a.links().send_to("127.0.0.1:9", wanted({1}));
  EXPECT_EQ(a.links().counts().dropped, 1u) << "nothing is opened before it listens";
  a.listen();
  std::string gone;
  {
    SharingNode b("b");
    gone = b.listen();
  }
  a.links().send_to(gone, wanted({1}));
  a.links().send_to("no address", wanted({1}));
  a.links().send(actors::kFirstSharer + 77, wanted({1}));
  actors::SharingCounts after =
      a.counts_when([](const actors::SharingCounts& now) { return now.sessions == 0; });
  EXPECT_EQ(after.sessions, 0u) << "and no descriptor stays";
  EXPECT_GE(after.dropped, 2u);

  SharingNode c("c");
  c.set_full();
  a.links().send_to(c.listen(), wanted({5}));
  c.wait_for(1);
  EXPECT_EQ(c.counts_when([](const actors::SharingCounts& now) { return now.dropped > 0; }).dropped, 1u);
}

TEST(SharingLinks, CloseSessionsThatAreIdleAndOpenOthersUnderNewIds) {
  SharingNode a("a"), b("b", 1);
  a.listen();
  const std::string at_b = b.listen();
  a.links().send_to(at_b, wanted({1}));
  const actors::NodeId first = b.wait_for(1)[0].from;
  auto is_gone = [&](const actors::SharingCounts& now) {
    b.links().close_idle();
    return now.sessions == 0;
  };
  EXPECT_EQ(b.counts_when(is_gone).sessions, 0u);
  EXPECT_EQ(a.counts_when([](const actors::SharingCounts& now) { return now.sessions == 0; }).sessions, 0u);
  a.links().close_idle();
  a.links().send_to(at_b, wanted({2}));
  EXPECT_GT(b.wait_for(2)[1].from, first) << "never used twice";
  a.links().close_idle();
  EXPECT_EQ(a.links().counts().sessions, 1u) << "idle for less than a minute";
}

TEST(SharingLinks, SayNothingAnyMoreOnceStopped) {
  SharingNode a("a"), b("b");
  const std::string at_b = b.listen();
  a.listen();
  a.links().send_to(at_b, wanted({1}));
  b.wait_for(1);
  a.links().stop(100);
  EXPECT_EQ(b.counts_when([](const actors::SharingCounts& now) { return now.sessions == 0; }).sessions, 0u);
  const uint64_t dropped = a.links().counts().dropped;
  a.links().send_to(at_b, wanted({2}));
  EXPECT_EQ(a.links().counts().dropped, dropped + 1);
  EXPECT_EQ(a.links().listen().status().code(), Code::unavailable);
}

}  // namespace
}  // namespace shoal::testing
