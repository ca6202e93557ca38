#include "sim/campaign/shrink.h"

#include <utility>

namespace shoal::sim {

namespace {

// Runs a smaller scenario. True: it violates the same oracle, and is the report now.
bool take_if_violated(const Scenario& smaller, const RunScenario& run, SimulationReport& report) {
  auto again = run(smaller);
  if (!again.ok() || !again->violation || again->violation->oracle != report.violation->oracle) return false;
  report = std::move(*again);
  return true;
}

}  // namespace

SimulationReport shrink(SimulationReport report, const RunScenario& run) {
  for (bool is_smaller = true; is_smaller;) {
    is_smaller = false;
    for (size_t i = 0; i < report.scenario.failures.size();) {
      Scenario smaller = report.scenario;
      smaller.failures.erase(smaller.failures.begin() + static_cast<ptrdiff_t>(i));
      if (take_if_violated(smaller, run, report)) {
        is_smaller = true;
      } else {
        ++i;
      }
    }
  }
  if (report.scenario.loads != 0) {
    Scenario smaller = report.scenario;
    smaller.loads = smaller.load_ranks = 0;
    smaller.load_mesh.clear();
    smaller.load_method = LoadMethod::automatic;
    (void)take_if_violated(smaller, run, report);
  }
  if (report.scenario.later_mesh_from != 0) {
    Scenario smaller = report.scenario;
    smaller.later_mesh_from = 0;
    smaller.later_mesh.clear();
    (void)take_if_violated(smaller, run, report);
  }
  if (report.scenario.replica_check != ReplicaCheck::off) {
    Scenario smaller = report.scenario;
    smaller.replica_check = ReplicaCheck::off;
    (void)take_if_violated(smaller, run, report);
  }
  if (report.scenario.objects != 0) {
    Scenario smaller = report.scenario;
    smaller.objects = 0;
    (void)take_if_violated(smaller, run, report);
  }
  if (report.scenario.readers != 0) {
    Scenario smaller = report.scenario;
    smaller.readers = 0;
    (void)take_if_violated(smaller, run, report);
  }
  if (report.scenario.load_fallback != LoadFallback::none) {
    Scenario smaller = report.scenario;
    smaller.load_fallback = LoadFallback::none;
    (void)take_if_violated(smaller, run, report);
  }
  if (report.scenario.node_start != NodeStart::launcher) {
    Scenario smaller = report.scenario;
    smaller.node_start = NodeStart::launcher;
    (void)take_if_violated(smaller, run, report);
  }
  if (report.scenario.has_planners) {
    Scenario smaller = report.scenario;
    smaller.has_planners = false;
    (void)take_if_violated(smaller, run, report);
  }
  if (report.scenario.reads != 0) {
    Scenario smaller = report.scenario;
    smaller.reads = 0;
    (void)take_if_violated(smaller, run, report);
  }
  while (report.scenario.saves > 1) {
    Scenario smaller = report.scenario;
    --smaller.saves;
    if (!take_if_violated(smaller, run, report)) break;
  }
  return report;
}

}  // namespace shoal::sim
