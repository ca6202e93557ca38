#include "cli/plan/plan_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/helper_threads.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

namespace shoal::cli {

namespace {

// Costs of loads and aborts of the first case of each profile are those of the others: a load does not depend
// on the mode in which its checkpoint was saved.
bool is_first_of_profile(const std::vector<CaseRequest>& requests, size_t i) {
  return std::none_of(requests.begin(), requests.begin() + static_cast<std::ptrdiff_t>(i),
                      [&](const CaseRequest& each) { return each.profile_name == requests[i].profile_name; });
}

std::string measuring_text(const sim::MeasureProgress& progress, double seconds) {
  return fmt::format("plan: {} of {} short runs of the roles have ended, {:.0f} s",
                     progress.ended.load(std::memory_order_relaxed),
                     progress.runs.load(std::memory_order_relaxed), seconds);
}

std::vector<Result<sim::MeasuredCosts>> measure_all(const std::vector<CaseRequest>& requests,
                                                    const PlanRequest& request) {
  std::vector<Result<sim::MeasuredCosts>> results(requests.size(), Status(Code::aborted, "not begun"));
  const unsigned jobs = request.jobs != 0 ? request.jobs : std::max(1u, std::thread::hardware_concurrency());
  sim::MeasureProgress progress;
  ProgressLine shown([&](double seconds) { return measuring_text(progress, seconds); },
                     request.shows_progress);
  base::for_each_by_threads(requests.size(), std::min<size_t>(jobs, requests.size()), [&](size_t i) {
    const bool is_first = is_first_of_profile(requests, i);
    sim::MeasureOptions options;
    options.has_loads = is_first && !request.load;
    options.has_abort = is_first && !requests[i].profile.items.is_modelled();
    options.threads = requests.size() == 1 ? jobs : 1;
    options.stop = [] { return Interrupts::signal_number() != 0; };
    results[i] = sim::measure_costs(requests[i].scenario, requests[i].profile, options, &progress);
  });
  return results;
}

// The loads of the first case of a profile.
void share_loads(const PlanRequest& request, std::vector<PlanCase>* cases) {
  for (PlanCase& each : *cases) {
    if (request.load) {
      each.costs.loads = {*request.load};
      each.costs.loads_after_save.clear();
    }
    if (!each.costs.loads.empty()) continue;
    for (const PlanCase& other : *cases) {
      if (other.profile != each.profile || other.costs.loads.empty()) continue;
      each.costs.loads = other.costs.loads;
      // sim::costs_of says why only Shoal has these.
      if (each.saver == sim::Saver::shoal) each.costs.loads_after_save = other.costs.loads_after_save;
      break;  // the first saver of a profile is Shoal's: those after it may lack loads_after_save
    }
    if (each.has_run() && each.costs.loads.empty()) {
      each.failure = Status(Code::aborted, "no load from this profile was measured");
    }
  }
}

}  // namespace

Status run_cases(const std::vector<CaseRequest>& requests, const PlanRequest& request, PlanResult* result) {
  std::vector<Result<sim::MeasuredCosts>> measured = measure_all(requests, request);
  if (Interrupts::signal_number() != 0) return Status(Code::aborted, "interrupted");
  for (size_t i = 0; i < requests.size(); ++i) {
    for (const auto& [name, saver] : requests[i].savers) {
      PlanCase each;
      each.name = name;
      each.profile = requests[i].profile_name;
      each.saver = saver;
      each.failure = measured[i].status();
      if (measured[i].ok()) {
        each.measured = *measured[i];
        each.costs = sim::costs_of(*measured[i], saver);
      }
      result->cases.push_back(std::move(each));
    }
  }
  SHOAL_RETURN_IF_ERROR(result->cases.front().failure);
  share_loads(request, &result->cases);
  for (PlanCase& each : result->cases) {
    if (!each.has_run()) continue;
    SHOAL_ASSIGN_OR_RETURN(each.curve, sim::find_best_interval(request.plan, each.costs, request.search));
    if (Interrupts::signal_number() != 0) return Status(Code::aborted, "interrupted");
  }
  if (!request.has_sensitivity) return ok_status();
  constexpr uint32_t kSensitivitySeeds = 16;
  sim::IntervalSearch search = request.search;
  search.seeds = std::min(search.seeds, kSensitivitySeeds);
  const PlanCase& asked = result->asked();
  SHOAL_ASSIGN_OR_RETURN(
      sim::PlanSensitivities found,
      sim::find_plan_sensitivity(request.plan, asked.costs, asked.curve.at_chosen().interval, search));
  result->sensitivity = std::move(found.numbers);
  result->unchanged_goodput = found.goodput;
  return ok_status();
}

}  // namespace shoal::cli
