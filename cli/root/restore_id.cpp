// Shoal restore-id: restores a lost ROOT_ID.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "admin/root_reader.h"
#include "cli/commands.h"

namespace shoal::cli {

namespace {

constexpr const char* kFooter =
    "Every decision of a root names the run that it belongs to. Where the file ROOT_ID was lost, nothing of\n"
    "the root is read or written until it is back; this makes it anew from the decisions, if they agree. A\n"
    "ROOT_ID that is there and damaged is left alone: bring it back from a copy, or move it away first.\n"
    "\n"
    "Example:\n"
    "  shoal restore-id /checkpoints/run7\n"
    "\n"
    "Exit status: 0; 2 if ROOT_ID is there, or no decision says what it was, or two say different things.";

int run_restore_id(const std::string& path) {
  storage::PosixFileSystem file_system;
  auto storage = storage::LocalStorage::open(file_system, path, random_128());
  if (!storage.ok()) return report_unusable(storage.status());
  auto id = storage::restore_root_id(**storage);
  if (!id.ok()) return report_unusable(id.status());
  fmt::print("root {} is run {} again\n", (*storage)->describe(), id->to_hex());
  return kExitOk;
}

}  // namespace

void add_restore_id_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("restore-id", "Put back a lost ROOT_ID from a root's checkpoints");
  auto root = std::make_shared<std::string>();
  command->add_option("ROOT", *root, "Folder of the run")->required();
  command->footer(kFooter);
  command->callback([=] { *chosen = [=] { return run_restore_id(*root); }; });
}

}  // namespace shoal::cli
