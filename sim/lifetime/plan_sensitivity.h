// How much each number of a plan moves its answer: each is halved and doubled.
#pragma once

#include <string_view>
#include <vector>

#include "sim/lifetime/best_interval.h"

namespace shoal::sim {

struct ChangedPlan {
  // False: the number cannot be halved, such as one spare host, or the changed plan is rejected, such as one
  // with twice the longest repair.
  bool has_run = false;
  double at_interval = 0;     // median goodput at the interval of the unchanged plan
  actors::TimeNs chosen = 0;  // the interval that would be chosen
  double at_chosen = 0;       // median goodput there
};
struct PlanSensitivity {
  std::string_view key;  // "mtbf-host-hours", "save-stall"
  ChangedPlan halved, doubled;
  double greatest_change = 0;  // of the goodput at the interval of the unchanged plan
};
struct PlanSensitivities {
  double goodput = 0;  // of the unchanged plan, at its interval, with these seeds
  std::vector<PlanSensitivity> numbers;
};
// Sorted by what they move most first. Numbers that are 0 are left out. `interval`: the one that was chosen.
// Code::invalid_argument as for check_job, of the unchanged plan.
Result<PlanSensitivities> find_plan_sensitivity(const JobPlan& plan, const JobCosts& costs,
                                                actors::TimeNs interval, const IntervalSearch& search);

}  // namespace shoal::sim
