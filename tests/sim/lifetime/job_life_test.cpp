// The renewal simulation of a job's months, against closed forms and by hand: a failure in each phase.
#include "sim/lifetime/job_life.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sim/lifetime/best_interval.h"
#include "sim/lifetime/plan_sensitivity.h"

namespace shoal::sim {
namespace {

using actors::TimeNs;
using ::testing::HasSubstr;
using FailedPart = FailureTime::Kind;

TimeNs s(int64_t seconds) {
  return seconds * kSecond;
}

// Steps of a second, saves that stall a second and are committed 10 s after their begin.
JobPlan plan_of(TimeNs lasts) {
  JobPlan plan;
  plan.hosts = 4;
  plan.spares = 100;
  plan.repair = s(1000);
  plan.step = s(1);
  plan.detection = s(20);
  plan.restart = s(30);
  plan.lasts = lasts;
  return plan;
}
JobCosts costs_of_test() {
  JobCosts costs;
  costs.saves = {{s(1), s(10)}};
  costs.loads = {s(5)};
  return costs;
}
DrawnFailures at(std::vector<FailureTime> ends) {
  return {std::move(ends), {}};
}
Life lived(const JobPlan& plan, const DrawnFailures& failures, TimeNs interval = s(100)) {
  return live(plan, costs_of_test(), interval, failures, 1);
}

void expect_parts_sum(const Life& life, const JobPlan& plan) {
  EXPECT_EQ(life.parts.sum(), plan.lasts);
  for (TimeNs part : {life.parts.training, life.parts.fewer_hosts, life.parts.stall, life.parts.lost_steps,
                      life.parts.detection, life.parts.waiting, life.parts.restart, life.parts.load}) {
    EXPECT_GE(part, 0);
  }
}

TEST(JobLife, WithoutFailuresLosesOnlyStalls) {
  const JobPlan plan = plan_of(s(1010));
  const Life life = lived(plan, {});
  EXPECT_EQ(life.parts.training, s(1000));
  EXPECT_EQ(life.parts.stall, s(10));
  EXPECT_EQ(life.saves, 10u);
  EXPECT_EQ(life.unfinished, 1u) << "the last one has begun";
  expect_parts_sum(life, plan);
  EXPECT_DOUBLE_EQ(life.ettr(), 1000.0 / 1010);
  EXPECT_DOUBLE_EQ(life.goodput(), life.ettr());
}

TEST(JobLife, LosesWhatWasTrainedSinceTheCommittedSaveBegan) {
  // Saves begin at 100 and 201 s. The second is committed at 211 s.
  const JobPlan plan = plan_of(s(400));
  const Life life = lived(plan, at({{s(250), FailedPart::host}}));
  EXPECT_EQ(life.parts.lost_steps, s(48));  // trained since 202 s
  EXPECT_EQ(life.parts.detection, s(20));
  EXPECT_EQ(life.parts.restart, s(30));
  EXPECT_EQ(life.parts.load, s(5));
  EXPECT_EQ(life.parts.training, s(200 + 400 - 305));
  expect_parts_sum(life, plan);
}

TEST(JobLife, CountsTheLastCommittedSaveNotTheLastBegun) {
  const JobPlan plan = plan_of(s(300));
  // The second save began at 201 s, and is committed at 211 s.
  const Life life = lived(plan, at({{s(210), FailedPart::host}}));
  EXPECT_EQ(life.parts.lost_steps, s(100 + 8));
  EXPECT_EQ(life.commits, 1u);
  EXPECT_EQ(life.unfinished, 1u);
  expect_parts_sum(life, plan);
  // At the very instant of the commit it exists.
  EXPECT_EQ(lived(plan, at({{s(211), FailedPart::host}})).parts.lost_steps, s(9));
}

TEST(JobLife, LosesASaveThatAFailureMetInItsStall) {
  const JobPlan plan = plan_of(s(300));
  const Life life = lived(plan, at({{s(201) + kSecond / 2, FailedPart::host}}));
  EXPECT_EQ(life.parts.lost_steps, s(100));
  EXPECT_EQ(life.parts.stall, s(1) + kSecond / 2);
  expect_parts_sum(life, plan);
}

TEST(JobLife, BeginsAgainWithoutALoadIfNothingWasCommitted) {
  const JobPlan plan = plan_of(s(200));
  const Life life = lived(plan, at({{s(50), FailedPart::host}}));
  EXPECT_EQ(life.parts.lost_steps, s(50));
  EXPECT_EQ(life.parts.load, 0);
  EXPECT_EQ(life.parts.training, s(100));
  expect_parts_sum(life, plan);
}

TEST(JobLife, AFailureDuringDetectionOnlyTakesAnotherHost) {
  const JobPlan plan = plan_of(s(400));
  const Life one = lived(plan, at({{s(250), FailedPart::host}}));
  const Life two = lived(plan, at({{s(250), FailedPart::host}, {s(260), FailedPart::host}}));
  EXPECT_EQ(two.parts.training, one.parts.training);
  EXPECT_EQ(two.failures, 2u);
  EXPECT_EQ(two.restarts, 1u);
  expect_parts_sum(two, plan);
}

TEST(JobLife, AFailureDuringARestartOrALoadBeginsItAgain) {
  const JobPlan plan = plan_of(s(500));
  // Detected at 270 s, restarted at 300 s, loaded at 305 s.
  const Life restart = lived(plan, at({{s(250), FailedPart::host}, {s(290), FailedPart::host}}));
  EXPECT_EQ(restart.parts.detection, s(40));
  EXPECT_EQ(restart.parts.restart, s(20 + 30));
  EXPECT_EQ(restart.parts.load, s(5));
  EXPECT_EQ(restart.parts.lost_steps, s(48));
  EXPECT_EQ(restart.restarts, 2u);
  expect_parts_sum(restart, plan);
  const Life load = lived(plan, at({{s(250), FailedPart::host}, {s(303), FailedPart::process}}));
  EXPECT_EQ(load.parts.load, s(3 + 5));
  EXPECT_EQ(load.parts.restart, s(60));
  EXPECT_EQ(load.parts.lost_steps, s(48));
  expect_parts_sum(load, plan);
}

TEST(JobLife, TheEndOfTheLifeCutsEveryPhase) {
  for (const int64_t end : {50, 100, 101, 205, 255, 270, 280, 300, 302, 305, 306, 450}) {
    const JobPlan plan = plan_of(s(end));
    expect_parts_sum(lived(plan, at({{s(250), FailedPart::host}})), plan);
  }
}

TEST(JobLife, WaitsForARepairIfThereIsNoSpare) {
  JobPlan plan = plan_of(s(2000));
  plan.spares = 1;
  const Life life = lived(plan, at({{s(250), FailedPart::host}, {s(260), FailedPart::host}}));
  // The host that failed at 250 s is repaired at 1250 s.
  EXPECT_EQ(life.parts.waiting, s(1250 - 270));
  expect_parts_sum(life, plan);
}

TEST(JobLife, ARackTakesAllItsHosts) {
  JobPlan plan = plan_of(s(2000));
  plan.failures.rack_hosts = 3;
  plan.spares = 2;
  const Life life = lived(plan, at({{s(250), FailedPart::rack}}));
  EXPECT_EQ(life.parts.waiting, s(1250 - 270));
  plan.spares = 3;
  EXPECT_EQ(lived(plan, at({{s(250), FailedPart::rack}})).parts.waiting, 0);
}

TEST(JobLife, GoesOnSmallerIfItMay) {
  JobPlan plan = plan_of(s(3000));
  plan.spares = 0;
  plan.hosts_min = 2;
  const Life life = lived(plan, at({{s(250), FailedPart::host}}));
  EXPECT_EQ(life.parts.waiting, 0);
  EXPECT_GT(life.parts.fewer_hosts, s(200));
  EXPECT_EQ(life.restarts, 2u) << "again when the host is back";
  EXPECT_EQ(life.parts.lost_steps, s(48)) << "which loses no step";
  EXPECT_LT(life.goodput(), life.ettr());
  expect_parts_sum(life, plan);
}

// An interval of ten years takes a thousand years on one host of a hundred.
TEST(JobLife, AnIntervalOnAFewHostsMayOutlastEveryTime) {
  JobPlan plan = plan_of(s(10'000));
  plan.hosts = 100;
  plan.hosts_min = 1;
  plan.spares = 0;
  plan.repair = kMaxLife;
  plan.failures.rack_hosts = 99;
  const Life life = lived(plan, at({{s(100), FailureTime::Kind::rack}}), kMaxLife);
  expect_parts_sum(life, plan);
  EXPECT_EQ(life.parts.detection, s(20));
  EXPECT_EQ(life.parts.lost_steps, s(100));
  EXPECT_EQ(life.parts.training + life.parts.fewer_hosts, s(10'000 - 100 - 20 - 30));
}

TEST(JobLife, ASaveOutlivesTrainersIfNoHostIsLost) {
  const JobPlan plan = plan_of(s(300));
  JobCosts costs = costs_of_test();
  costs.outlives_trainers = true;
  EXPECT_EQ(live(plan, costs, s(100), at({{s(205), FailedPart::process}}), 1).parts.lost_steps, s(3));
  EXPECT_EQ(live(plan, costs, s(100), at({{s(205), FailedPart::host}}), 1).parts.lost_steps, s(103));
  costs.outlives_trainers = false;
  EXPECT_EQ(live(plan, costs, s(100), at({{s(205), FailedPart::process}}), 1).parts.lost_steps, s(103));
}

TEST(JobLife, LoadsLongerIfASaveIsLeftUndecided) {
  const JobPlan plan = plan_of(s(400));
  JobCosts costs = costs_of_test();
  costs.loads_after_save = {s(15)};
  auto load = [&](TimeNs failure) {
    return live(plan, costs, s(100), at({{failure, FailedPart::host}}), 1).parts.load;
  };
  EXPECT_EQ(load(s(150)), s(5));
  EXPECT_EQ(load(s(205)), s(15));
  EXPECT_EQ(load(s(201) + kSecond / 2), s(15)) << "in its stall";
  EXPECT_EQ(load(s(212)), s(5));
}

TEST(JobLife, NoSaveIsCommittedInAnOutage) {
  const JobPlan plan = plan_of(s(400));
  DrawnFailures failures = at({{s(250), FailedPart::host}});
  failures.outages = {{s(205), s(206)}};
  EXPECT_EQ(lived(plan, failures).parts.lost_steps, s(148));
  // The load begins at 300 s, and begins again after an outage.
  failures.outages = {{s(302), s(340)}};
  const Life life = lived(plan, failures);
  EXPECT_EQ(life.parts.load, s(40 + 5));
  expect_parts_sum(life, plan);
}

// Time went back to the commit, and the stall was ten seconds shorter.
TEST(JobLife, TakesACommitOfTheStallOfASaveThatAnOutageMeets) {
  JobPlan plan = plan_of(s(400));
  plan.spares = 0;
  plan.hosts_min = 2;
  plan.repair = s(325);
  JobCosts costs = costs_of_test();
  costs.saves = {{s(20), s(150)}};
  // The job starts on three hosts at 60 s, and an interval of 90 s takes 120 s. Saves begin at 180 and 320 s.
  // The first is committed at 330 s, in the stall of the second, which meets the outage. The host that failed
  // is back at 335 s, so at 340 s the job looks for a commit after which it may grow.
  DrawnFailures failures = at({{s(10), FailedPart::host}});
  failures.outages = {{s(400), s(410)}};
  const Life life = live(plan, costs, s(90), failures, 1);
  EXPECT_EQ(life.saves, 2u);
  EXPECT_EQ(life.commits, 1u);
  EXPECT_EQ(life.parts.stall, s(20 + 20));
  EXPECT_EQ(life.parts.training, s(90 + 90 + 45));
  EXPECT_EQ(life.parts.fewer_hosts, s(30 + 30 + 15));
  expect_parts_sum(life, plan);
}

TEST(JobLife, ASaveWaitsForThoseInFlight) {
  JobCosts costs = costs_of_test();
  costs.saves = {{s(1), s(250)}};
  costs.saves_in_flight = 2;
  // Saves begin at 100 and 201 s; the third, at 302 s, waits for the first until 350 s.
  const Life life = live(plan_of(s(351)), costs, s(100), {}, 1);
  EXPECT_EQ(life.parts.stall, s(1 + 1 + 48 + 1));
}

TEST(JobLife, RoundsIntervalsToWholeSteps) {
  EXPECT_EQ(whole_steps(s(100), s(7)), s(98));
  EXPECT_EQ(whole_steps(1, s(7)), s(7));
}

TEST(JobLife, ASeedGivesOneLife) {
  JobPlan plan = plan_of(30 * 24 * kHour);
  plan.failures.host_mtbf = 20 * kHour;
  JobCosts costs = costs_of_test();
  costs.saves = {{s(1), s(10)}, {s(2), s(20)}, {s(3), s(90)}};
  auto life = [&](uint64_t seed) {
    return live(plan, costs, s(300), draw_failure_times(plan.failures, 4, plan.lasts, seed).value(), seed);
  };
  EXPECT_EQ(life(7).parts.training, life(7).parts.training);
  EXPECT_NE(life(7).parts.training, life(8).parts.training);
  for (uint64_t seed = 1; seed <= 50; ++seed) expect_parts_sum(life(seed), plan);
  EXPECT_EQ(life(7).parts.training, 2541501607107281) << "the same on every machine";
}

TEST(JobLife, RejectsWhatCannotBe) {
  JobPlan plan = plan_of(s(1));
  JobCosts costs = costs_of_test();
  costs.saves = {{s(2), s(1)}};
  EXPECT_THAT(check_job(plan, costs).message(), HasSubstr("committed when it has stalled"));
  costs.saves.clear();
  EXPECT_THAT(check_job(plan, costs).message(), HasSubstr("cost of a save"));
  costs = costs_of_test();
  plan.hosts_min = 5;
  EXPECT_THAT(check_job(plan, costs).message(), HasSubstr("least number of hosts"));
}

// --- closed forms ---

struct Classic {
  TimeNs stall, mtbf;
  JobPlan plan;
  JobCosts costs;
};
// Young's and Daly's job: saves that stop it, exponential failures, a host for each that fails.
Classic classic(TimeNs stall, TimeNs mtbf, TimeNs restart) {
  Classic job{stall, mtbf, {}, {}};
  job.plan.hosts = 1;
  job.plan.hosts_min = 1;
  job.plan.spares = 1000;
  job.plan.step = kSecond;
  job.plan.restart = restart;
  job.plan.lasts = 200 * 24 * kHour;
  job.plan.failures.host_mtbf = mtbf;
  job.costs.saves = {{stall, stall}};
  job.costs.saves_in_flight = 1;
  return job;
}

TEST(JobLife, AgreesWithDalysFormula) {
  for (const auto& [stall, mtbf, restart] : {std::tuple(s(60), 3 * kHour, s(0)),
                                             {s(60), 3 * kHour, s(600)},
                                             {s(5), kHour / 2, s(100)},
                                             {s(300), 24 * kHour, s(900)}}) {
    const Classic job = classic(stall, mtbf, restart);
    const TimeNs young = young_interval(job.plan, job.costs);
    EXPECT_NEAR(static_cast<double>(young), std::sqrt(2.0 * stall * mtbf), 1e6);
    const IntervalSearch search{{young / 4, young / 2, young, 2 * young, 4 * young}, 60, 1, 0};
    const auto curve = find_best_interval(job.plan, job.costs, search);
    ASSERT_TRUE(curve.ok()) << curve.status().to_string();
    for (const IntervalPoint& point : curve->points) {
      const double mean = static_cast<double>(point.parts.training) / static_cast<double>(job.plan.lasts);
      const double expected = daly_ettr(point.interval, stall, restart, mtbf);
      EXPECT_NEAR(mean, expected, 0.01 * expected) << "interval " << point.interval / kSecond << " s";
    }
    EXPECT_EQ(curve->at_best().interval, whole_steps(young, kSecond));
  }
}

// The top of a curve is flat, so its place follows from a parabola through points around it.
TEST(JobLife, HasItsBestIntervalWhereDalySays) {
  const Classic job = classic(s(60), 3 * kHour, s(0));
  const TimeNs daly = daly_interval(job.stall, job.mtbf);
  IntervalSearch search{{}, 400, 1, 0};
  for (int i = -6; i <= 6; ++i)
    search.intervals.push_back(std::llround(static_cast<double>(daly) * std::exp(0.1 * i)));
  const auto curve = find_best_interval(job.plan, job.costs, search);
  ASSERT_TRUE(curve.ok());
  // Least squares of ettr = a + b x + c x^2 with x = log(interval / daly), by the normal equations. The loss
  // is nearly cosh(x), of which a cubic term is left.
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, y0 = 0, y1 = 0, y2 = 0;
  for (const IntervalPoint& point : curve->points) {
    const double x = std::log(static_cast<double>(point.interval) / static_cast<double>(daly));
    const double y = static_cast<double>(point.parts.training) / static_cast<double>(job.plan.lasts);
    s0 += 1, s1 += x, s2 += x * x, s3 += x * x * x, s4 += x * x * x * x;
    y0 += y, y1 += x * y, y2 += x * x * y;
  }
  const double det = s0 * (s2 * s4 - s3 * s3) - s1 * (s1 * s4 - s2 * s3) + s2 * (s1 * s3 - s2 * s2);
  const double b = (s0 * (y1 * s4 - s3 * y2) - y0 * (s1 * s4 - s2 * s3) + s2 * (s1 * y2 - s2 * y1)) / det;
  const double c = (s0 * (s2 * y2 - y1 * s3) - s1 * (s1 * y2 - s2 * y1) + y0 * (s1 * s3 - s2 * s2)) / det;
  EXPECT_LT(c, 0);
  EXPECT_NEAR(std::exp(-b / (2 * c)), 1.0, 0.01);
}

TEST(JobLife, IsNoBetterIfAnyCostRises) {
  Classic job = classic(s(30), 2 * kHour, s(300));
  job.plan.detection = s(30);
  job.costs.loads = {s(20)};
  auto ettr = [](const Classic& each) {
    const IntervalSearch search{{s(600)}, 50, 1, 0};
    return find_best_interval(each.plan, each.costs, search)->at_best().ettr.median;
  };
  const double before = ettr(job);
  auto with = [&](auto change) {
    Classic other = job;
    change(other);
    return ettr(other);
  };
  EXPECT_LT(with([](Classic& it) { it.costs.saves = {{s(60), s(60)}}; }), before);
  EXPECT_LT(with([](Classic& it) { it.costs.saves = {{s(30), s(90)}}; }), before);
  EXPECT_LT(with([](Classic& it) { it.costs.loads = {s(200)}; }), before);
  EXPECT_LT(with([](Classic& it) { it.plan.detection = s(300); }), before);
  EXPECT_LT(with([](Classic& it) { it.plan.restart = s(600); }), before);
  EXPECT_LT(with([](Classic& it) { it.plan.failures.host_mtbf = kHour; }), before);
  EXPECT_LT(with([](Classic& it) { it.plan.hosts_min = 0, it.plan.spares = 0, it.plan.repair = kHour; }),
            before);
}

TEST(JobLife, TheBestIntervalOfAFlatCurveIsTheLongestOfIt) {
  Classic job = classic(s(1), 24 * kHour, s(300));
  const auto curve = find_best_interval(job.plan, job.costs, {{}, 16, 1, 0});
  ASSERT_TRUE(curve.ok());
  EXPECT_LE(curve->at_best().interval, curve->at_chosen().interval);
  EXPECT_GE(curve->at_chosen().goodput.median, curve->at_best().goodput.median - kFlatGoodput);
  EXPECT_GT(curve->points.size(), 10u);
}

TEST(JobLife, AnIntervalBeyondAWorseOneIsNotChosen) {
  JobPlan plan = plan_of(s(1'000'000));
  plan.hosts = 1;
  plan.repair = plan.detection = plan.restart = 0;
  plan.failures.shape.kind = GapShape::Kind::recorded;
  plan.failures.shape.gaps = {s(10'000)};
  JobCosts costs;
  costs.saves = {{s(1), s(1)}};
  // Of 10,000 s, 9,996, 8,000 and 9,994 s of training are in committed saves.
  const auto curve = find_best_interval(plan, costs, {{s(3332), s(4000), s(4997)}, 1, 1, 1});
  ASSERT_TRUE(curve.ok()) << curve.status().to_string();
  EXPECT_LT(curve->points[1].goodput.median, curve->at_best().goodput.median - kFlatGoodput);
  EXPECT_GT(curve->points[2].goodput.median, curve->at_best().goodput.median - kFlatGoodput);
  EXPECT_EQ(curve->at_best().interval, s(3332));
  EXPECT_EQ(curve->at_chosen().interval, s(3332));
}

// The error of one number was the error of the whole plan.
TEST(JobLife, ANumberThatCannotBeDoubledHidesNoOther) {
  JobPlan plan = plan_of(s(10'000));
  plan.failures.host_mtbf = kHour;
  plan.repair = kMaxLife / 3 * 2;
  plan.spares = kMaxSpares;
  const auto found = find_plan_sensitivity(plan, costs_of_test(), s(100), {{s(100)}, 4, 1, 1});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  size_t not_doubled = 0;
  for (const PlanSensitivity& each : found->numbers) {
    const bool is_greatest = each.key == "repair-hours" || each.key == "spares";
    EXPECT_TRUE(each.halved.has_run) << each.key;
    EXPECT_EQ(each.doubled.has_run, !is_greatest) << each.key;
    not_doubled += is_greatest ? 1 : 0;
  }
  EXPECT_EQ(not_doubled, 2u);
  EXPECT_GT(found->numbers.size(), 6u);
}

}  // namespace
}  // namespace shoal::sim
