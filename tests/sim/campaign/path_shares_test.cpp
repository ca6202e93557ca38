// Path shares: in how many runs the roles take each path, and how that is compared with recorded campaigns.
#include "sim/campaign/path_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/basics/random.h"

namespace shoal::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kPath = "rare: coordinator: tries again";

// Each run takes kPath with this probability.
PathShares paths_of_runs(uint64_t seed, uint64_t permille, uint64_t runs) {
  Random random(seed);
  PathShares shares;
  for (uint64_t run = 1; run <= runs; ++run) {
    const uint64_t count = random.below(1000) < permille ? 1 + random.below(3) : 0;
    shares.take(SaveMode::rank_local, run, {{"coordinator event: Started", 1}, {kPath, count}});
  }
  return shares;
}

TEST(PathShares, ThatDifferByChanceHaveNotChanged) {
  const PathShares recorded = paths_of_runs(1, 20, 1000);
  EXPECT_TRUE(find_path_changes(recorded, recorded).empty());
  for (uint64_t seed = 2; seed < 60; ++seed) {
    const auto changes = find_path_changes(recorded, paths_of_runs(seed, 20, 1 + 40 * seed));
    EXPECT_TRUE(changes.empty()) << "seed " << seed << ": " << changes.front().text();
  }
}

TEST(PathShares, NoticeAPathThatIsTakenNoMore) {
  const auto changes = find_path_changes(paths_of_runs(1, 20, 1000), paths_of_runs(2, 0, 1000));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes.front().key.path, kPath);
  EXPECT_EQ(changes.front().seen_taken, 0u);
  EXPECT_LT(changes.front().deviation, -kMostDeviations);
  EXPECT_THAT(changes.front().text(), HasSubstr("rank-local: 0 of 1000 runs took 'rare: coordinator: tries"));
}

TEST(PathShares, NoticeAPathThatIsNewOrMoreFrequent) {
  for (const uint64_t before : {0, 5}) {
    const auto changes = find_path_changes(paths_of_runs(1, before, 1000), paths_of_runs(2, 50, 1000));
    ASSERT_EQ(changes.size(), 1u) << before;
    EXPECT_GT(changes.front().deviation, kMostDeviations);
  }
}

TEST(PathShares, OfOtherModesAreNotCompared) {
  PathShares other;
  for (uint64_t run = 0; run < 1000; ++run) other.take(SaveMode::collective, run, {{kPath, 0}});
  EXPECT_TRUE(find_path_changes(paths_of_runs(1, 500, 1000), other).empty());
}

TEST(PathShares, KeepTheFirstSeedsOfRarePathsInAnyOrderOfRuns) {
  PathShares shares;
  for (uint64_t seed = 2000; seed > 0; --seed) {
    shares.take(SaveMode::collective, seed, {{"often", 1}, {"never", 0}, {kPath, seed % 100 == 0 ? 1 : 0}});
  }
  const RareSeeds seeds = shares.rare_seeds();
  EXPECT_EQ(seeds, (RareSeeds{{{SaveMode::collective, kPath}, {100, 200, 300, 400, 500, 600, 700, 800}}}));
  const auto again = parse_rare_seeds("# a comment\n" + rare_seeds_csv(seeds));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(*again, seeds);
  for (const char* line : {"fast,a,7", "collective,a,", "collective,a,7 x", "collective,a"}) {
    EXPECT_FALSE(parse_rare_seeds("mode,path,seeds\n" + std::string(line)).ok()) << line;
  }
}

TEST(PathShares, NameWhatNoRunTook) {
  PathShares shares;
  shares.take(SaveMode::collective, 1, {{"a", 0}, {"b", 0}, {"c", 4}});
  shares.take(SaveMode::rank_local, 1, {{"a", 0}, {"b", 1}});
  EXPECT_THAT(shares.never_taken(), ElementsAre("a"));
}

TEST(PathShares, AreReadBackAsTheyWereWritten) {
  const PathShares shares = paths_of_runs(3, 10, 900);
  const auto again = PathShares::parse("# a comment\n" + shares.csv());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->csv(), shares.csv());
  EXPECT_EQ(again->runs(SaveMode::rank_local), 900u);
}

TEST(PathShares, RejectsWhatIsNoPath) {
  for (const char* line : {"fast,a,9,1", "rank-local,a,9,10", "rank-local,a,9,x", "rank-local,a,9",
                           "rank-local,a,9,1,7", "rank-local", "rank-local,a,9,1\nrank-local,a,9,1"}) {
    const auto parsed = PathShares::parse("mode,path,runs,taken\n" + std::string(line));
    ASSERT_FALSE(parsed.ok()) << line;
    EXPECT_THAT(parsed.status().message(), HasSubstr("line "));
  }
}

}  // namespace
}  // namespace shoal::sim
