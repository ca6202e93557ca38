// Random jobs save in each of the three modes. Other jobs, with more, fewer or as many ranks and any other
// sharding, load the result bit for bit. Each rank reads exactly the digest blocks that it touches.
//
// A failure names its seed. SHOAL_SEED=N runs one seed; SHOAL_SEEDS=N runs the first N without a time limit.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "base/digest/digest.h"
#include "storage/root/run_root.h"
#include "tests/sim/simulated.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/sixteen_ranks.h"

namespace shoal::sim {
namespace {

constexpr uint64_t kReshardSeeds = 60;
constexpr uint64_t kSeedsAtLeast = 6;  // however slow the machine is
constexpr std::chrono::seconds kTimeMost{20};

struct BlockRead {  // one digest block of one stored piece
  std::string file, key;
  uint64_t begin = 0, end = 0;
  friend auto operator<=>(const BlockRead&, const BlockRead&) = default;
};
using Blocks = std::multiset<BlockRead>;

void add_blocks(Blocks& blocks, const std::vector<actors::operation::ReadRange>& ranges) {
  for (const actors::operation::ReadRange& range : ranges) {
    for (uint64_t at = range.begin; at < range.end; at += base::kDigestBlockBytes) {
      const uint64_t end = std::min(range.end, at + base::kDigestBlockBytes);
      blocks.insert({range.piece->file_name, range.piece->piece_key, at, end});
    }
  }
}

// What a rank that wants `boxes` of a tensor touches, element by element, of all canonical pieces that all
// ranks have written.
class StoredElements {
 public:
  explicit StoredElements(const storage::Manifest& manifest) {
    const World& world = *manifest.world;
    for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
      const Layout& layout = world.layout_of(rank);
      const SavePlan plan = plan_save(world, rank, manifest.options).value();
      const std::vector<std::string> keys = item_keys(layout, plan);
      for (size_t i = 0; i < plan.items.size(); ++i) {
        const WriteItem& item = plan.items[i];
        const LayoutEntry& entry = layout.entries()[item.entry];
        if (!item.canonical || entry.kind == LayoutEntry::Kind::object) continue;
        pieces_[entry.fqn].push_back(
            {item.box, *dtype_bytes(entry.dtype), shard_file_name(rank, item.file), keys[i]});
      }
    }
  }

  std::set<BlockRead> touched_by(const Layout& layout, Rank rank) const {
    std::set<BlockRead> touched;
    for (const LayoutEntry& entry : layout.entries()) {
      if (entry.kind == LayoutEntry::Kind::object) continue;
      for (const Box& wanted : layout.shards_of(entry, rank).boxes) {
        for (const Piece& piece : pieces_.at(entry.fqn)) add_touched(piece, wanted, touched);
      }
    }
    return touched;
  }

 private:
  struct Piece {
    Box box;
    uint64_t element_bytes;
    std::string file, key;
  };
  static void add_touched(const Piece& piece, const Box& wanted, std::set<BlockRead>& touched) {
    const uint64_t elements = piece.box.elements(), bytes = elements * piece.element_bytes;
    for (uint64_t number = 0; number < elements; ++number) {
      bool is_required = true;
      for (uint64_t d = piece.box.dims(), left = number; d-- > 0; left /= piece.box.sizes[d]) {
        const uint64_t at = piece.box.offsets[d] + left % piece.box.sizes[d];
        is_required = is_required && at >= wanted.offsets[d] && at < wanted.offsets[d] + wanted.sizes[d];
      }
      if (!is_required) continue;
      const uint64_t begin = number * piece.element_bytes / base::kDigestBlockBytes * base::kDigestBlockBytes;
      touched.insert({piece.file, piece.key, begin, std::min(bytes, begin + base::kDigestBlockBytes)});
    }
  }
  std::map<std::string, std::vector<Piece>> pieces_;
};

class Resharding : public ::testing::Test {
 protected:
  // Saves steps 1 and 2 of the job, and returns the outcome of step 2 that all ranks received.
  void save_twice(VirtualHost& host, SaveMode mode, uint32_t nodes, const std::vector<LayoutPtr>& layouts,
                  Metadata* metadata) {
    const auto ranks = static_cast<uint32_t>(layouts.size());
    VirtualJob job = VirtualJob::start(host, facts_of(1), nodes, ranks, layouts);
    for (auto& trainer : job.trainers) trainer->declare(in_small_units(mode));
    for (uint64_t step : {1, 2}) {
      for (auto& trainer : job.trainers) trainer->save(step);
      job.run(kPatience);
    }
    for (Rank rank = 0; rank < ranks; ++rank) {
      const auto& decided = job.trainers[rank]->decided();
      ASSERT_TRUE(decided.contains({2, 1})) << "rank " << rank;
      ASSERT_TRUE(decided.at({2, 1}).outcome.ok()) << decided.at({2, 1}).outcome.to_string();
    }
    *metadata = *job.trainers[0]->decided().at({2, 1}).checkpoint;
    for (size_t node = 0; node < nodes; ++node) host.kill_node(node);
  }

  void expect_loads(VirtualHost& host, const std::vector<LayoutPtr>& readers) {
    VirtualJob next = VirtualJob::start(host, facts_of(2), 1, static_cast<uint32_t>(readers.size()), readers);
    std::map<actors::ClientId, Blocks> read;
    host.on_operation([&](size_t, const actors::Operation& operation) {
      const auto* batch = std::get_if<actors::operation::ReadBatch>(&operation);
      if (batch != nullptr) add_blocks(read[batch->client], batch->ranges);
      const auto* located =
          std::get_if<actors::operation::LocateRanges>(&operation);  // the client reads them
      if (located != nullptr) add_blocks(read[located->client], located->ranges);
    });
    for (auto& trainer : next.trainers) trainer->load(2);
    next.run(kPatience);
    host.on_operation(nullptr);
    const storage::Manifest manifest = storage::read_decision(host.storage(), {1, 2, 1})->manifest();
    const StoredElements stored(manifest);
    for (Rank rank = 0; rank < readers.size(); ++rank) {
      const VirtualTrainer& trainer = *next.trainers[rank];
      ASSERT_TRUE(trainer.found().has_value());
      ASSERT_TRUE(trainer.found()->outcome.ok()) << trainer.found()->outcome.to_string();
      ASSERT_TRUE(trainer.load_done().has_value());
      ASSERT_TRUE(trainer.load_done()->outcome.ok()) << trainer.load_done()->outcome.to_string();
      EXPECT_EQ(trainer.check_loaded(2), "");
      const std::set<BlockRead> touched = stored.touched_by(*readers[rank], rank);
      Blocks of_tensors;
      for (const BlockRead& block : read[trainer.client()]) {
        if (!objects_.contains(block.key)) of_tensors.insert(block);
      }
      EXPECT_TRUE(std::equal(of_tensors.begin(), of_tensors.end(), touched.begin(), touched.end()))
          << "rank " << rank << " read " << of_tensors.size() << " blocks and touches " << touched.size();
    }
  }

  void run_seed(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto ranks = static_cast<uint32_t>(1 + random() % 8);
    const auto nodes = static_cast<uint32_t>(1 + random() % std::min<uint32_t>(ranks, 3));
    const std::vector<LayoutPtr> layouts = drawn_job(random, ranks);
    const uint64_t choice = random() % 3;
    const auto readers = static_cast<uint32_t>(choice == 0   ? ranks
                                               : choice == 1 ? 1 + random() % ranks
                                                             : ranks + 1 + random() % 4);
    std::vector<LayoutPtr> wanted;
    std::vector<Metadata> metadata;
    for (SaveMode mode : kModes) {
      SCOPED_TRACE(mode_name(mode));
      VirtualHost host;
      metadata.emplace_back();
      save_twice(host, mode, nodes, layouts, &metadata.back());
      if (HasFatalFailure()) return;
      objects_.clear();
      for (const TensorMetadata& value : metadata.front().state_dict_metadata) {
        if (value.kind == LayoutEntry::Kind::object) objects_.insert(value.fqn);
      }
      if (wanted.empty()) wanted = drawn_job_of(random, metadata.front().state_dict_metadata, readers);
      expect_loads(host, wanted);
      if (HasFailure()) return;
      const auto& one = metadata.front().state_dict_metadata;
      const auto& other = metadata.back().state_dict_metadata;
      ASSERT_EQ(one.size(), other.size());
      for (size_t v = 0; v < one.size(); ++v) {
        EXPECT_EQ(one[v].fqn, other[v].fqn);
        EXPECT_EQ(one[v].kind, other[v].kind);
        EXPECT_EQ(one[v].dtype, other[v].dtype);
        EXPECT_EQ(one[v].shape, other[v].shape);
      }
    }
    // Alike in what is written, too, where copies are divided alike.
    EXPECT_EQ(metadata[0].payload_bytes, metadata[2].payload_bytes);
  }

 private:
  std::set<std::string> objects_;
};

uint64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

TEST_F(Resharding, IsBitForBitAndReadsWhatItTouchesWhateverTheLayouts) {
  if (const uint64_t alone = number_in("SHOAL_SEED"); alone != 0) return run_seed(alone);
  const uint64_t wanted = number_in("SHOAL_SEEDS");
  const auto begun = std::chrono::steady_clock::now();
  for (uint64_t seed = 1; seed <= (wanted != 0 ? wanted : kReshardSeeds); ++seed) {
    if (wanted == 0 && seed > kSeedsAtLeast && std::chrono::steady_clock::now() - begun > kTimeMost) {
      std::printf("%llu of %llu seeds in the time there is\n", static_cast<unsigned long long>(seed - 1),
                  static_cast<unsigned long long>(kReshardSeeds));
      return;
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + " (SHOAL_SEED runs it alone)");
    run_seed(seed);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace shoal::sim
