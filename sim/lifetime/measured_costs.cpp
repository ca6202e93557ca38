#include "sim/lifetime/measured_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/helper_threads.h"
#include "sim/basics/integer_math.h"
#include "sim/simulation.h"

namespace shoal::sim {

namespace {

using actors::TimeNs;

constexpr uint32_t kSavesOfARun = 5;
constexpr uint32_t kFewRanks = 1024, kManyRanks = 8192;
// While one save is measured, the one before must have ended.
constexpr uint64_t kShortIntervalMs = 60'000, kLongIntervalMs = 3'600'000;
constexpr uint64_t kRestartMs =
    60'000;  // longer than host_lost_ms, after which nothing of the old run is left

MeasuredSave measured_save(const SaveReport& save) {
  return {save.plan_received.greatest, save.blocked.greatest, save.written.greatest, save.committed.greatest};
}

Status not_committed(const SimulationReport& report, const SaveReport& save) {
  return Status(Code::aborted, fmt::format("a save of {} on {} ranks is {} although nothing fails{}{}",
                                           report.scenario.model, report.scenario.ranks, save.outcome(),
                                           save.cause.empty() ? "" : ": ", save.cause));
}

class Measurement {
 public:
  Measurement(const Scenario& scenario, const Profile& profile, const MeasureOptions& options,
              MeasureProgress* progress)
      : scenario_(scenario), profile_(profile), options_(options), progress_(progress) {
    scenario_.loads = 0;
    scenario_.failures.clear();
    scenario_.failure_draws.clear();
    scenario_.saves = kSavesOfARun;
    scenario_.interval_ms = kShortIntervalMs;
    if (profile.items.is_modelled()) use_long_intervals();
  }

  Result<MeasuredCosts> run() {
    // The first run says how long a save takes, which the others need.
    SHOAL_ASSIGN_OR_RETURN(const SimulationReport first, simulate_one(scenario_));
    SHOAL_RETURN_IF_ERROR(take_saves(first));
    if (costs_.first_save.committed > ms(scenario_.interval_ms) / 2) {
      costs_.saves.clear();
      use_long_intervals();
      SHOAL_ASSIGN_OR_RETURN(const SimulationReport again, simulate_one(scenario_));
      SHOAL_RETURN_IF_ERROR(take_saves(again));
    }
    describe(first);
    const uint32_t runs = options_.runs != 0              ? options_.runs
                          : scenario_.ranks <= kFewRanks  ? 8
                          : scenario_.ranks <= kManyRanks ? 3
                                                          : 1;
    std::vector<Scenario> more;
    std::vector<std::vector<MeasuredLoad>*> loads;  // of the first ones of `more`
    if (options_.has_loads) {
      // What a new run must decide depends on how far the save was.
      for (const uint64_t permille : {500u, 250u, 750u}) {
        more.push_back(killed_at(in_second_save_ms(permille)));
        loads.push_back(&costs_.loads_after_save);
        if (scenario_.ranks > kFewRanks) break;
      }
    }
    if (options_.has_loads && scenario_.ranks <= kMaxRanksOfTwoLoads) {
      more.push_back(killed_at(between_saves_ms()));
      loads.push_back(&costs_.loads);
    }
    const bool has_abort = options_.has_abort && costs_.hosts > 1;
    if (has_abort) more.push_back(host_lost_in_a_save());
    const size_t special = more.size();
    for (uint32_t i = 1; i < runs; ++i) {
      more.push_back(scenario_);
      more.back().seed += i;
    }
    SHOAL_ASSIGN_OR_RETURN(const std::vector<SimulationReport> reports, simulate_each(more));
    for (size_t i = special; i < reports.size(); ++i) SHOAL_RETURN_IF_ERROR(take_saves(reports[i]));
    for (size_t i = 0; i < loads.size(); ++i) SHOAL_RETURN_IF_ERROR(take_load(reports[i], loads[i]));
    if (has_abort) take_abort(reports[special - 1]);
    return std::move(costs_);
  }

 private:
  static TimeNs ms(uint64_t count) { return static_cast<TimeNs>(count) * actors::kMillisecond; }

  void use_long_intervals() {
    scenario_.interval_ms = kLongIntervalMs;
    scenario_.saves = 3;
  }
  Result<SimulationReport> simulate_one(const Scenario& scenario) const {
    SimulationListeners listeners;
    listeners.has_oracles = false;
    SimulationWatch watch;
    watch.stop = options_.stop;
    if (progress_ != nullptr) progress_->runs.fetch_add(1, std::memory_order_relaxed);
    auto report = simulate(scenario, profile_, listeners, &watch);
    if (progress_ != nullptr) progress_->ended.fetch_add(1, std::memory_order_relaxed);
    if (report.ok() && report->stopped_early) return Status(Code::aborted, "the measurement was stopped");
    return report;
  }
  Result<std::vector<SimulationReport>> simulate_each(const std::vector<Scenario>& scenarios) const {
    std::vector<std::optional<Result<SimulationReport>>> results(scenarios.size());
    const unsigned threads =
        options_.threads != 0 ? options_.threads : std::max(1u, std::thread::hardware_concurrency());
    base::for_each_by_threads(scenarios.size(), std::min<size_t>(threads, scenarios.size()),
                              [&](size_t i) { results[i] = simulate_one(scenarios[i]); });
    std::vector<SimulationReport> reports;
    for (auto& result : results) {
      SHOAL_RETURN_IF_ERROR(result->status());
      reports.push_back(*std::move(*result));
    }
    return reports;
  }

  void describe(const SimulationReport& report) {
    costs_.job = scenario_;
    costs_.mesh = report.mesh;
    costs_.parameters = report.parameters;
    costs_.bytes = report.saves.front().bytes_staged;
    costs_.hosts = report.nodes;
  }
  Status take_saves(const SimulationReport& report) {
    for (const SaveReport& save : report.saves) {
      if (!save.is_committed()) return not_committed(report, save);
      if (&save != &report.saves.front()) costs_.saves.push_back(measured_save(save));
    }
    if (costs_.first_save.committed == 0) costs_.first_save = measured_save(report.saves.front());
    return ok_status();
  }
  // When the second save begins, and how much of it a failure lets pass.
  uint64_t in_second_save_ms(uint64_t permille) const {
    const MeasuredSave& second = costs_.saves.front();
    return 2 * scenario_.interval_ms +
           (static_cast<uint64_t>(costs_.first_save.blocked) +
            multiply_divide(static_cast<uint64_t>(second.committed), permille, kPermille)) /
               actors::kMillisecond;
  }
  uint64_t between_saves_ms() const {
    return 2 * scenario_.interval_ms - scenario_.interval_ms / 4 +
           static_cast<uint64_t>(costs_.first_save.blocked / actors::kMillisecond);
  }
  Scenario killed_at(uint64_t at_ms) const {
    Scenario scenario = scenario_;
    scenario.saves = 2;
    Failure failure;
    failure.kind = Failure::Kind::job_restarts;
    failure.at_ms = at_ms;
    failure.hosts = 0;
    failure.for_ms = kRestartMs;
    failure.ranks = scenario.ranks;
    scenario.failures = {failure};
    return scenario;
  }
  Scenario host_lost_in_a_save() const {
    Scenario scenario = scenario_;
    scenario.saves = 2;
    Failure failure;
    failure.kind = Failure::Kind::dies;
    failure.at_ms = in_second_save_ms(kPermille / 2);
    failure.host = costs_.hosts - 1;  // host 0 coordinates
    scenario.failures = {failure};
    return scenario;
  }
  static Status take_load(const SimulationReport& report, std::vector<MeasuredLoad>* loads) {
    if (report.restarts.empty() || report.restarts.front().loaded.greatest == 0) {
      return Status(Code::aborted, "the job that was killed has not loaded when it started again");
    }
    const RestartReport& restart = report.restarts.front();
    loads->push_back({restart.found.greatest, restart.loaded.greatest});
    return ok_status();
  }
  void take_abort(const SimulationReport& report) {
    const SaveReport& save = report.saves.back();
    if (save.aborted_ranks == 0) return;
    costs_.abort = save.began + save.committed.greatest - ms(in_second_save_ms(kPermille / 2));
  }

  Scenario scenario_;
  const Profile& profile_;
  const MeasureOptions& options_;
  MeasureProgress* progress_;
  MeasuredCosts costs_;
};

}  // namespace

Result<MeasuredCosts> measure_costs(const Scenario& scenario, const Profile& profile,
                                    const MeasureOptions& options, MeasureProgress* progress) {
  return Measurement(scenario, profile, options, progress).run();
}

JobCosts costs_of(const MeasuredCosts& measured, Saver saver) {
  JobCosts costs;
  for (const MeasuredSave& save : measured.saves) {
    switch (saver) {
      case Saver::shoal:
        costs.saves.push_back({save.blocked, std::max(save.blocked, save.committed)});
        break;
      case Saver::synchronous:
        costs.saves.push_back({save.committed, save.committed});
        break;
      case Saver::background:
        costs.saves.push_back({save.blocked - save.planned, save.committed});
    }
  }
  for (const MeasuredLoad& load : measured.loads) costs.loads.push_back(load.loaded);
  for (const MeasuredLoad& load : measured.loads_after_save) costs.loads_after_save.push_back(load.loaded);
  if (costs.loads.empty()) costs.loads = costs.loads_after_save;
  // The wait for a decision is of Shoal's protocol. Every other saver, also a synchronous one of the same
  // times, leaves files of a save that did not end, and a new run ignores them.
  if (saver != Saver::shoal) costs.loads_after_save.clear();
  costs.saves_in_flight = saver == Saver::shoal ? kDefaultSavesInFlight : 1;
  costs.outlives_trainers = saver == Saver::shoal;
  return costs;
}

Profile with_dcp(const Profile& profile, const Profile& dcp) {
  Profile joined = dcp;
  joined.name = dcp.name + " on " + profile.name;
  joined.network = profile.network;
  joined.storage = profile.storage;
  joined.trainer = profile.trainer;
  return joined;
}

}  // namespace shoal::sim
