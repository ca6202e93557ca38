// shoal fuzz: small simulated jobs with failures that are aimed at their events, one for each seed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/allocator.h"
#include "base/crash_report.h"
#include "base/helper_threads.h"
#include "cli/commands.h"
#include "cli/installed_files.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/progress.h"
#include "cli/sim/run.h"
#include "cli/sim/seeds.h"
#include "cli/text_file.h"
#include "shoal/bytes.h"
#include "sim/basics/toml_tree.h"
#include "sim/campaign/figures.h"
#include "sim/campaign/shrink.h"
#include "sim/campaign/swarm.h"

namespace shoal::cli {

namespace {

struct FuzzOptions {
  std::string seeds = "1..1000";
  std::string mode;
  std::string figures;  // where they are written; "": nowhere
  uint32_t most_failures = 6;
  unsigned jobs = 0;  // 0: as many as there are processors
  bool json = false, coverage = false, keep_going = false, progress = false;
};

constexpr const char* kFuzzFooter =
    "Each seed draws a job of its own: hosts, ranks, mode, interval, saves, profile, relays and a load. Its\n"
    "tensors are a few kilobytes of real bytes, and the loads are compared with what was saved. Most\n"
    "failures are aimed at an event: a message, a timer, the end of an operation, or an operation of a\n"
    "node. Rare events are hit as often as common ones. Oracles check each run; docs/explanation/\n"
    "simulator.md lists them. A violation is cut down to the failures that it needs, and written as a file\n"
    "for 'shoal replay'.\n"
    "\n"
    "At the end, figures of all runs are compared with recorded ones: how many saves were aborted, how long\n"
    "ranks waited, and what a save cost, for each mode and kind of failure. A figure that has risen by more\n"
    "than chance explains is a find. A few hundred seeds are needed for that.\n"
    "\n"
    "Examples:\n"
    "  shoal fuzz\n"
    "  shoal fuzz --seeds 1..100000 --mode rank-local\n"
    "  shoal fuzz --seeds 7 --coverage\n"
    "\n"
    "Exit status: 0 no violation; 1 an oracle was violated, or a run failed; 2 an argument is invalid; 130 "
    "or\n"
    "143 after SIGINT or SIGTERM.";

struct FuzzTally {
  uint64_t seeds = 0, failures = 0, saves = 0, committed = 0, loads = 0, events = 0;
  sim::AimCounts aimed;
  sim::CampaignFigures figures;

  void take(const sim::SimulationReport& report) {
    ++seeds;
    failures += report.scenario.failures.size();
    events += report.events;
    loads += report.loads.size();
    figures.take(report);
    for (const sim::SaveReport& save : report.saves) {
      ++saves;
      committed += save.is_committed() ? 1 : 0;
    }
  }
};

struct Found {  // a violation, cut down, or a run that failed
  uint64_t seed = 0;
  std::string what, file;
};

class Fuzzing {
 public:
  Fuzzing(const FuzzOptions& options, const SeedRange& seeds, const sim::SwarmLimits& limits,
          const std::map<std::string, sim::Profile>& profiles)
      : options_(options), seeds_(seeds), limits_(limits), profiles_(profiles), next_(seeds.first) {}

  // Until the seeds are used up.
  void work() {
    while (const auto seed = next_seed()) run(*seed);
  }
  std::string line(double seconds) {
    std::lock_guard lock(mutex_);
    const double rate = seconds > 0 ? static_cast<double>(tally_.seeds) / seconds : 0;
    std::string out =
        fmt::format("fuzz: {} of {} seeds, {} found, {:.1f}/s", tally_.seeds, total(), found_.size(), rate);
    if (tally_.seeds == 0 || tally_.seeds == total()) return out;
    return out + fmt::format(", {} left", human_seconds(static_cast<double>(total() - tally_.seeds) / rate));
  }
  uint64_t total() const { return seeds_.last - seeds_.first + 1; }
  // Call these after all work() have returned.
  const FuzzTally& tally() const { return tally_; }
  const std::vector<Found>& found() const { return found_; }

 private:
  std::optional<uint64_t> next_seed() {
    std::lock_guard lock(mutex_);
    const bool is_over = Interrupts::signal_number() != 0 || (!found_.empty() && !options_.keep_going);
    if (is_over || given_ == total()) return std::nullopt;
    ++given_;
    return next_++;
  }

  void run(uint64_t seed) {
    const std::string again = fmt::format("shoal fuzz --seeds {}{}{}", seed,
                                          options_.mode.empty() ? "" : " --mode " + options_.mode,
                                          options_.most_failures == FuzzOptions().most_failures
                                              ? ""
                                              : fmt::format(" --most-failures {}", options_.most_failures));
    const base::CrashNote note(fmt::format("shoal: seed {}; run it again with: {}", seed, again));
    sim::AimCounts aimed;
    const auto profile_of = [this](const std::string& name) -> const sim::Profile& {
      return profiles_.at(name);
    };
    auto scenario = sim::draw_case(seed, limits_, profile_of, &aimed);
    if (!scenario.ok()) return failed(seed, nullptr, scenario.status());
    auto report = sim::simulate(*scenario, profiles_.at(scenario->profile));
    if (!report.ok()) return failed(seed, &*scenario, report.status());
    const auto violation = report->violation;
    {
      std::lock_guard lock(mutex_);
      tally_.take(*report);
      for (const auto& [cell, times] : aimed) tally_.aimed[cell] += times;
    }
    if (violation) violated(seed, std::move(*report));
  }

  void violated(uint64_t seed, sim::SimulationReport report) {
    const sim::Profile& profile = profiles_.at(report.scenario.profile);
    const auto again = [&](const sim::Scenario& smaller) { return sim::simulate(smaller, profile); };
    const sim::SimulationReport least = sim::shrink(std::move(report), again);
    std::lock_guard lock(mutex_);
    const std::string file = free_name(fmt::format("violation-seed{}", seed), ".toml");
    fmt::print(stderr, "shoal: seed {}: {}: {}\n", seed, least.violation->oracle, least.violation->what);
    for (const sim::Failure& failure : least.scenario.failures) {
      fmt::print(stderr, "  {}\n", to_string(failure));
    }
    (void)record_run(least, profile, file);
    found_.push_back({seed, least.violation->oracle + ": " + least.violation->what, file});
  }

  // The run ended with an error, so that there is nothing to replay but its scenario.
  void failed(uint64_t seed, const sim::Scenario* scenario, const Status& why) {
    std::lock_guard lock(mutex_);
    ++tally_.seeds;
    fmt::print(stderr, "shoal: seed {}: {}\n", seed, why.to_string());
    std::string file;
    if (scenario != nullptr) {
      file = free_name(fmt::format("failed-seed{}", seed), ".toml");
      if (Status written = write_text(file, sim::scenario_text(*scenario)); !written.ok()) {
        (void)report_unusable(written);
      } else {
        fmt::print(stderr, "run it again with: shoal sim --scenario {}\n", file);
      }
    }
    found_.push_back({seed, why.to_string(), file});
  }

  const FuzzOptions& options_;
  const SeedRange seeds_;
  const sim::SwarmLimits limits_;
  const std::map<std::string, sim::Profile>& profiles_;
  std::mutex mutex_;
  uint64_t next_, given_ = 0;
  FuzzTally tally_;
  std::vector<Found> found_;
};

// A row for each moment, with its failures by kind: "coordinator: Received ShardsWritten  dies 3, cut 1".
std::string coverage_text(const sim::AimCounts& aimed) {
  std::string out, last;
  for (const auto& [cell, times] : aimed) {
    const auto& [moment, kind] = cell;
    const bool is_same = moment == last;
    out += is_same ? ", " : fmt::format("{}{:<44} ", out.empty() ? "" : "\n", moment);
    out += fmt::format("{} {}", sim::failure_kind_name(kind), times);
    last = moment;
  }
  return out.empty() ? out : out + "\n";
}

// Empty for a campaign whose jobs have more or fewer failures than those that were recorded.
Result<sim::CampaignFigures> recorded_figures(const FuzzOptions& options) {
  if (options.most_failures != FuzzOptions().most_failures) return sim::CampaignFigures();
  const std::string file = shared_folder() + "/fuzz/expected_figures.csv";
  SHOAL_ASSIGN_OR_RETURN(const std::string text, sim::read_text(file));
  auto figures = sim::CampaignFigures::parse(text);
  if (!figures.ok()) return figures.status().with_context(file);
  return figures;
}

nlohmann::ordered_json fuzz_json(const Fuzzing& fuzzing, const std::vector<sim::Rise>& rises,
                                 double seconds) {
  const FuzzTally& tally = fuzzing.tally();
  nlohmann::ordered_json out = {{"seeds", tally.seeds},
                                {"seconds", seconds},
                                {"failures", tally.failures},
                                {"saves", tally.saves},
                                {"saves_committed", tally.committed},
                                {"loads", tally.loads},
                                {"events", tally.events}};
  out["found"] = nlohmann::ordered_json::array();
  for (const Found& found : fuzzing.found()) {
    out["found"].push_back({{"seed", found.seed}, {"what", found.what}, {"file", found.file}});
  }
  out["rises"] = nlohmann::ordered_json::array();
  for (const sim::Rise& rise : rises) {
    out["rises"].push_back({{"mode", mode_name(rise.key.mode)},
                            {"failures", rise.key.failures},
                            {"figure", sim::figure_name(rise.key.figure)},
                            {"recorded", rise.recorded},
                            {"seen", rise.seen},
                            {"standard_errors", rise.standard_errors}});
  }
  out["aimed"] = nlohmann::ordered_json::array();
  for (const auto& [cell, times] : tally.aimed) {
    out["aimed"].push_back(
        {{"moment", cell.first}, {"failure", sim::failure_kind_name(cell.second)}, {"times", times}});
  }
  return out;
}

int run_fuzz(const FuzzOptions& options) {
  base::prefer_large_pages();
  auto seeds = parse_seeds(options.seeds);
  if (!seeds.ok()) return report_unusable(seeds.status());
  sim::SwarmLimits limits;
  limits.most_failures = options.most_failures;
  if (!options.mode.empty()) {
    limits.mode = mode_of_name(options.mode);
    if (!limits.mode) {
      return report_unusable(Status(Code::invalid_argument,
                                    fmt::format("--mode: '{}' is not a mode: collective-free, rank-local or "
                                                "collective",
                                                options.mode)));
    }
  }
  std::map<std::string, sim::Profile> profiles;
  for (const char* name : sim::kSwarmProfiles) {
    auto profile = sim::find_profile(name, profile_folders());
    if (!profile.ok()) return report_unusable(profile.status());
    profiles.emplace(name, std::move(*profile));
  }
  // What would fail at the end fails before the campaign begins.
  const auto recorded = recorded_figures(options);
  if (!recorded.ok()) return report_unusable(recorded.status());
  if (!options.figures.empty()) {
    if (Status writable = check_writable(options.figures); !writable.ok()) return report_unusable(writable);
  }
  const auto began = std::chrono::steady_clock::now();
  Interrupts interrupts;
  Fuzzing fuzzing(options, *seeds, limits, profiles);
  const unsigned jobs = options.jobs != 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency());
  {
    ProgressLine shown([&](double seconds) { return fuzzing.line(seconds); }, options.progress);
    const size_t threads = std::min<uint64_t>(jobs, fuzzing.total());
    base::for_each_by_threads(threads, threads, [&](size_t) { fuzzing.work(); });
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const FuzzTally& tally = fuzzing.tally();
  if (!options.figures.empty()) {
    if (Status written = write_text(options.figures, tally.figures.csv()); !written.ok()) {
      return report_unusable(written);
    }
  }
  const std::vector<sim::Rise> rises = sim::find_rises(*recorded, tally.figures);
  for (const sim::Rise& rise : rises) fmt::print(stderr, "shoal: a figure has risen: {}\n", rise.text());
  if (options.json) {
    fmt::print("{}\n", json_text(fuzz_json(fuzzing, rises, took.count())));
  } else {
    if (options.coverage) fmt::print("{}\n", coverage_text(tally.aimed));
    fmt::print("{} seeds: {} failures, {} saves, {} of them committed, {} loads, {} events; {} found\n",
               tally.seeds, tally.failures, tally.saves, tally.committed, tally.loads, tally.events,
               fuzzing.found().size());
    fmt::print("{:.1f} s, {:.0f} seeds an hour\n", took.count(),
               static_cast<double>(tally.seeds) / took.count() * 3600);
  }
  if (const int signal = Interrupts::signal_number(); signal != 0) {
    fmt::print(stderr, "shoal: interrupted after {} of {} seeds\n", tally.seeds, fuzzing.total());
    return 128 + signal;
  }
  return fuzzing.found().empty() && rises.empty() ? kExitOk : kExitFailed;
}

}  // namespace

void add_fuzz_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("fuzz", "Search for bugs of the roles by simulated jobs that fail");
  auto options = std::make_shared<FuzzOptions>();
  command->add_option("--seeds", options->seeds, "Run each of these seeds (1..1000); stop at the first find")
      ->type_name("FIRST..LAST");
  command->add_option("--mode", options->mode, "Only jobs that save in this mode (any)")->type_name("MODE");
  command->add_option("--most-failures", options->most_failures, "Most failures of one job (6)")
      ->type_name("N")
      ->check(CLI::Range(0, 100));
  command->add_flag("--keep-going", options->keep_going, "Run all seeds, whatever is found");
  command->add_flag("--coverage", options->coverage, "Print which failures were aimed at which events");
  command->add_option("--jobs", options->jobs, "Number of parallel simulations (number of processors)")
      ->type_name("N");
  command->add_option("--figures", options->figures, "Write the figures of all runs to this file, as CSV")
      ->type_name("FILE");
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  command->add_flag("--json", options->json, "One JSON object, with the coverage");
  command->footer(kFuzzFooter);
  command->callback([=] { *chosen = [=] { return run_fuzz(*options); }; });
}

}  // namespace shoal::cli
