// The cases that `shoal plan` puts beside each other: one way to save on one storage, what the roles measured
// of it, and the months that follow.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/jobs/scenario.h"
#include "sim/lifetime/best_interval.h"
#include "sim/lifetime/measured_costs.h"
#include "sim/lifetime/plan_sensitivity.h"
#include "sim/models/profile.h"

namespace shoal::cli {

// A number of the plan, and where it comes from.
struct PlanNumber {
  std::string key, value;
  std::string kind;  // "given", "published", "assumed", "measured by the roles"
  std::string source;
};

struct PlanCase {
  std::string name;  // "collective-free", "synchronous", "DCP save", "DCP async_save"
  std::string profile;
  sim::Saver saver = sim::Saver::shoal;
  Status failure;  // why it could not be measured
  std::optional<sim::MeasuredCosts> measured;
  sim::JobCosts costs;
  sim::IntervalCurve curve;

  bool has_run() const { return failure.ok(); }
};

struct PlanResult {
  sim::JobPlan plan;
  uint32_t ranks = 0, seeds = 0;
  std::vector<PlanNumber> numbers;
  std::vector<PlanCase> cases;  // the first one is what was asked for
  std::vector<sim::PlanSensitivity> sensitivity;
  double unchanged_goodput = 0;  // with the seeds of the sensitivity, at the chosen interval

  const PlanCase& asked() const { return cases.front(); }
};

// What to run.
struct CaseRequest {
  std::string name;
  sim::Scenario scenario;
  sim::Profile profile;  // with DCP's planner, if the case is DCP's
  std::string profile_name;
  std::vector<std::pair<std::string, sim::Saver>> savers;  // cases that share the measurement
};
struct PlanRequest {
  sim::JobPlan plan;
  std::optional<actors::TimeNs> load;  // stated, not measured
  sim::IntervalSearch search;
  unsigned jobs = 0;
  bool shows_progress = false;
  bool has_sensitivity = true;
};
// Measures each request, lives its months, and fills cases and sensitivity. A case that cannot be measured
// has its failure; if it is the first one, that failure is returned. Code::aborted after an interrupt.
Status run_cases(const std::vector<CaseRequest>& requests, const PlanRequest& request, PlanResult* result);

}  // namespace shoal::cli
