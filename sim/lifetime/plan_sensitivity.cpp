#include "sim/lifetime/plan_sensitivity.h"

#include <algorithm>
#include <cmath>

namespace shoal::sim {

namespace {

using actors::TimeNs;

struct Job {
  JobPlan plan;
  JobCosts costs;
};
// Multiplies a number by 2 (`doubles`) or divides it. False: the job does not have it.
struct Knob {
  std::string_view key;
  bool (*turn)(Job& job, bool doubles);
};

template <class Number>
bool turned(Number& number, bool doubles) {
  if (number == 0 || (!doubles && number == 1)) return false;
  number = doubles ? number * 2 : number / 2;
  return true;
}
void turn_each(std::vector<TimeNs>& times, bool doubles) {
  for (TimeNs& time : times) time = doubles ? time * 2 : time / 2;
}
bool turn_hosts(Job& job, bool doubles) {
  FailureModel& failures = job.plan.failures;
  if (failures.shape.kind != GapShape::Kind::recorded) return turned(failures.host_mtbf, doubles);
  turn_each(failures.shape.gaps, doubles);
  return true;
}
bool turn_stalls(Job& job, bool doubles) {
  bool has_any = false;
  for (SaveCost& save : job.costs.saves) {
    has_any = turned(save.stall, doubles) || has_any;
    save.commit = std::max(save.commit, save.stall);
  }
  return has_any;
}
// A save that commits when its stall ends is one time, and not two.
bool turn_commits(Job& job, bool doubles) {
  bool has_any = false;
  for (SaveCost& save : job.costs.saves) {
    if (save.commit == save.stall) continue;
    has_any = turned(save.commit, doubles) || has_any;
    save.commit = std::max(save.commit, save.stall);
  }
  return has_any;
}
bool turn_loads(Job& job, bool doubles) {
  turn_each(job.costs.loads, doubles);
  turn_each(job.costs.loads_after_save, doubles);
  return !job.costs.loads.empty();
}

constexpr Knob kKnobs[] = {
    {"mtbf-host-hours", turn_hosts},
    {"mtbf-rack-hours", [](Job& job, bool doubles) { return turned(job.plan.failures.rack_mtbf, doubles); }},
    {"mtbf-job-hours",
     [](Job& job, bool doubles) { return turned(job.plan.failures.process_mtbf, doubles); }},
    {"storage-outage-every-hours",
     [](Job& job, bool doubles) { return turned(job.plan.failures.outage_every, doubles); }},
    {"storage-outage-minutes",
     [](Job& job, bool doubles) { return turned(job.plan.failures.outage_lasts, doubles); }},
    {"detect-s", [](Job& job, bool doubles) { return turned(job.plan.detection, doubles); }},
    {"restart-s", [](Job& job, bool doubles) { return turned(job.plan.restart, doubles); }},
    {"spares", [](Job& job, bool doubles) { return turned(job.plan.spares, doubles); }},
    {"repair-hours", [](Job& job, bool doubles) { return turned(job.plan.repair, doubles); }},
    {"step-s", [](Job& job, bool doubles) { return turned(job.plan.step, doubles); }},
    {"save: stall", turn_stalls},
    {"save: until committed", turn_commits},
    {"load", turn_loads},
};

Result<ChangedPlan> changed(const Job& job, TimeNs interval, IntervalSearch search) {
  if (!search.intervals.empty()) search.intervals.push_back(interval);
  if (search.intervals.empty()) {
    search.intervals = intervals_to_try(job.plan, job.costs);
    search.intervals.push_back(interval);
  }
  SHOAL_ASSIGN_OR_RETURN(const IntervalCurve curve, find_best_interval(job.plan, job.costs, search));
  ChangedPlan out;
  out.has_run = true;
  out.chosen = curve.at_chosen().interval;
  out.at_chosen = curve.at_chosen().goodput.median;
  for (const IntervalPoint& point : curve.points) {
    if (point.interval == whole_steps(interval, job.plan.step)) out.at_interval = point.goodput.median;
  }
  return out;
}

}  // namespace

Result<PlanSensitivities> find_plan_sensitivity(const JobPlan& plan, const JobCosts& costs, TimeNs interval,
                                                const IntervalSearch& search) {
  IntervalSearch here = search;
  here.intervals = {interval};
  SHOAL_ASSIGN_OR_RETURN(const IntervalCurve unchanged, find_best_interval(plan, costs, here));
  const double before = unchanged.at_best().goodput.median;
  PlanSensitivities found{before, {}};
  std::vector<PlanSensitivity>& all = found.numbers;
  for (const Knob& knob : kKnobs) {
    PlanSensitivity each;
    each.key = knob.key;
    for (const bool doubles : {false, true}) {
      Job job{plan, costs};
      if (!knob.turn(job, doubles)) continue;
      // A number that is permitted may be too large when it is doubled, or bring too many failures when it is
      // halved. Then this run has no answer, but the other runs have theirs.
      const auto run = changed(job, interval, search);
      if (!run.ok()) continue;
      (doubles ? each.doubled : each.halved) = *run;
      each.greatest_change = std::max(each.greatest_change, std::abs(run->at_interval - before));
    }
    if (each.halved.has_run || each.doubled.has_run) all.push_back(each);
  }
  std::stable_sort(all.begin(), all.end(), [](const PlanSensitivity& a, const PlanSensitivity& b) {
    return a.greatest_change > b.greatest_change;
  });
  return found;
}

}  // namespace shoal::sim
