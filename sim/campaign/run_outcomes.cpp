#include "sim/campaign/run_outcomes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "sim/campaign/csv.h"

namespace shoal::sim {

namespace {

constexpr std::array<std::string_view, kOutcomes> kOutcomeNames = {
    "committed",   "aborted",    "messages", "requests",    "commit_delay",
    "abort_delay", "load_delay", "warnings", "failed_reads"};

std::string outcome_columns() {
  return fmt::format("mode,seed,{}", fmt::join(kOutcomeNames, ","));
}

uint64_t whole_ms(actors::TimeNs time) {
  return static_cast<uint64_t>(std::max<actors::TimeNs>(time, 0) / actors::kMillisecond);
}

bool is_more(uint64_t one, uint64_t other) {
  return one * 20 > other * 21;
}

}  // namespace

std::string_view outcome_name(Outcome outcome) {
  return kOutcomeNames[static_cast<size_t>(outcome)];
}

RunOutcome outcome_of(const SimulationReport& report) {
  RunOutcome outcome{};
  const auto of = [&](Outcome which) -> uint64_t& { return outcome[static_cast<size_t>(which)]; };
  actors::TimeNs commit_delay = 0, abort_delay = 0, load_delay = 0;
  for (const SaveReport& save : report.saves) {
    of(Outcome::committed) += save.is_committed();
    of(Outcome::aborted) += save.aborted_ranks != 0;
    of(Outcome::messages) += save.costs.coordinator.messages_in + save.costs.coordinator.messages_out;
    of(Outcome::requests) += save.costs.storage.changes + save.costs.storage.looks;
    if (save.is_committed()) commit_delay += save.committed.greatest - save.written.greatest;
    if (save.aborted_ranks != 0) abort_delay += save.committed.greatest;
  }
  for (const LoadReport& load : report.loads) load_delay += load.found.greatest;
  of(Outcome::commit_delay) = whole_ms(commit_delay);
  of(Outcome::abort_delay) = whole_ms(abort_delay);
  of(Outcome::load_delay) = whole_ms(load_delay);
  of(Outcome::failed_reads) = report.failed_reads;
  of(Outcome::warnings) = report.warnings.size();
  return outcome;
}

void RunOutcomes::take(const SimulationReport& report, uint64_t seed) {
  runs_.insert_or_assign({report.scenario.mode, seed}, outcome_of(report));
}

std::string RunOutcomes::csv() const {
  std::string out = outcome_columns() + "\n";
  for (const auto& [key, outcome] : runs_) {
    out += fmt::format("{},{},{}\n", mode_name(key.mode), key.seed, fmt::join(outcome, ","));
  }
  return out;
}

Result<RunOutcomes> RunOutcomes::parse(std::string_view csv) {
  RunOutcomes outcomes;
  const auto take_line = [&](const std::vector<std::string_view>& parts) {
    if (parts.size() != 2 + kOutcomes) return false;
    const auto mode = mode_of_name(parts[0]);
    uint64_t seed = 0;
    RunOutcome outcome{};
    if (!mode || !parse_number(parts[1], &seed)) return false;
    for (size_t i = 0; i < kOutcomes; ++i) {
      if (!parse_number(parts[2 + i], &outcome[i])) return false;
    }
    return outcomes.runs_.try_emplace({*mode, seed}, outcome).second;
  };
  SHOAL_RETURN_IF_ERROR(parse_csv(csv, outcome_columns(), take_line));
  return outcomes;
}

double OutcomeShift::deviation() const {
  const auto more_runs = static_cast<double>(more), less_runs = static_cast<double>(less);
  return more + less == 0 ? 0 : (more_runs - less_runs) / std::sqrt(more_runs + less_runs);
}

std::string OutcomeShift::text() const {
  return fmt::format(
      "{}: {} is more in {} runs and less in {}, of {} runs that were recorded ({:+.1f} standard deviations)",
      mode == "any" ? "any mode" : mode, outcome_name(outcome), more, less, runs, deviation());
}

std::vector<OutcomeShift> find_shifts(const RunOutcomes& recorded, const RunOutcomes& seen) {
  std::map<std::pair<std::string, size_t>, OutcomeShift> shifts;
  for (const auto& [key, now] : seen.all()) {
    const auto before = recorded.all().find(key);
    if (before == recorded.all().end()) continue;
    for (size_t i = 0; i < kOutcomes; ++i) {
      for (const std::string& mode : {std::string("any"), std::string(mode_name(key.mode))}) {
        OutcomeShift& shift = shifts[{mode, i}];
        shift.mode = mode;
        shift.outcome = static_cast<Outcome>(i);
        ++shift.runs;
        shift.more += is_more(now[i], before->second[i]);
        shift.less += is_more(before->second[i], now[i]);
      }
    }
  }
  std::vector<OutcomeShift> found;
  for (const auto& [key, shift] : shifts) {
    if (std::abs(shift.deviation()) >= kMostShift) found.push_back(shift);
  }
  std::ranges::sort(found, [](const OutcomeShift& one, const OutcomeShift& other) {
    return std::abs(one.deviation()) > std::abs(other.deviation());
  });
  return found;
}

}  // namespace shoal::sim
