// Loads that are shared: several nodes that need the same bytes read them once, and pass them on.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "tests/sim/sixteen_ranks.h"

namespace shoal {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr TimeNs kPatience = 3000 * kMillisecond;

struct Tensor {
  std::string fqn;
  uint64_t bytes = 0;
  Placement placement;
};

// Of one dimension and bytes, on a mesh of all ranks.
LayoutPtr layout_of(const std::vector<Tensor>& tensors, uint32_t ranks) {
  LayoutBuilder builder;
  const Mesh all = Mesh::contiguous({ranks});
  for (const Tensor& tensor : tensors) {
    builder.add_tensor(tensor.fqn, DType::u8, {tensor.bytes}, all, {tensor.placement});
  }
  builder.add_object("note", all, true);
  return std::move(builder).build().value();
}

// The client of one rank that loads tensors of one dimension of bytes.
class Reader {
 public:
  Reader(VirtualHost& host, size_t node, Rank rank, uint32_t ranks, LayoutPtr layout)
      : host_(host),
        rank_(rank),
        ranks_(ranks),
        layout_(std::move(layout)),
        node_(node),
        client_(host.attach(node, rank, ranks)) {}

  void load(LoadWay way = LoadWay::two_stage, std::vector<Rank> among = {}, uint32_t round = 0) {
    local::Load load;
    load.request_id = round + 1;
    load.ordinal = 1;
    load.slab_id = round + 1;
    load.sharing = local::Load::Sharing{way, rank_, ranks_, round, layout_, std::move(among)};
    for (const LayoutEntry& entry : layout_->entries()) {
      local::LoadTarget target{value_fqn(entry, rank_), entry.kind, entry.dtype, entry.shape, {}};
      if (entry.kind == LayoutEntry::Kind::tensor) target.boxes = layout_->shards_of(entry, rank_).boxes;
      load.targets.push_back(std::move(target));
    }
    targets_ = load.targets;
    is_loading_ = true;
    bytes_.clear();
    came_.clear();
    done_.reset();
    window_ = host_.add_slab(client_, load.slab_id, 8 * kMiB);
    host_.from_client(client_, std::move(load));
  }

  bool listen() {
    const auto heard = host_.take(client_);
    for (const auto& message : heard) {
      if (const auto* found = std::get_if<local::Found>(message.get())) {
        if (!found->outcome.ok()) done_ = local::LoadDone{found->request_id, found->outcome};
      } else if (const auto* done = std::get_if<local::LoadDone>(message.get())) {
        done_ = *done;
      } else if (const auto* loaded = std::get_if<local::Loaded>(message.get())) {
        for (const local::LoadedPiece& piece : loaded->pieces) place(piece);
        host_.from_client(client_, local::Placed{loaded->request_id, loaded->batch});
      }
    }
    return !heard.empty();
  }

  const std::optional<local::LoadDone>& done() const { return done_; }
  bool is_loading() const { return is_loading_ && !done_; }
  size_t node() const { return node_; }
  void end() {
    is_loading_ = false;
    host_.lose_client(client_);
  }

  std::string check(uint64_t step) const {
    if (!done_) return "not done";
    if (!done_->outcome.ok()) return done_->outcome.to_string();
    for (const local::LoadTarget& target : targets_) {
      if (target.kind == LayoutEntry::Kind::object) continue;
      const Bytes& bytes = bytes_.at(target.fqn);
      const std::vector<bool>& came = came_.at(target.fqn);
      for (const Box& box : target.boxes) {
        for (uint64_t at = box.offsets[0]; at < box.offsets[0] + box.sizes[0]; ++at) {
          if (!came[at]) return target.fqn + " lacks " + std::to_string(at);
          if (std::to_integer<uint64_t>(bytes[at]) != (element_value(target.fqn, at, step) & 0xff)) {
            return target.fqn + " is wrong at " + std::to_string(at);
          }
        }
      }
    }
    return "";
  }

 private:
  void place(const local::LoadedPiece& piece) {
    const local::LoadTarget& target = std::as_const(targets_)[piece.target];
    if (target.kind == LayoutEntry::Kind::object) return;
    const uint64_t at = piece.box.offsets[0] + piece.piece_offset;
    Bytes& bytes = bytes_[target.fqn];
    std::vector<bool>& came = came_[target.fqn];
    bytes.resize(target.shape[0]);
    came.resize(target.shape[0]);
    std::memcpy(bytes.data() + at, window_.data() + piece.slab_offset, piece.bytes);
    std::fill_n(came.begin() + static_cast<std::ptrdiff_t>(at), piece.bytes, true);
  }

  VirtualHost& host_;
  const Rank rank_;
  const uint32_t ranks_;
  const LayoutPtr layout_;
  const size_t node_;
  const ClientId client_;
  bool is_loading_ = false;
  MutableByteView window_;
  SharedVector<local::LoadTarget> targets_;
  std::map<std::string, Bytes> bytes_;
  std::map<std::string, std::vector<bool>> came_;
  std::optional<local::LoadDone> done_;
};

class SharedLoad : public ::testing::Test {
 protected:
  // Saves step 1 by two ranks, whatever the loaders are.
  void save(const std::vector<Tensor>& tensors) {
    tensors_ = tensors;
    VirtualJob job = VirtualJob::start(host_, facts_of(1), 1, 2,
                                       std::vector<LayoutPtr>(2, layout_of(saved_by(tensors), 2)));
    for (auto& trainer : job.trainers) trainer->declare();
    for (auto& trainer : job.trainers) trainer->save(1);
    job.run(kPatience);
    ASSERT_TRUE(job.trainers[0]->decided().contains({1, 1}));
    ASSERT_TRUE(job.trainers[0]->decided().at({1, 1}).outcome.ok());
    host_.on_operation([this](size_t node, const Operation& operation) { heard(node, operation); });
  }

  void start(uint32_t nodes, uint32_t ranks, uint64_t buffer_bytes = kLoadBufferBytes) {
    const uint32_t a_node = ranks / nodes;
    const LayoutPtr layout = layout_of(tensors_, ranks);
    for (uint32_t node = 0; node < nodes; ++node) {
      NodeFacts facts = facts_of(2);
      facts.host = "reader" + std::to_string(node);
      facts.load_buffer_bytes = buffer_bytes;
      for (Rank rank = node * a_node; rank < (node + 1) * a_node; ++rank)
        facts.expected_ranks.push_back(rank);
      nodes_.push_back(host_.add_node(facts, node == 0));
    }
    for (Rank rank = 0; rank < ranks; ++rank) {
      readers_.push_back(std::make_unique<Reader>(host_, nodes_[rank / a_node], rank, ranks, layout));
    }
  }

  // Until all that load have ended; those of nodes that died never do.
  void run() {
    constexpr TimeNs kStep = 2 * kMillisecond, kLongest = 60'000 * kMillisecond;
    const TimeNs until = host_.now() + kLongest;
    size_t left = 1;
    while (left != 0 && host_.now() < until) {
      host_.run_for(kStep);
      left = 0;
      for (auto& reader : readers_) {
        reader->listen();
        left += reader->is_loading() && host_.alive(reader->node()) ? 1 : 0;
      }
    }
    host_.run_for(100 * kMillisecond);
  }

  uint64_t tensor_bytes() const {
    uint64_t bytes = 0;
    for (const Tensor& tensor : tensors_) bytes += tensor.bytes;
    return bytes;
  }
  void expect_all_loaded() const {
    for (size_t rank = 0; rank < readers_.size(); ++rank) EXPECT_EQ(readers_[rank]->check(1), "") << rank;
  }

  VirtualHost host_;
  std::vector<size_t> nodes_;
  std::vector<std::unique_ptr<Reader>> readers_;
  uint64_t bytes_read_ = 0;
  std::map<size_t, uint64_t> chunks_read_;                     // by node
  size_t listings_ = 0;                                        // of the root
  std::function<void(size_t node, const Operation&)> attack_;  // hears of operations too

 private:
  static std::vector<Tensor> saved_by(std::vector<Tensor> tensors) {
    for (Tensor& tensor : tensors) tensor.placement = Placement::shard(0);
    return tensors;
  }
  void heard(size_t node, const Operation& operation) {
    auto add = [this](const std::vector<operation::ReadRange>& ranges) {
      for (const operation::ReadRange& range : ranges) bytes_read_ += range.end - range.begin;
    };
    if (const auto* batch = std::get_if<operation::ReadBatch>(&operation)) add(batch->ranges);
    if (const auto* chunk = std::get_if<operation::ReadChunk>(&operation)) {
      add(chunk->ranges);
      ++chunks_read_[node];
    }
    listings_ += std::holds_alternative<operation::ListNewestAttempts>(operation) ? 1 : 0;
    if (attack_) attack_(node, operation);
  }

  std::vector<Tensor> tensors_;
};

const std::vector<Tensor> kReplicated = {{"a", 2 * kMiB + 123, Placement::replicate()},
                                         {"b", 8 * kMiB, Placement::replicate()},
                                         {"c", 7, Placement::replicate()},
                                         {"d", 5 * kMiB, Placement::replicate()}};

TEST_F(SharedLoad, HostsThatNeedTheSameReadItOnce) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(4, 4);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);  // and a note a host
  EXPECT_EQ(chunks_read_.size(), 4u) << "all of them read a part";
  EXPECT_EQ(listings_, 1u) << "the choice is made once";
  const LoadTimes& times = readers_[0]->done()->times;
  EXPECT_TRUE(times.was_shared);
  EXPECT_EQ(times.chunks_given_up, 0u);
  EXPECT_NEAR(static_cast<double>(times.bytes_received), 0.75 * static_cast<double>(tensor_bytes()),
              static_cast<double>(4 * kMiB));
}

TEST_F(SharedLoad, ALoadThatIsTooSmallOrDirectAsksNobody) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(2, 2);
  readers_[0]->load(LoadWay::direct);
  readers_[1]->load(LoadWay::automatic);
  run();
  expect_all_loaded();
  EXPECT_GE(bytes_read_, 2 * tensor_bytes());
  for (auto& reader : readers_) EXPECT_FALSE(reader->done()->times.was_shared);
}

TEST_F(SharedLoad, RanksOfOneHostReadTheSameOnce) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(1, 3);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);
}

TEST_F(SharedLoad, WhatOnlyOneNeedsIsReadStraight) {
  ASSERT_NO_FATAL_FAILURE(
      save({{"sharded", 16 * kMiB, Placement::shard(0)}, {"norm", 2 * kMiB, Placement::replicate()}}));
  start(4, 4);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);
  EXPECT_LE(chunks_read_.size(), 2u);  // of the norm alone
}

TEST_F(SharedLoad, ALargeGroupPassesChunksOnAlongTrees) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(20, 20);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 20 * 256);
}

TEST_F(SharedLoad, ASmallBufferIsEnough) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 6, 4 * kMiB);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() * 3 / 2);
}

struct Death {
  size_t host = 0;
  bool while_reading = false;  // else while it checks what came
};
class ADeath : public SharedLoad, public ::testing::WithParamInterface<Death> {};

TEST_P(ADeath, IsMadeUpForByTheOthers) {
  const Death death = GetParam();
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(4, 4);
  attack_ = [&](size_t node, const Operation& operation) {
    const bool is_time = death.while_reading ? std::holds_alternative<operation::ReadChunk>(operation)
                                             : std::holds_alternative<operation::CheckChunk>(operation);
    if (node == nodes_[death.host] && is_time) host_.kill_node(node);
  };
  for (auto& reader : readers_) reader->load();
  run();
  ASSERT_FALSE(host_.alive(nodes_[death.host]));
  for (size_t rank = 0; rank < 4; ++rank) {
    if (rank != death.host) {
      EXPECT_EQ(readers_[rank]->check(1), "") << rank;
    }
  }
  EXPECT_LT(bytes_read_, 2 * tensor_bytes());
}

// The first host coordinates as well.
INSTANTIATE_TEST_SUITE_P(SharedLoad, ADeath,
                         ::testing::Values(Death{0, true}, Death{0, false}, Death{1, true}, Death{1, false},
                                           Death{3, true}, Death{3, false}));

TEST_F(SharedLoad, ATrainerThatDiesHindersNobody) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 3);
  attack_ = [&](size_t node, const Operation& operation) {
    if (node == nodes_[1] && std::holds_alternative<operation::ReadChunk>(operation) &&
        chunks_read_[node] == 1) {
      readers_[1]->end();
    }
  };
  for (auto& reader : readers_) reader->load();
  run();
  EXPECT_EQ(readers_[0]->check(1), "");
  EXPECT_EQ(readers_[2]->check(1), "");
}

// One bit, in the sender's memory: what it says of its bytes is no proof of them.
TEST_F(SharedLoad, AChunkThatItsSenderHoldsWronglyIsReadFromStorage) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 3);
  size_t passed = 0;
  host_.corrupt_messages([&](size_t from, WireMessage& message) {
    const auto* said = std::get_if<wire::ChunkIs>(message.body.get());
    if (from != nodes_[1] || said == nullptr) return;
    ++passed;
    auto wrong = std::make_shared<Chunk>(*said->chunk);
    wrong->bytes[wrong->size / 2] ^= std::byte{4};
    message.body = std::make_shared<const WireBody>(wire::ChunkIs{said->id, said->number, std::move(wrong)});
  });
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_GT(passed, 0u);
  uint64_t given_up = 0;
  for (auto& reader : readers_) given_up += reader->done()->times.chunks_given_up;
  EXPECT_EQ(given_up, passed);
}

TEST_F(SharedLoad, WhoComesLateReadsDirectly) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 3);
  readers_[0]->load();
  readers_[1]->load();
  run();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);
  readers_[2]->load();
  run();
  expect_all_loaded();
  EXPECT_EQ(listings_, 1u);
}

TEST_F(SharedLoad, WithoutACoordinatorEachLoadsByItself) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 3);
  host_.kill_node(nodes_[0]);
  readers_[1]->load();
  readers_[2]->load();
  run();
  EXPECT_EQ(readers_[1]->check(1), "");
  EXPECT_EQ(readers_[2]->check(1), "");
}

TEST_F(SharedLoad, OnlyTheGroupThatIsNamedShares) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(4, 4);
  for (Rank rank = 0; rank < 4; ++rank) {
    readers_[rank]->load(LoadWay::two_stage, rank < 2 ? std::vector<Rank>{0, 1} : std::vector<Rank>{2, 3});
  }
  run();
  expect_all_loaded();
  EXPECT_NEAR(static_cast<double>(bytes_read_), 2.0 * static_cast<double>(tensor_bytes()), 4096);
}

TEST_F(SharedLoad, AnotherLoadOfTheSameRanksIsSharedAgain) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(2, 2);
  for (uint32_t round = 0; round < 2; ++round) {
    for (auto& reader : readers_) reader->load(LoadWay::two_stage, {}, round);
    run();
    expect_all_loaded();
  }
  EXPECT_LT(bytes_read_, 2 * tensor_bytes() + 4096);
}

}  // namespace
}  // namespace shoal
