// shoal: the command. Each subcommand is in a file with its name.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/crash_report.h"
#include "base/owned_fd.h"
#include "cli/command_suggestion.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "client/launch/job_environment.h"
#include "gpu/build_info.h"
#include "shoal/save_plan.h"
#include "storage/decisions/decision.h"
#include "storage/shards/shard_file.h"

namespace shoal::cli {

namespace {

constexpr const char* kMainFooter =
    "Examples:\n"
    "  shoal doctor /checkpoints/run7             check what a job needs before it runs\n"
    "  shoal launch -n 4 --root /checkpoints/run7 --create -- ./trainer   start a node and four trainers\n"
    "  shoal ls /checkpoints/run7                 list the checkpoints of a root\n"
    "  shoal show /checkpoints/run7 --step 1000   show tensors and files of one checkpoint\n"
    "  shoal verify /checkpoints/run7 --all       read every byte of every checkpoint again\n"
    "  shoal copy /checkpoints/run7 /archive/run7      copy checkpoints to another root\n"
    "  shoal drain /fast/run7 s3://archive/run7   copy each new checkpoint to a slower root\n"
    "  shoal diff /checkpoints/run7 --step 1 --step 2   compare the tensors of two checkpoints\n"
    "  shoal export /checkpoints/run7 --to /models/a   write whole tensors for Hugging Face's libraries\n"
    "  shoal import /old/step-1000 /checkpoints/run7   save a checkpoint of PyTorch DCP as one of this root\n"
    "  shoal status /checkpoints/run7             show the saves of the job that runs here\n"
    "  shoal gc /checkpoints/run7 --keep-last 5   delete the checkpoints that no rule keeps\n"
    "  shoal rebuild /checkpoints/run7            rebuild the catalog from the files\n"
    "  shoal sim --ranks 4096 --sweep mode=all    compute what the saves of a large job would cost\n"
    "  shoal plan --model llama3-8b --ranks 256   compute how often a job of months should save\n"
    "\n"
    "Exit status: 0 success; 1 a checkpoint is damaged, or a node failed; 2 the command could not start.\n"
    "`shoal launch` exits with the worst status of its trainers.\n"
    "Run 'shoal COMMAND --help' for the options of a command.";

std::string version_text() {
  return fmt::format(
      "shoal {} (reads and writes: decisions {}, shards {}, planning rule {}; GPU support: {})",
      SHOAL_VERSION, storage::kDecisionFormatVersion, storage::kShardFormatVersion, kRuleVersion,
      gpu::cuda_build());
}

// The error of a command that could not do its work. report_unusable fills it, and `main` prints it as JSON.
std::optional<Status> first_error;

// Whether `given`, the arguments of shoal itself, ask for JSON.
bool wants_json(const std::vector<std::string>& given) {
  return std::any_of(given.begin(), given.end(), [](const std::string& each) {
    return each == "--json" || each == "--json=true" || each == "--json=1";
  });
}

// `main` must print every error of the arguments by this function.
int report_bad_arguments(const std::vector<std::string>& given, const std::string& what) {
  fmt::print(stderr, "shoal: {} (see shoal --help)\n", what);
  if (wants_json(given)) print_json_error(given.front(), Status(Code::invalid_argument, what));
  return kExitUnusable;
}

// Must be called in a catch clause.
[[noreturn]] void end_with_crash_report() {
  std::fflush(stdout);
  std::_Exit(base::write_crash_report());
}

// Runs a command. Handles failures to print, which fmt reports by exceptions, and a lack of memory.
int run(const Command& command, const std::vector<std::string>& given) {
  int status = kExitOk;
  try {
    status = command();
    if (status != kExitOk && first_error && wants_json(given)) print_json_error(given.front(), *first_error);
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) == 0 && std::ferror(stderr) == 0) end_with_crash_report();
    if (std::ferror(stderr) == 0) {
      std::fprintf(stderr, "shoal: standard output: %s\n", error.code().message().c_str());
    }
    return kExitUnusable;
  } catch (const std::exception&) {
    end_with_crash_report();
  }
  const bool had_failed = std::ferror(stdout) != 0;  // an earlier flush; its errno is lost
  if (std::fflush(stdout) == 0 && !had_failed) return status;
  if (had_failed) {
    std::fprintf(stderr, "shoal: standard output: not everything could be written\n");
  } else {
    std::perror("shoal: standard output");
  }
  return kExitUnusable;
}

// The first argument, if it looks like a command and is none.
std::optional<std::string> find_unknown_command(const CLI::App& app, const std::vector<std::string>& given) {
  if (given.empty() || given.front().starts_with('-')) return std::nullopt;
  std::vector<std::string> commands;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(each->get_name());
  }
  if (std::find(commands.begin(), commands.end(), given.front()) != commands.end()) return std::nullopt;
  return unknown_command(given.front(), commands);
}

// Whether the arguments after "--" are the command line of a program that this command starts.
bool starts_program(const std::vector<std::string>& given) {
  return given.empty() || given.front() == "launch" || given.front() == "chaos";
}

// The parser names the flag of a variable that it cannot read, and not the variable.
std::string text_of(const CLI::ParseError& error) {
  const std::string what = error.what();
  const Result<bool> read_only = client::read_only_of(client::environment_variable);
  const bool is_of_variable = !read_only.ok() && what.find("--read-only = ") != std::string::npos;
  return is_of_variable ? read_only.status().message() : what;
}

}  // namespace

int report_unusable(const Status& status) {
  if (!first_error) first_error = status;
  fmt::print(stderr, "shoal: {}\n", status.to_string());
  return kExitUnusable;
}

}  // namespace shoal::cli

namespace {

// The exit status of a command that ends because of a lack of memory or threads: kExitFailed for a node or a
// launch, and kExitUnusable for any other command.
void install(int argc, char** argv) {
  shoal::base::open_standard_descriptors();
  // Some supervisors ignore it. The kernel would then keep no status of a child.
  std::signal(SIGCHLD, SIG_DFL);
  const bool is_launch = argc > 1 && std::strcmp(argv[1], "launch") == 0;
  const bool is_node = is_launch || (argc > 1 && std::strcmp(argv[1], "node") == 0);
  // A write beyond RLIMIT_FSIZE fails with EFBIG, which names the file. What `launch` starts would inherit
  // this.
  if (!is_launch) std::signal(SIGXFSZ, SIG_IGN);
  shoal::base::install_crash_report("shoal", is_node ? shoal::cli::kExitFailed : shoal::cli::kExitUnusable);
}

#if !defined(SHOAL_ADDRESS_SANITIZER) && !defined(SHOAL_THREAD_SANITIZER)
// Runs before the constructors of libraries, which may lack memory too. A sanitizer is not ready by then.
__attribute__((section(".preinit_array"), used)) void (*const install_first)(int, char**) = install;
#endif

}  // namespace

int main(int argc, char** argv) {
  install(argc, argv);
  CLI::App app("Checkpoints of sharded training jobs, without collectives.", "shoal");
  app.set_version_flag("--version", shoal::cli::version_text());
  app.footer(shoal::cli::kMainFooter);
  // The arguments after "--" are the command line of a trainer; of commands that start none, their operands.
  char** command_line =
      std::find_if(argv, argv + argc, [](const char* text) { return std::strcmp(text, "--") == 0; });
  std::vector<std::string> trainer(std::min(command_line + 1, argv + argc), argv + argc);
  shoal::cli::Command chosen;
  shoal::cli::add_node_command(app, &chosen);
  shoal::cli::add_launch_command(app, trainer, &chosen);
  shoal::cli::add_ls_command(app, &chosen);
  shoal::cli::add_show_command(app, &chosen);
  shoal::cli::add_verify_command(app, &chosen);
  shoal::cli::add_copy_command(app, &chosen);
  shoal::cli::add_drain_command(app, &chosen);
  shoal::cli::add_diff_command(app, &chosen);
  shoal::cli::add_export_command(app, &chosen);
  shoal::cli::add_import_command(app, &chosen);
  shoal::cli::add_rm_command(app, &chosen);
  shoal::cli::add_gc_command(app, &chosen);
  shoal::cli::add_pin_command(app, &chosen);
  shoal::cli::add_tag_command(app, &chosen);
  shoal::cli::add_restore_id_command(app, &chosen);
  shoal::cli::add_rebuild_command(app, &chosen);
  shoal::cli::add_status_command(app, &chosen);
  shoal::cli::add_top_command(app, &chosen);
  shoal::cli::add_settings_command(app, &chosen);
  shoal::cli::add_doctor_command(app, &chosen);
  shoal::cli::add_sim_command(app, &chosen);
  shoal::cli::add_plan_command(app, &chosen);
  shoal::cli::add_fuzz_command(app, &chosen);
  shoal::cli::add_replay_command(app, &chosen);
  shoal::cli::add_chaos_command(app, &chosen);
  shoal::cli::add_calibrate_command(app, &chosen);
  const std::vector<std::string> given(argv + std::min(argc, 1), command_line);
  if (const auto unknown = shoal::cli::find_unknown_command(app, given)) {
    return shoal::cli::report_bad_arguments(given, *unknown);
  }
  std::vector<char*> parsed(argv, command_line);
  if (!shoal::cli::starts_program(given)) {
    for (char* operand : std::vector<char*>(std::min(command_line + 1, argv + argc), argv + argc)) {
      if (*operand == '-') {
        return shoal::cli::report_bad_arguments(
            given, fmt::format("'{}' would be ignored: options must stand before --, and a path that begins "
                               "with - needs ./ before it",
                               operand));
      }
      parsed.push_back(operand);
    }
  }
  try {
    app.parse(static_cast<int>(parsed.size()), parsed.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error), shoal::cli::kExitOk;  // --help, --version
    return shoal::cli::report_bad_arguments(given, shoal::cli::text_of(error));
  }
  if (!chosen) return shoal::cli::report_bad_arguments(given, "a subcommand is required");
  return shoal::cli::run(chosen, given);
}
