// One node's part in a shared load, alone: the test plays its storage and its peers.
#include "actors/loader/sharing/chunk_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "tests/actors/loader/sharing/peer.h"
#include "tests/actors/role_by_itself.h"
#include "tests/actors/test_ids.h"
#include "tests/actors/units.h"

namespace shoal::actors {
namespace {

// The calls of a Loader to an exchange, and the callbacks that it gets.
class ExchangeRole final : public Role {
 public:
  ExchangeRole(std::shared_ptr<const ChunkPlan> plan, ChunkExchange::Settings settings, bool gives_room)
      : exchange_(
            {operations_, timers_, sends_, counts_}, std::move(plan), std::move(settings),
            {[this](TimeNs, uint32_t, uint32_t, EffectWriter&) { ++batches_complete; },
             [](TimeNs, uint32_t, const Status&, EffectWriter&) {}, [](TimeNs, uint32_t, EffectWriter&) {}}),
        gives_room_(gives_room) {}

  RoleKind kind() const override { return RoleKind::loader; }
  void handle(TimeNs now, const Event& event, Effects& effects) override {
    EffectWriter out(kind(), effects);
    if (const auto* done = std::get_if<event::OperationDone>(&event)) {
      operations_.done(now, *done, out);
    } else if (const auto* timer = std::get_if<event::TimerFired>(&event)) {
      timers_.fired(now, *timer, out);
    } else if (const auto* left = std::get_if<event::SendDone>(&event)) {
      sends_.done(now, *left, out);
    } else if (const auto* received = std::get_if<event::Received>(&event)) {
      const WireBody& body = *received->message.body;
      if (const auto* wanted = std::get_if<wire::ChunkRequest>(&body))
        exchange_.on_request(now, received->from, *wanted, out);
      if (const auto* is = std::get_if<wire::ChunkData>(&body)) exchange_.on_data(now, *is, out);
      if (const auto* cancelled = std::get_if<wire::ChunksCancelled>(&body))
        exchange_.on_cancelled(now, *cancelled, out);
      if (const auto* coming = std::get_if<wire::ChunksPending>(&body)) exchange_.on_pending(now, *coming);
    } else if (std::get_if<event::Started>(&event) != nullptr) {
      exchange_.begin(now, out);
      if (gives_room_) exchange_.give_room(now, 0, 0, {7, 1, 0, 0}, out);
    }
  }
  const ChunkExchange& exchange() const { return exchange_; }
  uint32_t batches_complete = 0;

 private:
  PendingOperations operations_;
  PendingTimers timers_;
  PendingSends sends_;
  ExchangeCounts counts_;
  ChunkExchange exchange_;
  const bool gives_room_;  // to its one user, for all of it
};

// A rank of each of so many hosts, all of which want so many whole chunks of each file.
std::shared_ptr<const ChunkPlan> plan_of(uint32_t chunks, uint32_t hosts, uint32_t files = 1) {
  auto reads = std::make_shared<ReadPlan>();
  auto pieces = std::make_shared<PieceTable>(AttemptKey());
  const uint64_t bytes = chunks * kChunkBytes;
  for (uint32_t file = 0; file < files; ++file) {
    pieces->add({0, shard_file_name(file, 0), 0, Hash128(), "w"}, "w", LayoutEntry::Kind::tensor, DType::u8,
                Box{{0}, {bytes}});
    reads->reads.push_back({0, file, bytes, 0, bytes});
  }
  reads->pieces = std::move(pieces);
  std::vector<uint32_t> group(hosts);
  std::iota(group.begin(), group.end(), 0);
  const auto shared = std::make_shared<const std::vector<uint32_t>>(std::move(group));
  return std::make_shared<const ChunkPlan>(plan_chunks({{reads, {shared}, bytes}}));
}

TEST(AChunkPlan, HasTheHeaderOfAFileSixteenChunksBeforeTheFirstThatNeedsIt) {
  const auto plan = plan_of(20, 2, 2);
  std::vector<uint32_t> headers;
  for (uint32_t chunk = 0; chunk < plan->chunks.size(); ++chunk) {
    if (plan->chunks[chunk].header_of) headers.push_back(chunk);
  }
  EXPECT_EQ(headers, (std::vector<uint32_t>{0, 5}));
  EXPECT_EQ(plan->chunks[21].headers, std::vector<uint32_t>{0});
  EXPECT_EQ(plan->chunks[22].headers, std::vector<uint32_t>{5});
}

// So that sending begins before reading ends, where a host reads several at once.
TEST(AChunkPlan, HasSmallerChunksWhereThereWouldBeFewOfEachHost) {
  auto count_of = [](uint32_t chunks, uint32_t hosts) { return plan_of(chunks, hosts)->chunks.size() - 1; };
  EXPECT_EQ(count_of(64, 8), 64u) << "8 each, of 4 MiB";
  EXPECT_EQ(count_of(32, 8), 64u) << "of 2 MiB";
  EXPECT_EQ(count_of(32, 2), 32u);
  EXPECT_EQ(count_of(2, 8), 8u) << "of a block each, the least";
}

class AnExchange : public ::testing::Test {
 protected:
  static constexpr uint32_t kChunks = 64;

  // This host is `own` of so many; the others want from it what it has.
  void begin(bool may_go_direct = true, uint32_t chunks = kChunks, uint32_t hosts = 2, uint32_t own = 0) {
    plan_ = plan_of(chunks, hosts);
    header_ = plan_->chunks[0].number;
    std::vector<std::string> addresses;
    for (uint32_t host = 0; host < hosts; ++host) addresses.push_back("host" + std::to_string(host));
    auto role = std::make_unique<ExchangeRole>(
        plan_,
        ChunkExchange::Settings{kLoadOfLatest, std::make_shared<std::vector<std::string>>(addresses), own,
                                128 * kMiB, may_go_direct, kDeadline},
        gives_room_);
    role_ = role.get();
    node_.emplace(std::move(role));
    if (!peers_ask_) return bring_headers();
    std::vector<uint64_t> wanted;
    for (const ChunkPlan::PlannedChunk& chunk : plan_->chunks) {
      const uint32_t children = LoadTree(hosts, own, {}).children(chunk.ordinal);
      wanted.insert(wanted.end(), children, chunk.number);
    }
    node_->receive(kPeer, RoleKind::loader, wire::ChunkRequest{kLoadOfLatest, wanted});
    if (has_headers_) bring_headers();
  }
  // Headers come from storage and from peers, as soon as they are wanted.
  void bring_headers() {
    while (node_->answer<operation::ReadHeader>(OperationResult(a_header()))) {
    }
    for (uint64_t number : report<wire::ChunkRequest>()) {
      if (number != header_ || std::exchange(has_come_, true)) continue;
      node_->receive(kPeer, RoleKind::loader, wire::ChunkData{kLoadOfLatest, number, a_header()});
      node_->answer<operation::CheckHeader>(OperationResult(operation::Done{}));
    }
  }
  // 32 MiB in 10 ms from storage, while all read; then, with the peer, two chunks in 100 ms.
  void share_slowly_until_storage_is_read() {
    node_->now = 10 * kMillisecond;
    read(8);
    while (report<wire::ChunksCancelled>().empty()) {
      node_->now += 100 * kMillisecond;
      if (reading() != 0) read(1);
      ASSERT_NE(awaited(), 0u);
      comes();
    }
  }
  // Ends so many of the reads that are under way, and the copies that follow.
  void read(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      OperationId id = 0;
      const auto chunk = node_->take_start<operation::ReadChunk>(&id);
      ASSERT_TRUE(chunk);
      ++read_;
      node_->handle(event::OperationDone{id, OperationResult(chunk_of(*chunk))});
      if (has_headers_) bring_headers();
    }
    copy();
  }
  void read_all() {
    while (reading() != 0) read(1);
  }
  void copy() {
    while (node_->answer<operation::CopyChunk>(OperationResult(operation::Done{}))) {
    }
  }
  template <class Message>
  std::vector<uint64_t> report() const {  // of chunks, to peers
    std::vector<uint64_t> numbers;
    for (const effect::SendTo& each : node_->sent_to) {
      const auto* message = std::get_if<Message>(each.message.body.get());
      if (message != nullptr) numbers.insert(numbers.end(), message->chunks.begin(), message->chunks.end());
    }
    return numbers;
  }
  std::vector<uint64_t> asked_for() const {  // but for headers
    std::vector<uint64_t> numbers = report<wire::ChunkRequest>();
    std::erase(numbers, header_);
    return numbers;
  }
  std::vector<wire::ChunkData> passed_on() const {  // likewise
    std::vector<wire::ChunkData> sent = node_->sent<wire::ChunkData>(kPeer);
    std::erase_if(sent, [this](const wire::ChunkData& each) { return each.number == header_; });
    return sent;
  }
  // The next of those that were asked for.
  void comes() {
    ASSERT_LT(come_, asked_for().size());
    auto chunk = std::make_shared<Chunk>();
    chunk->size = kChunkBytes;
    const uint64_t number = asked_for()[come_++];
    node_->receive(kPeer, RoleKind::loader, wire::ChunkData{kLoadOfLatest, number, std::move(chunk)});
    node_->answer<operation::CheckChunk>(OperationResult(operation::Done{}));
    copy();
    if (has_headers_) bring_headers();
  }
  static ChunkPtr a_header() {
    auto chunk = std::make_shared<Chunk>();
    chunk->size = 4096;
    return chunk;
  }
  static ChunkPtr chunk_of(const operation::ReadChunk& read) {
    auto chunk = std::make_shared<Chunk>();
    for (const operation::ReadRange& range : read.ranges) chunk->size += range.end - range.begin;
    return chunk;
  }
  size_t reading() const { return node_->started<operation::ReadChunk>(); }
  size_t awaited() const { return asked_for().size() - come_; }

  std::shared_ptr<const ChunkPlan> plan_;
  std::optional<RoleByItself> node_;
  ExchangeRole* role_ = nullptr;
  bool peers_ask_ = true, has_headers_ = true, gives_room_ = true;
  uint64_t header_ = 0;    // its number
  bool has_come_ = false;  // it, from a peer
  size_t read_ = 0, come_ = 0;
};

TEST_F(AnExchange, ReadsItsPartAndAsksForTheOthersAsFarAsItsBufferGoes) {
  begin(false);
  EXPECT_EQ(reading(), 16u);
  EXPECT_EQ(asked_for().size(), 16u);
}

TEST_F(AnExchange, BeginsWithSomeOfItsPartAndAsksForNothingMeanwhile) {
  begin();
  EXPECT_EQ(reading(), 8u);
  read(7);
  EXPECT_EQ(asked_for().size(), 0u);
  EXPECT_TRUE(node_->sent<wire::ChunkData>(kPeer).empty()) << "nor sends it what it has";
  read(1);
  EXPECT_EQ(passed_on().size(), 8u);
  EXPECT_EQ(reading(), 12u);
  EXPECT_EQ(asked_for().size(), 20u);
  while (role_->batches_complete == 0) {
    read_all();
    if (awaited() != 0) comes();
  }
  EXPECT_EQ(read_, kChunks / 2) << "no more for that";
  EXPECT_TRUE(report<wire::ChunksCancelled>().empty());
}

TEST_F(AnExchange, SharesAtOnceWhereItCannotReadWhatItBeginsWith) {
  begin();
  OperationId id = 0;
  ASSERT_TRUE(node_->take_start<operation::ReadChunk>(&id));
  node_->handle(event::OperationDone{id, Status(Code::io, "no storage")});
  EXPECT_FALSE(asked_for().empty());
}

TEST_F(AnExchange, ReadsWhatIsLeftWhereStorageIsFaster) {
  begin(true, 4 * kChunks);
  ASSERT_NO_FATAL_FAILURE(share_slowly_until_storage_is_read());
  const size_t asked = asked_for().size();
  EXPECT_LT(asked, kChunks) << "a sample of 64 MiB and what was on its way";
  while (role_->batches_complete == 0) {
    node_->now += kMillisecond;
    if (awaited() != 0) comes();
    if (reading() != 0) read(1);
  }
  EXPECT_EQ(asked_for().size(), asked);
  EXPECT_EQ(report<wire::ChunksCancelled>().size(), 2 * kChunks - asked) << "all others of its peer's part";
  EXPECT_EQ(read_ + asked, 4u * kChunks);
  EXPECT_EQ(passed_on().size(), 2 * kChunks) << "its peer has its own part all the same";
}

TEST_F(AnExchange, SharesAgainOnceManyReadAndStorageIsSlowerThanSharingWas) {
  begin(true, 4 * kChunks);
  ASSERT_NO_FATAL_FAILURE(share_slowly_until_storage_is_read());
  const size_t asked = asked_for().size();
  while (role_->batches_complete == 0) {
    node_->now += 200 * kMillisecond;
    if (awaited() != 0) comes();
    if (reading() != 0) read(1);
  }
  EXPECT_GT(asked_for().size(), asked);
  const size_t cancelled = report<wire::ChunksCancelled>().size();
  EXPECT_LE(cancelled, (32u + 16 + 8) / 2) << "its peer's part of a buffer, a sample and what it had said";
  EXPECT_EQ(asked_for().size() + cancelled, 2 * kChunks) << "never again";
}

TEST_F(AnExchange, GoesOnSharingWhereStorageIsNoFaster) {
  begin();
  while (role_->batches_complete == 0) {
    node_->now += 10 * kMillisecond;
    if (reading() != 0) read(1);
    if (awaited() != 0) comes();
  }
  EXPECT_EQ(read_, kChunks / 2);
  EXPECT_EQ(asked_for().size(), kChunks / 2);
}

// What peers take to begin says nothing about sharing.
TEST_F(AnExchange, DoesNotTakeSharingForSlowBecauseAPeerBeginsLate) {
  begin(true, 4 * kChunks);
  node_->now = 10 * kMillisecond;
  read(8);
  node_->now = 4000 * kMillisecond;
  while (role_->batches_complete == 0) {
    node_->now += kMillisecond;
    if (awaited() != 0) comes();
    if (reading() != 0) read(1);
  }
  EXPECT_EQ(read_, 2 * kChunks);
}

TEST_F(AnExchange, GoesOnSharingWhereItWasToldToHoweverFastStorageIs) {
  begin(false);
  node_->now = 10 * kMillisecond;
  read(16);
  while (role_->batches_complete == 0) {
    node_->now += 100 * kMillisecond;
    if (awaited() != 0) comes();
    read_all();
  }
  EXPECT_EQ(read_, kChunks / 2);
}

// Of ten hosts eight read; the fifth is none of them.
TEST_F(AnExchange, OfALargeGroupBeginsWithTheFirstOfAllWhereThatCostsLittleBesideWhatItNeeds) {
  begin(true, 320, 10, 4);
  EXPECT_EQ(reading(), 4u);
  EXPECT_EQ(asked_for().size(), 0u);
  node_->now = 10 * kMillisecond;
  read(4);
  EXPECT_TRUE(report<wire::ChunksCancelled>().empty()) << "its peers may not have begun";
  while (role_->batches_complete == 0) {
    node_->now += kMillisecond;
    comes();
  }
  EXPECT_EQ(report<wire::ChunksCancelled>().size(), 4u);
  EXPECT_EQ(read_, 4u);
}

TEST_F(AnExchange, OfALargeGroupDoesNotTryStorageWhereThatCostsMuch) {
  begin(true, 159, 10, 4);
  while (awaited() != 0) {
    node_->now += 100 * kMillisecond;
    comes();
  }
  EXPECT_EQ(read_ + reading(), 0u);
  EXPECT_EQ(role_->batches_complete, 1u);
}

TEST_F(AnExchange, KeepsNothingForAPeerThatReadsItItself) {
  peers_ask_ = false;
  begin(false);
  node_->now = 10 * kMillisecond;
  const size_t asked = asked_for().size();
  wire::ChunksCancelled all{kLoadOfLatest, {}};
  for (const ChunkPlan::PlannedChunk& chunk : plan_->chunks) all.chunks.push_back(chunk.number);
  node_->receive(kPeer, RoleKind::loader, all);
  read(16);
  EXPECT_GT(asked_for().size(), asked) << "there is room again";
}

TEST_F(AnExchange, ReadsWhatAPeerDoesNotSendWithinItsDeadline) {
  begin();
  node_->now = 10 * kMillisecond;
  read_all();
  node_->pass(2 * kDeadline);
  read_all();
  EXPECT_EQ(role_->batches_complete, 1u);
  EXPECT_EQ(read_, size_t{kChunks});
  LoadTimes times;
  role_->exchange().add_times(node_->now, 0, times);
  EXPECT_EQ(times.chunks_given_up, asked_for().size()) << "all that it was asked for";
}

TEST_F(AnExchange, WaitsForAPeerForAsLongAsThatSaysThatItsChunksCome) {
  begin(false);
  read_all();
  for (int i = 0; i < 20; ++i) {
    node_->pass(kDeadline * 4 / 5);
    node_->receive(kPeer, RoleKind::loader, wire::ChunksPending{kLoadOfLatest, asked_for()});
  }
  EXPECT_EQ(reading(), 0u);
  node_->pass(kDeadline * 6 / 5);
  EXPECT_GT(reading(), 0u) << "a peer that has died says so no more";
}

// Regression: a host that had been given up kept the one that was asked in its place from being given up.
TEST_F(AnExchange, IsNotHeldUpByAHostThatItDidNotAsk) {
  begin(false);
  read_all();
  for (int i = 0; i < 2; ++i) {
    node_->pass(kDeadline * 4 / 5);
    node_->receive(kPeer, RoleKind::loader, wire::ChunksPending{kLoadOfLatest, asked_for(), 7});
  }
  EXPECT_GT(reading(), 0u);
}

// Its request was lost, or the answer.
TEST_F(AnExchange, ReadsAChunkOfWhichItsPeerSaysNothingAmongOthersThatCome) {
  begin(false);
  read_all();
  std::vector<uint64_t> named = asked_for();
  named.pop_back();
  for (int i = 0; i < 2; ++i) {
    node_->pass(kDeadline * 4 / 5);
    node_->receive(kPeer, RoleKind::loader, wire::ChunksPending{kLoadOfLatest, named});
  }
  EXPECT_GT(reading(), 0u);
}

TEST_F(AnExchange, TellsAPeerThatAChunkComesWhileItReadsIt) {
  begin(false, 1);
  ASSERT_EQ(reading(), 2u) << "of four chunks of a block each";
  auto sent_to_peer = [this] { return node_->sent<wire::ChunksPending>(kPeer); };
  node_->pass(kDeadline / 2);
  EXPECT_LE(sent_to_peer().size(), 1u);
  node_->pass(2 * kDeadline);
  ASSERT_GE(sent_to_peer().size(), 3u) << "before the peer gives it up";
  EXPECT_LE(sent_to_peer().size(), 6u);
  EXPECT_THAT(sent_to_peer()[0].chunks,
              ::testing::UnorderedElementsAre(plan_->chunks[1].number, plan_->chunks[3].number));
  node_->pass(12 * kDeadline);
  const size_t report = sent_to_peer().size();
  node_->pass(4 * kDeadline);
  EXPECT_EQ(sent_to_peer().size(), report) << "a read that may never end";
}

// Its users may never have room; then its peers read what it cannot take in.
TEST_F(AnExchange, TellsAPeerNothingWhileItWaitsForItsUsersAlone) {
  gives_room_ = false;
  begin(false);
  read_all();
  while (awaited() != 0) comes();
  ASSERT_EQ(reading(), 0u);
  node_->sends.clear();
  node_->pass(4 * kDeadline);
  EXPECT_TRUE(node_->sent<wire::ChunksPending>(kPeer).empty());
}

TEST_F(AnExchange, ReadsInPlaceOfAPeerThatDiesHoweverLongItsOwnReadsTake) {
  begin(false);
  node_->pass(kDeadline / 2);
  node_->receive(kPeer, RoleKind::loader, wire::ChunksPending{kLoadOfLatest, asked_for()});
  node_->pass(kDeadline * 4 / 5);
  EXPECT_EQ(reading(), 16u);
  node_->pass(kDeadline * 2 / 5);
  EXPECT_EQ(reading(), 32u);
}

// --- what has not left ---

TEST_F(AnExchange, HoldsTheRoomOfWhatItsPeersHaveNotTakenIn) {
  begin(false, kChunks + 4);
  node_->sends_drain = false;
  while (reading() + awaited() != 0) {
    read_all();
    while (awaited() != 0) comes();
    EXPECT_LE(role_->exchange().bytes_held(), 128 * kMiB);
  }
  EXPECT_EQ(read_, 32u) << "its part is 34";
  EXPECT_EQ(passed_on().size(), 32u);
  EXPECT_EQ(role_->batches_complete, 0u);
  node_->leave();
  EXPECT_EQ(reading(), 2u);
  read_all();
  while (awaited() != 0) comes();
  EXPECT_EQ(role_->batches_complete, 1u);
}

TEST_F(AnExchange, EndsTheSessionOfAPeerThatTakesNothingInWhileRoomIsNeeded) {
  constexpr NodeId kOtherPeer = kPeer + 1;
  peers_ask_ = false;
  begin(false, 3 * kChunks, 3);
  std::vector<uint64_t> own;
  for (const ChunkPlan::PlannedChunk& chunk : plan_->chunks) {
    if (LoadTree(3, 0, {}).children(chunk.ordinal) != 0) own.push_back(chunk.number);
  }
  for (NodeId peer : {kPeer, kOtherPeer})
    node_->receive(peer, RoleKind::loader, wire::ChunkRequest{kLoadOfLatest, own});
  node_->sends_drain = false;
  for (int i = 0; i < 200 && role_->batches_complete == 0; ++i) {
    read_all();
    while (awaited() != 0) comes();
    node_->leave(kOtherPeer);
    if (!node_->ended.empty()) {
      EXPECT_GE(node_->now, kDeadline);
      node_->leave(kPeer);
    }
    EXPECT_LE(role_->exchange().bytes_held(), 128 * kMiB);
    node_->pass(kDeadline / 10);
  }
  EXPECT_EQ(role_->batches_complete, 1u);
  ASSERT_EQ(node_->ended.size(), 1u);
  EXPECT_EQ(node_->ended[0].node, kPeer);
}

TEST_F(AnExchange, EndsNoSessionWhileThereIsRoomAndSomethingElseToDo) {
  begin(false, 8);
  node_->sends_drain = false;
  read_all();
  node_->receive(kPeer, RoleKind::loader, wire::ChunksPending{kLoadOfLatest, asked_for()});
  for (int i = 0; i < 10; ++i) {
    node_->pass(kDeadline * 4 / 5);
    node_->receive(kPeer, RoleKind::loader, wire::ChunksPending{kLoadOfLatest, asked_for()});
  }
  EXPECT_TRUE(node_->ended.empty());
}

// Other loads may need the room.
TEST_F(AnExchange, IsNotOverBeforeItsPeersHaveAllOrTheirSessionsHaveEnded) {
  for (bool takes_in : {true, false}) {
    begin(false, 8);
    come_ = 0;
    node_->sends_drain = false;
    read_all();
    while (awaited() != 0) comes();
    EXPECT_EQ(role_->batches_complete, 1u);
    node_->pass(kDeadline * 4 / 5);
    EXPECT_FALSE(role_->exchange().is_over());
    EXPECT_GT(role_->exchange().bytes_held(), 0u);
    EXPECT_TRUE(node_->ended.empty());
    if (!takes_in) node_->pass(kDeadline);
    EXPECT_EQ(node_->ended.size(), takes_in ? 0u : 1u);
    node_->leave();
    EXPECT_EQ(role_->exchange().bytes_held(), 0u);
    node_->pass(kDeadline);
    EXPECT_TRUE(role_->exchange().is_over());
  }
}

// --- headers ---

TEST_F(AnExchange, ReadsAndChecksNothingBeforeItHasTheHeader) {
  has_headers_ = false;
  begin(false);
  EXPECT_EQ(reading(), 0u);
  ASSERT_EQ(asked_for().size(), 15u) << "as far as the buffer goes beside the most that a header takes";
  comes();
  EXPECT_EQ(node_->started<operation::CheckChunk>(), 0u);
  ASSERT_EQ(node_->started<operation::ReadHeader>(), 1u);
  EXPECT_TRUE(node_->answer<operation::ReadHeader>(OperationResult(a_header())));
  EXPECT_EQ(reading(), 16u);
  EXPECT_EQ(node_->started<operation::CheckChunk>(), 1u);
  ASSERT_EQ(node_->sent<wire::ChunkData>(kPeer).size(), 1u);
  EXPECT_EQ(node_->sent<wire::ChunkData>(kPeer)[0].number, header_) << "its peer has not to read it";
}

TEST_F(AnExchange, WaitsForNoHeaderOfAFileThatItHasReadBefore) {
  has_headers_ = false;
  begin();
  EXPECT_EQ(reading(), 8u) << "what it tries storage with";
  read(8);
  EXPECT_GT(reading(), 0u);
  EXPECT_EQ(node_->started<operation::ReadHeader>(), 1u) << "for its peer";
}

TEST_F(AnExchange, AsksAPeerForTheHeaderThatIsThePeersToRead) {
  has_headers_ = false;
  begin(false, kChunks, 2, 1);
  EXPECT_EQ(node_->started<operation::ReadHeader>(), 0u);
  EXPECT_EQ(report<wire::ChunkRequest>().at(0), header_) << "before the chunks that need it";
  EXPECT_EQ(reading(), 0u);
  bring_headers();
  EXPECT_EQ(reading(), 16u);
  EXPECT_EQ(node_->started<operation::ReadHeader>(), 0u);
}

TEST_F(AnExchange, ReadsTheHeaderWhereThatOfAPeerIsNotTheFiles) {
  has_headers_ = false;
  begin(false, kChunks, 2, 1);
  node_->receive(kPeer, RoleKind::loader, wire::ChunkData{kLoadOfLatest, header_, a_header()});
  ASSERT_TRUE(node_->answer<operation::CheckHeader>(Status(Code::corrupt, "another header")));
  EXPECT_EQ(reading(), 0u);
  ASSERT_TRUE(node_->answer<operation::ReadHeader>(OperationResult(a_header())));
  EXPECT_EQ(reading(), 16u);
  EXPECT_FALSE(node_->log.empty());
}

TEST_F(AnExchange, ReadsTheHeaderThatAPeerDoesNotSendWithinItsDeadline) {
  has_headers_ = false;
  begin(false, kChunks, 2, 1);
  node_->pass(2 * kDeadline);
  ASSERT_TRUE(node_->answer<operation::ReadHeader>(OperationResult(a_header())));
  EXPECT_GE(reading(), 16u);
}

// Where it is damaged, say: then blocks are read from copies, if there are any.
TEST_F(AnExchange, GoesOnWithoutAHeaderThatCannotBeHad) {
  has_headers_ = false;
  begin(false);
  ASSERT_TRUE(node_->answer<operation::ReadHeader>(Status(Code::corrupt, "the header differs")));
  EXPECT_EQ(reading(), 16u);
  const auto not_here = node_->sent<wire::ChunksUnavailable>(kPeer);
  ASSERT_EQ(not_here.size(), 1u);
  EXPECT_EQ(not_here[0].chunks, std::vector<uint64_t>{header_});
  comes();
  read_all();
  EXPECT_EQ(role_->exchange().bytes_held() % kChunkBytes, 0u) << "nothing is held for it any more";
}

}  // namespace
}  // namespace shoal::actors
