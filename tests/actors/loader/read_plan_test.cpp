// The read plan of a load, for pieces with many digest blocks: exactly the blocks that a rank's boxes touch,
// each once, in batches that fit into the parts of the window.
#include "actors/loader/read_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "base/digest/digest.h"

namespace shoal::actors {
namespace {

// A checkpoint of one tensor whose rows or columns the ranks hold by a sharding drawn at random.
class TouchedBlocks : public ::testing::Test {
 protected:
  uint64_t draw(uint64_t first, uint64_t last) { return first + random_() % (last - first + 1); }

  std::vector<Placement> drawn_placements(size_t count) {
    std::vector<Placement> placements;
    for (size_t i = 0; i < count; ++i) {
      const auto dim = static_cast<uint32_t>(draw(0, 1));
      const uint64_t kind = draw(0, 3);
      placements.push_back(kind == 0   ? Placement::replicate()
                           : kind == 1 ? Placement::strided_shard(dim, draw(1, 3))
                                       : Placement::shard(dim));
    }
    return placements;
  }

  void make_checkpoint() {
    const DType dtypes[] = {DType::u8, DType::bf16, DType::f32, DType::f64, DType::c64};
    dtype_ = dtypes[random_() % 5];
    shape_ = {draw(400, 4000), draw(300, 1500)};
    const Dims mesh{draw(1, 4), draw(1, 3)};
    LayoutBuilder builder;
    builder.add_tensor("w", dtype_, shape_, Mesh::contiguous(mesh), drawn_placements(2));
    const LayoutPtr layout = std::move(builder).build().value();
    std::vector<LayoutId> ids(mesh[0] * mesh[1], layout->id());
    std::vector<uint32_t> hosts(ids.size(), 0);
    auto world = std::make_shared<World>(World{Roster::make(ids, hosts).value(), {layout}});
    storage::Manifest manifest;
    manifest.options.dedupe = static_cast<Dedupe>(draw(0, 2));
    manifest.options.unit_bytes = draw(1, 4) << 20;
    files_.clear();
    for (Rank rank = 0; rank < ids.size(); ++rank) {
      const SavePlan plan = plan_save(*world, rank, manifest.options).value();
      for (uint32_t file = 0; file < plan.files; ++file) {
        manifest.files.push_back({shard_file_name(rank, file), 1000 + rank, Hash128(), rank, file});
      }
      const std::vector<std::string> keys = item_keys(*layout, plan);
      for (size_t i = 0; i < plan.items.size(); ++i) {
        if (!plan.items[i].canonical) continue;
        files_[{shard_file_name(rank, plan.items[i].file), keys[i]}] = plan.items[i].box;
      }
    }
    manifest.world = std::move(world);
    decision_.key = {1, 5, 1};
    decision_.body = std::move(manifest);
  }

  std::vector<Box> drawn_boxes() {
    std::vector<Box> boxes;
    for (uint64_t count = draw(1, 3); count > 0; --count) {
      Box box = whole(shape_);
      for (size_t d = 0; d < 2; ++d) {
        if (draw(0, 3) == 0) continue;
        box.offsets[d] = draw(0, shape_[d] - 1);
        box.sizes[d] = draw(1, std::max<uint64_t>(1, (shape_[d] - box.offsets[d]) / draw(1, 40)));
      }
      boxes.push_back(box);
    }
    return boxes;
  }

  using Block = std::tuple<std::string, std::string, uint64_t>;  // file, key, number
  // Row by row: which bytes of which piece a box touches.
  std::set<Block> touched(const std::vector<Box>& boxes) const {
    std::set<Block> blocks;
    const uint64_t element = *dtype_bytes(dtype_);
    for (const Box& box : boxes) {
      for (const auto& [where, piece] : files_) {
        const uint64_t left = std::max(box.offsets[1], piece.offsets[1]);
        const uint64_t right = std::min(box.offsets[1] + box.sizes[1], piece.offsets[1] + piece.sizes[1]);
        if (left >= right) continue;
        for (uint64_t row = 0; row < piece.sizes[0]; ++row) {
          const uint64_t at = piece.offsets[0] + row;
          if (at < box.offsets[0] || at >= box.offsets[0] + box.sizes[0]) continue;
          const uint64_t begin = (row * piece.sizes[1] + left - piece.offsets[1]) * element;
          const uint64_t end = begin + (right - left) * element;
          for (uint64_t block = begin / base::kDigestBlockBytes; block * base::kDigestBlockBytes < end;
               ++block) {
            blocks.insert({where.first, where.second, block});
          }
        }
      }
    }
    return blocks;
  }

  std::mt19937_64 random_;
  DType dtype_ = DType::u8;
  Dims shape_;
  std::map<std::pair<std::string, std::string>, Box> files_;
  storage::Decision decision_;
};

TEST_F(TouchedBlocks, AreReadOnceEachAndNoOthersInBatchesThatFit) {
  size_t parts = 0, blocks_left_out = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_.seed(seed);
    make_checkpoint();
    StoredCheckpoint stored(std::make_shared<const storage::Decision>(decision_));
    const local::LoadTargets targets = {{"w", LayoutEntry::Kind::tensor, dtype_, shape_, drawn_boxes()}};
    ASSERT_TRUE(compare_targets(stored.locator(), targets).ok());
    auto plan = plan_reads(stored, targets);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const uint64_t part_bytes = draw(1, 6) * base::kDigestBlockBytes;
    std::set<Block> read;
    const ReadBatches batches(plan->pieces, plan->reads, part_bytes);
    for (size_t number = 0; number < batches.size(); ++number) {
      const ReadBatchPlan batch = batches[number];
      const std::vector<operation::ReadRange> notified = batches.ranges_of(number, 7 * part_bytes);
      ASSERT_EQ(notified.size(), batch.reads.size());
      uint64_t used = 0;
      for (size_t i = 0; i < batch.reads.size(); ++i) {
        const PlannedRead& range = batch.reads[i];
        const operation::PieceRef& piece = *notified[i].piece;
        ASSERT_EQ(notified[i].slab_offset, 7 * part_bytes + used);
        ASSERT_EQ(std::pair(notified[i].begin, notified[i].end), std::pair(range.begin, range.end));
        ASSERT_EQ(files_.at({piece.file_name, piece.piece_key}), piece.box);
        ASSERT_EQ(range.piece_bytes, piece.box.elements() * *dtype_bytes(dtype_));
        ASSERT_EQ(range.begin % base::kDigestBlockBytes, 0u);
        ASSERT_TRUE(range.end % base::kDigestBlockBytes == 0 || range.end == range.piece_bytes);
        ASSERT_LT(range.begin, range.end);
        ASSERT_EQ(batch.offsets[i], used) << "one after the other";
        used += range.end - range.begin;
        for (uint64_t at = range.begin; at < range.end; at += base::kDigestBlockBytes) {
          ASSERT_TRUE(read.insert({piece.file_name, piece.piece_key, at / base::kDigestBlockBytes}).second)
              << "a block is read twice";
        }
      }
      ASSERT_LE(used, part_bytes);
      ++parts;
    }
    const std::set<Block> expected = touched(targets[0].boxes);
    ASSERT_EQ(read.size(), expected.size());
    ASSERT_TRUE(read == expected);
    blocks_left_out += touched({whole(shape_)}).size() - expected.size();
  }
  EXPECT_GT(parts, 300u);
  EXPECT_GT(blocks_left_out, 1000u) << "a target touches less than all";
}

}  // namespace
}  // namespace shoal::actors
