// Several nodes whose clients load a saved checkpoint, together or each alone.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "tests/sim/support/patience.h"
#include "tests/sim/support/sixteen_ranks.h"

namespace shoal::sim {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Tensor {
  std::string fqn;
  uint64_t bytes = 0;
  Placement placement;
};

// A tensor of bytes with one dimension, on a mesh of all ranks.
inline LayoutPtr layout_of(const std::vector<Tensor>& tensors, uint32_t ranks) {
  LayoutBuilder builder;
  const Mesh all = Mesh::contiguous({ranks});
  for (const Tensor& tensor : tensors) {
    builder.add_tensor(tensor.fqn, DType::u8, {tensor.bytes}, all, {tensor.placement});
  }
  builder.add_object("note", all, true);
  return std::move(builder).build().value();
}

// The client of one rank that loads tensors of bytes with one dimension.
class Reader {
 public:
  Reader(VirtualHost& host, size_t node, Rank rank, uint32_t ranks, LayoutPtr layout)
      : host_(host),
        rank_(rank),
        ranks_(ranks),
        layout_(std::move(layout)),
        node_(node),
        client_(host.attach(node, rank, ranks)) {}

  void load(LoadMethod method = LoadMethod::two_stage, std::vector<Rank> among = {}, uint32_t round = 0) {
    local::Load load;
    load.request_id = round + 1;
    load.ordinal = 1;
    load.slab_id = round + 1;
    load.sharing = local::Load::Sharing{method, rank_, ranks_, round, layout_, std::move(among)};
    targets_.clear();
    for (const LayoutEntry& entry : layout_->entries()) {
      local::LoadTarget target{value_fqn(entry, rank_), entry.kind, entry.dtype, entry.shape, {}};
      if (entry.kind == LayoutEntry::Kind::tensor) target.boxes = layout_->shards_of(entry, rank_).boxes;
      load.targets.push_back(target);
      targets_.push_back(std::move(target));
    }
    is_loading_ = true;
    bytes_.clear();
    came_.clear();
    done_.reset();
    window_ = host_.add_slab(client_, load.slab_id, 8 * kMiB);
    host_.from_client(client_, std::move(load));
  }

  bool listen() {
    const auto received = host_.take(client_);
    if (is_gone_) return false;  // its window is gone too
    for (const auto& message : received) {
      if (const auto* found = std::get_if<local::Found>(message.get())) {
        if (!found->outcome.ok()) done_ = local::LoadDone{found->request_id, found->outcome};
      } else if (const auto* done = std::get_if<local::LoadDone>(message.get())) {
        done_ = *done;
      } else if (const auto* loaded = std::get_if<local::Loaded>(message.get())) {
        for (const local::LoadedPiece& piece : loaded->pieces) place(piece);
        host_.from_client(client_, local::Placed{loaded->request_id, loaded->batch});
      }
    }
    return !received.empty();
  }

  const std::optional<local::LoadDone>& done() const { return done_; }
  bool is_loading() const { return is_loading_ && !done_; }
  size_t node() const { return node_; }
  void end() {
    is_loading_ = false;
    is_gone_ = true;
    host_.lose_client(client_);
  }

  std::string check(uint64_t step) const {
    if (!done_) return "not done";
    if (!done_->outcome.ok()) return done_->outcome.to_string();
    for (const local::LoadTarget& target : targets_) {
      if (target.kind == LayoutEntry::Kind::object) continue;
      const Bytes& bytes = bytes_.at(target.fqn);
      const std::vector<char>& came = came_.at(target.fqn);
      const ElementValues values(target.fqn, step);
      for (const Box& box : target.boxes) {
        for (uint64_t at = box.offsets[0]; at < box.offsets[0] + box.sizes[0]; ++at) {
          if (came[at] == 0) return target.fqn + " lacks " + std::to_string(at);
          if (std::to_integer<uint64_t>(bytes[at]) != (values[at] & 0xff)) {
            return target.fqn + " is wrong at " + std::to_string(at);
          }
        }
      }
    }
    return "";
  }

 private:
  void place(const local::LoadedPiece& piece) {
    const local::LoadTarget& target = targets_[piece.target];
    if (target.kind == LayoutEntry::Kind::object) return;
    const uint64_t at = piece.box.offsets[0] + piece.piece_offset;
    Bytes& bytes = bytes_[target.fqn];
    std::vector<char>& came = came_[target.fqn];
    bytes.resize(target.shape[0]);
    came.resize(target.shape[0]);
    std::memcpy(bytes.data() + at, window_.data() + piece.slab_offset, piece.bytes);
    std::memset(came.data() + at, 1, piece.bytes);
  }

  VirtualHost& host_;
  const Rank rank_;
  const uint32_t ranks_;
  const LayoutPtr layout_;
  const size_t node_;
  const actors::ClientId client_;
  bool is_loading_ = false, is_gone_ = false;
  MutableByteView window_;
  std::vector<local::LoadTarget> targets_;
  std::map<std::string, Bytes> bytes_;
  std::map<std::string, std::vector<char>> came_;  // by byte: 1 if it has come
  std::optional<local::LoadDone> done_;
};

class SharedLoad : public ::testing::Test {
 protected:
  // Saves step 1 with two ranks, whatever the number of loaders.
  void save(const std::vector<Tensor>& tensors) {
    tensors_ = tensors;
    VirtualJob job = VirtualJob::start(host_, facts_of(1), 1, 2,
                                       std::vector<LayoutPtr>(2, layout_of(saved_by(tensors), 2)));
    for (auto& trainer : job.trainers) trainer->declare();
    for (auto& trainer : job.trainers) trainer->save(1);
    job.run(3 * kPatience);
    ASSERT_TRUE(job.trainers[0]->decided().contains({1, 1}));
    ASSERT_TRUE(job.trainers[0]->decided().at({1, 1}).outcome.ok());
    host_.on_operation(
        [this](size_t node, const actors::Operation& operation) { received(node, operation); });
  }

  void start(uint32_t nodes, uint32_t ranks, uint64_t load_memory_bytes = actors::kDefaultLoadMemoryBytes,
             std::optional<uint64_t> memory_of_last = std::nullopt) {
    const uint32_t a_node = ranks / nodes;
    const LayoutPtr layout = layout_of(tensors_, ranks);
    for (uint32_t node = 0; node < nodes; ++node) {
      actors::NodeConfig facts = facts_of(2);
      facts.host = "reader" + std::to_string(node);
      facts.load_memory_bytes =
          node + 1 < nodes ? load_memory_bytes : memory_of_last.value_or(load_memory_bytes);
      for (Rank rank = node * a_node; rank < (node + 1) * a_node; ++rank)
        facts.expected_ranks.push_back(rank);
      nodes_.push_back(host_.add_node(facts, node == 0));
    }
    for (Rank rank = 0; rank < ranks; ++rank) {
      readers_.push_back(std::make_unique<Reader>(host_, nodes_[rank / a_node], rank, ranks, layout));
    }
  }

  // Runs until all loads have ended. Loads of dead nodes never end.
  void run() {
    constexpr actors::TimeNs kStep = 2 * actors::kMillisecond, kLongest = 60'000 * actors::kMillisecond;
    const actors::TimeNs until = host_.now() + kLongest;
    size_t left = 1;
    while (left != 0 && host_.now() < until) {
      host_.run_for(kStep);
      left = 0;
      for (auto& reader : readers_) {
        reader->listen();
        left += reader->is_loading() && host_.alive(reader->node()) ? 1 : 0;
      }
    }
    host_.run_for(100 * actors::kMillisecond);
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
  std::map<size_t, uint64_t> chunks_read_;      // by node
  std::map<std::string, size_t> headers_read_;  // by file; headers that are read to pass them on
  size_t listings_ = 0;                         // number of listings of the root
  std::function<void(size_t node, const actors::Operation&)> attack_;  // called for each operation too

 private:
  static std::vector<Tensor> saved_by(std::vector<Tensor> tensors) {
    for (Tensor& tensor : tensors) tensor.placement = Placement::shard(0);
    return tensors;
  }
  void received(size_t node, const actors::Operation& operation) {
    auto add = [this](const std::vector<actors::operation::ReadRange>& ranges) {
      for (const actors::operation::ReadRange& range : ranges) bytes_read_ += range.end - range.begin;
    };
    if (const auto* batch = std::get_if<actors::operation::ReadBatch>(&operation)) add(batch->ranges);
    if (const auto* chunk = std::get_if<actors::operation::ReadChunk>(&operation)) {
      add(chunk->ranges);
      ++chunks_read_[node];
    }
    if (const auto* header = std::get_if<actors::operation::ReadHeader>(&operation)) {
      ++headers_read_[header->piece->file_name];
    }
    listings_ += std::holds_alternative<actors::operation::ListNewestAttempts>(operation) ? 1 : 0;
    if (attack_) attack_(node, operation);
  }

  std::vector<Tensor> tensors_;
};

}  // namespace shoal::sim
