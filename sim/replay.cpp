#include "sim/replay.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "sim/basics/toml_tree.h"

namespace shoal::sim {

namespace {

std::string what_differs(const Replay& replay, const SimulationReport& again) {
  const std::string violation = again.violation ? again.violation->oracle : "";
  if (violation != replay.violation) {
    auto named = [](const std::string& oracle) { return oracle.empty() ? "none" : oracle; };
    return fmt::format("the violated oracle was {}, but now it is {}", named(replay.violation),
                       named(violation));
  }
  if (again.trace_hash == replay.trace_hash && again.events == replay.events) return "";
  return fmt::format("the trace was {:016x} of {} events, but now it is {:016x} of {}", replay.trace_hash,
                     replay.events, again.trace_hash, again.events);
}

}  // namespace

Replay replay_of(const SimulationReport& report, const Profile& profile, std::string version,
                 std::string build) {
  Replay replay{
      std::move(version), std::move(build), report.scenario, profile, report.trace_hash, report.events, ""};
  if (report.violation) replay.violation = report.violation->oracle;
  return replay;
}

std::string replay_text(const Replay& replay) {
  std::string text = "# A simulated run: 'shoal replay FILE' runs it again. You may remove failures.\n";
  text += scenario_text(replay.scenario);
  text += fmt::format("\n[replay]\nversion = {}\ntrace = \"{:016x}\"\nevents = {}\n",
                      toml_string(replay.version), replay.trace_hash, replay.events);
  if (!replay.build.empty()) text += fmt::format("build = {}\n", toml_string(replay.build));
  if (!replay.violation.empty()) text += fmt::format("violation = {}\n", toml_string(replay.violation));
  return text + fmt::format("profile = {}\n", toml_string(profile_text(replay.profile)));
}

Result<Replay> parse_replay(std::string_view text, const std::string& file) {
  Replay replay;
  SHOAL_ASSIGN_OR_RETURN(replay.scenario, parse_scenario(text, file));
  SHOAL_ASSIGN_OR_RETURN(TomlTable whole, parse_toml(text, file));
  SHOAL_ASSIGN_OR_RETURN(auto table, whole.table("replay"));
  if (!table)
    return whole.error(1, "it has no [replay]: this is a scenario, which 'shoal sim --scenario' runs");
  static constexpr std::string_view kKeys[] = {"version", "build", "trace", "events", "violation", "profile"};
  SHOAL_RETURN_IF_ERROR(table->allow_only(kKeys));
  SHOAL_ASSIGN_OR_RETURN(replay.version, table->text("version", ""));
  SHOAL_ASSIGN_OR_RETURN(replay.build, table->text("build", ""));
  SHOAL_ASSIGN_OR_RETURN(std::string trace, table->text("trace", ""));
  const auto [stopped, error] =
      std::from_chars(trace.data(), trace.data() + trace.size(), replay.trace_hash, 16);
  if (error != std::errc() || stopped != trace.data() + trace.size()) {
    return table->error(table->line, fmt::format("trace = '{}' is not a hash", trace));
  }
  SHOAL_ASSIGN_OR_RETURN(int64_t events, table->integer("events", 0, std::numeric_limits<int64_t>::max(), 0));
  replay.events = static_cast<uint64_t>(events);
  SHOAL_ASSIGN_OR_RETURN(replay.violation, table->text("violation", ""));
  SHOAL_ASSIGN_OR_RETURN(std::string profile, table->text("profile", ""));
  SHOAL_ASSIGN_OR_RETURN(replay.profile, parse_profile(profile, file + " (its profile)"));
  return replay;
}

Status check_version(const Replay& replay, std::string_view version) {
  if (replay.version == version) return ok_status();
  return Status(Code::version, fmt::format("it was recorded by version {}, but this is {}, whose roles may "
                                           "send other messages; --any-version replays it nevertheless",
                                           replay.version, version));
}

std::string difference(const Replay& replay, const SimulationReport& again, std::string_view build) {
  const std::string differs = what_differs(replay, again);
  if (differs.empty() || build.empty() || replay.build.empty() || build == replay.build) return differs;
  return fmt::format("{}; another build of version {} recorded it", differs, replay.version);
}

}  // namespace shoal::sim
