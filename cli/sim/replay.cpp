// shoal replay: runs a recorded simulation again, with its protocol log.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "cli/commands.h"
#include "cli/program_build.h"
#include "cli/text_file.h"
#include "sim/basics/toml_tree.h"
#include "sim/replay.h"
#include "sim/reports/event_text.h"
#include "sim/reports/violation_page.h"

namespace shoal::cli {

namespace {

struct ReplayOptions {
  std::string file;
  double from_s = 0, until_s = -1;
  std::vector<size_t> nodes;
  std::string html;
  bool any_version = false, quiet = false;
};

constexpr const char* kReplayFooter =
    "'shoal sim --record FILE' writes such a file, and so does a simulation that violates an oracle. The\n"
    "file is a scenario that lists all its failures. You may remove some of them and run the rest again.\n"
    "The log has one line for each event that a role receives, by virtual time, one for each failure, and\n"
    "one for each message to a trainer.\n"
    "\n"
    "Examples:\n"
    "  shoal sim --ranks 64 --model gpt2 --failures mixed:count=5 --seed 7 --record seed7.toml\n"
    "  shoal replay seed7.toml\n"
    "  shoal replay seed7.toml --from 61.5 --until 63 --node 0 --node 3\n"
    "\n"
    "Exit status: 0 the run had the same result; 1 it had another result; 2 the file cannot be run, or\n"
    "another version recorded it.";

actors::TimeNs nanoseconds(double seconds) {
  return static_cast<actors::TimeNs>(seconds * 1e9);
}

sim::SimulationListeners printers(const ReplayOptions& options) {
  auto shows = [&options](actors::TimeNs now) {
    return now >= nanoseconds(options.from_s) && (options.until_s < 0 || now <= nanoseconds(options.until_s));
  };
  auto shows_node = [&options](size_t node) {
    return options.nodes.empty() ||
           std::find(options.nodes.begin(), options.nodes.end(), node) != options.nodes.end();
  };
  sim::SimulationListeners listeners;
  listeners.event = [=](actors::TimeNs now, size_t node, actors::RoleKind role, const actors::Event& event,
                        size_t from) {
    if (shows(now) && (shows_node(node) || shows_node(from))) {
      fmt::print("{}\n", sim::event_line(now, node, role, event, from));
    }
  };
  listeners.failure = [=](actors::TimeNs now, const sim::Failure& failure) {
    if (shows(now)) fmt::print("{}\n", sim::failure_line(now, failure));
  };
  listeners.decided = [=, &options](actors::TimeNs now, Rank rank, const local::Decided& decided) {
    if (shows(now) && options.nodes.empty()) fmt::print("{}\n", sim::notified_line(now, rank, decided));
  };
  return listeners;
}

int run_replay(const ReplayOptions& options) {
  base::prefer_large_pages();
  auto text = sim::read_text(options.file);
  if (!text.ok()) return report_unusable(text.status());
  auto replay = sim::parse_replay(*text, options.file);
  if (!replay.ok()) return report_unusable(replay.status());
  if (Status same = sim::check_version(*replay, SHOAL_VERSION); !same.ok() && !options.any_version) {
    return report_unusable(same.with_context(options.file));
  }
  sim::ViolationPage page;
  const bool has_page = !options.html.empty();
  auto report = sim::simulate(replay->scenario, replay->profile,
                              has_page        ? page.listeners()
                              : options.quiet ? sim::SimulationListeners{}
                                              : printers(options));
  if (!report.ok()) return report_unusable(report.status());
  if (has_page) {
    const Status written = write_text(options.html, page.html(*report, "shoal replay " + options.file));
    if (!written.ok()) return report_unusable(written);
  }
  for (size_t save = 0; save < report->saves.size(); ++save) {
    const sim::SaveReport& each = report->saves[save];
    if (each.aborted_ranks == 0) continue;
    fmt::print("save {}: {} ranks were notified of a failure: {}\n", save + 1, each.aborted_ranks,
               each.cause);
  }
  if (report->violation) {
    const sim::Violation& violation = *report->violation;
    fmt::print("oracle violated at {} s: {}: {}\n", sim::seconds_text(violation.at), violation.oracle,
               violation.what);
  }
  const std::string differs = sim::difference(*replay, *report, program_build());
  if (differs.empty()) {
    fmt::print("same result: trace {:016x}, {} events\n", report->trace_hash, report->events);
    return kExitOk;
  }
  fmt::print("different result: {}\n", differs);
  return kExitFailed;
}

}  // namespace

void add_replay_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("replay", "Run a recorded simulation again, with its protocol log");
  auto options = std::make_shared<ReplayOptions>();
  command->add_option("FILE", options->file, "File that 'shoal sim --record' or 'shoal fuzz' wrote")
      ->required();
  command->add_option("--from", options->from_s, "Begin the log at this virtual time")->type_name("SECONDS");
  command->add_option("--until", options->until_s, "End the log at this virtual time")->type_name("SECONDS");
  command->add_option("--node", options->nodes, "Log only what this node receives and sends; may be repeated")
      ->type_name("N")
      ->allow_extra_args(false);
  command->add_flag("--quiet", options->quiet, "Print no log");
  command
      ->add_option("--html", options->html,
                   "Instead of the log, write a page for a browser: what led to the violation")
      ->type_name("FILE");
  command->add_flag("--any-version", options->any_version, "Also run files that another version recorded");
  command->footer(kReplayFooter);
  command->callback([=] { *chosen = [=] { return run_replay(*options); }; });
}

}  // namespace shoal::cli
