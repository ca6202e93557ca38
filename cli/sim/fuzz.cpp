// shoal fuzz: small simulated jobs with failures that are aimed at their events, one for each seed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/allocator.h"
#include "base/crash_report.h"
#include "base/helper_threads.h"
#include "cli/commands.h"
#include "cli/installed_files.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/not_empty.h"
#include "cli/progress.h"
#include "cli/sim/run.h"
#include "cli/sim/seeds.h"
#include "cli/text_file.h"
#include "shoal/bytes.h"
#include "sim/basics/toml_tree.h"
#include "sim/campaign/csv.h"
#include "sim/campaign/figures.h"
#include "sim/campaign/path_shares.h"
#include "sim/campaign/run_outcomes.h"
#include "sim/campaign/shrink.h"
#include "sim/campaign/swarm.h"
#include "sim/reports/violation_page.h"

namespace shoal::cli {

namespace {

struct FuzzOptions {
  std::string seeds = "1..1000";
  std::string mode;
  std::string record;  // the folder into which the campaign is recorded; "": none
  uint32_t most_failures = 6;
  unsigned jobs = 0;  // 0: as many as there are processors
  std::string aim;    // "KIND@MOMENT"
  uint64_t most_more = 10'000;
  bool every_mode = false, until_covered = false, html = false;
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
    "At the end, the campaign is compared with a recorded one. Finds are: figures that have risen, such as\n"
    "the share of aborted saves and the time that ranks waited, for each mode and kind of failure; outcomes\n"
    "that have changed in one direction in the runs of the same seeds; and paths of the roles that more or\n"
    "fewer runs take. Each find is more than chance explains, which takes a few hundred seeds.\n"
    "\n"
    "Examples:\n"
    "  shoal fuzz\n"
    "  shoal fuzz --seeds 1..1000 --every-mode\n"
    "  shoal fuzz --seeds 1..100000 --mode rank-local\n"
    "  shoal fuzz --seeds 7 --coverage\n"
    "\n"
    "Exit status: 0 no violation; 1 an oracle was violated, or a run failed; 2 an argument is invalid; 130 "
    "or\n"
    "143 after SIGINT or SIGTERM.";

// What a campaign is compared with, or what it records.
struct RecordedCampaign {
  sim::CampaignFigures figures;
  sim::PathShares paths;
  sim::RareSeeds rare;
  sim::RunOutcomes runs;
};

struct FuzzTally {
  uint64_t seeds = 0, failures = 0, saves = 0, committed = 0, loads = 0, events = 0;
  sim::AimCounts aimed;
  RecordedCampaign campaign;
  sim::PathShares all_paths;  // of steered seeds too

  // A steered seed belongs to no campaign that can be compared.
  void take(const sim::SimulationReport& report, uint64_t seed, const sim::PathsTaken& paths,
            bool is_steered) {
    ++seeds;
    failures += report.scenario.failures.size();
    events += report.events;
    loads += report.loads.size();
    all_paths.take(report.scenario.mode, seed, paths);
    if (!is_steered) {
      campaign.figures.take(report);
      campaign.runs.take(report, seed);
      campaign.paths.take(report.scenario.mode, seed, paths);
    }
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
      : options_(options), seeds_(seeds), limits_(limits), profiles_(profiles) {}

  // Until the seeds are used up.
  void work() {
    while (const auto job = next_job()) run(*job);
  }
  // Aims a further seed at each cell of the coverage table that is empty: a moment and a kind of failure.
  // Call work() afterwards. False: no cell is left, or the bound is reached.
  bool steer() {
    if (Interrupts::signal_number() != 0 || (!found_.empty() && !options_.keep_going)) return false;
    steered_.clear();
    for (const Cell& cell : empty_cells()) {
      unsigned& tries = tries_[cell];
      if (tries == kMostTries || seeds_more_ == options_.most_more) continue;
      const std::optional<SaveMode> any = static_cast<SaveMode>(tries++ % 3);
      steered_.push_back({seeds_.last + ++seeds_more_, limits_.mode ? limits_.mode : any,
                          sim::Aim{{cell.second}, false, cell.first}});
    }
    given_steered_ = 0;
    return !steered_.empty();
  }
  using Cell = std::pair<std::string, sim::Failure::Kind>;
  // Of all kinds of failure at all moments that failures were aimed at.
  std::vector<Cell> empty_cells() const {
    std::vector<Cell> cells;
    std::string last;
    for (const auto& [cell, times] : tally_.aimed) {
      if (std::exchange(last, cell.first) == cell.first) continue;
      for (size_t kind = 0; kind < sim::Failure::kKinds; ++kind) {
        Cell one{cell.first, static_cast<sim::Failure::Kind>(kind)};
        if (!tally_.aimed.contains(one)) cells.push_back(std::move(one));
      }
    }
    return cells;
  }
  std::string line(double seconds) {
    std::lock_guard lock(mutex_);
    const double rate = seconds > 0 ? static_cast<double>(tally_.seeds) / seconds : 0;
    std::string out =
        fmt::format("fuzz: {} of {} seeds, {} found, {:.1f}/s", tally_.seeds, total(), found_.size(), rate);
    if (tally_.seeds == 0 || tally_.seeds == total()) return out;
    return out + fmt::format(", {} left", human_seconds(static_cast<double>(total() - tally_.seeds) / rate));
  }
  uint64_t total() const {
    return (seeds_.last - seeds_.first + 1) * (options_.every_mode ? 3 : 1) + seeds_more_;
  }
  // Call these after all work() have returned.
  const FuzzTally& tally() const { return tally_; }
  const std::vector<Found>& found() const { return found_; }

 private:
  struct Job {
    uint64_t seed = 0;
    std::optional<SaveMode> mode;  // null: the seed draws one
    std::optional<sim::Aim> aim = {};
  };
  // How often a cell is aimed at: by three jobs of each mode. A job may lack the moment.
  static constexpr unsigned kMostTries = 9;
  std::optional<Job> next_job() {
    std::lock_guard lock(mutex_);
    const bool is_over = Interrupts::signal_number() != 0 || (!found_.empty() && !options_.keep_going);
    if (is_over) return std::nullopt;
    if (given_ < total() - seeds_more_) {
      const uint64_t number = given_++;
      if (!options_.every_mode) return Job{seeds_.first + number, limits_.mode, limits_.also};
      return Job{seeds_.first + number / 3, static_cast<SaveMode>(number % 3), limits_.also};
    }
    if (given_steered_ == steered_.size()) return std::nullopt;
    return steered_[given_steered_++];
  }

  void run(const Job& job) {
    const uint64_t seed = job.seed;
    const std::optional<SaveMode> mode = job.mode;
    const std::string aim =
        !job.aim ? ""
                 : fmt::format(" --aim '{}@{}'", failure_kind_name(job.aim->kinds.front()), job.aim->moment);
    const std::string again = fmt::format("shoal fuzz --seeds {}{}{}{}", seed,
                                          mode ? fmt::format(" --mode {}", mode_name(*mode)) : "", aim,
                                          options_.most_failures == FuzzOptions().most_failures
                                              ? ""
                                              : fmt::format(" --most-failures {}", options_.most_failures));
    const base::CrashNote note(fmt::format("shoal: seed {}; run it again with: {}", seed, again));
    sim::AimCounts aimed;
    const auto profile_of = [this](const std::string& name) -> const sim::Profile& {
      return profiles_.at(name);
    };
    sim::SwarmLimits limits = limits_;
    limits.mode = mode;
    limits.also = job.aim;
    const auto scenario = sim::draw_case(seed, limits, profile_of, &aimed);
    if (!scenario.ok()) return failed(seed, nullptr, scenario.status());
    sim::PathCounts paths;
    sim::SimulationListeners listeners;
    listeners.paths = &paths;
    auto report = sim::simulate(*scenario, profiles_.at(scenario->profile), listeners);
    if (!report.ok()) return failed(seed, &*scenario, report.status());
    const sim::PathsTaken taken = paths.taken();
    const auto violation = report->violation;
    {
      std::lock_guard lock(mutex_);
      tally_.take(*report, seed, taken, job.aim.has_value());
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
    if (options_.html) write_page(least, profile, file);
    found_.push_back({seed, least.violation->oracle + ": " + least.violation->what, file});
  }

  void write_page(const sim::SimulationReport& least, const sim::Profile& profile, const std::string& file) {
    sim::ViolationPage page;
    const auto again = sim::simulate(least.scenario, profile, page.listeners());
    if (!again.ok()) return void(report_unusable(again.status()));
    const std::string name = file.substr(0, file.size() - std::string_view(".toml").size()) + ".html";
    if (Status written = write_text(name, page.html(*again, "shoal replay " + file)); !written.ok()) {
      return void(report_unusable(written));
    }
    fmt::print(stderr, "what led to it: {}\n", name);
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
  uint64_t given_ = 0;  // jobs
  std::vector<Job> steered_;
  size_t given_steered_ = 0;
  uint64_t seeds_more_ = 0;  // all that were steered
  std::map<Cell, unsigned> tries_;
  FuzzTally tally_;
  std::vector<Found> found_;
};

// A row for each moment, with its failures by kind: "coordinator: Received ShardsWritten  dies 3, cut 1".
// Then the paths that no run took.
std::string coverage_text(const FuzzTally& tally) {
  std::string out, last;
  for (const auto& [cell, times] : tally.aimed) {
    const auto& [moment, kind] = cell;
    const bool is_same = moment == last;
    out += is_same ? ", " : fmt::format("{}{:<44} ", out.empty() ? "" : "\n", moment);
    out += fmt::format("{} {}", sim::failure_kind_name(kind), times);
    last = moment;
  }
  if (!out.empty()) out += "\n";
  const std::vector<std::string> never = tally.all_paths.never_taken();
  out += fmt::format("{} paths of the roles were taken by no run:\n", never.size());
  for (const std::string& path : never) out += fmt::format("  {}\n", path);
  return out;
}

constexpr const char* kRecordedFiles[] = {"figures", "paths", "rare", "runs"};

template <class Recorded>
Status read_recorded(const std::string& name, Result<Recorded> (*parse)(std::string_view csv),
                     Recorded* into) {
  const std::string file = fmt::format("{}/fuzz/{}.csv", shared_folder(), name);
  SHOAL_ASSIGN_OR_RETURN(const std::string text, sim::read_text(file));
  auto parsed = parse(text);
  if (!parsed.ok()) return parsed.status().with_context(file);
  *into = std::move(*parsed);
  return ok_status();
}

Result<RecordedCampaign> read_campaign() {
  RecordedCampaign recorded;
  SHOAL_RETURN_IF_ERROR(read_recorded("figures", sim::CampaignFigures::parse, &recorded.figures));
  SHOAL_RETURN_IF_ERROR(read_recorded("paths", sim::PathShares::parse, &recorded.paths));
  SHOAL_RETURN_IF_ERROR(read_recorded("rare", sim::parse_rare_seeds, &recorded.rare));
  SHOAL_RETURN_IF_ERROR(read_recorded("runs", sim::RunOutcomes::parse, &recorded.runs));
  return recorded;
}

// Keeps the comments at the head of each file.
Status record_campaign(const RecordedCampaign& campaign, const sim::RareSeeds& rare,
                       const std::string& folder) {
  const std::string texts[] = {campaign.figures.csv(), campaign.paths.csv(), sim::rare_seeds_csv(rare),
                               campaign.runs.csv()};
  for (size_t i = 0; i < std::size(texts); ++i) {
    const std::string file = fmt::format("{}/{}.csv", folder, kRecordedFiles[i]);
    const auto before = sim::read_text(file);
    std::string comments;
    if (before.ok()) {
      for (const std::string_view line : sim::split(*before, '\n')) {
        if (line.starts_with('#')) comments += fmt::format("{}\n", line);
      }
    }
    SHOAL_RETURN_IF_ERROR(write_text(file, comments + texts[i]));
  }
  return ok_status();
}

// How a campaign differs from the recorded one.
struct Differences {
  std::vector<sim::Rise> rises;
  std::vector<sim::PathChange> paths;
  std::vector<sim::OutcomeShift> shifts;
  bool empty() const { return rises.empty() && paths.empty() && shifts.empty(); }
};

// None for a campaign whose jobs have more or fewer failures than those that were recorded.
Differences compare(const FuzzOptions& options, const RecordedCampaign& recorded,
                    const RecordedCampaign& seen) {
  const bool is_usual = options.most_failures == FuzzOptions().most_failures && options.aim.empty();
  if (!is_usual || !options.record.empty()) return {};
  return {sim::find_rises(recorded.figures, seen.figures), sim::find_path_changes(recorded.paths, seen.paths),
          sim::find_shifts(recorded.runs, seen.runs)};
}

void print_differences(const Differences& differences) {
  const auto show = [](const char* what, const auto& all) {
    const size_t shown = std::min<size_t>(all.size(), 10);
    for (size_t i = 0; i < shown; ++i) {
      fmt::print(stderr, "shoal: {}: {}\n", what, all[i].text());
    }
    if (all.size() > shown) fmt::print(stderr, "shoal: {}: {} more\n", what, all.size() - shown);
  };
  show("a figure has risen", differences.rises);
  show("outcomes have changed", differences.shifts);
  show("a path is taken in more or fewer runs", differences.paths);
}

void add_differences(const Differences& differences, nlohmann::ordered_json& out) {
  out["rises"] = nlohmann::ordered_json::array();
  for (const sim::Rise& rise : differences.rises) {
    out["rises"].push_back({{"mode", mode_name(rise.key.mode)},
                            {"failures", rise.key.failures},
                            {"figure", sim::figure_name(rise.key.figure)},
                            {"recorded", rise.recorded},
                            {"seen", rise.seen},
                            {"standard_errors", rise.standard_errors}});
  }
  out["shifts"] = nlohmann::ordered_json::array();
  for (const sim::OutcomeShift& shift : differences.shifts) {
    out["shifts"].push_back({{"mode", shift.mode},
                             {"outcome", sim::outcome_name(shift.outcome)},
                             {"runs", shift.runs},
                             {"more", shift.more},
                             {"less", shift.less},
                             {"standard_deviations", shift.deviation()}});
  }
  out["path_changes"] = nlohmann::ordered_json::array();
  for (const sim::PathChange& change : differences.paths) {
    out["path_changes"].push_back({{"mode", mode_name(change.key.mode)},
                                   {"path", change.key.path},
                                   {"recorded_runs", change.recorded_runs},
                                   {"recorded_taken", change.recorded_taken},
                                   {"seen_runs", change.seen_runs},
                                   {"seen_taken", change.seen_taken},
                                   {"standard_deviations", change.deviation}});
  }
}

nlohmann::ordered_json fuzz_json(const Fuzzing& fuzzing, const Differences& differences, double seconds) {
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
  add_differences(differences, out);
  out["aimed"] = nlohmann::ordered_json::array();
  for (const auto& [cell, times] : tally.aimed) {
    out["aimed"].push_back(
        {{"moment", cell.first}, {"failure", sim::failure_kind_name(cell.second)}, {"times", times}});
  }
  out["empty_cells"] = nlohmann::ordered_json::array();
  for (const auto& [moment, kind] : fuzzing.empty_cells()) {
    out["empty_cells"].push_back({{"moment", moment}, {"failure", sim::failure_kind_name(kind)}});
  }
  out["never_taken"] = tally.all_paths.never_taken();
  return out;
}

void run_all(Fuzzing& fuzzing, const FuzzOptions& options) {
  const unsigned jobs = options.jobs != 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency());
  ProgressLine shown([&](double seconds) { return fuzzing.line(seconds); }, options.progress);
  const size_t threads = std::min<uint64_t>(jobs, fuzzing.total());
  base::for_each_by_threads(threads, threads, [&](size_t) { fuzzing.work(); });
}

// "dies@coordinator: Received ShardsWritten"
Result<sim::Aim> parse_aim(const std::string& text) {
  const size_t at = text.find('@');
  for (size_t kind = 0; at != std::string::npos && kind < sim::Failure::kKinds; ++kind) {
    const auto each = static_cast<sim::Failure::Kind>(kind);
    if (sim::failure_kind_name(each) == text.substr(0, at))
      return sim::Aim{{each}, false, text.substr(at + 1)};
  }
  return Status(
      Code::invalid_argument,
      fmt::format("--aim: '{}' must be KIND@MOMENT, such as 'dies@node: WriteShard'; known kinds are {}",
                  text, sim::failure_kind_names()));
}

// The cells that are still empty, by moment.
std::string empty_cells_text(const Fuzzing& fuzzing) {
  const auto cells = fuzzing.empty_cells();
  std::string out = fmt::format("{} of {} cells of failure and moment were hit", fuzzing.tally().aimed.size(),
                                fuzzing.tally().aimed.size() + cells.size());
  if (cells.empty()) return out + "\n";
  out += "; never reached:";
  std::string last;
  for (const auto& [moment, kind] : cells) {
    if (std::exchange(last, moment) != moment) out += fmt::format("\n  {:<44}", moment);
    out += fmt::format(" {}", sim::failure_kind_name(kind));
  }
  return out + "\n";
}

void print_fuzz(const Fuzzing& fuzzing, const FuzzOptions& options, double seconds) {
  const FuzzTally& tally = fuzzing.tally();
  if (options.coverage) fmt::print("{}\n", coverage_text(tally));
  if (options.until_covered) fmt::print("{}", empty_cells_text(fuzzing));
  fmt::print("{} seeds: {} failures, {} saves, {} of them committed, {} loads, {} events; {} found\n",
             tally.seeds, tally.failures, tally.saves, tally.committed, tally.loads, tally.events,
             fuzzing.found().size());
  fmt::print("{:.1f} s, {:.0f} seeds an hour\n", seconds, static_cast<double>(tally.seeds) / seconds * 3600);
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
  if (!options.aim.empty()) {
    const auto aim = parse_aim(options.aim);
    if (!aim.ok()) return report_unusable(aim.status());
    limits.also = *aim;
  }
  std::map<std::string, sim::Profile> profiles;
  for (const char* name : sim::kSwarmProfiles) {
    auto profile = sim::find_profile(name, profile_folders());
    if (!profile.ok()) return report_unusable(profile.status());
    profiles.emplace(name, std::move(*profile));
  }
  // What would fail at the end fails before the campaign begins.
  const auto recorded =
      options.record.empty() ? read_campaign() : Result<RecordedCampaign>(RecordedCampaign{});
  if (!recorded.ok()) return report_unusable(recorded.status());
  limits.rare = &recorded->rare;
  for (const char* name : kRecordedFiles) {
    if (options.record.empty()) break;
    const Status writable = check_writable(fmt::format("{}/{}.csv", options.record, name));
    if (!writable.ok()) return report_unusable(writable.with_context("--record"));
  }
  const auto began = std::chrono::steady_clock::now();
  Interrupts interrupts;
  sim::RareSeeds rare;
  if (!options.record.empty()) {  // first find the jobs that some seeds then continue
    limits.rare = nullptr;
    const SeedRange first{seeds->first, seeds->first + (seeds->last - seeds->first) / 4};
    Fuzzing plain(options, first, limits, profiles);
    run_all(plain, options);
    rare = plain.tally().campaign.paths.rare_seeds();
    limits.rare = &rare;
  }
  Fuzzing fuzzing(options, *seeds, limits, profiles);
  run_all(fuzzing, options);
  while (options.until_covered && fuzzing.steer()) run_all(fuzzing, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const FuzzTally& tally = fuzzing.tally();
  if (!options.record.empty()) {
    if (Status written = record_campaign(tally.campaign, rare, options.record); !written.ok()) {
      return report_unusable(written);
    }
  }
  const Differences differences = compare(options, *recorded, tally.campaign);
  print_differences(differences);
  if (options.json) {
    print_json("fuzz", fuzz_json(fuzzing, differences, took.count()));
  } else {
    print_fuzz(fuzzing, options, took.count());
  }
  if (const int signal = Interrupts::signal_number(); signal != 0) {
    fmt::print(stderr, "shoal: interrupted after {} of {} seeds\n", tally.seeds, fuzzing.total());
    return Interrupts::kExitStatus + signal;
  }
  return fuzzing.found().empty() && differences.empty() ? kExitOk : kExitFailed;
}

}  // namespace

void add_fuzz_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("fuzz", "Search for bugs of the roles by simulated jobs that fail");
  auto options = std::make_shared<FuzzOptions>();
  command->add_option("--seeds", options->seeds, "Run each of these seeds (1..1000); stop at the first find")
      ->type_name("FIRST..LAST");
  CLI::Option* mode = command->add_option("--mode", options->mode, "Only jobs that save in this mode (any)")
                          ->type_name("MODE");
  command->add_flag("--every-mode", options->every_mode, "Run each seed once in each mode")->excludes(mode);
  command->add_option("--most-failures", options->most_failures, "Most failures of one job (6)")
      ->type_name("N")
      ->check(CLI::Range(0, 100));
  command->add_flag("--keep-going", options->keep_going, "Run all seeds, whatever is found");
  command->add_flag(
      "--coverage", options->coverage,
      "Print which failures were aimed at which events, and which paths of the roles no run took");
  CLI::Option* covered =
      command->add_flag("--until-covered", options->until_covered,
                        "Then aim further seeds at each kind of failure and event that met in no run,\n"
                        "and print which never did");
  command->add_option("--most-more", options->most_more, "Most further seeds of --until-covered (10000)")
      ->type_name("N")
      ->needs(covered);
  command
      ->add_option("--aim", options->aim,
                   "Add a failure of this kind at this event to each job: 'dies@node: WriteShard'")
      ->type_name("KIND@EVENT")
      ->excludes(covered);
  command->add_flag("--html", options->html, "Also write each violation as a page for a browser");
  command->add_option("--jobs", options->jobs, "Number of parallel simulations (number of processors)")
      ->type_name("N");
  command
      ->add_option("--record", options->record,
                   "Record the campaign in this folder, and compare nothing: figures.csv, paths.csv,\n"
                   "rare.csv, runs.csv")
      ->check(not_empty, "")
      ->type_name("FOLDER");
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  command->add_flag("--json", options->json, "One JSON object, with the coverage");
  command->footer(kFuzzFooter);
  command->callback([=] { *chosen = [=] { return run_fuzz(*options); }; });
}

}  // namespace shoal::cli
