#include "base/rank_names.h"

#include <gmock/gmock.h>

#include <numeric>
#include <vector>

namespace shoal::base {
namespace {

std::string first_ranks(size_t count) {
  std::vector<uint32_t> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  return name_ranks(ranks);
}

TEST(RankNames, FewAreAllNamed) {
  EXPECT_EQ(name_ranks(std::vector<uint32_t>{}), "no rank");
  EXPECT_EQ(name_ranks(std::vector<uint32_t>{3}), "rank 3");
  EXPECT_EQ(name_ranks(std::vector<uint32_t>{9, 41}), "ranks 9, 41");
  EXPECT_EQ(first_ranks(kRanksNamed), "ranks 0, 1, 2, 3, 4, 5, 6, 7");
}

TEST(RankNames, OfManyTheFirstAreNamedAndTheOthersCounted) {
  EXPECT_EQ(first_ranks(kRanksNamed + 1), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 1 more");
  EXPECT_EQ(first_ranks(100'000), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 99992 more");
}

}  // namespace
}  // namespace shoal::base
