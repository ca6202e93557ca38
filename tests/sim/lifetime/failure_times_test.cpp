// When a job of months fails: means, shapes and recorded failures.
#include "sim/lifetime/failure_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

constexpr actors::TimeNs kYear = 365 * 24 * kHour;

size_t failures_in_a_year(const FailureModel& model, uint32_t hosts) {
  size_t all = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    all += draw_failure_times(model, hosts, kYear, seed)->ends.size();
  }
  return all / 20;
}

TEST(FailureTimes, HaveTheMeanThatIsAsked) {
  FailureModel model;
  model.host_mtbf = 1000 * kHour;
  for (const char* shape : {"poisson", "weibull:shape=0.78", "weibull:shape=2"}) {
    model.shape = parse_gap_shape(shape).value();
    EXPECT_NEAR(static_cast<double>(failures_in_a_year(model, 100)), 876.0, 15) << shape;
  }
  EXPECT_EQ(mean_time_to_interruption(model, 100), 10 * kHour);
  model.rack_mtbf = 1000 * kHour;
  model.rack_hosts = 16;  // 7 racks
  EXPECT_NEAR(static_cast<double>(failures_in_a_year(model, 100)), 876.0 * 1.07, 15);
  model.process_mtbf = 10 * kHour;
  EXPECT_NEAR(static_cast<double>(failures_in_a_year(model, 100)), 876.0 * 2.07, 20);
  EXPECT_NEAR(static_cast<double>(mean_time_to_interruption(model, 100)), 10.0 / 2.07 * kHour, 1e9);
}

TEST(FailureTimes, OfAShapeBelowOneComeInGroups) {
  FailureModel model;
  model.host_mtbf = 1000 * kHour;
  auto short_gaps = [&](const char* shape) {
    model.shape = parse_gap_shape(shape).value();
    const auto ends = draw_failure_times(model, 100, 10 * kYear, 3)->ends;
    size_t count = 0;
    for (size_t i = 1; i < ends.size(); ++i) count += ends[i].at - ends[i - 1].at < kHour ? 1 : 0;
    return static_cast<double>(count) / static_cast<double>(ends.size());
  };
  EXPECT_NEAR(short_gaps("poisson"), 0.0952, 0.01);             // 1 - exp(-1 / 10)
  EXPECT_NEAR(short_gaps("weibull:shape=0.78"), 0.1699, 0.01);  // 1 - exp(-(gamma(1 + 1 / k) / 10)^k)
}

TEST(FailureTimes, OfMoreKindsMoveNoOthers) {
  FailureModel model;
  model.host_mtbf = 1000 * kHour;
  const auto alone = draw_failure_times(model, 100, kYear, 5)->ends;
  model.process_mtbf = 100 * kHour;
  auto both = draw_failure_times(model, 100, kYear, 5)->ends;
  EXPECT_TRUE(std::is_sorted(both.begin(), both.end(), [](auto& a, auto& b) { return a.at < b.at; }));
  std::erase_if(both, [](const FailureTime& each) { return each.kind == FailureTime::Kind::process; });
  ASSERT_EQ(alone.size(), both.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(alone[i].at, both[i].at);
}

TEST(FailureTimes, AreThoseOfTheFileInItsOrder) {
  const auto shape =
      parse_recorded_failures("host,hours\r\na,0\nb,1\n\n# a comment\nc,3\nd,6.5\n", "past.csv");
  ASSERT_TRUE(shape.ok()) << shape.status().to_string();
  EXPECT_THAT(shape->gaps, ::testing::ElementsAre(kHour, 2 * kHour, 7 * kHour / 2));
  FailureModel model;
  model.shape = *shape;
  const auto ends = draw_failure_times(model, 100, kYear, 1)->ends;
  ASSERT_GT(ends.size(), 4000u);
  EXPECT_EQ(ends[4].at - ends[1].at, 13 * kHour / 2);
  EXPECT_EQ(mean_time_to_interruption(model, 100), 13 * kHour / 6);
}

TEST(FailureTimes, OfAFileAreRefusedByLineAndReason) {
  auto refusal = [](const char* text) { return parse_recorded_failures(text, "p.csv").status().message(); };
  EXPECT_THAT(refusal("time\n1\n2\n"), HasSubstr("p.csv:1: the first line has no column 'hours'"));
  EXPECT_THAT(refusal("hours\n1\nx\n"), HasSubstr("p.csv:3: no number of hours"));
  EXPECT_THAT(refusal("hours\n2\n1\n"), HasSubstr("p.csv:3: this failure is earlier"));
  EXPECT_THAT(refusal("hours\n2\n"), HasSubstr("at least two failures"));
  EXPECT_THAT(refusal("hours\n0\n0\n"), HasSubstr("at least two failures at different times"));
  EXPECT_THAT(refusal("hours\n5\n5\n"), HasSubstr("at least two failures at different times"));
}

TEST(FailureTimes, MayMeetInTheFile) {
  const auto shape = parse_recorded_failures("hours\n5\n5\n7\n", "past.csv");
  ASSERT_TRUE(shape.ok()) << shape.status().to_string();
  EXPECT_THAT(shape->gaps, ::testing::ElementsAre(0, 2 * kHour));
}

TEST(FailureTimes, OutagesDoNotOverlap) {
  FailureModel model;
  model.outage_every = 5 * kHour;
  model.outage_lasts = 2 * kHour;
  const auto outages = draw_failure_times(model, 1, kYear, 1)->outages;
  EXPECT_GT(outages.size(), 500u);
  for (size_t i = 1; i < outages.size(); ++i) EXPECT_LE(outages[i - 1].end, outages[i].begin);
}

// A mean below a nanosecond was 0, by which draw_failure_times divided.
TEST(FailureTimes, HaveAMeanOfAtLeastANanosecond) {
  FailureModel model;
  model.host_mtbf = 4;
  EXPECT_EQ(mean_time_to_interruption(model, 64), 1);
  EXPECT_EQ(draw_failure_times(model, 64, kYear, 1).status().code(), Code::too_large);
  model.shape.kind = GapShape::Kind::recorded;
  model.shape.gaps = {0};
  EXPECT_EQ(mean_time_to_interruption(model, 64), 1);
  EXPECT_EQ(draw_failure_times(model, 64, kYear, 1).status().code(), Code::too_large);
}

TEST(FailureTimes, OfAbsurdNumberAreRefused) {
  FailureModel model;
  model.host_mtbf = kSecond;
  EXPECT_EQ(draw_failure_times(model, 1'000'000, kYear, 1).status().code(), Code::too_large);
  for (const char* shape : {"", "weibull", "weibull:shape=0.1", "weibull:shape=x", "normal"}) {
    EXPECT_EQ(parse_gap_shape(shape).status().code(), Code::invalid_argument) << shape;
  }
}

}  // namespace
}  // namespace shoal::sim
