// Which values of two checkpoints differ, and how much of them is read.
#include "admin/checkpoint_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "shoal/check.h"

namespace shoal::admin {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using What = ValueDifference::What;

constexpr uint64_t kDigestedMiB = uint64_t{1} << 20;

template <class Number>
Bytes bytes_of_numbers(const std::vector<Number>& numbers) {
  Bytes out(numbers.size() * sizeof(Number));
  std::memcpy(out.data(), numbers.data(), out.size());
  return out;
}

// One side: values in memory, and the boxes in which they are stored.
class FakeSide final : public CheckpointContents {
 public:
  std::string damaged;      // a value that cannot be read
  uint64_t bytes_read = 0;  // elements and objects

  FakeSide& tensor(const std::string& fqn, DType dtype, Dims shape, Bytes bytes,
                   std::vector<Box> boxes = {}) {
    if (boxes.empty()) boxes.push_back(whole(shape));
    SHOAL_CHECK(bytes.size() == whole(shape).elements() * *dtype_bytes(dtype));
    stored_[fqn] = {{fqn, LayoutEntry::Kind::tensor, dtype, std::move(shape)}, std::move(bytes), boxes};
    return *this;
  }
  FakeSide& object(const std::string& fqn, std::string_view text) {
    const ByteView view = as_view(text);
    stored_[fqn] = {{fqn, LayoutEntry::Kind::object, DType::u8, {}}, Bytes(view.begin(), view.end()), {{}}};
    return *this;
  }
  DiffSide side(uint64_t digest = 0) {
    DiffSide out;
    for (const auto& [fqn, stored] : stored_) out.values.push_back(stored.value);
    store_le64(out.contents_digest.bytes.data(), digest);
    out.contents = this;
    return out;
  }

  Result<std::vector<Piece>> pieces(const TensorMetadata& value) override {
    std::vector<Piece> out;
    for (const Box& box : stored_.at(value.fqn).boxes) {
      const Bytes bytes =
          value.kind == LayoutEntry::Kind::object ? stored_.at(value.fqn).bytes : cut(value, {box});
      Piece& piece = out.emplace_back(Piece{box, bytes.size(), {}});
      base::digest_blocks(bytes, &piece.digests);
    }
    std::ranges::sort(out, {}, &Piece::box);
    return out;
  }
  Status read(const TensorMetadata& tensor, const std::vector<Box>& boxes, MutableByteView out) override {
    return take(tensor, cut(tensor, boxes), out);
  }
  Status read_object(const TensorMetadata& object, uint64_t begin, uint64_t end,
                     MutableByteView out) override {
    const Bytes& all = stored_.at(object.fqn).bytes;
    return take(object,
                Bytes(all.begin() + static_cast<ptrdiff_t>(begin), all.begin() + static_cast<ptrdiff_t>(end)),
                out);
  }

 private:
  struct Stored {
    TensorMetadata value;
    Bytes bytes;
    std::vector<Box> boxes;
  };

  Status take(const TensorMetadata& value, const Bytes& bytes, MutableByteView out) {
    if (value.fqn == damaged) return Status(Code::corrupt, "rank-00000.safetensors: '" + damaged + "'");
    EXPECT_EQ(out.size(), bytes.size());
    EXPECT_LE(out.size(), kDiffWindowBytes);
    bytes_read += bytes.size();
    std::ranges::copy(bytes, out.begin());
    return ok_status();
  }
  Bytes cut(const TensorMetadata& value, const std::vector<Box>& boxes) const {
    const Stored& stored = stored_.at(value.fqn);
    const uint64_t width = dtype_bits(value.dtype) / 8;
    Bytes out;
    for (const Box& box : boxes) {
      const size_t begin = out.size();
      out.resize(begin + box.elements() * width);
      for_each_run(whole(value.shape), box, [&](uint64_t from, uint64_t to, uint64_t count) {
        std::memcpy(out.data() + begin + to * width, stored.bytes.data() + from * width, count * width);
      });
    }
    return out;
  }

  std::map<std::string, Stored> stored_;
};

class CheckpointDiff : public ::testing::Test {
 protected:
  Result<DiffReport> try_compare() {
    bytes_done_ = 0;
    return compare_checkpoints(a_.side(), b_.side(), {}, &bytes_done_);
  }
  DiffReport compare() {
    auto report = try_compare();
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? *report : DiffReport();
  }
  // The difference of one value, of these elements on the sides.
  template <class Number>
  ValueDifference compare_numbers(DType dtype, std::vector<Number> a, std::vector<Number> b) {
    const uint64_t elements = a.size() * sizeof(Number) / *dtype_bytes(dtype);
    a_.tensor("x", dtype, {elements}, bytes_of_numbers(a));
    b_.tensor("x", dtype, {elements}, bytes_of_numbers(b));
    DiffReport report = compare();
    EXPECT_THAT(report.differences, SizeIs(1));
    return report.differences.empty() ? ValueDifference() : report.differences[0];
  }

  FakeSide a_, b_;
  std::atomic<uint64_t> bytes_done_{0};
};

TEST_F(CheckpointDiff, ReadsNothingWhereDigestsAreEqual) {
  const Bytes bytes(3 * kDigestedMiB, std::byte{7});
  for (FakeSide* side : {&a_, &b_}) side->tensor("x", DType::u8, {bytes.size()}, bytes).object("o", "text");
  const DiffReport report = compare();
  EXPECT_TRUE(report.same());
  EXPECT_EQ(report.values, 2u);
  EXPECT_EQ(report.bytes_read, 0u);
  EXPECT_EQ(report.bytes_known_equal, bytes.size() + 4);
  EXPECT_EQ(bytes_done_, bytes_to_compare(a_.side(), b_.side()));
  EXPECT_EQ(a_.bytes_read + b_.bytes_read, 0u);
}

TEST_F(CheckpointDiff, ReadsOnlyTheBlocksThatDiffer) {
  Bytes bytes(4 * kDigestedMiB);
  a_.tensor("x", DType::u8, {bytes.size()}, bytes);
  bytes[2 * kDigestedMiB + 5] = std::byte{9};
  b_.tensor("x", DType::u8, {bytes.size()}, bytes);
  const DiffReport report = compare();
  ASSERT_THAT(report.differences, SizeIs(1));
  EXPECT_EQ(report.differences[0].different_elements, 1u);
  EXPECT_THAT(report.differences[0].first_index, ElementsAre(2 * kDigestedMiB + 5));
  EXPECT_EQ(report.differences[0].largest_difference, 9.0);
  EXPECT_EQ(a_.bytes_read, kDigestedMiB);
  EXPECT_EQ(report.bytes_known_equal, 3 * kDigestedMiB);
  EXPECT_EQ(bytes_done_, 4 * kDigestedMiB);
}

TEST_F(CheckpointDiff, ComparesAnyShardingWithAnyOther) {
  std::vector<float> numbers(6 * 4);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const std::vector<Box> rows{{{0, 0}, {3, 4}}, {{3, 0}, {3, 4}}},
      columns{{{0, 0}, {6, 2}}, {{0, 2}, {6, 2}}};
  a_.tensor("x", DType::f32, {6, 4}, bytes_of_numbers(numbers), rows);
  b_.tensor("x", DType::f32, {6, 4}, bytes_of_numbers(numbers), columns);
  EXPECT_TRUE(compare().same());
  EXPECT_EQ(a_.bytes_read, numbers.size() * 4) << "no digest proves anything";
  numbers[4 * 4 + 1] += 2;
  numbers[1 * 4 + 3] -= 3;
  b_.tensor("x", DType::f32, {6, 4}, bytes_of_numbers(numbers), columns);
  const DiffReport report = compare();
  ASSERT_THAT(report.differences, SizeIs(1));
  EXPECT_EQ(report.differences[0].different_elements, 2u);
  EXPECT_THAT(report.differences[0].first_index, ElementsAre(1, 3));
  EXPECT_EQ(report.differences[0].largest_difference, 3.0);
}

TEST_F(CheckpointDiff, NamesTheFirstElementInRowMajorOrderWhateverPieceHoldsIt) {
  std::vector<int32_t> numbers(2 * 4);
  const std::vector<Box> columns{{{0, 0}, {2, 2}}, {{0, 2}, {2, 2}}};
  a_.tensor("x", DType::i32, {2, 4}, bytes_of_numbers(numbers), columns);
  numbers[1 * 4 + 0] = 1;  // of the first piece
  numbers[0 * 4 + 3] = 1;  // of the second one
  b_.tensor("x", DType::i32, {2, 4}, bytes_of_numbers(numbers), columns);
  EXPECT_THAT(compare().differences[0].first_index, ElementsAre(0, 3));
}

TEST_F(CheckpointDiff, ComparesATensorThatIsLargerThanAWindow) {
  const uint64_t rows = kDiffWindowBytes / 1024 + 3;
  Bytes bytes(rows * 1024);
  a_.tensor("x", DType::u8, {rows, 1024}, bytes);
  bytes.back() = std::byte{1};
  b_.tensor("x", DType::u8, {rows, 1024}, bytes, {{{0, 0}, {rows, 512}}, {{0, 512}, {rows, 512}}});
  const DiffReport report = compare();
  ASSERT_THAT(report.differences, SizeIs(1));
  EXPECT_EQ(report.differences[0].different_elements, 1u);
  EXPECT_THAT(report.differences[0].first_index, ElementsAre(rows - 1, 1023));
  EXPECT_EQ(report.bytes_read, rows * 1024);
}

TEST_F(CheckpointDiff, HasTheLargestDifferenceOfNumbers) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(compare_numbers<int64_t>(DType::i64, {kLeast, 0}, {kMost, 0}).largest_difference, 0x1p64);
  EXPECT_EQ(compare_numbers<uint64_t>(DType::u64, {0, 5}, {1, 2}).largest_difference, 3.0);
  EXPECT_EQ(compare_numbers<int8_t>(DType::i8, {-128}, {127}).largest_difference, 255.0);
  EXPECT_EQ(compare_numbers<double>(DType::f64, {1.5, 2}, {1.25, 2}).largest_difference, 0.25);
  EXPECT_EQ(compare_numbers<uint16_t>(DType::bf16, {0x3f80}, {0x4000}).largest_difference, 1.0);
  EXPECT_EQ(compare_numbers<uint16_t>(DType::f16, {0x3c00}, {0x3e00}).largest_difference, 0.5);
  EXPECT_EQ(compare_numbers<float>(DType::c64, {0, 0, 1, 1}, {3, 4, 1, 1}).largest_difference, 5.0);
}

TEST_F(CheckpointDiff, HasNoLargestDifferenceOfWhatIsNoNumber) {
  const ValueDifference of_boolean = compare_numbers<uint8_t>(DType::boolean, {0, 1}, {1, 1});
  EXPECT_EQ(of_boolean.different_elements, 1u);
  EXPECT_EQ(of_boolean.largest_difference, std::nullopt);
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const ValueDifference of_nan = compare_numbers<float>(DType::f32, {nan, 1, nan}, {2, 1, nan});
  EXPECT_EQ(of_nan.different_elements, 1u) << "the same NaN is no difference";
  EXPECT_EQ(of_nan.not_numbers, 1u);
  EXPECT_EQ(of_nan.largest_difference, std::nullopt);
  EXPECT_EQ(compare_numbers<float>(DType::f32, {inf, 1}, {0, 2}).largest_difference, inf);
  const ValueDifference of_zeros = compare_numbers<float>(DType::f32, {0.0f}, {-0.0f});
  EXPECT_EQ(of_zeros.different_elements, 1u) << "the bytes differ";
  EXPECT_EQ(of_zeros.largest_difference, 0.0);
}

TEST_F(CheckpointDiff, NamesWhatIsMissingOrHasAnotherTypeOrShape) {
  a_.tensor("a", DType::u8, {1}, Bytes(1)).tensor("dtype", DType::u8, {2}, Bytes(2));
  b_.tensor("b", DType::u8, {1}, Bytes(1)).tensor("dtype", DType::i8, {2}, Bytes(2));
  a_.tensor("shape", DType::u8, {2, 1}, Bytes(2)).tensor("kind", DType::u8, {1}, Bytes(1));
  b_.tensor("shape", DType::u8, {1, 2}, Bytes(2)).object("kind", "x");
  a_.object("rng@rank0", "x").object("rng@rank1", "x");
  b_.object("rng@rank0", "x");
  const DiffReport report = compare();
  std::vector<std::pair<std::string, What>> found;
  for (const ValueDifference& each : report.differences) found.emplace_back(each.fqn, each.what);
  EXPECT_THAT(found, ElementsAre(std::pair("a", What::only_in_a), std::pair("b", What::only_in_b),
                                 std::pair("dtype", What::dtype), std::pair("kind", What::kind),
                                 std::pair("rng@rank1", What::only_in_a), std::pair("shape", What::shape)));
  EXPECT_EQ(report.values, 7u);
}

TEST_F(CheckpointDiff, ComparesObjectsOfOtherLengths) {
  a_.object("o", "abcd");
  b_.object("o", "abXdef");
  const ValueDifference found = compare().differences.at(0);
  EXPECT_EQ(found.what, What::bytes);
  EXPECT_EQ(found.a_bytes, 4u);
  EXPECT_EQ(found.b_bytes, 6u);
  EXPECT_EQ(found.elements, 6u);
  EXPECT_EQ(found.different_elements, 3u);
  EXPECT_THAT(found.first_index, ElementsAre(2));
  b_.object("o", "abcdef");
  EXPECT_THAT(compare().differences.at(0).first_index, ElementsAre(4));
  b_.object("o", "");
  EXPECT_EQ(compare().differences.at(0).different_elements, 4u);
}

TEST_F(CheckpointDiff, ReadsNoHeaderIfAllFilesAreEqual) {
  a_.tensor("x", DType::u8, {2}, Bytes(2));
  b_.tensor("x", DType::u8, {2}, Bytes(2), {{{0}, {1}}, {{1}, {1}}});
  auto report = compare_checkpoints(a_.side(5), b_.side(5), {}, &bytes_done_);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->same());
  EXPECT_EQ(a_.bytes_read, 0u);
  report = compare_checkpoints(a_.side(5), b_.side(6), {}, &bytes_done_);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(a_.bytes_read, 2u);
}

TEST_F(CheckpointDiff, EndsAtAValueThatCannotBeRead) {
  a_.tensor("x", DType::u8, {1}, Bytes(1, std::byte{1}));
  b_.tensor("x", DType::u8, {1}, Bytes(1));
  b_.damaged = "x";
  EXPECT_EQ(try_compare().status().code(), Code::corrupt);
  auto stopped = compare_checkpoints(a_.side(), b_.side(), {[] { return false; }}, &bytes_done_);
  EXPECT_EQ(stopped.status().code(), Code::aborted);
}

TEST_F(CheckpointDiff, OfEmptyTensorsIsNone) {
  for (FakeSide* side : {&a_, &b_}) side->tensor("x", DType::f32, {0, 4}, {});
  EXPECT_THAT(compare().differences, IsEmpty());
}

}  // namespace
}  // namespace shoal::admin
