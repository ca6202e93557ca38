#include "cli/sim/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/sim/restarts.h"
#include "cli/table.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

using Align = Table::Align;

std::string seconds(actors::TimeNs time) {
  return human_seconds(static_cast<double>(time) / 1e9);
}

struct NamedSpread {
  const char* name;
  const char* key;
  sim::Spread sim::SaveReport::*spread;
};
constexpr NamedSpread kSpreads[] = {{"plan received", "plan_received", &sim::SaveReport::plan_received},
                                    {"save returned", "blocked", &sim::SaveReport::blocked},
                                    {"last byte durable", "written", &sim::SaveReport::written},
                                    {"decision received", "committed", &sim::SaveReport::committed}};

std::string outcome_of(const sim::SaveReport& save) {
  return save.aborted_ranks == 0 ? save.outcome() : fmt::format("aborted: {}", save.cause);
}

// A manifest has the state of any optimizer.
const char* state_of(const sim::SimulationReport& report) {
  if (report.layouts_are_stated) return " and state";
  return report.scenario.optimizer == sim::Optimizer::adam ? " with Adam's state" : "";
}

std::string headline(const sim::SimulationReport& report) {
  return fmt::format("{}, {:.1f} G parameters{}, on {} ranks of {} hosts ({}), {}; profile {}",
                     report.scenario.model, static_cast<double>(report.parameters) / 1e9, state_of(report),
                     report.scenario.ranks, report.nodes, sim::to_string(report.mesh),
                     mode_name(report.scenario.mode), sim::profile_label(report.scenario));
}

// Its number, and the generation of its run if there are several.
std::string save_name(const sim::SimulationReport& report, size_t save) {
  if (report.restarts.empty()) return fmt::to_string(save + 1);
  return fmt::format("{} (g{})", save + 1, report.saves[save].generation);
}

std::string failures_text(const sim::SimulationReport& report) {
  std::string out;
  size_t later = 0;
  for (const auto& failure : report.scenario.failures) {
    const bool is_later = static_cast<actors::TimeNs>(failure.at_ms) * actors::kMillisecond > report.ended;
    later += is_later;
    if (!is_later) out += sim::to_string(failure) + "\n";
  }
  if (later != 0) out += fmt::format("{} later failures come after the end of the job\n", later);
  return out;
}

std::string times_table(const sim::SimulationReport& report) {
  Table table({{"SAVE", Align::right},
               {"UNTIL"},
               {"MIN", Align::right},
               {"P50", Align::right},
               {"P99", Align::right},
               {"MAX", Align::right}});
  for (size_t i = 0; i < report.saves.size(); ++i) {
    std::string number = save_name(report, i);
    for (const NamedSpread& each : kSpreads) {
      const sim::Spread& spread = report.saves[i].*each.spread;
      table.add_row({std::exchange(number, ""), each.name, seconds(spread.least), seconds(spread.median),
                     seconds(spread.p99), seconds(spread.greatest)});
    }
  }
  return table.to_string();
}

struct NamedLoadSpread {
  const char* name;
  const char* key;
  sim::Spread sim::LoadReport::*spread;
};
constexpr NamedLoadSpread kLoadSpreads[] = {{"load plan known", "found", &sim::LoadReport::found},
                                            {"bytes loaded", "loaded", &sim::LoadReport::loaded}};

std::string loads_text(const sim::SimulationReport& report) {
  if (report.loads.empty()) return "";
  const sim::LoadReport& first = report.loads.front();
  std::string out = fmt::format("Then the job starts again on {} ranks of {} hosts ({}) and loads:\n\n",
                                first.ranks, first.nodes, sim::to_string(first.mesh));
  Table times({{"LOAD", Align::right},
               {"UNTIL"},
               {"MIN", Align::right},
               {"P50", Align::right},
               {"P99", Align::right},
               {"MAX", Align::right}});
  Table costs({{"LOAD", Align::right},
               {"WANTED", Align::right},
               {"PASSED", Align::right},
               {"READ", Align::right},
               {"BETWEEN HOSTS", Align::right},
               {"CHANGES", Align::right},
               {"LOOKS", Align::right},
               {"LISTED", Align::right},
               {"MESSAGES", Align::right}});
  for (size_t i = 0; i < report.loads.size(); ++i) {
    const sim::LoadReport& load = report.loads[i];
    std::string number = fmt::to_string(i + 1);
    const auto& [coordinator, peaks, storage, records] = load.costs;
    costs.add_row({number, human_bytes(load.bytes_wanted), human_bytes(load.bytes_passed),
                   human_bytes(storage.bytes_read), human_bytes(load.bytes_between),
                   fmt::to_string(storage.changes), fmt::to_string(storage.looks),
                   fmt::to_string(storage.listed),
                   fmt::to_string(coordinator.messages_in + coordinator.messages_out)});
    for (const NamedLoadSpread& each : kLoadSpreads) {
      const sim::Spread& spread = load.*each.spread;
      times.add_row({std::exchange(number, ""), each.name, seconds(spread.least), seconds(spread.median),
                     seconds(spread.p99), seconds(spread.greatest)});
    }
  }
  return out + times.to_string() + "\n" + costs.to_string() + "\n";
}

std::string costs_table(const sim::SimulationReport& report) {
  Table table({{"SAVE", Align::right},
               {"MESSAGES IN", Align::right},
               {"OUT", Align::right},
               {"BYTES IN", Align::right},
               {"OUT", Align::right},
               {"LONGEST QUEUE", Align::right},
               {"BUSY", Align::right},
               {"MEMORY", Align::right},
               {"DESCRIPTORS", Align::right},
               {"STAGED", Align::right},
               {"RECORDS", Align::right},
               {"CHANGES", Align::right},
               {"LOOKS", Align::right},
               {"LISTED", Align::right}});
  auto add = [&](std::string name, const sim::PhaseCosts& costs, uint64_t staged) {
    const auto& [coordinator, peaks, storage, records] = costs;
    table.add_row({std::move(name), fmt::to_string(coordinator.messages_in),
                   fmt::to_string(coordinator.messages_out), human_bytes(coordinator.bytes_in),
                   human_bytes(coordinator.bytes_out), fmt::to_string(coordinator.longest_queue),
                   seconds(coordinator.busy_ns), human_bytes(peaks.memory_bytes),
                   fmt::to_string(peaks.descriptors), human_bytes(staged), human_bytes(records),
                   fmt::to_string(storage.changes), fmt::to_string(storage.looks),
                   fmt::to_string(storage.listed)});
  };
  add("before", report.joining, 0);
  for (size_t i = 0; i < report.saves.size(); ++i) {
    add(save_name(report, i), report.saves[i].costs, report.saves[i].bytes_staged);
  }
  return table.to_string();
}

nlohmann::ordered_json scenario_json(const sim::SimulationReport& report) {
  const sim::Scenario& scenario = report.scenario;
  nlohmann::ordered_json out = {{"ranks", scenario.ranks},
                                {"ranks_per_host", scenario.ranks_per_host},
                                {"mesh", sim::to_string(report.mesh)},
                                {"model", scenario.model},
                                {"mode", mode_name(scenario.mode)},
                                {"saves", scenario.saves},
                                {"interval_ms", scenario.interval_ms},
                                {"arrival_skew_ms", scenario.arrival_skew_ms},
                                {"arrival_skew_us", scenario.arrival_skew_us},
                                {"loads", scenario.loads},
                                {"max_restarts", scenario.max_restarts},
                                {"detect_ms", scenario.detect_ms},
                                {"restart_after_ms", scenario.restart_after_ms},
                                {"profile", scenario.profile},
                                {"set", scenario.profile_numbers},
                                {"timeouts", scenario.timeouts},
                                {"seed", scenario.seed}};
  out["failures"] = nlohmann::ordered_json::array();
  for (const sim::Failure& failure : scenario.failures) {
    nlohmann::ordered_json each = {
        {"at_ms", failure.at_ms}, {"at_ns", failure.at_ns}, {"kind", sim::failure_kind_name(failure.kind)}};
    for (const auto& [key, value] : sim::failure_values(failure)) each[std::string(key)] = value;
    out["failures"].push_back(std::move(each));
  }
  return out;
}

nlohmann::ordered_json saves_json(const sim::SimulationReport& report) {
  auto out = nlohmann::ordered_json::array();
  for (const sim::SaveReport& save : report.saves) {
    nlohmann::ordered_json one;
    one["generation"] = save.generation;
    one["step"] = save.step;
    one["outcome"] = outcome_of(save);
    for (const NamedSpread& each : kSpreads) {
      const sim::Spread& spread = save.*each.spread;
      one[std::string(each.key) + "_ns"] = spread_json(spread);
    }
    one["bytes_staged"] = save.bytes_staged;
    one.update(costs_json(save.costs));
    out.push_back(std::move(one));
  }
  return out;
}

nlohmann::ordered_json loads_json(const sim::SimulationReport& report) {
  auto out = nlohmann::ordered_json::array();
  for (const sim::LoadReport& load : report.loads) {
    nlohmann::ordered_json one = {
        {"ranks", load.ranks}, {"hosts", load.nodes}, {"mesh", sim::to_string(load.mesh)}};
    for (const NamedLoadSpread& each : kLoadSpreads) {
      one[std::string(each.key) + "_ns"] = spread_json(load.*each.spread);
    }
    one["bytes_wanted"] = load.bytes_wanted;
    one["bytes_passed"] = load.bytes_passed;
    one["bytes_between_hosts"] = load.bytes_between;
    one.update(costs_json(load.costs));
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

nlohmann::ordered_json costs_json(const sim::PhaseCosts& costs) {
  nlohmann::ordered_json out;
  out["coordinator"] = {{"messages_in", costs.coordinator.messages_in},
                        {"messages_out", costs.coordinator.messages_out},
                        {"bytes_in", costs.coordinator.bytes_in},
                        {"bytes_out", costs.coordinator.bytes_out},
                        {"longest_queue", costs.coordinator.longest_queue},
                        {"busy_ns", costs.coordinator.busy_ns},
                        {"memory_bytes", costs.coordinator_peaks.memory_bytes},
                        {"descriptors", costs.coordinator_peaks.descriptors}};
  out["storage"] = {{"changes", costs.storage.changes},
                    {"looks", costs.storage.looks},
                    {"entries_listed", costs.storage.listed},
                    {"syncs", costs.storage.syncs},
                    {"bytes_written", costs.storage.bytes_written},
                    {"bytes_read", costs.storage.bytes_read}};
  out["record_bytes"] = costs.record_bytes;
  return out;
}

nlohmann::ordered_json spread_json(const sim::Spread& spread) {
  nlohmann::ordered_json out = {
      {"min", spread.least}, {"p50", spread.median}, {"p99", spread.p99}, {"max", spread.greatest}};
  if (spread.further.empty()) return out;  // no rank reached this point
  for (size_t i = 0; i < spread.further.size(); ++i) {
    out["permille"][fmt::to_string(sim::kFurtherPermille[i])] = spread.further[i];
  }
  out["histogram"] = spread.histogram;  // bars of equal width, from the least to the greatest
  return out;
}

std::string report_text(const sim::SimulationReport& report) {
  std::string out = headline(report) + "\n";
  if (report.stopped_early) {
    out += fmt::format("stopped early: {} of {} saves were decided\n", report.saves.size(),
                       report.scenario.saves);
  }
  out += failures_text(report);
  if (const std::string slow = sim::to_string(report.scenario.stragglers); !slow.empty()) out += slow + "\n";
  out += "\n" + times_table(report) + "\n" + costs_table(report) + "\n";
  for (size_t i = 0; i < report.saves.size(); ++i) {
    const sim::SaveReport& save = report.saves[i];
    if (save.notified_ranks == 0) out += fmt::format("save {} was never decided\n", i + 1);
    if (save.aborted_ranks == 0) continue;
    out += fmt::format("save {} was aborted on {} ranks: {}\n", i + 1, save.aborted_ranks, save.cause);
  }
  out += restarts_text(report) + loads_text(report);
  if (report.scenario.reads != 0) {
    out += fmt::format("{} reads by trainers between their saves, {} failed\n", report.reads,
                       report.failed_reads);
  }
  if (report.scenario.payload == sim::Payload::full) {
    out += fmt::format("full payloads: {} stored, as counted", human_bytes(report.bytes_stored));
    if (!report.loads.empty()) {
      out += fmt::format(", {} read back, as staged", human_bytes(report.bytes_checked));
    }
    out += "\n";
  }
  return out + fmt::format("seed {}, {} events in {} of virtual time, trace {:016x}\n", report.scenario.seed,
                           report.events, seconds(report.ended), report.trace_hash);
}

std::string comparison_text(const std::vector<sim::SimulationReport>& reports) {
  if (reports.empty()) return "";
  // Values that all simulations share are printed above the table.
  struct Key {
    const char* title;
    std::string (*value)(const sim::SimulationReport& report);
  };
  static constexpr Key kKeys[] = {
      {"MODEL", [](const sim::SimulationReport& r) { return r.scenario.model; }},
      {"RANKS", [](const sim::SimulationReport& r) { return fmt::to_string(r.scenario.ranks); }},
      {"RANKS A HOST",
       [](const sim::SimulationReport& r) { return fmt::to_string(r.scenario.ranks_per_host); }},
      {"MESH", [](const sim::SimulationReport& r) { return sim::to_string(r.mesh); }},
      {"PROFILE", [](const sim::SimulationReport& r) { return sim::profile_label(r.scenario); }},
      {"SAVES", [](const sim::SimulationReport& r) { return fmt::to_string(r.scenario.saves); }},
      {"INTERVAL MS", [](const sim::SimulationReport& r) { return fmt::to_string(r.scenario.interval_ms); }},
      {"SKEW MS", [](const sim::SimulationReport& r) { return sim::arrival_skew_text(r.scenario); }},
      {"SEED", [](const sim::SimulationReport& r) { return fmt::to_string(r.scenario.seed); }},
      {"MODE", [](const sim::SimulationReport& r) { return std::string(mode_name(r.scenario.mode)); }}};
  std::string common;
  std::vector<const Key*> varied;
  std::vector<Table::Column> columns;
  for (const Key& key : kKeys) {
    const std::string first = key.value(reports.front());
    if (std::any_of(reports.begin(), reports.end(), [&](const auto& r) { return key.value(r) != first; })) {
      varied.push_back(&key);
      columns.push_back({key.title});
    } else {
      common += fmt::format("{}{} {}", common.empty() ? "" : ", ", key.title, first);
    }
  }
  for (const char* title : {"RETURNS p50", "max", "LAST BYTE", "COMMIT", "MESSAGES", "BYTES", "QUEUE", "BUSY",
                            "MEMORY", "FDS", "RECORDS", "REQUESTS", "LISTED"}) {
    columns.push_back({title, Align::right});
  }
  columns.push_back({"OUTCOME"});
  Table table(columns);
  for (const sim::SimulationReport& report : reports) {
    if (report.saves.empty()) continue;  // stopped before the first save was decided
    const sim::SaveReport& save = report.saves.back();
    const auto& [coordinator, peaks, storage, records] = save.costs;
    std::vector<std::string> cells;
    for (const Key* key : varied) cells.push_back(key->value(report));
    cells.insert(
        cells.end(),
        {seconds(save.blocked.median), seconds(save.blocked.greatest), seconds(save.written.greatest),
         seconds(save.committed.greatest), fmt::to_string(coordinator.messages_in + coordinator.messages_out),
         human_bytes(coordinator.bytes_in + coordinator.bytes_out), fmt::to_string(coordinator.longest_queue),
         seconds(coordinator.busy_ns), human_bytes(peaks.memory_bytes), fmt::to_string(peaks.descriptors),
         human_bytes(records), fmt::to_string(storage.changes + storage.looks),
         fmt::to_string(storage.listed),
         save.is_committed() && report.stopped_early
             ? fmt::format("committed, save {} of {}", report.saves.size(), report.scenario.saves)
             : save.outcome()});
    table.add_row(std::move(cells));
  }
  return common + "\n\n" + table.to_string();
}

nlohmann::ordered_json report_json(const sim::SimulationReport& report) {
  nlohmann::ordered_json out;
  const sim::Scenario& scenario = report.scenario;
  out["scenario"] = scenario_json(report);
  if (report.violation) {
    out["violation"] = {{"oracle", report.violation->oracle},
                        {"at_ns", report.violation->at},
                        {"what", report.violation->what}};
  }
  out["payload"] = sim::payload_name(scenario.payload);
  if (scenario.payload == sim::Payload::full) {
    out["bytes_stored"] = report.bytes_stored;
    out["bytes_read_back"] = report.bytes_checked;
  }
  out["parameters"] = report.parameters;
  out["hosts"] = report.nodes;
  out["layouts"] = report.layouts;
  out["before_the_first_save"] = costs_json(report.joining);
  out["saves"] = saves_json(report);
  out["loads"] = loads_json(report);
  out["restarts"] = restarts_json(report);
  if (scenario.max_restarts != 0) out["has_given_up"] = report.has_given_up;
  if (scenario.reads != 0) {
    out["reads"] = report.reads;
    out["failed_reads"] = report.failed_reads;
  }
  out["coordinator_over_time"] = nlohmann::ordered_json::array();
  for (const sim::CoordinatorSample& sample : report.coordinator_over_time) {
    out["coordinator_over_time"].push_back({{"begin_ns", sample.begin},
                                            {"end_ns", sample.end},
                                            {"queue", sample.most.queue},
                                            {"memory_bytes", sample.most.memory_bytes},
                                            {"descriptors", sample.most.descriptors}});
  }
  out["stopped_early"] = report.stopped_early;
  out["virtual_ns"] = report.ended;
  out["events"] = report.events;
  out["trace"] = fmt::format("{:016x}", report.trace_hash);
  out["warnings"] = report.warnings;
  return out;
}

std::string report_csv(const std::vector<sim::SimulationReport>& reports) {
  std::string out = "model,ranks,ranks_per_host,mesh,mode,profile,seed,save,outcome";
  for (const NamedSpread& each : kSpreads) {
    for (const char* point : {"min", "p50", "p99", "max"}) out += fmt::format(",{}_{}_ns", each.key, point);
  }
  out +=
      ",bytes_staged,messages_in,messages_out,bytes_in,bytes_out,longest_queue,busy_ns,record_bytes,changes,"
      "looks,entries_listed,syncs,bytes_written,bytes_read,memory_bytes,descriptors\n";
  for (const sim::SimulationReport& report : reports) {
    for (size_t i = 0; i < report.saves.size(); ++i) {
      const sim::SaveReport& save = report.saves[i];
      const sim::Scenario& scenario = report.scenario;
      out += fmt::format("{},{},{},\"{}\",{},{},{},{},{}", scenario.model, scenario.ranks,
                         scenario.ranks_per_host, sim::to_string(report.mesh), mode_name(scenario.mode),
                         sim::profile_label(scenario), scenario.seed, i + 1, save.outcome());
      for (const NamedSpread& each : kSpreads) {
        const sim::Spread& spread = save.*each.spread;
        out += fmt::format(",{},{},{},{}", spread.least, spread.median, spread.p99, spread.greatest);
      }
      const auto& [coordinator, peaks, storage, records] = save.costs;
      out += fmt::format(",{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", save.bytes_staged,
                         coordinator.messages_in, coordinator.messages_out, coordinator.bytes_in,
                         coordinator.bytes_out, coordinator.longest_queue, coordinator.busy_ns, records,
                         storage.changes, storage.looks, storage.listed, storage.syncs, storage.bytes_written,
                         storage.bytes_read, peaks.memory_bytes, peaks.descriptors);
    }
  }
  return out;
}

std::string timeline_csv(const std::vector<sim::SimulationReport>& reports) {
  std::string out =
      "model,ranks,ranks_per_host,mesh,mode,profile,seed,begin_ns,end_ns,queue,memory_bytes,descriptors\n";
  for (const sim::SimulationReport& report : reports) {
    const sim::Scenario& scenario = report.scenario;
    for (const sim::CoordinatorSample& sample : report.coordinator_over_time) {
      out += fmt::format("{},{},{},\"{}\",{},{},{},{},{},{},{},{}\n", scenario.model, scenario.ranks,
                         scenario.ranks_per_host, sim::to_string(report.mesh), mode_name(scenario.mode),
                         sim::profile_label(scenario), scenario.seed, sample.begin, sample.end,
                         sample.most.queue, sample.most.memory_bytes, sample.most.descriptors);
    }
  }
  return out;
}

}  // namespace shoal::cli
