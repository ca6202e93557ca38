// shoal: the command. Subcommands stand in files of their own names.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "cli/commands.h"
#include "plan/save_plan.h"
#include "storage/decision.h"
#include "storage/shard_file.h"

namespace shoal {

namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  shoal ls /checkpoints/run7                 what this root holds\n"
    "  shoal show /checkpoints/run7 --step 1000   tensors and files of one checkpoint\n"
    "  shoal verify /checkpoints/run7 --all       re-read every byte of every checkpoint\n"
    "\n"
    "Exit status: 0 all is well; 1 a checkpoint is damaged; 2 the command could not do its work.\n"
    "'shoal COMMAND --help' says more.";

std::string version_text() {
  return fmt::format("shoal {} (reads and writes: decisions {}, shards {}, planning rule {})", SHOAL_VERSION,
                     kDecisionFormatVersion, kShardFormatVersion, kRuleVersion);
}

}  // namespace

int report_unusable(const Status& status) {
  fmt::print(stderr, "shoal: {}\n", status.to_string());
  return kExitUnusable;
}

}  // namespace shoal

int main(int argc, char** argv) {
  CLI::App app("Checkpoints of sharded training jobs, without collectives.", "shoal");
  app.set_version_flag("--version", shoal::version_text());
  app.footer(shoal::kFooter);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("shoal: {} (see shoal --help)\n", error.what());
  });
  shoal::Command chosen;
  shoal::add_ls_command(app, &chosen);
  shoal::add_show_command(app, &chosen);
  shoal::add_verify_command(app, &chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? shoal::kExitOk : shoal::kExitUnusable;
  }
  if (!chosen) {
    fmt::print(stderr, "shoal: a subcommand is required (see shoal --help)\n");
    return shoal::kExitUnusable;
  }
  int status = chosen();
  if (std::fflush(stdout) != 0) {
    std::perror("shoal: standard output");
    return shoal::kExitUnusable;
  }
  return status;
}
