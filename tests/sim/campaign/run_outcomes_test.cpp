// Outcomes of single runs, and how they are compared with the recorded ones of the same seeds.
#include "sim/campaign/run_outcomes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "sim/basics/random.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

SimulationReport report_of(bool is_aborted, int64_t delay_ms) {
  SimulationReport report;
  report.scenario.mode = SaveMode::collective;
  SaveReport save;
  save.notified_ranks = 4;
  save.aborted_ranks = is_aborted ? 4 : 0;
  save.committed.greatest = delay_ms * 1'000'000;
  report.saves.push_back(save);
  return report;
}

// 1,000 runs, of which `aborts` says which abort.
RunOutcomes runs_of(const std::function<bool(uint64_t seed)>& aborts, int64_t delay_ms = 1000) {
  RunOutcomes runs;
  for (uint64_t seed = 1; seed <= 1000; ++seed) runs.take(report_of(aborts(seed), delay_ms), seed);
  return runs;
}

bool one_in_ten(uint64_t seed) {
  return seed % 10 == 0;
}

TEST(RunOutcomes, OfEqualRunsHaveNotChanged) {
  EXPECT_TRUE(find_shifts(runs_of(one_in_ten), runs_of(one_in_ten)).empty());
  // A difference below a twentieth is none.
  EXPECT_TRUE(find_shifts(runs_of(one_in_ten), runs_of(one_in_ten, 1049)).empty());
}

TEST(RunOutcomes, NoticeAFewRunsThatAllChangeInOneDirection) {
  const auto twenty_more = [](uint64_t seed) { return one_in_ten(seed) || seed % 50 == 7; };
  const auto shifts = find_shifts(runs_of(one_in_ten), runs_of(twenty_more));
  ASSERT_FALSE(shifts.empty());
  const auto aborted = std::ranges::find_if(shifts, [](const OutcomeShift& each) {
    return each.outcome == Outcome::aborted && each.mode == "any";
  });
  ASSERT_NE(aborted, shifts.end());
  EXPECT_EQ(aborted->more, 20u);
  EXPECT_EQ(aborted->less, 0u);
  EXPECT_THAT(aborted->text(), HasSubstr("any mode: aborted is more in 20 runs and less in 0, of 1000 runs"));
  const auto fewer = find_shifts(runs_of(twenty_more), runs_of(one_in_ten));
  ASSERT_FALSE(fewer.empty());
  EXPECT_EQ(std::max(fewer.front().less, fewer.front().more), 20u);
}

TEST(RunOutcomes, IgnoreRunsThatChangeInBothDirections) {
  for (uint64_t seed = 1; seed < 60; ++seed) {
    Random random(seed), other(1000 + seed);
    const auto before = runs_of([&](uint64_t) { return random.below(10) == 0; });
    const auto after = runs_of([&](uint64_t) { return other.below(10) == 0; });
    const auto shifts = find_shifts(before, after);
    EXPECT_TRUE(shifts.empty()) << "seed " << seed << ": " << shifts.front().text();
  }
}

TEST(RunOutcomes, OfOtherSeedsAreNotCompared) {
  RunOutcomes other;
  for (uint64_t seed = 5000; seed < 6000; ++seed) other.take(report_of(true, 9000), seed);
  EXPECT_TRUE(find_shifts(runs_of(one_in_ten), other).empty());
}

TEST(RunOutcomes, AreReadBackAsTheyWereWritten) {
  const RunOutcomes runs = runs_of(one_in_ten);
  const auto again = RunOutcomes::parse("# a comment\n" + runs.csv());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->all(), runs.all());
}

TEST(RunOutcomes, RejectsWhatIsNoRun) {
  for (const char* line : {"fast,1,1,0,0,0,0,0,0,0", "collective,x,1,0,0,0,0,0,0,0",
                           "collective,1,1,0,0,0,0,0,0", "collective,1,1,0,0,0,0,0,0,-1", "collective"}) {
    const auto parsed = RunOutcomes::parse(RunOutcomes().csv() + line);
    ASSERT_FALSE(parsed.ok()) << line;
    EXPECT_THAT(parsed.status().message(), HasSubstr("line 2: "));
  }
}

}  // namespace
}  // namespace shoal::sim
