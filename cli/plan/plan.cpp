// shoal plan: how often a job of months should save, and what it will get done.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>
#include <set>
#include <string>

#include "base/allocator.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/plan/page.h"
#include "cli/plan/plan_case.h"
#include "cli/plan/report.h"
#include "cli/sim/run.h"
#include "cli/text_file.h"
#include "shoal/bytes.h"
#include "sim/basics/toml_tree.h"
#include "sim/campaign/csv.h"

namespace shoal::cli {

namespace {

constexpr uint32_t kHostsOfASpare = 32, kLeastSpares = 2;

struct PlanOptions {
  std::map<std::string, std::string> values;  // of the scenario, by key, as given
  std::vector<std::string> set;               // "storage.sync_ns=0"
  std::set<std::string> given;                // options of the plan
  double mtbf_host_hours = 6333, mtbf_rack_hours = 0, mtbf_job_hours = 0;
  uint32_t rack_hosts = 16;
  double outage_every_hours = 0, outage_minutes = 30;
  std::string failures = "poisson", interval, compare, html;
  double step_s = 5, detect_s = 60, restart_s = 300, repair_hours = 24, load_s = 0, days = 30;
  uint32_t spares = 0, hosts_min = 0, seeds = 32;
  uint64_t seed = 1;
  unsigned jobs = 0;
  bool json = false, csv = false, progress = false, no_sensitivity = false, no_baselines = false;
};

constexpr const char* kPlanFooter =
    "Short runs of the production roles measure what a save, a load and a restart of all ranks cost, as\n"
    "'shoal sim' does. A renewal simulation draws from them and lives the job's months, once for each\n"
    "interval and seed. The first line of the output says what to do. ETTR, the effective training time\n"
    "ratio, is the part of the time in which the job trains and that counts. The chosen interval is the\n"
    "longest up to which goodput stays within 0.1 percentage points of the best.\n"
    "docs/how-to/plan-a-run.md explains the output, docs/explanation/plan-accuracy.md compares it with\n"
    "published runs.\n"
    "\n"
    "Examples:\n"
    "  shoal plan --model llama3-70b --ranks 2048\n"
    "  shoal plan --model llama3-70b --ranks 2048 --mtbf-host-hours 3700 --detect-s 600 --spares 4\n"
    "  shoal plan --model llama3-8b --ranks 256 --failures weibull:shape=0.78 --days 90 --seeds 100\n"
    "  shoal plan --model llama3-8b --ranks 256 --failures past.csv --interval 5min,10min,1h\n"
    "  shoal plan --model llama3-70b --ranks 1024 --compare all --html plan.html\n"
    "\n"
    "Exit status: 0 success; 1 a save of the job is not committed although nothing fails; 2 an argument is\n"
    "invalid; 130 or 143 after SIGINT or SIGTERM.";

// --- numbers ---

actors::TimeNs seconds_ns(double seconds) {
  return std::llround(seconds * 1e9);
}

// A mean time between failures. Only 0 means that there are none, and no time above it is rounded to 0.
actors::TimeNs mean_ns(double hours) {
  return hours == 0 ? 0 : std::max<actors::TimeNs>(1, seconds_ns(hours * 3600));
}

Status check_range(const char* option, double value, double least, double most) {
  if (value >= least && value <= most) return ok_status();
  return Status(Code::invalid_argument,
                fmt::format("{} {}: must be from {} to {}", option, value, least, most));
}

Status check_numbers(const PlanOptions& options) {
  constexpr double kMostHours = sim::kMaxMtbfHours, kMostSeconds = 1e6;
  constexpr auto kMostRepairHours = static_cast<double>(sim::kMaxLife / sim::kHour);  // as sim::check_job
  SHOAL_RETURN_IF_ERROR(check_range("--mtbf-host-hours", options.mtbf_host_hours, 0, kMostHours));
  SHOAL_RETURN_IF_ERROR(check_range("--mtbf-rack-hours", options.mtbf_rack_hours, 0, kMostHours));
  SHOAL_RETURN_IF_ERROR(check_range("--mtbf-job-hours", options.mtbf_job_hours, 0, kMostHours));
  SHOAL_RETURN_IF_ERROR(check_range("--rack-hosts", options.rack_hosts, 1, 100'000));
  SHOAL_RETURN_IF_ERROR(
      check_range("--storage-outage-every-hours", options.outage_every_hours, 0, kMostHours));
  SHOAL_RETURN_IF_ERROR(check_range("--storage-outage-minutes", options.outage_minutes, 0, 100'000));
  SHOAL_RETURN_IF_ERROR(check_range("--step-s", options.step_s, 0.001, kMostSeconds));
  SHOAL_RETURN_IF_ERROR(check_range("--detect-s", options.detect_s, 0, kMostSeconds));
  SHOAL_RETURN_IF_ERROR(check_range("--restart-s", options.restart_s, 0, kMostSeconds));
  SHOAL_RETURN_IF_ERROR(check_range("--load-s", options.load_s, 0, kMostSeconds));
  SHOAL_RETURN_IF_ERROR(check_range("--repair-hours", options.repair_hours, 0, kMostRepairHours));
  SHOAL_RETURN_IF_ERROR(check_range("--days", options.days, 0.01, 3660));
  SHOAL_RETURN_IF_ERROR(check_range("--seeds", options.seeds, 1, sim::kMaxLifeSeeds));
  return check_range("--spares", options.spares, 0, sim::kMaxSpares);
}

// "90s", "5min", "2h", "1d", or seconds.
Result<actors::TimeNs> parse_duration(std::string_view text) {
  double value = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(stopped, static_cast<size_t>(text.data() + text.size() - stopped));
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1}, {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86'400}};
  for (const auto& [name, seconds] : kUnits) {
    if (unit != name || error != std::errc() || !(value > 0) || value * seconds > 1e8) continue;
    return seconds_ns(value * seconds);
  }
  return Status(
      Code::invalid_argument,
      fmt::format("--interval {}: write times such as 90s, 5min, 2h or 1d, separated by commas", text));
}

Result<sim::GapShape> failure_shape(const std::string& text) {
  if (!text.ends_with(".csv")) return sim::parse_gap_shape(text);
  SHOAL_ASSIGN_OR_RETURN(const std::string csv, sim::read_text(text));
  return sim::parse_recorded_failures(csv, text);
}

Result<sim::JobPlan> job_plan_of(const PlanOptions& options, uint32_t hosts) {
  sim::JobPlan plan;
  plan.hosts = hosts;
  plan.hosts_min = options.hosts_min;
  plan.spares = options.given.contains("--spares")
                    ? options.spares
                    : std::max(kLeastSpares, (hosts + kHostsOfASpare - 1) / kHostsOfASpare);
  plan.repair = seconds_ns(options.repair_hours * 3600);
  plan.step = seconds_ns(options.step_s);
  plan.detection = seconds_ns(options.detect_s);
  plan.restart = seconds_ns(options.restart_s);
  plan.lasts = seconds_ns(options.days * 86'400);
  sim::FailureModel& failures = plan.failures;
  SHOAL_ASSIGN_OR_RETURN(failures.shape, failure_shape(options.failures));
  const bool is_recorded = failures.shape.kind == sim::GapShape::Kind::recorded;
  if (is_recorded && options.given.contains("--mtbf-host-hours")) {
    return Status(
        Code::invalid_argument,
        fmt::format("--mtbf-host-hours: --failures {} already states when hosts fail; leave out one "
                    "of the two",
                    options.failures));
  }
  failures.host_mtbf = mean_ns(options.mtbf_host_hours);
  failures.rack_mtbf = mean_ns(options.mtbf_rack_hours);
  failures.rack_hosts = options.rack_hosts;
  failures.process_mtbf = mean_ns(options.mtbf_job_hours);
  failures.outage_every = mean_ns(options.outage_every_hours);
  failures.outage_lasts = failures.outage_every == 0 ? 0 : seconds_ns(options.outage_minutes * 60);
  return plan;
}

// The numbers of the plan with their sources. `given`: the user has stated it.
std::vector<PlanNumber> plan_numbers(const PlanOptions& options, const sim::JobPlan& plan) {
  std::vector<PlanNumber> numbers;
  auto add = [&](const char* key, std::string value, const char* kind, const char* source) {
    const bool is_given = options.given.contains(std::string("--") + key);
    numbers.push_back({key, std::move(value), is_given ? "given" : kind, is_given ? "" : source});
  };
  auto number = [](double value) { return fmt::format("{:g}", value); };
  if (plan.failures.shape.kind == sim::GapShape::Kind::recorded) {
    add("failures", options.failures, "", "");
  } else {
    add("failures", options.failures, "assumed",
        "independent failures; weibull:shape=0.78 has groups of them");
    add("mtbf-host-hours", number(options.mtbf_host_hours), "published",
        "The Llama 3 Herd of Models, section 3.3.4: 419 unexpected interruptions in 54 days on 2,048 hosts");
  }
  const char* none = "none; state what you know of your cluster";
  add("mtbf-rack-hours", number(options.mtbf_rack_hours), "assumed", none);
  if (options.mtbf_rack_hours != 0) {
    add("rack-hosts", fmt::to_string(options.rack_hosts), "assumed",
        "two racks of eight hosts on one power feed");
  }
  add("mtbf-job-hours", number(options.mtbf_job_hours), "assumed", none);
  add("storage-outage-every-hours", number(options.outage_every_hours), "assumed", none);
  if (options.outage_every_hours != 0) {
    add("storage-outage-minutes", number(options.outage_minutes), "assumed", "a failover of the file system");
  }
  add("step-s", number(options.step_s), "assumed", "a step of a large model takes seconds");
  add("detect-s", number(options.detect_s), "assumed",
      "the launcher sees a process end at once; a hang shows after a watchdog's timeout (NCCL: 600 s)");
  add("restart-s", number(options.restart_s), "assumed",
      "scheduler, containers, imports, process groups; 96,000 ranks of TCPStore alone take 100 s");
  add("spares", fmt::to_string(plan.spares), "assumed", "one for 32 hosts, at least two");
  if (plan.hosts_min != 0) add("hosts-min", fmt::to_string(plan.hosts_min), "", "");
  add("repair-hours", number(options.repair_hours), "assumed", "a day until a host is back");
  if (options.given.contains("--load-s")) add("load-s", number(options.load_s), "", "");
  add("days", number(options.days), "assumed", "a month");
  return numbers;
}

// --- cases ---

Result<sim::Scenario> planned_scenario(const PlanOptions& options) {
  sim::Scenario scenario;
  for (const auto& [key, value] : options.values) SHOAL_RETURN_IF_ERROR(sim::set_value(scenario, key, value));
  for (const std::string& text : options.set) SHOAL_RETURN_IF_ERROR(sim::set_value(scenario, "set", text));
  scenario.seed = options.seed;
  SHOAL_RETURN_IF_ERROR(sim::validate_scenario(scenario));
  return scenario;
}

void drop_numbers(std::string_view prefix, sim::Scenario* scenario) {
  std::erase_if(scenario->profile_numbers,
                [&](const auto& number) { return number.first.starts_with(prefix); });
}

Result<CaseRequest> case_of(sim::Scenario scenario, const std::string& profile, SaveMode mode) {
  CaseRequest request;
  scenario.mode = mode;
  scenario.profile = profile;
  request.name = mode_name(mode);
  request.profile_name = profile;
  SHOAL_ASSIGN_OR_RETURN(request.profile, sim::find_profile(profile, profile_folders()));
  // Lists of items cost only DCP anything.
  if (!request.profile.items.is_modelled()) drop_numbers("items.", &scenario);
  request.scenario = std::move(scenario);
  request.savers = {{request.name, sim::Saver::shoal}};
  return request;
}

constexpr const char* kDcpProfile = "pytorch-dcp";
constexpr int64_t kPlansAreKept = 2;  // ItemCosts::kept: PyTorch 2.8 and later, if it is asked to

// A synchronous saver stores the bytes of the same ranks on the same storage; DCP also has its own planner,
// whose processors the numbers of Shoal's nodes do not describe.
Status add_baselines(const sim::Profile& base, const std::string& profile, const sim::Scenario& scenario,
                     std::vector<CaseRequest>* requests) {
  for (CaseRequest& request : *requests) {
    if (request.profile_name != profile || request.scenario.mode == SaveMode::collective) continue;
    request.savers.emplace_back("a synchronous saver", sim::Saver::synchronous);
    break;
  }
  if (profile == kDcpProfile) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(CaseRequest dcp, case_of(scenario, kDcpProfile, SaveMode::collective));
  drop_numbers("cpu.", &dcp.scenario);
  dcp.profile = sim::with_dcp(base, dcp.profile);
  dcp.profile_name = profile;
  dcp.savers = {{"DCP save", sim::Saver::synchronous}, {"DCP async_save", sim::Saver::background}};
  CaseRequest cached = dcp;
  cached.scenario.profile_numbers.erase("items.kept");
  SHOAL_ASSIGN_OR_RETURN(cached.profile,
                         sim::with_number(std::move(cached.profile), "items.kept", kPlansAreKept));
  cached.savers = {{"DCP async_save, cached plans", sim::Saver::background}};
  requests->push_back(std::move(dcp));
  requests->push_back(std::move(cached));
  return ok_status();
}

Result<std::vector<CaseRequest>> cases_of(const PlanOptions& options, const sim::Scenario& scenario) {
  std::vector<std::string> profiles = {scenario.profile};
  std::vector<SaveMode> modes = {scenario.mode};
  const bool is_all = options.compare == "all";
  if (is_all || options.compare == "profiles") {
    for (const std::string& name : sim::list_profiles(profile_folders())) {
      if (name != scenario.profile && name != kDcpProfile) profiles.push_back(name);
    }
  }
  if (is_all || options.compare == "modes") {
    for (SaveMode mode : {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective}) {
      if (mode != scenario.mode) modes.push_back(mode);
    }
  }
  std::vector<CaseRequest> requests;
  for (const std::string& profile : profiles) {
    for (SaveMode mode : modes) {
      SHOAL_ASSIGN_OR_RETURN(CaseRequest request, case_of(scenario, profile, mode));
      requests.push_back(std::move(request));
    }
    if (options.no_baselines) continue;
    SHOAL_ASSIGN_OR_RETURN(const sim::Profile base, sim::find_profile(profile, profile_folders()));
    SHOAL_RETURN_IF_ERROR(add_baselines(base, profile, scenario, &requests));
  }
  return requests;
}

// --- the command ---

Status fill_request(const PlanOptions& options, const sim::Scenario& scenario, PlanRequest* request) {
  SHOAL_RETURN_IF_ERROR(check_numbers(options));
  SHOAL_ASSIGN_OR_RETURN(request->plan, job_plan_of(options, scenario.hosts()));
  if (request->plan.hosts_min > request->plan.hosts) {
    return Status(Code::invalid_argument, fmt::format("--hosts-min {}: the job has only {} hosts",
                                                      request->plan.hosts_min, request->plan.hosts));
  }
  if (options.given.contains("--load-s")) request->load = seconds_ns(options.load_s);
  request->search.seeds = options.seeds;
  request->search.first_seed = options.seed;
  request->search.threads = options.jobs;
  request->jobs = options.jobs;
  request->shows_progress = options.progress;
  request->has_sensitivity = !options.no_sensitivity;
  if (options.interval.empty()) return ok_status();
  for (std::string_view text : sim::split(options.interval, ',')) {
    SHOAL_ASSIGN_OR_RETURN(const actors::TimeNs interval, parse_duration(text));
    request->search.intervals.push_back(interval);
  }
  return ok_status();
}

int run_plan(const PlanOptions& options) {
  base::prefer_large_pages();
  const auto began = std::chrono::steady_clock::now();
  auto scenario = planned_scenario(options);
  if (!scenario.ok()) return report_unusable(scenario.status());
  PlanRequest request;
  if (Status filled = fill_request(options, *scenario, &request); !filled.ok())
    return report_unusable(filled);
  auto cases = cases_of(options, *scenario);
  if (!cases.ok()) return report_unusable(cases.status());
  if (!options.html.empty()) {
    if (Status fits = check_writable(options.html); !fits.ok()) return report_unusable(fits);
  }
  PlanResult result;
  result.plan = request.plan;
  result.ranks = scenario->ranks;
  result.seeds = options.seeds;
  result.numbers = plan_numbers(options, request.plan);
  for (const auto& [key, value] : scenario->profile_numbers) {
    result.numbers.push_back({key, fmt::to_string(value), "given", ""});
  }
  Interrupts interrupts;
  const Status done = run_cases(*cases, request, &result);
  if (const int signal = Interrupts::signal_number(); signal != 0) {
    report_unusable(Status(Code::aborted, "interrupted by a signal: there is no plan"));
    return Interrupts::kExitStatus + signal;
  }
  if (!done.ok()) {
    report_unusable(done);
    return done.code() == Code::invalid_argument || done.code() == Code::too_large ? kExitUnusable
                                                                                   : kExitFailed;
  }
  if (options.json) {
    print_json("plan", plan_json(result));
  } else if (options.csv) {
    fmt::print("{}", plan_csv(result));
  } else {
    fmt::print("{}", plan_text(result));
  }
  if (!options.html.empty()) {
    if (Status written = write_text(options.html, plan_page(result)); !written.ok())
      return report_unusable(written);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print(stderr, "planned in {}\n", human_seconds(took.count()));
  return kExitOk;
}

void add_job_options(CLI::App* command, const std::shared_ptr<PlanOptions>& options) {
  auto value = [&](const char* flag, const char* key, const char* type, const char* what) {
    command
        ->add_option_function<std::string>(
            flag, [options, key](const std::string& text) { options->values[key] = text; }, what)
        ->type_name(type);
  };
  value("--model", "model", "NAME|PATH", "The model, as for 'shoal sim' (llama3-405b)");
  value("--optimizer", "optimizer", "NAME",
        "Optimizer whose state is saved with each parameter: adam (default), none");
  value("--ranks", "ranks", "N", "Number of ranks of the job (512)");
  value("--ranks-per-host", "ranks_per_host", "N", "Number of ranks on each host (8)");
  value("--mesh", "mesh", "SIZES", "Sizes dp=,tp=,pp=,cp=,ep=,dp_replicate= (the model's usual ones)");
  value("--mode", "mode", "MODE", "collective-free (default), rank-local or collective");
  value("--profile", "profile", "NAME|FILE",
        "Costs of the cluster: lustre (default), object-store, nvme, or a file");
  command
      ->add_option("--set", options->set,
                   "Use another value for a number of the profile, as for 'shoal sim'; may be repeated")
      ->type_name("NUMBER=VALUE")
      ->allow_extra_args(false);
  value("--arrival-skew-ms", "arrival_skew_ms", "MS",
        "Largest random delay with which a rank calls save, in milliseconds (0)");
  value("--stragglers", "stragglers", "FRACTION:FACTOR", "Slow hosts, as for 'shoal sim' (none)");
}

template <class Number>
void add_number(CLI::App* command, const std::shared_ptr<PlanOptions>& options, const char* flag,
                Number PlanOptions::*number, const char* type, const char* what) {
  command
      ->add_option_function<Number>(
          flag,
          [options, flag, number](const Number& value) {
            (*options).*number = value;
            options->given.insert(flag);
          },
          what)
      ->type_name(type);
}

void add_failure_options(CLI::App* command, const std::shared_ptr<PlanOptions>& options) {
  auto number = [&](const char* flag, auto member, const char* type, const char* what) {
    add_number(command, options, flag, member, type, what);
  };
  number(
      "--mtbf-host-hours", &PlanOptions::mtbf_host_hours, "HOURS",
      "Mean time between failures of one host; 0: hosts do not fail; not with a CSV file of failures (6333)");
  number("--mtbf-rack-hours", &PlanOptions::mtbf_rack_hours, "HOURS",
         "Mean time between failures of one rack, which take all its hosts; 0: none (0)");
  number("--rack-hosts", &PlanOptions::rack_hosts, "N", "Hosts of a rack (16)");
  number(
      "--mtbf-job-hours", &PlanOptions::mtbf_job_hours, "HOURS",
      "Mean time between failures that end the job and take no host, such as errors of its program; 0: none "
      "(0)");
  number("--storage-outage-every-hours", &PlanOptions::outage_every_hours, "HOURS",
         "Mean time between outages of the storage; 0: none (0)");
  number("--storage-outage-minutes", &PlanOptions::outage_minutes, "MINUTES", "Length of an outage (30)");
  number(
      "--failures", &PlanOptions::failures, "poisson|weibull:shape=K|FILE.csv",
      "Times between failures of hosts: exponential (default), Weibull with the same mean, or those of a CSV "
      "file with a column 'hours'");
  number("--detect-s", &PlanOptions::detect_s, "SECONDS", "From a failure until the job has ended (60)");
  number("--restart-s", &PlanOptions::restart_s, "SECONDS",
         "From then until all its processes run again (300)");
  number("--load-s", &PlanOptions::load_s, "SECONDS", "Time of a load (measured by the roles)");
  number("--spares", &PlanOptions::spares, "N",
         "Hosts that wait to replace others (one for 32 hosts, at least two)");
  number("--repair-hours", &PlanOptions::repair_hours, "HOURS", "Until a host that failed is a spare (24)");
  number("--hosts-min", &PlanOptions::hosts_min, "N",
         "Without spares, go on with at least so many hosts, more slowly (wait for all)");
}

}  // namespace

void add_plan_command(CLI::App& app, Command* chosen) {
  CLI::App* command =
      app.add_subcommand("plan", "Compute how often a job of months should save, and what it will get done");
  auto options = std::make_shared<PlanOptions>();
  add_job_options(command, options);
  add_failure_options(command, options);
  add_number(command, options, "--step-s", &PlanOptions::step_s, "SECONDS", "Time of a step (5)");
  add_number(command, options, "--days", &PlanOptions::days, "DAYS", "How long the job lasts (30)");
  command
      ->add_option("--interval", options->interval, "Only these times of training between two saves: 5min,1h")
      ->type_name("TIME,TIME...");
  command
      ->add_option("--seeds", options->seeds, "Simulated courses of the job (lives) for each interval (32)")
      ->type_name("N");
  command->add_option("--seed", options->seed, "The first seed (1)")->type_name("N");
  command
      ->add_option("--compare", options->compare, "Also plan with all modes, all built-in profiles, or both")
      ->type_name("modes|profiles|all")
      ->check(CLI::IsMember({"modes", "profiles", "all"}));
  command->add_flag("--no-baselines", options->no_baselines,
                    "Leave out a synchronous saver and PyTorch DCP, which are measured for comparison");
  command->add_flag("--no-sensitivity", options->no_sensitivity,
                    "Leave out how much each number moves the answer");
  command->add_option("--jobs", options->jobs, "Number of parallel simulations (number of processors)")
      ->type_name("N");
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  CLI::Option* json = command->add_flag("--json", options->json, "A JSON object with everything");
  command->add_flag("--csv", options->csv, "One line for each case and interval")->excludes(json);
  command
      ->add_option("--html", options->html,
                   "Also write a page with the curves, a bar of where time goes and tables")
      ->type_name("FILE.html");
  command->footer(kPlanFooter);
  command->callback([=] { *chosen = [=] { return run_plan(*options); }; });
}

}  // namespace shoal::cli
