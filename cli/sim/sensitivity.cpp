#include "cli/sim/sensitivity.h"

#include <fmt/format.h>

#include "cli/sim/report.h"
#include "cli/table.h"

namespace shoal::cli {

namespace {

std::string change_of(actors::TimeNs time, actors::TimeNs before) {
  if (before <= 0) return human_seconds(static_cast<double>(time) / 1e9);
  const double percent = 100.0 * static_cast<double>(time - before) / static_cast<double>(before);
  return fmt::format("{:+.1f} %", percent);
}

std::string cell(const sim::SensitivityRun& run, actors::TimeNs time, actors::TimeNs before) {
  if (!run.has_run) return "-";
  return run.cause.empty() ? change_of(time, before) : "aborted";
}

nlohmann::ordered_json run_json(const sim::SensitivityRun& run) {
  nlohmann::ordered_json out = {{"value", run.value}, {"has_run", run.has_run}};
  if (!run.has_run) return out;
  out["blocked_max_ns"] = run.blocked;
  out["committed_max_ns"] = run.committed;
  if (!run.cause.empty()) out["aborted"] = run.cause;
  return out;
}

}  // namespace

std::string sensitivity_progress(const sim::SensitivityWatch& watch, double seconds) {
  const uint64_t ended = watch.ended.load(std::memory_order_relaxed);
  const uint64_t runs = watch.runs.load(std::memory_order_relaxed);
  const double rate = seconds > 0 ? static_cast<double>(ended) / seconds : 0;
  std::string out = fmt::format("sim: {} of {} runs, {:.1f}/s", ended, runs, rate);
  if (ended == 0 || ended == runs) return out;
  return out + fmt::format(", {} left", human_seconds(static_cast<double>(runs - ended) / rate));
}

std::string sensitivity_text(const sim::SensitivityReport& report) {
  const sim::SaveReport& job = report.job.saves.back();
  Table table({{"ASSUMED NUMBER"},
               {"VALUE", Table::Align::right},
               {"COMMIT x1/2", Table::Align::right},
               {"x2", Table::Align::right},
               {"BLOCKED x1/2", Table::Align::right},
               {"x2", Table::Align::right},
               {"SOURCE"}});
  size_t without = 0;
  for (const sim::Sensitivity& each : report.numbers) {
    if (each.blocked_permille == 0 && each.committed_permille == 0) {
      ++without;
      continue;
    }
    table.add_row({each.number.key, each.number.value,
                   cell(each.halved, each.halved.committed, job.committed.greatest),
                   cell(each.doubled, each.doubled.committed, job.committed.greatest),
                   cell(each.halved, each.halved.blocked, job.blocked.greatest),
                   cell(each.doubled, each.doubled.blocked, job.blocked.greatest), each.number.source});
  }
  auto seconds = [](actors::TimeNs time) { return human_seconds(static_cast<double>(time) / 1e9); };
  return fmt::format(
      "{} on {} ranks, {}, profile {}: save {}, slowest rank: committed after {}, blocked for {}\n"
      "\n"
      "{}\n"
      "{} more assumed numbers change neither time by 0.1 %{}\n",
      report.job.scenario.model, report.job.scenario.ranks, mode_name(report.job.scenario.mode),
      sim::profile_label(report.job.scenario), report.job.saves.size(), seconds(job.committed.greatest),
      seconds(job.blocked.greatest), table.to_string(), without,
      report.zeros == 0 ? "" : fmt::format("; {} are 0 and were not varied", report.zeros));
}

nlohmann::ordered_json sensitivity_json(const sim::SensitivityReport& report) {
  nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
  for (const sim::Sensitivity& each : report.numbers) {
    numbers.push_back({{"number", each.number.key},
                       {"value", each.number.value},
                       {"source", each.number.source},
                       {"committed_permille", each.committed_permille},
                       {"blocked_permille", each.blocked_permille},
                       {"halved", run_json(each.halved)},
                       {"doubled", run_json(each.doubled)}});
  }
  return {{"job", report_json(report.job)}, {"assumed_numbers", numbers}, {"zeros", report.zeros}};
}

}  // namespace shoal::cli
