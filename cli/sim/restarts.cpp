#include "cli/sim/restarts.h"

#include <fmt/format.h>

#include "cli/json_output.h"
#include "cli/sim/report.h"
#include "cli/table.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

using sim::NewerAttempt;
using sim::RestartReport;
using Align = Table::Align;

std::string in_seconds(actors::TimeNs time) {
  return human_seconds(static_cast<double>(time) / 1e9);
}

// The points of a restart in the order in which it reaches them. Negative: it did not.
struct RestartPoint {
  const char* name;
  const char* key;
  actors::TimeNs (*at)(const RestartReport& restart);
};
// The greatest of a spread over ranks, which counts from the begin of the run.
actors::TimeNs last_of(const RestartReport& restart, const sim::Spread& spread) {
  return spread.greatest == 0 ? -1 : restart.began + spread.greatest;
}
constexpr RestartPoint kRestartPoints[] = {
    {"all processes are killed", "ended", [](const RestartReport& r) { return r.ended; }},
    {"the next run starts", "began", [](const RestartReport& r) { return r.began; }},
    {"generation and epoch claimed", "claimed", [](const RestartReport& r) { return r.claimed; }},
    {"all nodes connected", "connected", [](const RestartReport& r) { return r.connected; }},
    {"the checkpoint is chosen", "chosen", [](const RestartReport& r) { return r.chosen; }},
    {"load plan known", "found", [](const RestartReport& r) { return last_of(r, r.found); }},
    {"bytes loaded: training goes on", "resumed", [](const RestartReport& r) { return r.resumed; }},
    {"first save committed", "saved", [](const RestartReport& r) { return r.saved; }}};

std::string checkpoint_text(const RestartReport& restart) {
  if (restart.checkpoint) return fmt::format("it loads {}", to_string(*restart.checkpoint));
  return restart.resumed < 0 ? "it has not chosen a checkpoint"
                             : "there is no checkpoint, so it loads nothing";
}

std::string newer_text(const NewerAttempt& attempt) {
  switch (attempt.state) {
    case NewerAttempt::State::unwritten:
      return "no file of it had reached the root";
    case NewerAttempt::State::undecided:
      return "it is still undecided";
    case NewerAttempt::State::damaged:
      return "a bit of it has flipped on the disk";
    case NewerAttempt::State::deleted:
      return "it was deleted";
    case NewerAttempt::State::aborted:
      break;
  }
  return fmt::format(
      "{}{}{}", attempt.was_undecided ? "it was undecided when the run began, and then aborted" : "aborted",
      attempt.cause.empty() ? "" : ": ", attempt.cause);
}

// The failure after which this run did not get as far as training; none: it trained, or nothing has failed.
const sim::Failure* cut_short_by(const sim::SimulationReport& report, size_t restart) {
  const bool has_next = restart + 1 < report.restarts.size();
  return report.restarts[restart].resumed < 0 && has_next ? &report.restarts[restart + 1].failure : nullptr;
}

std::string restart_text(const sim::SimulationReport& report, size_t index) {
  const RestartReport& restart = report.restarts[index];
  std::string out = fmt::format(
      "restart {} (generation {}) on {} ranks of {} hosts ({}), because {}: {}; {} of "
      "training are lost\n",
      index + 1, restart.generation, restart.ranks, restart.nodes, sim::to_string(restart.mesh),
      sim::to_string(restart.failure), checkpoint_text(restart), in_seconds(restart.lost_steps));
  for (const NewerAttempt& attempt : restart.newer) {
    out += fmt::format("  not {}, which is newer: {}\n", to_string(attempt.key), newer_text(attempt));
  }
  if (const sim::Failure* failure = cut_short_by(report, index)) {
    out += fmt::format("  it ended before all ranks had loaded: {}\n", sim::to_string(*failure));
  }
  return out;
}

}  // namespace

std::string restarts_text(const sim::SimulationReport& report) {
  if (report.restarts.empty()) {
    return report.has_given_up ? "the job has ended: no restart is left\n" : "";
  }
  Table times(
      {{"RESTART", Align::right}, {"UNTIL"}, {"TOOK", Align::right}, {"SINCE FAILURE", Align::right}});
  Table costs({{"RESTART", Align::right},
               {"WANTED", Align::right},
               {"PASSED", Align::right},
               {"READ", Align::right},
               {"BETWEEN HOSTS", Align::right},
               {"MESSAGES", Align::right},
               {"LONGEST QUEUE", Align::right},
               {"BUSY", Align::right},
               {"CHANGES", Align::right},
               {"LOOKS", Align::right},
               {"LISTED", Align::right}});
  std::string about;
  for (size_t i = 0; i < report.restarts.size(); ++i) {
    const RestartReport& restart = report.restarts[i];
    about += restart_text(report, i);
    std::string number = fmt::to_string(i + 1);
    const auto& [coordinator, peaks, storage, records] = restart.costs;
    costs.add_row({number, human_bytes(restart.bytes_wanted), human_bytes(restart.bytes_passed),
                   human_bytes(storage.bytes_read), human_bytes(restart.bytes_between),
                   fmt::to_string(coordinator.messages_in + coordinator.messages_out),
                   fmt::to_string(coordinator.longest_queue), in_seconds(coordinator.busy_ns),
                   fmt::to_string(storage.changes), fmt::to_string(storage.looks),
                   fmt::to_string(storage.listed)});
    actors::TimeNs before = restart.failed;
    for (const RestartPoint& point : kRestartPoints) {
      const actors::TimeNs at = point.at(restart);
      if (at < 0) continue;
      times.add_row(
          {std::exchange(number, ""), point.name, in_seconds(at - before), in_seconds(at - restart.failed)});
      before = at;
    }
  }
  if (report.has_given_up) about += "the job has ended: no restart is left\n";
  return about + "\n" + times.to_string() + "\n" + costs.to_string() + "\n";
}

nlohmann::ordered_json restarts_json(const sim::SimulationReport& report) {
  auto out = nlohmann::ordered_json::array();
  for (const RestartReport& restart : report.restarts) {
    nlohmann::ordered_json one = {{"failure", sim::to_string(restart.failure)},
                                  {"kind", sim::failure_kind_name(restart.failure.kind)},
                                  {"failed_at_ns", restart.failed},
                                  {"generation", restart.generation},
                                  {"ranks", restart.ranks},
                                  {"hosts", restart.nodes},
                                  {"mesh", sim::to_string(restart.mesh)}};
    for (const RestartPoint& point : kRestartPoints) {
      const actors::TimeNs at = point.at(restart);
      const std::string key = std::string(point.key) + "_after_ns";
      if (at >= 0) one[key] = at - restart.failed;
    }
    one["lost_steps_ns"] = restart.lost_steps;
    if (restart.checkpoint) one["checkpoint"] = key_json(*restart.checkpoint);
    one["newer"] = nlohmann::ordered_json::array();
    for (const NewerAttempt& attempt : restart.newer) {
      nlohmann::ordered_json newer = key_json(attempt.key);
      newer["state"] = sim::state_name(attempt.state);
      newer["was_undecided"] = attempt.was_undecided;
      newer["cause"] = attempt.cause;
      one["newer"].push_back(std::move(newer));
    }
    one["found_ns"] = spread_json(restart.found);
    one["loaded_ns"] = spread_json(restart.loaded);
    one["bytes_wanted"] = restart.bytes_wanted;
    one["bytes_passed"] = restart.bytes_passed;
    one["bytes_between_hosts"] = restart.bytes_between;
    one.update(costs_json(restart.costs));
    out.push_back(std::move(one));
  }
  return out;
}

std::string restarts_csv(const std::vector<sim::SimulationReport>& reports) {
  std::string out =
      "model,ranks,ranks_per_host,mesh,mode,profile,seed,restart,failure,failed_at_ns,generation,restart_"
      "ranks,"
      "restart_hosts";
  for (const RestartPoint& point : kRestartPoints) out += fmt::format(",{}_after_ns", point.key);
  out +=
      ",lost_steps_ns,checkpoint_generation,checkpoint_step,bytes_wanted,bytes_passed,bytes_between_hosts,"
      "bytes_read,messages_in,messages_out,longest_queue,busy_ns,changes,looks,entries_listed\n";
  for (const sim::SimulationReport& report : reports) {
    const sim::Scenario& scenario = report.scenario;
    for (size_t i = 0; i < report.restarts.size(); ++i) {
      const RestartReport& restart = report.restarts[i];
      out += fmt::format("{},{},{},\"{}\",{},{},{},{},{},{},{},{},{}", scenario.model, scenario.ranks,
                         scenario.ranks_per_host, sim::to_string(report.mesh), mode_name(scenario.mode),
                         sim::profile_label(scenario), scenario.seed, i + 1,
                         sim::failure_kind_name(restart.failure.kind), restart.failed, restart.generation,
                         restart.ranks, restart.nodes);
      for (const RestartPoint& point : kRestartPoints) {
        const actors::TimeNs at = point.at(restart);
        out += at < 0 ? std::string(",") : fmt::format(",{}", at - restart.failed);
      }
      const auto& checkpoint = restart.checkpoint;
      const auto& [coordinator, peaks, storage, records] = restart.costs;
      out += fmt::format(",{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", restart.lost_steps,
                         checkpoint ? fmt::to_string(checkpoint->generation) : "",
                         checkpoint ? fmt::to_string(checkpoint->step) : "", restart.bytes_wanted,
                         restart.bytes_passed, restart.bytes_between, storage.bytes_read,
                         coordinator.messages_in, coordinator.messages_out, coordinator.longest_queue,
                         coordinator.busy_ns, storage.changes, storage.looks, storage.listed);
    }
  }
  return out;
}

}  // namespace shoal::cli
