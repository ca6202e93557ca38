#include "actors/loader/sharing/load_tree.h"

#include <gtest/gtest.h>

#include <map>

namespace shoal::actors {
namespace {

struct Passing {
  std::map<uint32_t, std::optional<uint32_t>> parents;  // of those that live
  std::map<uint32_t, uint32_t> children;                // as each counts them
};

Passing passing_of(uint32_t members, uint64_t ordinal, const std::set<uint32_t>& dead) {
  Passing all;
  for (uint32_t own = 0; own < members; ++own) {
    if (dead.contains(own)) continue;
    const LoadTree tree(members, own, dead);
    all.parents[own] = tree.parent(ordinal);
    all.children[own] = tree.children(ordinal);
  }
  return all;
}

void expect_reaches_all(uint32_t members, uint64_t ordinal, const std::set<uint32_t>& dead) {
  const Passing all = passing_of(members, ordinal, dead);
  uint32_t readers = 0;
  std::map<uint32_t, uint32_t> children;
  for (const auto& [own, parent] : all.parents) {
    if (!parent) {
      ++readers;
      continue;
    }
    ASSERT_FALSE(dead.contains(*parent));
    ++children[*parent];
    uint32_t at = own, steps = 0;
    while (all.parents.at(at)) {
      at = *all.parents.at(at);
      ASSERT_LE(++steps, members) << "in a circle";
    }
  }
  EXPECT_EQ(readers, 1u);
  for (const auto& [own, counted] : all.children) {
    EXPECT_EQ(counted, children.contains(own) ? children.at(own) : 0) << own;
  }
}

TEST(LoadTree, OneReadsAndAllOthersHaveItFromSomebody) {
  for (uint32_t members : {1u, 2u, 3u, 8u, 9u, 17u, 100u}) {
    for (uint64_t ordinal = 0; ordinal < 12; ++ordinal) {
      SCOPED_TRACE(members);
      expect_reaches_all(members, ordinal, {});
      if (members > 3) expect_reaches_all(members, ordinal, {0, members / 2});
      if (members > 8) expect_reaches_all(members, ordinal, {1, 3, 4, 5, members - 1});
    }
  }
}

TEST(LoadTree, DividesTheReadingEvenly) {
  for (uint32_t members : {2u, 3u, 4u, 8u, 64u}) {
    std::map<uint32_t, uint32_t> chunks_read;
    for (uint64_t ordinal = 0; ordinal < 240; ++ordinal) {
      for (const auto& [own, parent] : passing_of(members, ordinal, {}).parents) {
        if (!parent) ++chunks_read[own];
      }
    }
    EXPECT_EQ(chunks_read.size(), std::min(members, kReadersMost));
    for (const auto& [own, count] : chunks_read) EXPECT_EQ(count, 240 / std::min(members, kReadersMost));
  }
}

TEST(LoadTree, AMemberOfALargeGroupSpeaksToFewOthers) {
  constexpr uint32_t kMembers = 1000;
  for (uint32_t own : {0u, 1u, 499u, 999u}) {
    std::set<uint32_t> others;
    for (uint64_t ordinal = 0; ordinal < kReadersMost; ++ordinal) {
      const auto parents = passing_of(kMembers, ordinal, {}).parents;
      if (parents.at(own)) others.insert(*parents.at(own));
      for (const auto& [member, parent] : parents) {
        if (parent == own) others.insert(member);
      }
    }
    EXPECT_LE(others.size(), kReadersMost * (kTreeFan + 1));
  }
}

// Two members that take different ones for dead may ask each other for different chunks, never for the same.
TEST(LoadTree, NobodyWaitsInACircleWhateverEachTakesForDead) {
  constexpr uint32_t kMembers = 12;
  for (uint64_t ordinal = 0; ordinal < kReadersMost; ++ordinal) {
    for (uint32_t one = 0; one < kMembers; ++one) {
      for (uint32_t other = 0; other < kMembers; ++other) {
        if (one == other) continue;
        for (uint32_t dead = 0; dead < kMembers; ++dead) {
          if (dead == one || dead == other) continue;
          const std::set<uint32_t> some{dead}, none;
          const auto of_one = LoadTree(kMembers, one, some).parent(ordinal);
          const auto of_other = LoadTree(kMembers, other, none).parent(ordinal);
          EXPECT_FALSE(of_one == other && of_other == one);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::actors
