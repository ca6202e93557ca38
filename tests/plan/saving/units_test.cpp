#include "plan/saving/units.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>
#include <set>

#include "shoal/bytes.h"
#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

using ::testing::ElementsAre;

// The rule as its text states it: one unit after the other to the least loaded member.
std::vector<uint64_t> loads_by_hand(const std::vector<SharedBox>& boxes, uint64_t members,
                                    uint64_t unit_bytes) {
  std::vector<uint64_t> loads(members, 0);
  auto give = [&](uint64_t bytes) { *std::min_element(loads.begin(), loads.end()) += bytes; };
  uint64_t packed = 0;
  for (const SharedBox& shared : boxes) {
    const uint64_t bytes = shared.box->elements() * shared.element_bytes;
    if (packed != 0 && packed + bytes > unit_bytes) {
      give(packed);
      packed = 0;
    }
    if (bytes <= unit_bytes) {
      packed += bytes;
      continue;
    }
    uint64_t slice_bytes = bytes;
    for (uint64_t size : shared.box->sizes) {
      slice_bytes /= size;
      if (slice_bytes <= unit_bytes) break;
    }
    const uint64_t unit = unit_bytes / slice_bytes * slice_bytes;
    for (uint64_t left = bytes; left > 0; left -= std::min(left, unit)) give(std::min(left, unit));
  }
  if (packed != 0) give(packed);
  return loads;
}

TEST(Units, ALargeBoxIsCutAtTheOutermostDimensionWhoseSliceFits) {
  const Box box{{0, 0, 0}, {2, 3, 1000}};
  std::vector<SharedBox> boxes{{&box, 1}};
  EXPECT_EQ(count_units(boxes, 6000), 1u);
  EXPECT_EQ(count_units(boxes, 3000), 2u);  // slices of dimension 0
  EXPECT_EQ(count_units(boxes, 2999), 3u);  // two slices of dimension 1 each
  EXPECT_EQ(count_units(boxes, 1024), 6u);
  EXPECT_EQ(count_units(boxes, 999), 7u);  // elements
}

TEST(Units, SmallBoxesArePackedWholeInOrder) {
  const Box box{{0}, {400}}, large{{0}, {2000}};
  std::vector<SharedBox> boxes{{&box, 1}, {&box, 1}, {&box, 1}, {&large, 1}, {&box, 1}, {&box, 1}};
  EXPECT_EQ(count_units(boxes, 1024), 5u);
  std::vector<Assignment> assignments = divide(boxes, 8, 1024);
  ASSERT_EQ(assignments.size(), 7u);
  EXPECT_EQ(assignments[0].member, assignments[1].member);
  EXPECT_NE(assignments[1].member, assignments[2].member);
  EXPECT_EQ(assignments[5].member, assignments[6].member);
}

TEST(Units, SharesTileEveryBoxAndKeepTheLoadsOfDealingOneByOne) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Box> held(1 + random() % 12);
    std::vector<SharedBox> boxes;
    for (Box& box : held) {
      Dims shape(random() % 4);
      for (uint64_t& size : shape) size = 1 + random() % (random() % 5 == 0 ? 60 : 8);
      box = whole(shape);
      boxes.push_back({&box, uint64_t{1} << random() % 4});
    }
    const uint64_t members = 1 + random() % 6, unit_bytes = 64 << random() % 5;
    std::vector<Assignment> assignments = divide(boxes, members, unit_bytes);
    std::vector<uint64_t> loads(members, 0);
    std::set<std::pair<uint32_t, uint32_t>> seen;
    uint64_t next = 0;
    for (size_t i = 0; i < assignments.size(); ++i) {
      const Assignment& assignment = assignments[i];
      if (i > 0 && assignment.box != assignments[i - 1].box) {
        ASSERT_EQ(next, held[assignments[i - 1].box].elements());
        ASSERT_EQ(assignment.box, assignments[i - 1].box + 1);
        next = 0;
      }
      ASSERT_EQ(assignment.begin, next);
      ASSERT_LT(assignment.begin, assignment.end);
      ASSERT_TRUE(seen.emplace(assignment.box, assignment.member).second) << "two runs of one box";
      next = assignment.end;
      loads.at(assignment.member) +=
          (assignment.end - assignment.begin) * boxes[assignment.box].element_bytes;
    }
    ASSERT_EQ(next, held.back().elements());
    ASSERT_EQ(assignments.back().box + 1, held.size());
    ASSERT_EQ(loads, loads_by_hand(boxes, members, unit_bytes));
    const uint64_t total = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
    ASSERT_LE(*std::max_element(loads.begin(), loads.end()), total / members + unit_bytes);
  }
}

TEST(Units, VeryManyUnitsAreDealtAtOnceAsIfOneByOne) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 60; ++round) {
    const Box small = whole(Dims{100 + random() % 900}), other = whole(Dims{random() % 1000 + 1});
    const Box large = whole(Dims{1000000 + random() % 100000});
    std::vector<SharedBox> boxes{{&small, 1}, {&other, 1}, {&large, 1}, {&other, 2}, {&large, 1}};
    const uint64_t members = 1 + random() % 9, unit_bytes = 1024;
    std::vector<uint64_t> loads(members, 0);
    for (const Assignment& assignment : divide(boxes, members, unit_bytes)) {
      loads[assignment.member] += (assignment.end - assignment.begin) * boxes[assignment.box].element_bytes;
    }
    ASSERT_EQ(loads, loads_by_hand(boxes, members, unit_bytes));
  }
}

TEST(Units, AnAbsurdlyLargeBoxTakesNoTime) {
  const Box box = whole(Dims{(1ull << 62) - 1});
  std::vector<Assignment> assignments = divide(std::vector<SharedBox>{{&box, 1}}, 1000, 1024);
  EXPECT_EQ(assignments.size(), 1000u);
  EXPECT_EQ(assignments.back().end, (1ull << 62) - 1);
}

Roster roster_of(const std::vector<uint32_t>& hosts) {
  return *Roster::make(std::vector<LayoutId>(hosts.size(), xxh3_128(as_view("layout"))), hosts);
}

TEST(MemberOrder, GoesHostByHostAndIsRotated) {
  Roster roster = roster_of({0, 0, 0, 1, 1, 2, 2, 2});
  std::vector<Rank> order = first_members(RankSet::of_mesh(Mesh::contiguous({8})), roster, 8);
  auto first = std::find(order.begin(), order.end(), 0u);
  std::rotate(order.begin(), first, order.end());
  EXPECT_THAT(order, ElementsAre(0, 3, 5, 1, 4, 6, 2, 7));
}

TEST(MemberOrder, CountsTheMembersOfAHostWhereverTheirRanksAre) {
  Roster roster = roster_of({0, 1, 0, 1, 0, 1});
  std::vector<Rank> order = first_members(RankSet::of_mesh(Mesh::contiguous({6})), roster, 6);
  std::rotate(order.begin(), std::find(order.begin(), order.end(), 0u), order.end());
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(MemberOrder, FewMembersAreTheFirstOfAll) {
  std::mt19937_64 random(10);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint32_t> hosts(1 + random() % 40);
    for (uint32_t& host : hosts) host = static_cast<uint32_t>(random() % 6);
    Roster roster = roster_of(hosts);
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < hosts.size(); ++rank) {
      if (random() % 2 == 0) ranks.push_back(rank);
    }
    if (ranks.empty()) continue;
    RankSet group = RankSet::from_ascending(ranks);
    std::vector<Rank> all = first_members(group, roster, 100);
    ASSERT_THAT(all, ::testing::UnorderedElementsAreArray(ranks));
    const size_t count = random() % (ranks.size() + 1);
    ASSERT_EQ(first_members(group, roster, count),
              std::vector<Rank>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)));
  }
}

TEST(MemberOrder, DifferentGroupsBeginWithDifferentMembers) {
  Roster roster = roster_of(std::vector<uint32_t>(64, 0));
  std::set<Rank> firsts;
  for (Rank base = 0; base < 8; ++base) {
    firsts.insert(first_members(RankSet::of_mesh(*Mesh::affine({8}, base, {8})), roster, 1)[0] / 8);
  }
  EXPECT_GT(firsts.size(), 2u);
}

}  // namespace
}  // namespace shoal::plan
