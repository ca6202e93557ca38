// Shoal restore-id: restores a lost ROOT_ID.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "admin/root_reader.h"
#include "cli/commands.h"
#include "storage/open_storage.h"

namespace shoal::cli {

namespace {

constexpr const char* kRestoreIdFooter =
    "Every decision of a root names the run that it belongs to. If the file ROOT_ID is missing, commands\n"
    "and jobs reject the root. This command restores the file from the decisions if all of them name the\n"
    "same run. It does not replace a damaged ROOT_ID: restore the file from a backup, or move it away\n"
    "first.\n"
    "\n"
    "Example:\n"
    "  shoal restore-id /checkpoints/run7\n"
    "\n"
    "Exit status: 0 success; 2 ROOT_ID exists, or no decision names a run, or decisions name different\n"
    "runs.";

int run_restore_id(const std::string& path) {
  auto root = storage::open_storage(path, random_128());
  if (!root.ok()) return report_unusable(root.status());
  auto id = storage::restore_root_id(*root->storage);
  if (!id.ok()) return report_unusable(id.status());
  fmt::print("root {} has its id again: run {}\n", root->storage->describe(), id->to_hex());
  return kExitOk;
}

}  // namespace

void add_restore_id_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("restore-id", "Restore a missing ROOT_ID from a root's decisions");
  auto root = std::make_shared<std::string>();
  command->add_option("ROOT", *root, "Folder or s3://BUCKET/PREFIX of the checkpoints")->required();
  command->footer(kRestoreIdFooter);
  command->callback([=] { *chosen = [=] { return run_restore_id(*root); }; });
}

}  // namespace shoal::cli
