#include "shoal/box.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every element of a box as coordinates, row-major.
std::vector<Dims> elements_of(const Box& box) {
  std::vector<Dims> out;
  if (box.empty()) return out;
  Dims at = box.offsets;
  while (true) {
    out.push_back(at);
    size_t i = at.size();
    while (i-- > 0) {
      if (++at[i] < box.offsets[i] + box.sizes[i]) break;
      at[i] = box.offsets[i];
    }
    if (i == size_t(-1)) return out;
  }
}

Dims random_shape(std::mt19937_64& random, size_t dims_max, uint64_t size_max) {
  Dims shape(random() % (dims_max + 1));
  for (uint64_t& size : shape) size = 1 + random() % size_max;
  return shape;
}

TEST(Box, CountsElementsAndNoticesThatTheyDoNotFit) {
  EXPECT_EQ(element_count(Dims{}), 1u);
  EXPECT_EQ(element_count(Dims{3, 4}), 12u);
  EXPECT_EQ(element_count(Dims{1ull << 40, 1ull << 40}), std::nullopt);
  EXPECT_EQ(element_count(Dims{1ull << 40, 1ull << 40, 0}), 0u);
  EXPECT_EQ(element_count(Dims{(1ull << 63) - 1}), (1ull << 63) - 1);
  EXPECT_EQ(element_count(Dims{1ull << 63}), std::nullopt);
}

TEST(Box, PrintsAsRanges) {
  EXPECT_EQ(to_string(Box{{0, 8}, {4, 8}}), "[0:4, 8:16]");
  EXPECT_EQ(to_string(Box{}), "[]");
}

TEST(Box, IsRefusedOutsideItsTensor) {
  EXPECT_TRUE(validate_box({{2}, {2}}, Dims{4}).ok());
  EXPECT_TRUE(validate_box({{4}, {0}}, Dims{4}).ok());
  EXPECT_FALSE(validate_box({{3}, {2}}, Dims{4}).ok());
  EXPECT_FALSE(validate_box({{5}, {0}}, Dims{4}).ok());
  EXPECT_FALSE(validate_box({{1}, {~0ull}}, Dims{4}).ok());
  EXPECT_FALSE(validate_box({{0}, {1}}, Dims{4, 4}).ok());
}

TEST(Box, IntersectsWhereBothAreAndScalarsAlways) {
  EXPECT_EQ(intersect({{0, 0}, {4, 4}}, {{2, 3}, {4, 4}}), (Box{{2, 3}, {2, 1}}));
  EXPECT_EQ(intersect({{0}, {4}}, {{4}, {4}}), std::nullopt);
  EXPECT_EQ(intersect({{0}, {4}}, {{1}, {0}}), std::nullopt);
  EXPECT_EQ(intersect(Box{}, Box{}), Box{});
}

TEST(Box, ContainsItsPartsAndAnythingEmpty) {
  EXPECT_TRUE(contains({{0, 0}, {4, 4}}, {{1, 1}, {3, 3}}));
  EXPECT_FALSE(contains({{0, 0}, {4, 4}}, {{1, 1}, {4, 3}}));
  EXPECT_TRUE(contains({{0, 0}, {1, 1}}, {{9, 9}, {0, 3}}));
}

TEST(Box, SplitsAtTheGivenElement) {
  auto [low, high] = split({{10, 20}, {4, 6}}, 1, 2);
  EXPECT_EQ(low, (Box{{10, 20}, {4, 2}}));
  EXPECT_EQ(high, (Box{{10, 22}, {4, 4}}));
}

TEST(Box, KnowsWhichPartsAreOneRun) {
  const Box outer{{10, 20, 30}, {4, 5, 6}};
  EXPECT_EQ(contiguous_offset(outer, outer), 0u);
  EXPECT_EQ(contiguous_offset(outer, {{11, 20, 30}, {2, 5, 6}}), 30u);
  EXPECT_EQ(contiguous_offset(outer, {{11, 22, 30}, {1, 2, 6}}), 42u);
  EXPECT_EQ(contiguous_offset(outer, {{11, 22, 33}, {1, 1, 2}}), 45u);
  EXPECT_EQ(contiguous_offset(outer, {{11, 22, 33}, {1, 2, 2}}), std::nullopt);
  EXPECT_EQ(contiguous_offset(outer, {{11, 21, 30}, {2, 3, 6}}), std::nullopt);
  EXPECT_EQ(contiguous_offset(Box{}, Box{}), 0u);
}

TEST(Box, RangesOfElementsAreCoveredInOrderByFewContiguousBoxes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    const Dims shape = random_shape(random, 4, 5);
    Box outer = random_box(random, shape);
    uint64_t begin = random() % (outer.elements() + 1),
             end = begin + random() % (outer.elements() - begin + 1);
    const std::vector<Box> boxes = boxes_of_range(outer, begin, end);
    if (shape.empty()) {
      EXPECT_LE(boxes.size(), 1u);
    } else {
      EXPECT_LE(boxes.size(), 2 * shape.size() - 1);
    }
    std::vector<Dims> covered;
    uint64_t next = begin;
    for (const Box& box : boxes) {
      EXPECT_EQ(contiguous_offset(outer, box), next);
      next += box.elements();
      for (Dims& element : elements_of(box)) covered.push_back(element);
    }
    std::vector<Dims> all = elements_of(outer);
    ASSERT_EQ(covered,
              std::vector<Dims>(all.begin() + std::ptrdiff_t(begin), all.begin() + std::ptrdiff_t(end)));
  }
}

TEST(Box, RunsPlaceEveryCommonElementOnceAndAreMaximal) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3000; ++round) {
    const Dims shape = random_shape(random, 4, 5);
    const Box a = random_box(random, shape), b = random_box(random, shape);
    std::vector<Dims> in_a = elements_of(a), in_b = elements_of(b), got;
    uint64_t a_end = ~0ull, b_end = ~0ull;
    for_each_run(a, b, [&](uint64_t a_offset, uint64_t b_offset, uint64_t count) {
      EXPECT_FALSE(a_offset == a_end && b_offset == b_end) << "two runs that are one";
      for (uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(in_a[a_offset + i], in_b[b_offset + i]);
        got.push_back(in_a[a_offset + i]);
      }
      a_end = a_offset + count, b_end = b_offset + count;
    });
    std::optional<Box> both = intersect(a, b);
    ASSERT_EQ(got, both ? elements_of(*both) : std::vector<Dims>{}) << to_string(a) << to_string(b);
  }
}

TEST(Tiling, AcceptsScalarsEmptyShapesAndEmptyBoxes) {
  EXPECT_TRUE(check_tiling(std::vector<Box>{Box{}}, Dims{}).ok());
  EXPECT_FALSE(check_tiling(std::vector<Box>{}, Dims{}).ok());
  EXPECT_FALSE(check_tiling(std::vector<Box>{Box{}, Box{}}, Dims{}).ok());
  EXPECT_TRUE(check_tiling(std::vector<Box>{}, Dims{0, 4}).ok());
  EXPECT_TRUE(check_tiling(std::vector<Box>{{{0, 1}, {0, 2}}}, Dims{0, 4}).ok());
  EXPECT_TRUE(check_tiling(std::vector<Box>{{{0}, {4}}, {{2}, {0}}}, Dims{4}).ok());
}

TEST(Tiling, NamesAnOverlapOrAGap) {
  EXPECT_THAT(check_tiling(std::vector<Box>{{{0}, {3}}, {{2}, {2}}}, Dims{4}).message(),
              HasSubstr("boxes [0:3] and [2:4] overlap"));
  EXPECT_THAT(check_tiling(std::vector<Box>{{{0, 0}, {4, 2}}, {{2, 2}, {2, 2}}}, Dims{4, 4}).message(),
              HasSubstr("no box covers [0:2, 2:4]"));
}

TEST(Tiling, AgreesWithCountingEveryElement) {
  std::mt19937_64 random(3);
  int tiled = 0, overlapping = 0, gaps = 0;
  for (int round = 0; round < 4000; ++round) {
    const Dims shape = random_shape(random, 3, 6);
    std::vector<Box> boxes{whole(shape)};
    for (uint64_t cuts = random() % 12; cuts > 0; --cuts) {
      size_t i = random() % boxes.size(), dim = shape.empty() ? 0 : random() % shape.size();
      if (shape.empty() || boxes[i].sizes[dim] < 2) continue;
      auto parts = split(boxes[i], dim, 1 + random() % (boxes[i].sizes[dim] - 1));
      boxes[i] = parts.first;
      boxes.push_back(parts.second);
    }
    std::shuffle(boxes.begin(), boxes.end(), random);
    if (random() % 3 == 0) boxes.erase(boxes.begin());
    if (random() % 3 == 0) boxes.push_back(random_box(random, shape));
    if (random() % 6 == 0 && !boxes.empty()) boxes[0] = random_box(random, shape);
    std::map<Dims, int> count;
    for (Dims& element : elements_of(whole(shape))) count[element] = 0;
    for (const Box& box : boxes) {
      for (Dims& element : elements_of(box)) ++count[element];
    }
    bool is_tiled = std::all_of(count.begin(), count.end(), [](auto& c) { return c.second == 1; });
    Status status = check_tiling(boxes, shape);
    ASSERT_EQ(status.ok(), is_tiled) << status.message();
    tiled += is_tiled;
    overlapping += status.message().find("overlap") != std::string::npos;
    gaps += status.message().find("no box covers") != std::string::npos;
  }
  EXPECT_GT(tiled, 500);
  EXPECT_GT(overlapping, 200);
  EXPECT_GT(gaps, 200);
}

TEST(Tiling, TakesManyBoxesThatAllMeetManyOthers) {
  // A column of slabs beside a row of columns: every slab meets every column's range.
  const uint64_t n = 20000;
  std::vector<Box> boxes;
  for (uint64_t i = 0; i < n; ++i) boxes.push_back({{i, 0}, {1, n}});
  for (uint64_t i = 0; i < n; ++i) boxes.push_back({{0, n + i}, {n, 1}});
  EXPECT_TRUE(check_tiling(boxes, Dims{n, 2 * n}).ok());
  boxes.pop_back();
  EXPECT_FALSE(check_tiling(boxes, Dims{n, 2 * n}).ok());
}

TEST(Tiling, TakesAsManyDimensionsAsThereMayBe) {
  std::vector<Box> boxes{whole(Dims(kMaxDims, 2))};
  for (size_t dim = 0; dim < kMaxDims; ++dim) {
    auto parts = split(boxes.back(), dim, 1);
    boxes.back() = parts.first;
    boxes.push_back(parts.second);
  }
  EXPECT_TRUE(check_tiling(boxes, Dims(kMaxDims, 2)).ok());
}

}  // namespace
}  // namespace shoal::plan
