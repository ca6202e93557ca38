#include "sim/lifetime/best_interval.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/helper_threads.h"

namespace shoal::sim {

namespace {

using actors::TimeNs;

double seconds_of(TimeNs time) {
  return static_cast<double>(time) / 1e9;
}

TimeNs mean_stall(const JobCosts& costs) {
  double sum = 0;
  for (const SaveCost& save : costs.saves) sum += static_cast<double>(save.stall);
  return std::llround(sum / static_cast<double>(costs.saves.size()));
}

TimeNs mean_of(const std::vector<Life>& lives, TimeNs LifeParts::*part) {
  double sum = 0;
  for (const Life& life : lives) sum += static_cast<double>(life.parts.*part);
  return std::llround(sum / static_cast<double>(lives.size()));
}

double mean_count(const std::vector<Life>& lives, uint64_t Life::*count) {
  double sum = 0;
  for (const Life& life : lives) sum += static_cast<double>(life.*count);
  return sum / static_cast<double>(lives.size());
}

IntervalPoint point_of(TimeNs interval, const std::vector<Life>& lives) {
  IntervalPoint point;
  point.interval = interval;
  std::vector<double> ettr, goodput;
  for (const Life& life : lives) {
    ettr.push_back(life.ettr());
    goodput.push_back(life.goodput());
    point.longest_loss_s = std::max(point.longest_loss_s, static_cast<double>(life.longest_loss) / 1e9);
  }
  point.ettr = range_of(std::move(ettr));
  point.goodput = range_of(std::move(goodput));
  for (TimeNs LifeParts::*part :
       {&LifeParts::training, &LifeParts::fewer_hosts, &LifeParts::stall, &LifeParts::lost_steps,
        &LifeParts::detection, &LifeParts::waiting, &LifeParts::restart, &LifeParts::load}) {
    point.parts.*part = mean_of(lives, part);
  }
  point.failures = mean_count(lives, &Life::failures);
  point.restarts = mean_count(lives, &Life::restarts);
  point.saves = mean_count(lives, &Life::saves);
  point.unfinished = mean_count(lives, &Life::unfinished);
  return point;
}

void choose(IntervalCurve* curve) {
  auto goodput = [&](size_t i) { return curve->points[i].goodput.median; };
  for (size_t i = 0; i < curve->points.size(); ++i) {
    if (goodput(i) > goodput(curve->best)) curve->best = i;
  }
  auto is_flat = [&](size_t i) { return goodput(i) >= goodput(curve->best) - kFlatGoodput; };
  curve->chosen = curve->flat_from = curve->best;
  while (curve->chosen + 1 < curve->points.size() && is_flat(curve->chosen + 1)) ++curve->chosen;
  while (curve->flat_from > 0 && is_flat(curve->flat_from - 1)) --curve->flat_from;
}

}  // namespace

Range range_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  // Between two values in proportion.
  auto at = [&](double part) {
    const double place = part * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {values.front(), at(0.1), at(0.5), at(0.9), values.back()};
}

Result<IntervalCurve> find_best_interval(const JobPlan& plan, const JobCosts& costs,
                                         const IntervalSearch& search) {
  SHOAL_RETURN_IF_ERROR(check_job(plan, costs));
  std::vector<TimeNs> intervals = search.intervals.empty() ? intervals_to_try(plan, costs) : search.intervals;
  for (TimeNs& interval : intervals) interval = whole_steps(interval, plan.step);
  std::sort(intervals.begin(), intervals.end());
  intervals.erase(std::unique(intervals.begin(), intervals.end()), intervals.end());
  if (search.seeds == 0 || search.seeds > kMaxLifeSeeds || intervals.size() > kMaxIntervals) {
    return Status(Code::invalid_argument, "too many seeds or intervals, or no seed");
  }
  std::vector<std::vector<Life>> lives(intervals.size(), std::vector<Life>(search.seeds));
  std::vector<Status> failed(search.seeds, ok_status());
  const unsigned threads =
      search.threads != 0 ? search.threads : std::max(1u, std::thread::hardware_concurrency());
  base::for_each_by_threads(search.seeds, std::min<size_t>(threads, search.seeds), [&](size_t i) {
    const uint64_t seed = search.first_seed + i;
    auto failures = draw_failure_times(plan.failures, plan.hosts, plan.lasts, seed);
    if (!failures.ok()) {
      failed[i] = failures.status();
      return;
    }
    for (size_t k = 0; k < intervals.size(); ++k) {
      lives[k][i] = live(plan, costs, intervals[k], *failures, seed);
    }
  });
  for (const Status& status : failed) SHOAL_RETURN_IF_ERROR(status);
  IntervalCurve curve;
  for (size_t k = 0; k < intervals.size(); ++k) curve.points.push_back(point_of(intervals[k], lives[k]));
  choose(&curve);
  return curve;
}

std::vector<TimeNs> intervals_to_try(const JobPlan& plan, const JobCosts& costs) {
  constexpr TimeNs kRound[] = {1,     2,     3,     5,     7,      10,     15,     20,     30,
                               45,    60,    90,    120,   180,    300,    450,    600,    900,
                               1200,  1800,  2700,  3600,  5400,   7200,   10800,  14400,  21600,
                               28800, 43200, 64800, 86400, 129600, 172800, 259200, 432000, 604800};
  constexpr TimeNs kShorter = 8, kLonger = 128, kLeastLongest = 4 * kHour;
  const TimeNs young = young_interval(plan, costs);
  const TimeNs from = std::max(plan.step, young / kShorter);
  const TimeNs to =
      std::min(std::max(kLeastLongest, young > plan.lasts / kLonger ? plan.lasts : young * kLonger),
               std::max(plan.lasts, plan.step));
  std::vector<TimeNs> intervals = {
      std::clamp(whole_steps(young, plan.step), plan.step, std::max(to, plan.step))};
  for (const TimeNs round : kRound) {
    const TimeNs interval = whole_steps(round * kSecond, plan.step);
    if (interval >= from && interval <= to) intervals.push_back(interval);
  }
  std::sort(intervals.begin(), intervals.end());
  intervals.erase(std::unique(intervals.begin(), intervals.end()), intervals.end());
  return intervals;
}

TimeNs young_interval(const JobPlan& plan, const JobCosts& costs) {
  const TimeNs mtbf = std::min(mean_time_to_interruption(plan.failures, plan.hosts), kMaxLife);
  const double young = std::sqrt(2 * seconds_of(mean_stall(costs)) * seconds_of(mtbf));
  return std::llround(young * 1e9);
}

TimeNs daly_interval(TimeNs stall, TimeNs mtbf) {
  const double cost = seconds_of(stall), mean = seconds_of(mtbf);
  if (cost >= 2 * mean) return mtbf;
  const double ratio = std::sqrt(cost / (2 * mean));
  return std::llround((std::sqrt(2 * cost * mean) * (1 + ratio / 3 + ratio * ratio / 9) - cost) * 1e9);
}

double daly_ettr(TimeNs interval, TimeNs stall, TimeNs restart, TimeNs mtbf) {
  const double mean = seconds_of(mtbf);
  const double of_interval = std::expm1(seconds_of(interval + stall) / mean);
  return seconds_of(interval) / (mean * std::exp(seconds_of(restart) / mean) * of_interval);
}

}  // namespace shoal::sim
