// Rare paths: marks that a thread counts if it wants to.
#include "base/rare_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

namespace shoal::base {
namespace {

void take_first() {
  rare_path<"test: the first">();
}
void take_second() {
  rare_path<"test: the second">();
}

std::optional<uint64_t> count_of(const RarePathCounts& counts, std::string_view name) {
  for (const auto& [each, count] : counts.list()) {
    if (each == name) return count;
  }
  return std::nullopt;
}

TEST(RarePath, IsKnownBeforeItIsTaken) {
  const RarePathCounts counts;
  EXPECT_EQ(count_of(counts, "test: the first"), 0u);
  EXPECT_EQ(count_of(counts, "test: the second"), 0u);
  EXPECT_EQ(count_of(counts, "test: none"), std::nullopt);
  const auto all = counts.list();
  EXPECT_TRUE(std::ranges::is_sorted(all));
}

TEST(RarePath, IsCountedByItsOwnName) {
  const RarePathCounts counts;
  take_second();
  take_first();
  take_second();
  EXPECT_EQ(count_of(counts, "test: the first"), 1u);
  EXPECT_EQ(count_of(counts, "test: the second"), 2u);
}

TEST(RarePath, IsCountedByTheLatestObjectOfTheThreadOnly) {
  take_first();  // nobody counts
  const RarePathCounts outer;
  {
    const RarePathCounts inner;
    take_first();
    EXPECT_EQ(count_of(inner, "test: the first"), 1u);
  }
  EXPECT_EQ(count_of(outer, "test: the first"), 0u);
  std::thread other(take_first);
  other.join();
  EXPECT_EQ(count_of(outer, "test: the first"), 0u);
  take_first();
  EXPECT_EQ(count_of(outer, "test: the first"), 1u);
}

}  // namespace
}  // namespace shoal::base
