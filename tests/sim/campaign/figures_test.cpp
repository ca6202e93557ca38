// Figures of campaigns, and how they are compared with recorded ones.
#include "sim/campaign/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/basics/random.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

// Reports of runs with one save each; `aborted_permille` of them are aborted, the others committed after
// `delay_us`, give or take a half.
CampaignFigures campaign(uint64_t seed, uint64_t aborted_permille, int64_t delay_us, int runs = 400) {
  Random random(seed);
  CampaignFigures figures;
  for (int run = 0; run < runs; ++run) {
    SimulationReport report;
    report.scenario.mode = SaveMode::rank_local;
    if (run % 2 == 0) {
      Failure failure;
      failure.kind = Failure::Kind::restarts;
      report.scenario.failures.push_back(failure);
    }
    SaveReport save;
    save.notified_ranks = 4;
    save.aborted_ranks = random.below(1000) < aborted_permille ? 4 : 0;
    save.written.greatest = 5'000'000;
    const auto spread = static_cast<int64_t>(random.below(static_cast<uint64_t>(delay_us * 1000)));
    save.committed.greatest = save.written.greatest + delay_us * 500 + spread;
    report.saves.push_back(save);
    figures.take(report);
  }
  return figures;
}

TEST(Figures, ThatDifferByChanceHaveNotRisen) {
  const CampaignFigures recorded = campaign(1, 200, 1000);
  for (uint64_t seed = 2; seed < 50; ++seed) {
    const auto rises = find_rises(recorded, campaign(seed, 200, 1000));
    EXPECT_TRUE(rises.empty()) << "seed " << seed << ": " << rises.front().text();
  }
  EXPECT_TRUE(find_rises(recorded, recorded).empty());
}

TEST(Figures, ThatAreWorseHaveRisen) {
  const CampaignFigures recorded = campaign(1, 200, 1000);
  const auto more_aborts = find_rises(recorded, campaign(2, 500, 1000));
  ASSERT_FALSE(more_aborts.empty());
  EXPECT_EQ(more_aborts.front().key.figure, Figure::aborted);
  EXPECT_THAT(more_aborts.front().text(), HasSubstr("rank-local, failures 'any': aborted 0.49"));
  const auto longer_delays = find_rises(recorded, campaign(2, 200, 1500));
  ASSERT_FALSE(longer_delays.empty());
  EXPECT_EQ(longer_delays.front().key.figure, Figure::commit_delay);
  EXPECT_THAT(longer_delays.front().text(), HasSubstr(" us, recorded "));
  // Fewer aborts and shorter delays are no find.
  EXPECT_TRUE(find_rises(campaign(2, 500, 1500), recorded).empty());
}

TEST(Figures, OfFewRunsAreNotCompared) {
  EXPECT_TRUE(find_rises(campaign(1, 0, 1000), campaign(2, 1000, 9000, kLeastComparedRuns - 1)).empty());
}

TEST(Figures, ThatNeverVariedRiseByAnyAmount) {
  const auto rises = find_rises(campaign(1, 0, 1000), campaign(1, 1000, 1000));
  ASSERT_FALSE(rises.empty());
  EXPECT_EQ(rises.front().key.figure, Figure::aborted);
}

TEST(Figures, AreReadBackAsTheyWereWritten) {
  const CampaignFigures figures = campaign(3, 300, 700);
  const auto again = CampaignFigures::parse(figures.csv());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->csv(), figures.csv());
  EXPECT_EQ(again->all().size(), figures.all().size());
  EXPECT_TRUE(find_rises(*again, figures).empty());
}

TEST(Figures, RejectsWhatIsNoFigure) {
  for (const char* line : {"fast,any,aborted,nvme,9,0.1,0.2", "rank-local,any,speed,nvme,9,0.1,0.2",
                           "rank-local,any,aborted,nvme,0,0.1,0.2", "rank-local,any,aborted,nvme,9,much,0.2",
                           "rank-local,any,aborted,nvme,9,0.1", "rank-local"}) {
    const auto parsed =
        CampaignFigures::parse("mode,failures,figure,profile,runs,mean,variance\n" + std::string(line));
    ASSERT_FALSE(parsed.ok()) << line;
    EXPECT_THAT(parsed.status().message(), HasSubstr("line 2: "));
  }
}

}  // namespace
}  // namespace shoal::sim
