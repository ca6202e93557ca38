// Two nodes of a shared load, one of which is ahead of the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "actors/loader/read_plan.h"
#include "tests/actors/loader/loader_by_itself.h"
#include "tests/actors/loader/sharing/peer.h"
#include "tests/actors/test_ids.h"
#include "tests/storage/decisions/decision_samples.h"

namespace shoal::actors {
namespace {

ChunkPtr chunk_of(uint64_t bytes) {
  auto chunk = std::make_shared<Chunk>();
  chunk->size = bytes;
  return chunk;
}

LayoutPtr all_want(uint32_t ranks) {
  LayoutBuilder builder;
  builder.add_tensor("weight", DType::f32, {8, 3}, Mesh::contiguous({ranks}), {Placement::replicate()});
  return std::move(builder).build().value();
}

// The Loader of the host of one of two ranks that want the same weight.
class ALoader : public LoaderByItself {
 public:
  explicit ALoader(Rank rank) {
    from_client(kClient, local::Slab{1, kMinWindowBytes});
    local::Load load;
    load.request_id = 1;
    load.latest = false;
    load.step = kLoadedKey.step;
    load.slab_id = 1;
    load.targets = {{"weight", LayoutEntry::Kind::tensor, DType::f32, {8, 3}, {whole(Dims{8, 3})}}};
    load.sharing = local::Load::Sharing{LoadMethod::two_stage, rank, 2, 0, all_want(2), {}};
    from_client(kClient, load);
    pass(1000 * kMillisecond);
    EXPECT_TRUE(answer<operation::ListenToPeers>(OperationResult(address_of(rank))));
    const auto joins = sent<wire::JoinLoad>(kCoordinatorNode);
    EXPECT_EQ(joins.size(), 1u);
    const LayoutId group = joins.at(0).ranks.at(0).layout_id;
    wire::LoadRoster roster{
        kLoadOfStep, {}, kLoadedKey, {group}, {address_of(0), address_of(1)}, {{0, 1, 0, 0}, {1, 1, 1, 0}}};
    receive(kCoordinatorNode, RoleKind::coordinator, roster);
    EXPECT_TRUE(answer<operation::PinAttempt>(OperationResult(
        std::make_shared<const storage::Mark>(storage::Mark{"a pin", kLoadedKey, true, 0, "", 0, {}}))));
  }
  // Receives what to read, and begins.
  void begin() {
    storage::Manifest manifest = storage::sample_manifest(kLoadedKey).manifest();
    manifest.files.back() = {shard_file_name(3, 0), 4126, storage::nonce_of(103), 3, 0u};
    EXPECT_TRUE(answer<operation::ReadDecision>(
        OperationResult(std::make_shared<const storage::Decision>(storage::Decision{
            kLoadedKey, storage::nonce_of(1), storage::nonce_of(77), 0, std::move(manifest)}))));
  }
  std::vector<uint64_t> wanted_of_its_peer() const {
    std::vector<uint64_t> numbers;
    for (const effect::SendTo& each : sent_to) {
      const auto* wanted = std::get_if<wire::ChunkRequest>(each.message.body.get());
      if (wanted != nullptr) numbers.insert(numbers.end(), wanted->chunks.begin(), wanted->chunks.end());
    }
    return numbers;
  }
  // The node has all bytes, and so has its client.
  void end() {
    for (uint64_t number : wanted_of_its_peer()) {
      receive(kPeer, RoleKind::loader, wire::ChunkData{kLoadOfStep, number, chunk_of(24)});
    }
    const OperationResult done{operation::Done{}};
    while (answer<operation::ReadHeader>(OperationResult(chunk_of(4096))) ||
           answer<operation::CheckHeader>(done) ||
           answer<operation::ReadChunk>(OperationResult(chunk_of(96))) ||
           answer<operation::CheckChunk>(done) || answer<operation::CopyChunk>(done)) {
    }
    const auto loaded = notified<local::Loaded>(kClient);
    for (const local::Loaded& each : loaded) from_client(kClient, local::Placed{1, each.batch});
  }
  bool has_ended() const { return !notified<local::LoadDone>(kClient).empty(); }

 private:
  static std::string address_of(Rank rank) { return "host" + std::to_string(rank); }
};

// What each wants of the other.
std::vector<uint64_t> wanted_by(Rank rank) {
  ALoader loader(rank);
  loader.begin();
  return loader.wanted_of_its_peer();
}

TEST(ALoaderThatIsAskedBeforeItBegins, SaysThatTheChunksCome) {
  ALoader loader(0);
  loader.receive(kPeer, RoleKind::loader, wire::ChunkRequest{kLoadOfStep, {5, 7}});
  loader.pass(kDeadline - kMillisecond);
  const auto received = loader.sent<wire::ChunksPending>(kPeer);
  ASSERT_GE(received.size(), 1u) << "before it is given up";
  EXPECT_EQ(received[0].chunks, (std::vector<uint64_t>{5, 7}));
  loader.pass(20 * kDeadline);
  const size_t all = loader.sent<wire::ChunksPending>(kPeer).size();
  EXPECT_LE(all, 12u * 5 / 2 + 1) << "it may never begin";
  loader.pass(4 * kDeadline);
  EXPECT_EQ(loader.sent<wire::ChunksPending>(kPeer).size(), all);
}

// Regression: it went on to announce the chunks for a minute, while another rank of its host still loaded.
TEST(ALoaderThatIsAskedBeforeItBegins, SaysThatTheChunksDoNotComeOnceTheRankThatSharesHasLeft) {
  ALoader loader(0);
  local::Load other;  // begins after the coordinator has answered
  other.request_id = 1;
  other.latest = false;
  other.step = kLoadedKey.step;
  other.sharing = local::Load::Sharing{LoadMethod::two_stage, 1, 2, 0, all_want(2), {}};
  other.targets = {{"weight", LayoutEntry::Kind::tensor, DType::f32, {8, 3}, {whole(Dims{8, 3})}}};
  other.slab_id = 1;
  loader.from_client(kClient + 1, local::Slab{1, kMinWindowBytes});
  loader.from_client(kClient + 1, other);
  loader.receive(kPeer, RoleKind::loader, wire::ChunkRequest{kLoadOfStep, {5, 7}});
  ASSERT_TRUE(loader.sent<wire::ChunksUnavailable>(kPeer).empty());
  loader.handle(event::ClientLost{kClient});
  ASSERT_EQ(loader.sent<wire::ChunksUnavailable>(kPeer).size(), 1u);
  EXPECT_EQ(loader.sent<wire::ChunksUnavailable>(kPeer)[0].chunks, (std::vector<uint64_t>{5, 7}));
  loader.pass(3 * kDeadline);
  EXPECT_TRUE(loader.sent<wire::ChunksPending>(kPeer).empty());
}

// Regression: such a message was lost, and the sender kept chunks for a node that had read them itself.
TEST(ALoaderThatIsAskedBeforeItBegins, KeepsNothingForAPeerThatReadsItItself) {
  const std::vector<uint64_t> wanted = wanted_by(1);
  ASSERT_FALSE(wanted.empty());
  for (bool is_notified : {false, true}) {
    ALoader loader(0);
    if (is_notified) loader.receive(kPeer, RoleKind::loader, wire::ChunksCancelled{kLoadOfStep, wanted});
    loader.begin();
    loader.end();
    EXPECT_TRUE(loader.has_ended());
    loader.pass(kDeadline / 2);
    EXPECT_EQ(loader.has_timers(), !is_notified) << "its exchange is over";
  }
}

// The client may use the window for another load as soon as it has the error.
TEST(ALoaderWhoseSharedLoadFails, ReportsItOnlyWhenNothingIsCopiedToTheWindowAnyMore) {
  ALoader loader(0);
  loader.begin();
  for (uint64_t number : loader.wanted_of_its_peer()) {
    loader.receive(kPeer, RoleKind::loader, wire::ChunkData{kLoadOfStep, number, chunk_of(24)});
  }
  const OperationResult done{operation::Done{}};
  while (loader.answer<operation::ReadHeader>(OperationResult(chunk_of(4096))) ||
         loader.answer<operation::CheckHeader>(done) ||
         loader.answer<operation::ReadChunk>(OperationResult(chunk_of(96))) ||
         loader.answer<operation::CheckChunk>(done)) {
  }
  ASSERT_GE(loader.started<operation::CopyChunk>(), 1u);
  loader.pass(5'000 * kMillisecond);
  ASSERT_TRUE(loader.answer<operation::RenewPin>(Status(Code::not_found, "somebody ended it")));
  EXPECT_FALSE(loader.has_ended());
  while (loader.answer<operation::CopyChunk>(done)) {
  }
  EXPECT_TRUE(loader.has_ended());
  EXPECT_TRUE(loader.notified<local::Loaded>(kClient).empty());
}

// Of a weight that all of four ranks want.
class ManyRanks : public LoaderByItself {
 public:
  void load(Rank rank, LoadMethod way, uint64_t rows = 8, uint32_t world_size = 4) {
    LayoutBuilder builder;
    builder.add_tensor("weight", DType::f32, {rows, 1024}, Mesh::contiguous({world_size}),
                       {Placement::replicate()});
    const ClientId client = kClient + rank;
    from_client(client, local::Slab{1, kMinWindowBytes});
    local::Load load;
    load.request_id = 1;
    load.latest = false;
    load.step = kLoadedKey.step;
    load.slab_id = 1;
    load.targets = {
        {"weight", LayoutEntry::Kind::tensor, DType::f32, {rows, 1024}, {whole(Dims{rows, 1024})}}};
    load.sharing = local::Load::Sharing{way, rank, world_size, 0, std::move(builder).build().value(), {}};
    from_client(client, load);
  }
  void listen() { EXPECT_TRUE(answer<operation::ListenToPeers>(OperationResult(std::string("a:1")))); }
  std::vector<wire::JoinLoad> joins() const { return sent<wire::JoinLoad>(kCoordinatorNode); }
  size_t pinned() const { return started<operation::PinAttempt>(); }
};

TEST(ALoaderThatAsksWhoSharesWithIt, SaysHowLongOthersAreWorthWaitingFor) {
  const uint64_t gib = (uint64_t{1} << 30) / 4096;  // rows
  const std::vector<std::tuple<LoadMethod, uint64_t, uint32_t>> cases = {
      {LoadMethod::two_stage, 8, 3'000},
      {LoadMethod::automatic, gib / 16, 200},
      {LoadMethod::automatic, 4 * gib, 1'024},  // as long as it would read
      {LoadMethod::automatic, 100 * gib, 3'000}};
  for (const auto& [way, rows, quiet_ms] : cases) {
    ManyRanks host;
    host.load(0, way, rows);
    host.pass(50 * kMillisecond);
    host.listen();
    ASSERT_EQ(host.joins().size(), 1u);
    EXPECT_EQ(host.joins()[0].quiet_ms, quiet_ms) << rows;
  }
}

// Regression: a rank that came 50 ms after the others of its host read directly.
TEST(ALoaderThatAsksWhoSharesWithIt, NamesTheRanksThatCameSince) {
  ManyRanks host;
  host.load(0, LoadMethod::two_stage);
  host.pass(50 * kMillisecond);
  host.load(1, LoadMethod::two_stage);
  host.listen();
  ASSERT_EQ(host.joins().size(), 1u);
  EXPECT_EQ(host.joins()[0].ranks.size(), 2u);
  host.pass(100 * kMillisecond);
  host.load(2, LoadMethod::two_stage);
  host.pass(50 * kMillisecond);
  ASSERT_EQ(host.joins().size(), 2u);
  EXPECT_EQ(host.joins()[1].ranks.size(), 3u);
  host.load(3, LoadMethod::two_stage);
  ASSERT_EQ(host.joins().size(), 3u) << "at once: all have come";
  EXPECT_EQ(host.joins()[2].ranks.size(), 4u);
}

TEST(ALoaderThatAsksWhoSharesWithIt, RequestsTheCheckpointAloneIfNoOtherHostNeedsItsBytes) {
  ManyRanks host;
  for (Rank rank = 0; rank < 4; ++rank) host.load(rank, LoadMethod::automatic, 1 << 14);
  EXPECT_EQ(host.started<operation::ListenToPeers>(), 0u) << "no peer needs its address";
  ASSERT_EQ(host.joins().size(), 1u);
  EXPECT_EQ(host.joins()[0].address, "");
  EXPECT_EQ(host.joins()[0].ranks.size(), 4u) << "so that nobody waits for these";
}

// Regression: each rank listed the files of the newest attempt, as many as there are ranks.
TEST(ALoaderOfFewBytes, AsksForTheCheckpointAloneInALargeJob) {
  ManyRanks small_job;
  small_job.load(0, LoadMethod::automatic, 8);
  small_job.pass(200 * kMillisecond);
  EXPECT_TRUE(small_job.joins().empty());
  ManyRanks host;
  for (Rank rank = 0; rank < 4; ++rank) host.load(rank, LoadMethod::automatic, 8, 512);
  host.pass(200 * kMillisecond);
  EXPECT_EQ(host.started<operation::ListenToPeers>(), 0u) << "it shares nothing";
  ASSERT_GE(host.joins().size(), 1u);
  EXPECT_EQ(host.joins()[0].address, "");
  EXPECT_EQ(host.joins()[0].ranks.size(), 4u) << "so that nobody waits for these";
}

TEST(ALoaderOfFewBytes, AsksAlsoIfItReadsNothing) {
  LoaderByItself host;
  local::Load load;
  load.request_id = 1;
  load.step = kLoadedKey.step;
  load.latest = false;
  load.sharing = local::Load::Sharing{LoadMethod::automatic, 0, 512, 0, all_want(2), {}};
  host.from_client(kClient, load);
  host.pass(200 * kMillisecond);
  ASSERT_GE(host.sent<wire::JoinLoad>(kCoordinatorNode).size(), 1u);
  host.receive(kCoordinatorNode, RoleKind::coordinator, wire::LoadRoster{kLoadOfStep, {}, kLoadedKey});
  EXPECT_TRUE(host.answer<operation::PinAttempt>(OperationResult(
      std::make_shared<const storage::Mark>(storage::Mark{"a pin", kLoadedKey, true, 0, "", 0, {}}))));
  EXPECT_TRUE(host.answer<operation::ReadDecision>(OperationResult(std::make_shared<const storage::Decision>(
      storage::Decision{kLoadedKey, storage::nonce_of(1), storage::nonce_of(77), 0,
                        storage::sample_manifest(kLoadedKey).manifest()}))));
  EXPECT_EQ(host.notified<local::LoadDone>(kClient).size(), 1u);
}

storage::Decision loaded_checkpoint() {
  storage::Manifest manifest = storage::sample_manifest(kLoadedKey).manifest();
  manifest.files.back() = {shard_file_name(3, 0), 4126, storage::nonce_of(103), 3, 0u};
  return {kLoadedKey, storage::nonce_of(1), storage::nonce_of(77), 0, std::move(manifest)};
}

// Of a host with ranks 0 and 1 of three, that load one weight from a checkpoint that they keep open.
class ALoaderOfTwoRanks : public LoaderByItself {
 public:
  ALoaderOfTwoRanks() {
    for (Rank rank : {0u, 1u}) {
      local::Load open;
      open.request_id = 1;
      open.latest = false;
      open.step = kLoadedKey.step;
      open.keeps_open = true;
      from_client(kClient + rank, open);
    }
    storage::AttemptList list;
    list.attempts.emplace_back();
    list.attempts.back().key = kLoadedKey;
    list.attempts.back().state = storage::AttemptInfo::State::committed;
    while (answer<operation::ListAttemptsOfStep>(OperationResult(list))) {
    }
    EXPECT_TRUE(answer<operation::PinAttempt>(OperationResult(
        std::make_shared<const storage::Mark>(storage::Mark{"a pin", kLoadedKey, true, 0, "", 0, {}}))));
    while (answer<operation::ReadDecision>(
        OperationResult(std::make_shared<const storage::Decision>(loaded_checkpoint())))) {
    }
  }
  void load(Rank rank) {
    const ClientId client = kClient + rank;
    from_client(client, local::Slab{1, kMinWindowBytes});
    local::Load load;
    load.request_id = 2;
    load.of = 1;
    load.latest = false;
    load.step = kLoadedKey.step;
    load.slab_id = 1;
    load.targets = {{"weight", LayoutEntry::Kind::tensor, DType::f32, {8, 3}, {whole(Dims{8, 3})}}};
    load.sharing = local::Load::Sharing{LoadMethod::two_stage, rank, 3, 0, all_want(3), {}};
    from_client(client, load);
  }
  size_t pinned_again() const { return started<operation::PinAttempt>(); }
  // `members`: ranks that the coordinator knew of when it answered.
  void receive_roster(const std::vector<wire::LoadMembers>& members) {
    pass(1'000 * kMillisecond);
    EXPECT_TRUE(answer<operation::ListenToPeers>(OperationResult(std::string("a:1"))));
    const LayoutId group = sent<wire::JoinLoad>(kCoordinatorNode).at(0).ranks.at(0).layout_id;
    receive(kCoordinatorNode, RoleKind::coordinator,
            wire::LoadRoster{kLoadOfStep, {}, kLoadedKey, {group}, {"a:1", "b:1"}, members});
  }
};

// Regression: the other rank waited until that one had loaded everything.
TEST(ALoaderOfOpenCheckpoints, SharesThoughTheLastRankOfItsHostIsUnknownToItsPeers) {
  ALoaderOfTwoRanks host;
  host.load(0);
  host.load(1);
  host.receive_roster({{0, 1, 0, 0}, {2, 1, 1, 0}});
  EXPECT_EQ(host.started<operation::ReadBatch>(), 1u) << "of the rank that reads directly";
  EXPECT_EQ(host.taken("round", "awaiting_memory", "memory_granted"), 1u);
  EXPECT_FALSE(host.sent_to.empty()) << "requests to the other host";
}

// The coordinator has chosen another attempt at the step than the one that the client keeps open.
TEST(ALoaderOfOpenCheckpoints, ReadsTheOneThatIsOpenThoughOthersLoadAnotherAttempt) {
  ALoaderOfTwoRanks host;
  host.load(0);
  host.pass(1'000 * kMillisecond);
  ASSERT_TRUE(host.answer<operation::ListenToPeers>(OperationResult(std::string("a:1"))));
  const AttemptKey other{kLoadedKey.generation, kLoadedKey.step, kLoadedKey.attempt + 1};
  const LayoutId group = host.sent<wire::JoinLoad>(kCoordinatorNode).at(0).ranks.at(0).layout_id;
  host.receive(
      kCoordinatorNode, RoleKind::coordinator,
      wire::LoadRoster{kLoadOfStep, {}, other, {group}, {"a:1", "b:1"}, {{0, 1, 0, 0}, {2, 1, 1, 0}}});
  EXPECT_EQ(host.pinned_again(), 0u);
  EXPECT_EQ(host.taken("round", "planning", "all_planned"), 0u) << "its peers have other bytes";
  EXPECT_EQ(host.started<operation::ReadBatch>(), 1u);
}

// Regression: the node crashed. The first rank leaves the round, and too little memory is left to share: the
// others end at once, because they have nothing to read.
TEST(ALoaderOfManyRanks, FailsWhatIsLeftOfTheirLoadsWhenTheirPinIsLost) {
  constexpr Rank kRanks = 24;  // more than windows fit into the memory
  NodeConfig config;
  config.generation = 2;
  config.load_memory_bytes = kMinLoadMemoryBytes;
  RoleByItself host(make_loader(config));
  for (Rank rank = 0; rank < kRanks; ++rank) {
    local::Load load;
    load.request_id = 1;
    load.latest = false;
    load.step = kLoadedKey.step;
    load.slab_id = 1;
    if (rank == 0) load.targets = {{"loader", LayoutEntry::Kind::object, DType::u8, {}, {}}};
    if (rank != 0) {
      load.targets = {{"empty", LayoutEntry::Kind::tensor, DType::f16, {0, 4}, {whole(Dims{0, 4})}}};
    }
    load.sharing = local::Load::Sharing{LoadMethod::two_stage, rank, kRanks, 0, all_want(kRanks), {}};
    host.from_client(kClient + rank, local::Slab{1, kMinWindowBytes});
    host.from_client(kClient + rank, load);
  }
  ASSERT_TRUE(host.answer<operation::ListenToPeers>(OperationResult(std::string("a:1"))));
  host.receive(kCoordinatorNode, RoleKind::coordinator, wire::LoadRoster{kLoadOfStep, {}, kLoadedKey});
  ASSERT_TRUE(host.answer<operation::PinAttempt>(OperationResult(
      std::make_shared<const storage::Mark>(storage::Mark{"a pin", kLoadedKey, true, 0, "", 0, {}}))));
  while (host.answer<operation::ReadDecision>(
      OperationResult(std::make_shared<const storage::Decision>(loaded_checkpoint())))) {
  }
  ASSERT_EQ(host.started<operation::MeasureObjects>(), 1u);
  host.pass(5'000 * kMillisecond);
  ASSERT_TRUE(host.answer<operation::RenewPin>(Status(Code::not_found, "somebody ended it")));
  for (Rank rank = 0; rank < kRanks; ++rank) {
    const auto done = host.notified<local::LoadDone>(kClient + rank);
    ASSERT_EQ(done.size(), 1u) << rank;
    EXPECT_EQ(done[0].outcome.ok(), rank != 0) << done[0].outcome.to_string();
  }
}

TEST(ALoaderThatAsksWhoSharesWithIt, ReadsDirectlyForARankThatItsPeersDoNotKnowOf) {
  ManyRanks host;
  host.load(0, LoadMethod::two_stage);
  host.pass(50 * kMillisecond);
  host.listen();
  host.load(1, LoadMethod::two_stage);
  const LayoutId group = host.joins().at(0).ranks.at(0).layout_id;
  host.receive(
      kCoordinatorNode, RoleKind::coordinator,
      wire::LoadRoster{kLoadOfStep, {}, kLoadedKey, {group}, {"a:1", "b:1"}, {{0, 1, 0, 0}, {2, 1, 1, 0}}});
  EXPECT_EQ(host.pinned(), 1u);
  host.pass(5'000 * kMillisecond);
  EXPECT_EQ(host.joins().size(), 1u) << "it knows enough";
  EXPECT_TRUE(host.answer<operation::PinAttempt>(OperationResult(
      std::make_shared<const storage::Mark>(storage::Mark{"a pin", kLoadedKey, true, 0, "", 0, {}}))));
  EXPECT_EQ(host.started<operation::ReadDecision>(), 2u) << "both load it";
}

}  // namespace
}  // namespace shoal::actors
