#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/gpu/kernels/kernel_runner.h"

namespace shoal::gpu {
namespace {

constexpr std::byte kUncopied{0xA5};

// A box within two memories. Offsets are from the memories' addresses.
struct Box {
  uint64_t row_bytes;
  uint64_t rows;
  uint64_t source_offset;
  uint64_t source_stride;
  uint64_t target_offset;
  uint64_t target_stride;

  uint64_t source_end() const { return source_offset + (rows - 1) * source_stride + row_bytes; }
  uint64_t target_end() const { return target_offset + (rows - 1) * target_stride + row_bytes; }
};

class RowCopyKernel : public ::testing::TestWithParam<RunsOn> {
 protected:
  void SetUp() override {
    std::string reason;
    runner_ = make_runner(GetParam(), &reason);
    if (runner_ == nullptr) GTEST_SKIP() << reason;
  }

  // Copies the boxes in one launch, and compares every byte of the target.
  void check(const std::vector<Box>& boxes, uint64_t margin = 32) {
    uint64_t source_bytes = 1;
    uint64_t target_bytes = margin;
    for (const Box& box : boxes) {
      if (box.rows == 0) continue;
      source_bytes = std::max(source_bytes, box.source_end());
      target_bytes = std::max(target_bytes, box.target_end() + margin);
    }
    const std::vector<std::byte> bytes = random_bytes(source_bytes, source_bytes + boxes.size());
    auto source = runner_->allocate(source_bytes);
    source->write(bytes);
    std::vector<std::byte> expected(target_bytes, kUncopied);
    auto target = runner_->allocate(target_bytes);
    target->write(expected);
    std::vector<RowCopy> pieces;
    for (const Box& box : boxes) {
      append_row_copy({source->address() + box.source_offset, target->address() + box.target_offset,
                       box.row_bytes, box.rows, box.source_stride, box.target_stride},
                      &pieces);
      for (uint64_t row = 0; row < box.rows; ++row) {
        if (box.row_bytes == 0) break;
        std::memcpy(expected.data() + box.target_offset + row * box.target_stride,
                    bytes.data() + box.source_offset + row * box.source_stride, box.row_bytes);
      }
    }
    runner_->run_row_copies(pieces);
    const std::vector<std::byte> found = target->read();
    const auto differs = std::mismatch(found.begin(), found.end(), expected.begin()).first;
    EXPECT_EQ(differs - found.begin(), static_cast<ptrdiff_t>(found.size()))
        << "the first byte that differs; first box: " << boxes[0].rows << " rows of " << boxes[0].row_bytes
        << " bytes, from " << boxes[0].source_offset << " to " << boxes[0].target_offset;
  }

  std::unique_ptr<KernelRunner> runner_;
};

TEST_P(RowCopyKernel, CopiesAnyNumberOfBytesBetweenAnyAddresses) {
  for (uint64_t bytes :
       {0, 1, 2, 3, 15, 16, 17, 31, 511, 512, 513, 2047, 2048, 2049, 16'383, 16'384, 16'385}) {
    for (uint64_t from : {0, 1, 2, 4, 7, 8, 15}) {
      for (uint64_t to : {32, 33, 34, 36, 40, 47}) check({{bytes, 1, from, 0, to, 0}});
    }
  }
}

TEST_P(RowCopyKernel, CopiesSeveralMebibytes) {
  check({{(uint64_t{5} << 20) + 3, 1, 0, 0, 32, 0}});
  check({{(uint64_t{3} << 20) + 3, 1, 5, 0, 35, 0}});
}

TEST_P(RowCopyKernel, PacksRowsOfEveryWidth) {
  for (uint64_t row_bytes :
       {1, 2, 3, 4, 6, 8, 12, 16, 24, 31, 32, 33, 48, 64, 100, 128, 255, 256, 257, 1000}) {
    for (uint64_t gap : {0, 1, 2, 4, 16, 160}) {
      for (uint64_t from : {0, 1, 8}) {
        check({{row_bytes, 300, from, row_bytes + gap, 32 + from, row_bytes}});
      }
    }
  }
}

TEST_P(RowCopyKernel, UnpacksRowsOfEveryWidth) {
  for (uint64_t row_bytes : {1, 2, 3, 4, 6, 8, 16, 48, 100, 255, 256, 257, 4096, 20'000}) {
    for (uint64_t gap : {1, 2, 8, 16, 4096}) {
      check({{row_bytes, 70, 0, row_bytes, 32, row_bytes + gap}});
      check({{row_bytes, 70, 3, row_bytes, 37, row_bytes + gap}});
    }
  }
}

TEST_P(RowCopyKernel, CopiesColumnsOfAMatrix) {
  const uint64_t columns = 4096, rows = 500, element = 2;
  for (uint64_t shard : {1, 3, 8, 128, 1024}) {
    const uint64_t row_bytes = columns / shard * element;
    check({{row_bytes, rows, row_bytes, columns * element, 32, row_bytes}});
  }
}

TEST_P(RowCopyKernel, RepeatsARowThatIsRead) {  // a source stride of 0: an expanded tensor
  check({{64, 100, 0, 0, 32, 64}});
  check({{1000, 100, 0, 0, 32, 1000}});
}

TEST_P(RowCopyKernel, CopiesThousandsOfPiecesInOneLaunch) {
  std::vector<Box> boxes;
  uint64_t state = 7;
  uint64_t from = 0;
  uint64_t to = 32;
  const auto draw = [&state](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int i = 0; i < 2000; ++i) {
    Box box{draw(i % 7 == 0 ? 3000 : 80), draw(3) == 0 ? draw(30) : 1, from + draw(5), 0, to + draw(3), 0};
    box.source_stride = box.row_bytes + draw(20);
    box.target_stride = box.row_bytes + draw(2) * draw(20);
    boxes.push_back(box);
    if (box.rows == 0) continue;
    from = box.source_end();
    to = box.target_end();
  }
  check(boxes);
}

INSTANTIATE_TEST_SUITE_P(On, RowCopyKernel, ::testing::Values(RunsOn::emulator, RunsOn::device),
                         [](const auto& where) { return name_of(where.param); });

TEST(RowCopyTable, JoinsRowsThatLieOneAfterAnother) {
  std::vector<RowCopy> pieces;
  append_row_copy({nullptr, nullptr, 0, 5, 8, 8}, &pieces);
  append_row_copy({nullptr, nullptr, 8, 0, 8, 8}, &pieces);
  EXPECT_EQ(pieces.size(), 0u);
  append_row_copy({nullptr, nullptr, 8, 5, 8, 8}, &pieces);
  append_row_copy({nullptr, nullptr, 8, 5, 8, 9}, &pieces);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].rows, 1u);
  EXPECT_EQ(pieces[0].row_bytes, 40u);
  EXPECT_EQ(pieces[1].rows, 5u);
  EXPECT_EQ(pieces[1].first_unit, 1u);
  EXPECT_EQ(table_of(pieces).units, 2u);
}

}  // namespace
}  // namespace shoal::gpu
