// Shoal status and shoal top: show what running nodes do.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/node/live_terminal.h"
#include "cli/node/node_view.h"

namespace shoal::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kDefaultIntervalSeconds = 1;
constexpr uint32_t kMaxIntervalMs = 3'600'000;

struct StatusOptions {
  NodeTarget target;
  bool json = false;
  bool watch = false;
  bool is_top = false;
  double interval_seconds = kDefaultIntervalSeconds;
  uint64_t frames = 0;  // 0: until interrupted
};

constexpr const char* kStatusFooter =
    "Queries the node that serves ROOT on this host through its socket. Without ROOT, it queries every\n"
    "node that this user runs on this host. The node asks the coordinator's node, so that every host of\n"
    "the job is shown: its state, ranks, bytes, restarts, and what each save in flight waits for there. If\n"
    "the coordinator does not answer, the command says so and shows what this host knows. If no node runs,\n"
    "it shows what the files of the root contain. It changes nothing, and no save waits for it.\n"
    "  PHASE     staging: ranks of this host have not staged yet; planning: all have, and layouts of\n"
    "            other ranks are missing; writing: the node writes their shards; waiting: for other\n"
    "            hosts, or for the decision; committing: the coordinator publishes it\n"
    "  STAGED    bytes in shared memory\n"
    "  WRITTEN   bytes of this host's finished files; TO WRITE: bytes of all its files\n"
    "  ON DISK   bytes in the attempt's folder, from all hosts\n"
    "  REPORTED  ranks whose shards are durable, as the coordinator knows\n"
    "  WAITS FOR ranks for which the save waits\n"
    "Below the saves it prints the newest warnings, and the newest aborted save with its cause.\n"
    "\n"
    "Examples:\n"
    "  shoal status /checkpoints/run7\n"
    "  shoal status --json | jq '.nodes[].last_commit'\n"
    "  shoal status /checkpoints/run7 --watch --json      one object a line, every second\n"
    "\n"
    "Exit status: 0 a node answered; 1 no node runs here, or ROOT's newest manifest is damaged; 2 ROOT\n"
    "does not exist, or an argument is invalid.";

constexpr const char* kTopFooter =
    "Shows what `shoal status` shows, with rates, and refreshes it until you press q or Ctrl-C. 'shoal\n"
    "status --help' explains the columns. If stdin or stdout is not a terminal, it prints each picture\n"
    "after the one before, until interrupted.\n"
    "\n"
    "Examples:\n"
    "  shoal top /checkpoints/run7\n"
    "  shoal top --interval-ms 200      every node of this user on this host\n"
    "\n"
    "Exit status: 0 a node answered the last time; 1 no node runs here, or ROOT's newest manifest is\n"
    "damaged; 2 ROOT does not exist, or an argument is invalid.";

void show(const StatusOptions& options, const JobView& view, const EarlierView* before, bool is_first,
          LiveTerminal* terminal) {
  if (options.json) {
    print_json("status", as_json(view), options.watch ? JsonLayout::one_line : JsonLayout::indented);
  } else if (terminal != nullptr && terminal->is_live()) {
    terminal->draw(as_text(view, before) + "\nq: end\n");
  } else {
    fmt::print("{}{}", is_first ? "" : "\n", as_text(view, before));
  }
  std::fflush(stdout);
}

int run_status(const StatusOptions& options) {
  std::optional<JobView> earlier;
  Clock::time_point earlier_at;
  int exit_status = kExitOk;
  std::optional<LiveTerminal> terminal;
  const std::chrono::duration<double, std::milli> interval(options.interval_seconds * 1e3);
  for (uint64_t frame = 0;; ++frame) {
    Clock::time_point now = Clock::now();
    auto view = look_at(options.target);
    if (!view.ok()) {
      terminal.reset();  // so that the error stays visible
      return report_unusable(view.status());
    }
    if (options.is_top && frame == 0) terminal.emplace();
    std::optional<EarlierView> before;
    if (earlier)
      before.emplace(EarlierView{*earlier, std::chrono::duration<double>(now - earlier_at).count()});
    show(options, *view, before ? &*before : nullptr, frame == 0, terminal ? &*terminal : nullptr);
    const bool is_latest_known = !view->root || view->root->latest_unknown.ok();
    if (!is_latest_known && !options.watch) report_unusable(view->root->latest_unknown);
    exit_status = view->nodes.empty() ? kExitNoNode : is_latest_known ? kExitOk : kExitDamaged;
    if (!options.watch || frame + 1 == options.frames || std::ferror(stdout) != 0) return exit_status;
    before.reset();
    earlier = std::move(*view);
    earlier_at = now;
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(interval);
    if (!terminal) {
      std::this_thread::sleep_for(pause);
    } else if (!terminal->wait(pause)) {
      return exit_status;
    }
  }
}

std::shared_ptr<StatusOptions> add_command(CLI::App& app, const char* name, const char* what,
                                           const char* footer, Command* chosen) {
  CLI::App* command = app.add_subcommand(name, what);
  auto options = std::make_shared<StatusOptions>();
  CLI::Option* root = command->add_option("ROOT", options->target.root,
                                          "Folder of the run; default: every node of this user on this host");
  command->add_option("--node", options->target.socket, "Socket of the node to ask")->excludes(root);
  command->add_option("--interval", options->interval_seconds, "Seconds between two queries")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command
      ->add_option_function<uint32_t>(
          "--interval-ms", [=](const uint32_t& ms) { options->interval_seconds = ms / 1e3; },
          "The same in milliseconds")
      ->check(CLI::Range(uint32_t{10}, kMaxIntervalMs))
      ->excludes("--interval");
  command->add_option("--count", options->frames, "Number of queries, then end; default: until interrupted");
  command->footer(footer);
  command->callback([=] { *chosen = [=] { return run_status(*options); }; });
  return options;
}

}  // namespace

void add_status_command(CLI::App& app, Command* chosen) {
  auto options = add_command(app, "status", "Show the saves of a running job", kStatusFooter, chosen);
  CLI::App* command = app.get_subcommand("status");
  command->add_flag("--watch", options->watch, "Repeat the query until interrupted");
  command->add_flag("--json", options->json, "One JSON object, or one a line with --watch");
}

void add_top_command(CLI::App& app, Command* chosen) {
  auto options = add_command(app, "top", "Watch a running job", kTopFooter, chosen);
  options->is_top = options->watch = true;
}

}  // namespace shoal::cli
