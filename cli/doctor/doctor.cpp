// Shoal doctor: checks what a job needs before it runs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "actors/node/bootstrap.h"
#include "base/descriptors.h"
#include "base/root_name.h"
#include "cli/commands.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/job_shape.h"
#include "cli/doctor/measure_facts.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/not_empty.h"
#include "cli/progress.h"
#include "client/launch/job_environment.h"
#include "storage/files/posix_file_system.h"

namespace shoal::cli {

namespace {

struct DoctorOptions {
  std::string root, token_file;
  JobOptions job;
  bool json = false;
};

constexpr const char* kDoctorFooter =
    "Prints one line for each check: 'ok', 'warning', 'error' or 'skipped', what it measured, and what to\n"
    "do. An error would stop a job. A warning would not, but may cost time or checkpoints. The command\n"
    "calls what a node calls when it starts. It makes trial files in a folder of its own in ROOT and\n"
    "removes it at the end, also after Ctrl-C. If ROOT does not exist, it makes that folder beside it.\n"
    "In a bucket it makes objects under ROOT/probes/ and removes them.\n"
    "\n"
    "Run it on every host of the job, one process a host. Each line then begins with the name of its\n"
    "host. The variables of srun, mpirun and torchrun state the hosts and the coordinator; set --ranks to\n"
    "the number of trainers that the job itself has on a host.\n"
    "\n"
    "Examples:\n"
    "  shoal doctor /checkpoints/run7\n"
    "  shoal doctor /checkpoints/run7 --ranks 8 --hosts 64 --staged 200GiB\n"
    "  shoal doctor s3://bucket/run7\n"
    "  srun --ntasks-per-node=1 shoal doctor /checkpoints/run7 --ranks 8\n"
    "  mpirun --map-by ppr:1:node -x MASTER_ADDR=n0 shoal doctor /checkpoints/run7 --ranks 8\n"
    "  shoal doctor --json | jq -r '.checks[] | select(.outcome == \"error\") | .remedy'\n"
    "\n"
    "Exit status: 0 no check found an error; 1 one did; 2 an argument is invalid; 130 or 143 after SIGINT\n"
    "or SIGTERM.";

constexpr int kExitFoundError = 1;

std::string line_of(const Finding& finding) {
  const std::string remedy = finding.remedy.empty() ? "" : "; " + finding.remedy;
  return fmt::format("{:<8} {:<15} {}{}", to_string(finding.outcome), finding.check, finding.measured,
                     remedy);
}

// Prints each finding at once, because a check of dead storage may hang.
class Report {
 public:
  Report(bool prints_lines, std::string prefix) : prints_lines_(prints_lines), prefix_(std::move(prefix)) {}

  void add(Finding finding) {
    if (prints_lines_) {
      fmt::print("{}{}\n", prefix_, line_of(finding));
      std::fflush(stdout);
    }
    findings_.push_back(std::move(finding));
  }
  void add(Findings findings) {
    for (Finding& each : findings) add(std::move(each));
  }
  void print_summary() const {
    auto count = [&](Outcome outcome) {
      return std::ranges::count_if(findings_, [&](const Finding& each) { return each.outcome == outcome; });
    };
    fmt::print("{}errors: {}, warnings: {}, ok: {}, skipped: {}\n", prefix_, count(Outcome::error),
               count(Outcome::warning), count(Outcome::ok), count(Outcome::skipped));
  }
  const Findings& findings() const { return findings_; }

 private:
  const bool prints_lines_;
  const std::string prefix_;
  Findings findings_;
};

Finding check_variables(const ShapedJob& job) {
  constexpr const char* kCheck = "job";
  if (!job.variables.ok()) {
    return found_error(kCheck, job.variables.message(), "docs/how-to/clusters.md describes each launcher");
  }
  const JobShape& shape = job.shape;
  return found_ok(kCheck, fmt::format("hosts: {}, ranks on this host: {}{}{}", shape.hosts, shape.ranks_here,
                                      shape.coordinator.empty() ? "" : ", coordinator: " + shape.coordinator,
                                      job.has_launcher ? "" : " (no launcher started this process)"));
}

// Returns false if the user interrupted the checks. Storage that does not answer may hold them for long, so a
// terminal shows how long they run.
bool check_root_and_use(const DoctorOptions& options, const JobShape& shape, Report* report) {
  ProgressLine progress(
      [&](double seconds) {
        return fmt::format("doctor: {}: trying it for {:.0f} s", options.root, seconds);
      },
      false);
  const auto is_stopped = [] { return Interrupts::signal_number() != 0; };
  Findings of_root;
  if (base::is_in_object_store(options.root)) {
    of_root = check_bucket(measure_bucket(options.root, is_stopped));
  } else {
    storage::PosixFileSystem disk;
    of_root = check_root(measure_root(options.root, disk, is_stopped), shape);
  }
  if (is_stopped()) return false;
  const UseFacts use = measure_use(options.root, options.token_file);
  progress.finish();
  report->add(of_root);
  report->add(check_use(use));
  return true;
}

// Runs the checks in turn. Returns false if the user interrupted them.
bool run_checks(const DoctorOptions& options, const ShapedJob& job, Report* report) {
  const JobShape& shape = job.shape;
  local::Settings settings;
  report->add(
      check_settings(options.root, client::environment_variable, local::unknown_variables(), &settings));
  report->add(check_variables(job));
  report->add(check_token(measure_token(options.token_file), shape.hosts));
  if (options.root.empty()) {
    report->add(found_skipped("root", "ROOT is not given, and SHOAL_ROOT is not set"));
  } else {
    if (!check_root_and_use(options, shape, report)) return false;
  }
  if (Interrupts::signal_number() != 0) return false;
  report->add(check_clock(measure_clock()));
  report->add(check_memory(measure_memory(), shape, settings.number_of("staging-memory")));
  const auto limit = base::descriptor_limit();
  report->add(limit.ok() ? check_descriptors(*limit, shape,
                                             static_cast<uint32_t>(settings.number_of("max-direct-nodes")))
                         : found_skipped("descriptors", limit.status().message()));
  report->add(check_network(measure_network_of_job(shape, settings), shape));
  report->add(check_runtime_folder(measure_runtime_folder()));
  report->add(check_versions(measure_versions()));
  report->add(check_gpu(measure_gpu()));
  if (shape.hosts > 1) {
    report->add(
        found_skipped("other-hosts", fmt::format("this was one of {} hosts; `{} shoal doctor ROOT` checks "
                                                 "all of them",
                                                 shape.hosts, job.on_each_host)));
  }
  return Interrupts::signal_number() == 0;
}

nlohmann::ordered_json as_json(const DoctorOptions& options, const std::string& host,
                               const Findings& findings) {
  nlohmann::ordered_json out = {
      {"host", host}, {"root", options.root}, {"outcome", to_string(worst_of(findings))}};
  nlohmann::ordered_json& checks = out["checks"] = nlohmann::ordered_json::array();
  for (const Finding& each : findings) {
    nlohmann::ordered_json row = {
        {"check", each.check}, {"outcome", to_string(each.outcome)}, {"measured", each.measured}};
    if (!each.remedy.empty()) row["remedy"] = each.remedy;
    checks.push_back(std::move(row));
  }
  return out;
}

int run_doctor(DoctorOptions options) {
  if (options.root.empty()) options.root = client::environment_variable("SHOAL_ROOT").value_or("");
  const auto job = shape_job(options.job, client::environment_variable);
  if (!job.ok()) return report_unusable(job.status());
  if (!job->is_first_here) {
    fmt::print(stderr, "shoal doctor: the first process of this host checks it; this one does nothing\n");
    return kExitOk;
  }
  const std::string host = actors::own_host_name();
  Report report(!options.json, job->has_launcher && job->shape.hosts > 1 ? host + ": " : "");
  const Interrupts interrupts;
  if (!run_checks(options, *job, &report)) {
    report_unusable(Status(Code::aborted, "interrupted before all checks had run"));
    return Interrupts::kExitStatus + Interrupts::signal_number();
  }
  if (options.json) {
    const bool is_alone = job->shape.hosts < 2 || !job->has_launcher;
    print_json("doctor", as_json(options, host, report.findings()),
               is_alone ? JsonLayout::indented : JsonLayout::one_line);
  } else {
    report.print_summary();
  }
  return worst_of(report.findings()) == Outcome::error ? kExitFoundError : kExitOk;
}

}  // namespace

void add_doctor_command(CLI::App& app, Command* chosen) {
  CLI::App* command =
      app.add_subcommand("doctor", "Check what a job needs on this host and in a root before it runs");
  auto options = std::make_shared<DoctorOptions>();
  command->add_option("ROOT", options->root, "Folder of the run; default: $SHOAL_ROOT, else check no root")
      ->check(not_empty, "");
  command
      ->add_option("--ranks", options->job.ranks,
                   "Trainers of the job on this host; default: what the launcher's variables state, else 1")
      ->check(CLI::Range(uint64_t{1}, uint64_t{kMaxWorldSize}));
  command
      ->add_option(
          "--hosts", options->job.hosts,
          "Hosts of the job: their number, their names with commas between them, or a file with a name "
          "on each line; default: what the launcher's variables state, else 1")
      ->type_name("N|NAMES|FILE");
  command->add_option("--staged", options->job.staged, "Bytes that one save stages on this host, as in 40GiB")
      ->type_name("BYTES");
  command
      ->add_option(
          "--coordinator", options->job.coordinator,
          "HOST:PORT of the job's coordinator; default: $SHOAL_COORDINATOR, else what the launcher's "
          "variables state")
      ->type_name("HOST:PORT");
  command->add_option("--token-file", options->token_file,
                      "File with the job's secret; default: $SHOAL_TOKEN_FILE, else $SHOAL_TOKEN");
  command->add_flag("--json", options->json, "One JSON object instead of lines");
  command->footer(kDoctorFooter);
  command->callback([=] { *chosen = [=] { return run_doctor(*options); }; });
}

}  // namespace shoal::cli
