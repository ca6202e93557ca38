// shoal sim: what saves of a large job would cost, by the production roles on virtual time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>

#include "base/allocator.h"
#include "cli/commands.h"
#include "cli/installed_files.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/sim/chart.h"
#include "cli/sim/report.h"
#include "cli/sim/restarts.h"
#include "cli/sim/run.h"
#include "cli/sim/seeds.h"
#include "cli/sim/sensitivity.h"
#include "cli/text_file.h"
#include "sim/basics/toml_tree.h"

namespace shoal::cli {

namespace {

constexpr size_t kMaxSimulations = 1000;  // of one sweep

struct SimOptions {
  std::map<std::string, std::string> values;  // of the scenario, by key, as given
  std::vector<std::string> sweeps;            // "ranks=512,4096"
  std::string file, plot, timeline, restarts, record, seeds, trace;
  unsigned jobs = 0;             // 0: as many as there are processors
  std::vector<std::string> set;  // "storage.sync_ns=0"
  bool json = false, csv = false, show_profile = false, sensitivity = false, show_failures = false;
  bool progress = false;
};

constexpr const char* kSimFooter =
    "Runs the production roles on virtual time. A profile models network, processors and storage by\n"
    "numbers, each with its source (--show-profile). docs/explanation/simulator.md lists what the model\n"
    "omits. For each save the report has four times over all ranks: until a rank knows what to write,\n"
    "until save returns, until the rank's last byte is durable, and until the rank receives the decision.\n"
    "For each interval between two saves it has the messages and bytes of the coordinator, its longest\n"
    "queue of events and its busy time; the bytes of manifests, rosters and rank manifests; the storage\n"
    "requests that change names and that look names up; and the entries listed.\n"
    "\n"
    "Examples:\n"
    "  shoal sim --ranks 4096 --model llama3-405b --mesh dp=32,tp=8,pp=16\n"
    "  shoal sim --ranks 4096 --sweep mode=all\n"
    "  shoal sim --sweep ranks=512,4096,16384 --sweep mode=all --csv\n"
    "  shoal sim --sweep ranks=512,2048,8192 --sweep mode=all --plot costs.html\n"
    "  shoal sim --ranks 512 --sweep 'mesh=tp=8,pp=16;tp=8,pp=8;tp=4,pp=8'\n"
    "  shoal sim --ranks 512 --load --load-ranks 256\n"
    "  shoal sim --ranks 512 --max-restarts 3 --failures poisson:mtbf_node_hours=1\n"
    "  shoal sim --scenario llama3-405b-512 --seed 7 --json\n"
    "  shoal sim --ranks 64 --model llama3-8b --load --trace save.json\n"
    "  shoal sim --ranks 32 --model gpt2 --profile nvme --failures mixed:count=6 --seeds 1..1000\n"
    "\n"
    "On SIGINT (Ctrl-C) or SIGTERM the command prints the results so far: the simulations that have ended,\n"
    "and of the others the saves that all ranks know to be decided. A second signal ends it at once. Exit\n"
    "status: 0 success; 1 a save was aborted, an oracle was violated, or the simulation could not\n"
    "continue; 2 an argument is invalid; 130 or 143 after SIGINT or SIGTERM.";

// The path of a scenario that is given by path, or by the name of one that is installed.
Result<std::string> scenario_path(const std::string& name_or_path) {
  namespace fs = std::filesystem;
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml")) return name_or_path;
  const std::string folder = shared_folder() + "/scenarios";
  std::error_code error;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.insert(entry.path().stem());
  if (names.contains(name_or_path)) return folder + "/" + name_or_path + ".toml";
  return Status(
      Code::not_found,
      fmt::format("no scenario '{}'; {}", name_or_path,
                  names.empty() ? "none are in " + folder + ", so give the path of a .toml file"
                                : fmt::format("built-in scenarios are {}", fmt::join(names, ", "))));
}

Result<sim::Scenario> base_scenario(const SimOptions& options) {
  sim::Scenario scenario;
  if (!options.file.empty()) {
    SHOAL_ASSIGN_OR_RETURN(const std::string path, scenario_path(options.file));
    SHOAL_ASSIGN_OR_RETURN(std::string text, sim::read_text(path));
    SHOAL_ASSIGN_OR_RETURN(scenario, sim::parse_scenario(text, path));
  }
  for (const auto& [key, value] : options.values) SHOAL_RETURN_IF_ERROR(sim::set_value(scenario, key, value));
  for (const std::string& text : options.set) SHOAL_RETURN_IF_ERROR(sim::set_value(scenario, "set", text));
  return scenario;
}

// Every combination of the values of the sweeps, the last one fastest.
Result<std::vector<SweepPoint>> all_points(const SimOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(sim::Scenario base, base_scenario(options));
  std::vector<SweepPoint> points{{base, ""}};
  for (const std::string& sweep : options.sweeps) {
    const size_t equals = sweep.find('=');
    const std::string key = sweep.substr(0, equals);
    std::string values = equals == std::string::npos ? "" : sweep.substr(equals + 1);
    if (key == "mode" && values == "all") values = "collective,rank-local,collective-free";
    if (values.empty()) {
      return Status(Code::invalid_argument, fmt::format("--sweep {}: write KEY=VALUE,VALUE...", sweep));
    }
    // A mesh also has commas.
    const bool is_mesh = key == "mesh" || key == "load_mesh" || key == "later_mesh" || key == "restart_mesh";
    const char between = is_mesh || values.find(';') != std::string::npos ? ';' : ',';
    std::vector<SweepPoint> further;
    for (const SweepPoint& point : points) {
      for (size_t begin = 0; begin <= values.size();) {
        const size_t end = std::min(values.find(between, begin), values.size());
        const std::string value = values.substr(begin, end - begin);
        const std::string between_names = point.name.empty() ? "" : " ";
        further.push_back({point.scenario, point.name + between_names + key + "=" + value});
        SHOAL_RETURN_IF_ERROR(sim::set_value(further.back().scenario, key, value));
        begin = end + 1;
      }
    }
    points = std::move(further);
    if (points.size() > kMaxSimulations) {
      return Status(Code::too_large, fmt::format("{} simulations: at most {} are allowed in one command",
                                                 points.size(), kMaxSimulations));
    }
  }
  for (const SweepPoint& point : points) SHOAL_RETURN_IF_ERROR(sim::validate_scenario(point.scenario));
  return points;
}

void print_reports(const SimOptions& options, const std::vector<sim::SimulationReport>& reports) {
  if (options.csv) {
    fmt::print("{}", report_csv(reports));
  } else if (options.json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const sim::SimulationReport& report : reports) all.push_back(report_json(report));
    print_json("sim", {{"simulations", all}});
  } else if (options.sweeps.empty()) {
    for (const sim::SimulationReport& report : reports) fmt::print("{}", report_text(report));
  } else {
    fmt::print("{}", comparison_text(reports));
  }
}

int run_sensitivity(const SimOptions& options, const sim::Scenario& scenario, const sim::Profile& profile) {
  if (scenario.max_restarts != 0) {
    return report_unusable(
        Status(Code::invalid_argument,
               "--sensitivity compares the last saves of jobs: it cannot be combined with --max-restarts"));
  }
  Interrupts interrupts;
  sim::SensitivityWatch watch;
  watch.stop = [] { return Interrupts::signal_number() != 0; };
  ProgressLine shown([&watch](double seconds) { return sensitivity_progress(watch, seconds); },
                     options.progress);
  auto report = sim::find_sensitivity(scenario, profile, options.jobs, &watch);
  shown.finish();
  if (!report.ok()) return report_unusable(report.status()), kExitFailed;
  const sim::SimulationReport& job = report->job;
  if (job.violation || !job.saves.back().is_committed()) {
    const std::string why = job.violation ? job.violation->what : job.saves.back().cause;
    return report_unusable(
               Status(Code::aborted,
                      fmt::format("the last save of the job is {}{}, so there is nothing to compare with",
                                  job.saves.back().outcome(), why.empty() ? "" : " (" + why + ")"))),
           kExitFailed;
  }
  if (options.json) {
    print_json("sim", sensitivity_json(*report));
  } else {
    fmt::print("{}", sensitivity_text(*report));
  }
  if (const int signal = Interrupts::signal_number(); signal != 0) {
    fmt::print(stderr, "shoal: interrupted: {} assumed numbers were not varied\n", report->missing);
    return Interrupts::kExitStatus + signal;
  }
  return kExitOk;
}

// Reports which of the requested results are missing.
int interrupted(const SimulationRuns& runs, const std::vector<sim::SimulationReport>& reports,
                const std::string& record) {
  const auto whole = static_cast<size_t>(std::count_if(
      reports.begin(), reports.end(), [](const auto& report) { return !report.stopped_early; }));
  fmt::print(
      stderr,
      "shoal: interrupted: {} of {} simulations ended; for {} others the report has the saves so far\n",
      whole, runs.reports.size(), reports.size() - whole);
  if (!record.empty() && whole == 0) {
    fmt::print(stderr, "shoal: did not write {}: the simulation has not ended\n", record);
  }
  return Interrupts::kExitStatus + runs.interrupted_by;
}

Status write_trace(const std::string& file, const sim::Trace& trace) {
  SHOAL_RETURN_IF_ERROR(write_text(file, trace.json()));
  if (trace.nodes() > sim::kMostTracedNodes) {
    fmt::print(stderr, "shoal: {} has the first {} of {} hosts\n", file, sim::kMostTracedNodes,
               trace.nodes());
  }
  if (trace.dropped() != 0) {
    fmt::print(stderr, "shoal: {} is full: {} later events are not in it\n", file, trace.dropped());
  }
  return ok_status();
}

// Of a job that starts again after failures only the last run counts: it must have loaded and saved.
bool has_saved(const sim::SimulationReport& report) {
  const bool starts_again = report.scenario.max_restarts != 0;
  const uint32_t last = report.restarts.empty() ? 0 : report.restarts.back().generation;
  return !report.has_given_up && std::ranges::all_of(report.saves, [&](const sim::SaveReport& save) {
    return save.is_committed() || (starts_again && save.generation < last);
  });
}

int run_points(const SimOptions& options, const std::vector<sim::Scenario>& scenarios,
               const std::map<std::string, sim::Profile>& profiles) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<sim::SimulationReport> reports;
  int status = kExitOk;  // the worst
  uint64_t steps = 0;
  sim::Trace trace;
  sim::SimulationListeners listeners;
  if (!options.trace.empty()) listeners.trace = &trace;
  SimulationRuns runs = run_simulations(scenarios, profiles, options.jobs, options.progress, listeners);
  for (auto& each : runs.reports) {
    if (!each) continue;  // not begun before the user asked to end
    if (!each->ok()) {
      report_unusable(each->status());
      status = std::max(status, kExitFailed);
      continue;
    }
    reports.push_back(std::move(*each).value());
    steps += reports.back().steps;
    const sim::Profile& profile = profiles.at(reports.back().scenario.profile);
    if (!options.record.empty() && !reports.back().stopped_early) {
      status = std::max(status, record_run(reports.back(), profile, options.record));
    } else if (reports.back().violation) {
      status = std::max(status, report_violation(reports.back(), profile));
    }
    if (!has_saved(reports.back())) status = std::max(status, kExitFailed);
  }
  const bool is_error_alone = options.json && reports.empty() && status != kExitOk;
  if (!is_error_alone) print_reports(options, reports);
  if (!options.plot.empty()) {
    if (Status written = write_plot(options.plot, reports); !written.ok()) return report_unusable(written);
  }
  if (!options.trace.empty()) {
    if (Status written = write_trace(options.trace, trace); !written.ok()) return report_unusable(written);
  }
  if (!options.timeline.empty()) {
    if (Status written = write_text(options.timeline, timeline_csv(reports)); !written.ok()) {
      return report_unusable(written);
    }
  }
  if (!options.restarts.empty()) {
    if (Status written = write_text(options.restarts, restarts_csv(reports)); !written.ok()) {
      return report_unusable(written);
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print(stderr, "{} simulated in {}, {} steps\n",
             reports.size() == 1 ? "one job" : fmt::format("{} jobs", reports.size()),
             human_seconds(took.count()), steps);
  if (runs.interrupted_by != 0) return interrupted(runs, reports, options.record);
  return status;
}

// As files: each can be edited and loaded.
int show_profiles(const std::vector<sim::Scenario>& scenarios,
                  const std::map<std::string, sim::Profile>& profiles) {
  std::set<std::string> shown;
  for (const sim::Scenario& scenario : scenarios) {
    auto profile = sim::with_numbers(profiles.at(scenario.profile), scenario.profile_numbers);
    if (!profile.ok()) return report_unusable(profile.status());
    if (shown.insert(sim::profile_label(scenario)).second) fmt::print("{}", sim::profile_text(*profile));
  }
  return kExitOk;
}

int run_sim(const SimOptions& options) {
  base::prefer_large_pages();
  auto points = all_points(options);
  if (!points.ok()) return report_unusable(points.status());
  std::vector<sim::Scenario> scenarios;
  for (const SweepPoint& point : *points) scenarios.push_back(point.scenario);
  std::map<std::string, sim::Profile> profiles;
  for (const sim::Scenario& scenario : scenarios) {
    if (profiles.contains(scenario.profile)) continue;
    auto profile = sim::find_profile(scenario.profile, profile_folders());
    if (!profile.ok()) return report_unusable(profile.status());
    profiles.emplace(scenario.profile, std::move(*profile));
  }
  if (options.show_profile) return show_profiles(scenarios, profiles);
  if (options.sensitivity) {
    if (!options.seeds.empty() || scenarios.size() != 1) {
      return report_unusable(
          Status(Code::invalid_argument,
                 "--sensitivity examines one job: it cannot be combined with --sweep or --seeds"));
    }
    return run_sensitivity(options, scenarios.front(), profiles.begin()->second);
  }
  if (options.show_failures) {
    for (const sim::Scenario& scenario : scenarios) {
      auto whole = sim::with_all_failures(scenario);
      if (!whole.ok()) return report_unusable(whole.status());
      fmt::print("{}", sim::scenario_text(*whole));
    }
    return kExitOk;
  }
  if (!options.record.empty() && scenarios.size() != 1) {
    return report_unusable(Status(Code::invalid_argument,
                                  "--record records one simulation: it cannot be combined with --sweep"));
  }
  if (!options.trace.empty() && (scenarios.size() != 1 || !options.seeds.empty())) {
    return report_unusable(
        Status(Code::invalid_argument,
               "--trace records one simulation: it cannot be combined with --sweep or --seeds"));
  }
  for (const std::string& file : {options.record, options.timeline, options.restarts, options.trace}) {
    if (file.empty()) continue;
    if (Status fits = check_writable(file); !fits.ok()) return report_unusable(fits);
  }
  if (!options.seeds.empty()) {
    const bool writes = options.json || options.csv || !options.plot.empty() || !options.timeline.empty() ||
                        !options.restarts.empty();
    if (writes) {
      return report_unusable(Status(Code::invalid_argument,
                                    "--seeds prints one line for each point: it cannot be combined with "
                                    "--json, --csv, --plot, --timeline or --restarts-csv"));
    }
    auto seeds = parse_seeds(options.seeds);
    if (!seeds.ok()) return report_unusable(seeds.status());
    return run_seeds(*points, profiles, *seeds, options.jobs, options.progress);
  }
  if (!options.plot.empty()) {
    if (Status fits = check_plot(options.plot, scenarios); !fits.ok()) return report_unusable(fits);
  }
  return run_points(options, scenarios, profiles);
}

void add_set_option(CLI::App* command, const std::shared_ptr<SimOptions>& options) {
  command
      ->add_option(
          "--set", options->set,
          "Use another value for a number of the profile, storage.total_bytes_per_s=500_000_000_000, or "
          "for a timeout of the roles, timeouts.host_lost_ms=5_000; may be repeated")
      ->type_name("NUMBER=VALUE")
      ->allow_extra_args(false);
}

// Adds an option for a key of a scenario file.
auto value_options(CLI::App* command, const std::shared_ptr<SimOptions>& options) {
  return [command, options](const char* flag, const char* key, const char* type, const char* what) {
    command
        ->add_option_function<std::string>(
            flag, [options, key](const std::string& message) { options->values[key] = message; }, what)
        ->type_name(type);
  };
}

// How the job starts again after a failure.
void add_restart_options(CLI::App* command, const std::shared_ptr<SimOptions>& options) {
  const auto value = value_options(command, options);
  value("--max-restarts", "max_restarts", "N",
        "A failure that ends a trainer ends the job, which starts again and loads, at most so often; 0: the "
        "other trainers go on without it (0)");
  value("--detect-ms", "detect_ms", "MS",
        "From a failure until the launcher has killed the job, in milliseconds (60000)");
  value("--restart-after-ms", "restart_after_ms", "MS",
        "From then until the processes of the next run start, in milliseconds (300000)");
  value("--restart-ranks", "restart_ranks", "N", "Number of ranks of each later run (as many as before)");
  value("--restart-mesh", "restart_mesh", "SIZES", "Mesh of each later run (the same)");
}

void add_load_options(CLI::App* command, const std::shared_ptr<SimOptions>& options) {
  const auto value = value_options(command, options);
  value("--loads", "loads", "N",
        "Number of loads after the last save, each by a job that starts again (0); --load: one");
  command->add_flag_callback("--load", [options] { options->values["loads"] = "1"; })->group("");
  value("--load-ranks", "load_ranks", "N", "Number of ranks of the job that loads (as many as saved)");
  value("--load-mesh", "load_mesh", "SIZES", "Mesh of the job that loads (the same)");
  value("--load-method", "load_method", "WAY",
        "direct: each host reads everything that it needs; two-stage: hosts that need the same bytes share "
        "the load (automatic)");
  value("--load-fallback", "load_fallback", "WAY",
        "previous: loads pass over a damaged checkpoint; none: they fail and name the damage (none)");
  value("--readers", "readers", "N", "Jobs that only read the root while the job saves (0)");
}

// The slabs of ranks.
void add_slab_options(CLI::App* command, const std::shared_ptr<SimOptions>& options) {
  const auto value = value_options(command, options);
  value("--max-in-flight", "max_in_flight", "N",
        fmt::format("Saves of a rank that may be in flight; one more waits ({})", sim::kDefaultSavesInFlight)
            .c_str());
  value("--slab-bytes", "slab_bytes", "BYTES",
        "Memory that a rank has for a save: it stages one with more bytes in parts; 0: enough for all (0)");
  value("--parts-permille", "parts_permille", "N",
        "Of such saves, thousandths that are staged in parts, drawn for each rank and save (1000)");
}

// What is simulated: the keys of a scenario file.
void add_scenario_options(CLI::App* command, const std::shared_ptr<SimOptions>& options) {
  const auto value = value_options(command, options);
  command
      ->add_option("--scenario", options->file,
                   "Name of a built-in scenario, or TOML file with one; flags take precedence")
      ->type_name("NAME|FILE");
  value("--ranks", "ranks", "N", "Number of ranks of the job (512)");
  value("--ranks-per-host", "ranks_per_host", "N", "Number of ranks on each host (8)");
  value("--mesh", "mesh", "SIZES",
        "Sizes dp=,tp=,pp=,cp=,ep=,dp_replicate=, whose product without ep is the number of ranks");
  value("--model", "model", "NAME|PATH",
        "gpt2, llama3-8b, llama3-70b, llama3-405b (default), mixtral-8x22b, deepseek-v3, or tiny (a few "
        "kilobytes); a folder of "
        "safetensors files; or the folder of a Shoal checkpoint with the same number of ranks");
  value("--optimizer", "optimizer", "NAME",
        "Optimizer whose state is saved with each parameter: adam (default), none");
  value("--payload", "payload", "KIND",
        "counted (default), or full: real bytes in memory, for up to 4096 ranks, compared with the counted "
        "ones");
  value("--mode", "mode", "MODE", "collective-free (default), rank-local or collective");
  value("--node-start", "node_start", "WHO",
        "Who starts the nodes: launcher (default), which tells them their ranks and how trainers end; or "
        "trainers, as under torchrun");
  value("--close-when", "close_when", "WHEN",
        "When trainers close their Checkpointers, so that the nodes end: never (default), decided (every "
        "save), or written (all that the trainer has staged; it hears no outcome)");
  value("--saves", "saves", "N", "Number of saves, one after the other (2)");
  value("--later-mesh", "later_mesh", "SIZES", "Mesh from a later save on (the model's usual one)");
  value("--later-mesh-from", "later_mesh_from", "N",
        "The save from which on --later-mesh counts; 0: none (0)");
  value("--later-mesh-stages", "later_mesh_stages", "N",
        "Only the ranks of the first N pipeline stages change to --later-mesh; 0: all (0)");
  value("--planners", "planners", "KIND",
        "none (default), or global: one rank's planner makes a global plan of each save; needs --mode "
        "collective");
  value("--replica-check", "replica_check", "POLICY",
        "Compare what ranks hold in common by digests: off (default), warn or abort");
  value("--objects", "objects", "N", "Objects that the first pipeline stage saves besides its tensors (0)");
  value("--reads", "reads", "N",
        "Trainers that read checkpoints after the begin of each save, each for itself; needs --payload full "
        "(0)");
  value("--keep-last", "keep_last", "N",
        "Newest checkpoints that retention keeps; without --keep-every, 0 keeps all (0)");
  value("--keep-every", "keep_every", "N",
        "Retention also keeps checkpoints whose step is a multiple of N; 0: no such rule (0)");
  value(
      "--dedupe", "dedupe", "HOW",
      "Which ranks write what several hold: balanced (default), lowest-rank, or none, where each does; mode "
      "rank-local has none");
  value("--interval-ms", "interval_ms", "MS", "Time of training between two saves, in milliseconds (60000)");
  value("--arrival-skew-ms", "arrival_skew_ms", "MS",
        "Largest random delay with which a rank calls save, in milliseconds (0)");
  value("--arrival-skew-us", "arrival_skew_us", "US", "Added to --arrival-skew-ms, in microseconds (0)");
  add_slab_options(command, options);
  value("--stragglers", "stragglers", "FRACTION:FACTOR",
        "Slow hosts: 0.01:3 makes one host in a hundred, drawn from the seed, three times as slow (none)");
  value(
      "--max-direct-nodes", "max_direct_nodes", "N",
      fmt::format("Most nodes that connect to the coordinator directly; further nodes connect to relays ({})",
                  actors::kDefaultDirectNodes)
          .c_str());
  value("--profile", "profile", "NAME|FILE",
        "Costs of the cluster: lustre (default), object-store, nvme, pytorch-dcp, or a file");
  add_load_options(command, options);
  value("--seed", "seed", "N", "Seed of everything random (1)");
  value("--failures", "failures", "RULE",
        "Draw failures from the seed: poisson:mtbf_node_hours=1000, weibull:k=0.78,scale_node_hours=1000, "
        "mixed:count=8; docs/how-to/simulate.md has all keys");
}

}  // namespace

void add_sim_command(CLI::App& app, Command* chosen) {
  CLI::App* command =
      app.add_subcommand("sim", "Compute what the saves of a large job would cost, by simulation");
  auto options = std::make_shared<SimOptions>();
  add_scenario_options(command, options);
  add_restart_options(command, options);
  add_set_option(command, options);
  CLI::Option* show_failures =
      command->add_flag("--show-failures", options->show_failures,
                        "Only print the scenario with all its failures, as a scenario file");
  CLI::Option* record =
      command->add_option("--record", options->record, "Also write a file that 'shoal replay' runs again")
          ->type_name("FILE");
  command
      ->add_option("--seeds", options->seeds,
                   "Run each of these seeds, at each point of a sweep; stop if an oracle is violated; print "
                   "one line for each point")
      ->type_name("FIRST..LAST")
      ->excludes(record);
  command
      ->add_option(
          "--sweep", options->sweeps,
          "KEY=VALUE,VALUE... runs one simulation for each value; may be repeated, and then runs "
          "all combinations. mode=all means all three modes; separate meshes by ';'. A number of the "
          "profile is a key too: storage.sync_ns=0,5_000_000")
      ->type_name("KEY=VALUES")
      ->allow_extra_args(false);
  command->add_flag("--sensitivity", options->sensitivity,
                    "Halve and double each assumed number of the profile, and sort them by their effect");
  command->add_option("--jobs", options->jobs, "Number of parallel simulations (number of processors)")
      ->type_name("N");
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  CLI::Option* json =
      command->add_flag("--json", options->json, "One JSON object with all results")->excludes(show_failures);
  command->add_flag("--csv", options->csv, "One line for each save")->excludes(json);
  command
      ->add_option("--plot", options->plot,
                   "Also draw cost against ranks, for a sweep over ranks; marks where two lines cross")
      ->type_name("FILE.svg|.html");
  command
      ->add_option("--timeline", options->timeline,
                   "Also write the coordinator's queue, memory and descriptors over time")
      ->type_name("FILE.csv");
  command
      ->add_option("--restarts-csv", options->restarts, "Also write a table with one line for each restart")
      ->type_name("FILE.csv");
  command
      ->add_option("--trace", options->trace,
                   "Also write what the nodes do as trace events, for https://ui.perfetto.dev")
      ->type_name("FILE.json");
  command
      ->add_flag("--show-profile", options->show_profile,
                 "Only print the profile, with all numbers and sources, as a file that --profile takes")
      ->excludes(json);
  command->footer(kSimFooter);
  command->callback([=] { *chosen = [=] { return run_sim(*options); }; });
}

}  // namespace shoal::cli
