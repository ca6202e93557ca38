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

// Gives a key its default, if the scenario then violates the same oracle.
template <class Value>
void drop(Value Scenario::*key, const RunScenario& run, SimulationReport& report) {
  const Scenario plain;
  if (report.scenario.*key == plain.*key) return;
  Scenario smaller = report.scenario;
  smaller.*key = plain.*key;
  (void)take_if_violated(smaller, run, report);
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
    smaller.later_mesh_from = smaller.later_mesh_stages = 0;
    smaller.later_mesh.clear();
    (void)take_if_violated(smaller, run, report);
  }
  drop(&Scenario::replica_check, run, report);
  drop(&Scenario::objects, run, report);
  drop(&Scenario::readers, run, report);
  drop(&Scenario::load_fallback, run, report);
  drop(&Scenario::dedupe, run, report);
  drop(&Scenario::keep_every, run, report);
  drop(&Scenario::node_start, run, report);
  drop(&Scenario::close_when, run, report);
  drop(&Scenario::max_in_flight, run, report);
  drop(&Scenario::parts_permille, run, report);
  drop(&Scenario::slab_bytes, run, report);
  drop(&Scenario::has_planners, run, report);
  drop(&Scenario::reads, run, report);
  while (report.scenario.saves > 1) {
    Scenario smaller = report.scenario;
    --smaller.saves;
    if (!take_if_violated(smaller, run, report)) break;
  }
  return report;
}

}  // namespace shoal::sim
