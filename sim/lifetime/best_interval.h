// Best interval: lives the same months with many intervals and seeds, and finds the interval that gives most
// training. Every interval meets the same failures, so that a curve is smooth with few seeds.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/status.h"
#include "sim/lifetime/job_life.h"

namespace shoal::sim {

inline constexpr uint32_t kMaxLifeSeeds = 10'000;
inline constexpr size_t kMaxIntervals = 1000;
// An interval is as good as the best one if its median goodput is at most this much less.
inline constexpr double kFlatGoodput = 0.001;

// Over the seeds.
struct Range {
  double least = 0, low = 0, median = 0, high = 0, greatest = 0;  // low, high: 10 % and 90 %
};
Range range_of(std::vector<double> values);  // zeros for no values

struct IntervalPoint {
  actors::TimeNs interval = 0;
  Range ettr, goodput;
  // Means over the seeds.
  LifeParts parts;
  double failures = 0, restarts = 0, saves = 0, unfinished = 0;
  double longest_loss_s = 0;  // the greatest over the seeds
};
struct IntervalCurve {
  std::vector<IntervalPoint> points;  // ascending
  size_t best = 0;                    // the greatest median goodput
  // The top of the curve is flat from `flat_from` to `chosen`: each of these intervals is as good as the best
  // one, which is among them. The longest is chosen, because longer intervals store less. An interval that is
  // as good, but beyond a worse one, is not chosen: that is noise, or a resonance with regular failures.
  size_t chosen = 0, flat_from = 0;

  const IntervalPoint& at_best() const { return points[best]; }
  const IntervalPoint& at_chosen() const { return points[chosen]; }
};

struct IntervalSearch {
  std::vector<actors::TimeNs> intervals;  // to try; empty: intervals_to_try
  uint32_t seeds = 32;                    // seeds first_seed, first_seed + 1, ...
  uint64_t first_seed = 1;
  unsigned threads = 0;  // 0: as many as there are processors
};
// Code::invalid_argument as for check_job.
Result<IntervalCurve> find_best_interval(const JobPlan& plan, const JobCosts& costs,
                                         const IntervalSearch& search);

// Round times (1, 1.5, 2, 3, 5 and so on) in whole steps, far enough around Young's interval to show where
// the curve is flat.
std::vector<actors::TimeNs> intervals_to_try(const JobPlan& plan, const JobCosts& costs);

// Young's interval, sqrt(2 * stall * mtbf): J. W. Young, "A first order approximation to the optimum
// checkpoint interval", 1974. The stall is the mean of the samples.
actors::TimeNs young_interval(const JobPlan& plan, const JobCosts& costs);
// Daly's higher-order estimate: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
// restart dumps", 2006, equation 37.
actors::TimeNs daly_interval(actors::TimeNs stall, actors::TimeNs mtbf);
// The expected ETTR of exponential failures if a save commits when its stall ends, and a restart of this
// length begins again if it fails: Daly 2006, equation 13.
double daly_ettr(actors::TimeNs interval, actors::TimeNs stall, actors::TimeNs restart, actors::TimeNs mtbf);

}  // namespace shoal::sim
