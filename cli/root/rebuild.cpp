// Shoal rebuild: builds the catalog again from the root's files, and reports what it found.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "admin/root_reader.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/not_empty.h"
#include "local/socket/socket.h"
#include "storage/catalog/catalog_recovery.h"

namespace shoal::cli {

namespace {

using State = storage::AttemptInfo::State;

struct RebuildOptions {
  std::string root;
  std::string catalog;
  bool json = false;
};

constexpr const char* kRebuildFooter =
    "The catalog is an index of the root on the coordinator's own disk. Everything in it is also in the\n"
    "root. A node that begins to coordinate checks the catalog and replaces a damaged or missing one. This\n"
    "command does the same without a job. It reads every decision of the root, writes a new catalog beside\n"
    "the old one, and replaces the old one when the new one is complete. It changes nothing while a node\n"
    "uses the catalog.\n"
    "\n"
    "Examples:\n"
    "  shoal rebuild /checkpoints/run7\n"
    "  shoal rebuild /checkpoints/run7 --catalog /var/lib/shoal/run7 --json\n"
    "\n"
    "Exit status: 0 the catalog is new, and every decision is readable; 1 the catalog is new, and some\n"
    "decisions are damaged; 2 nothing was replaced: the root does not exist or has a newer format, or the\n"
    "folder is in use, has the catalog of another run, or has no catalog.";

uint64_t count_of(const storage::CatalogRebuild& report, State state) {
  return static_cast<uint64_t>(
      std::count_if(report.decided.begin(), report.decided.end(),
                    [&](const storage::CatalogEntry& entry) { return entry.state == state; }));
}

uint64_t payload_of(const storage::CatalogRebuild& report) {
  uint64_t bytes = 0;
  for (const storage::CatalogEntry& entry : report.decided) bytes += entry.payload_bytes;
  return bytes;
}

uint64_t bytes_of_undecided(const storage::CatalogRebuild& report) {
  uint64_t bytes = 0;
  for (const storage::AttemptInfo& info : report.undecided) bytes += info.files_bytes;
  return bytes;
}

const char* before_name(storage::CatalogRebuild::Before before) {
  switch (before) {
    case storage::CatalogRebuild::Before::absent:
      return "absent";
    case storage::CatalogRebuild::Before::sound:
      return "sound";
    case storage::CatalogRebuild::Before::damaged:
      return "damaged";
    case storage::CatalogRebuild::Before::of_another_run:
      break;
  }
  return "of another run";
}

size_t attempts_of(const storage::CatalogRebuild& report) {
  return report.decided.size() + report.undecided.size() + report.damaged.size();
}

void print_report(const admin::OpenRoot& root, const std::string& catalog,
                  const storage::CatalogRebuild& report) {
  for (const auto& [key, status] : report.damaged) {
    fmt::print("{}: damaged: {}\n", to_string(key), status.message());
  }
  for (const storage::AttemptInfo& info : report.undecided) {
    fmt::print("{}: undecided: {} in {}\n", to_string(info.key), human_bytes(info.files_bytes),
               admin::counted(info.leftover_files, "file"));
  }
  for (const storage::CatalogEntry& entry : report.decided) {
    if (entry.state == State::aborted) fmt::print("{}: aborted: {}\n", to_string(entry.key), entry.cause);
  }
  fmt::print(
      "{}: {}: {} with {} in files of {}, {} aborted, {} deleted, {} undecided, {} "
      "damaged\n",
      root.storage->describe(), admin::counted(attempts_of(report), "attempt"),
      admin::counted(count_of(report, State::committed), "checkpoint"), human_bytes(payload_of(report)),
      human_bytes(report.file_bytes), count_of(report, State::aborted), count_of(report, State::deleted),
      report.undecided.size(), report.damaged.size());
  std::string cause = report.before_cause.empty() ? "" : ": " + report.before_cause;
  fmt::print("catalog {}: rebuilt; the one before was {}{}\n", catalog, before_name(report.before), cause);
}

nlohmann::ordered_json as_json(const admin::OpenRoot& root, const std::string& catalog,
                               const storage::CatalogRebuild& report) {
  nlohmann::ordered_json out;
  out["root"] = root.storage->describe();
  out["root_id"] = root.id.to_hex();
  out["catalog"] = catalog;
  out["catalog_before"] = before_name(report.before);
  if (!report.before_cause.empty()) out["catalog_before_cause"] = report.before_cause;
  out["attempts"] = attempts_of(report);
  out["checkpoints"] = count_of(report, State::committed);
  out["payload_bytes"] = payload_of(report);
  out["file_bytes"] = report.file_bytes;
  out["deleted"] = count_of(report, State::deleted);
  out["undecided_bytes"] = bytes_of_undecided(report);
  for (const char* name : {"aborted", "undecided", "damaged"}) out[name] = nlohmann::ordered_json::array();
  for (const storage::CatalogEntry& entry : report.decided) {
    if (entry.state != State::aborted) continue;
    out["aborted"].push_back(key_json(entry.key));
    out["aborted"].back()["cause"] = entry.cause;
  }
  for (const storage::AttemptInfo& info : report.undecided) {
    out["undecided"].push_back(key_json(info.key));
    out["undecided"].back()["folder_bytes"] = info.files_bytes;
  }
  for (const auto& [key, status] : report.damaged) {
    out["damaged"].push_back(key_json(key));
    out["damaged"].back()["what"] = status.message();
  }
  return out;
}

int run_rebuild(const RebuildOptions& options) {
  auto root = admin::open_root_for_reading(options.root);
  if (!root.ok()) return report_unusable(root.status());
  std::string catalog = options.catalog;
  const bool is_default = catalog.empty();
  if (is_default) {
    auto paths = local::node_paths(options.root);
    if (!paths.ok()) return report_unusable(paths.status());
    catalog = paths->catalog_dir;
  }
  auto report = storage::rebuild_catalog(catalog, is_default, root->id, *root->storage);
  if (!report.ok()) return report_unusable(report.status());
  if (options.json) {
    print_json("rebuild", as_json(*root, catalog, *report));
  } else {
    print_report(*root, catalog, *report);
  }
  return report->damaged.empty() ? kExitOk : kExitDamaged;
}

}  // namespace

void add_rebuild_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("rebuild", "Rebuild the catalog from the root's files");
  auto options = std::make_shared<RebuildOptions>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the checkpoints")->required();
  command
      ->add_option("--catalog", options->catalog,
                   "Folder of the catalog, as for `shoal node`; default: the one of this host and user")
      ->check(not_empty, "");
  command->add_flag("--json", options->json, "One JSON object instead of lines");
  command->footer(kRebuildFooter);
  command->callback([=] { *chosen = [=] { return run_rebuild(*options); }; });
}

}  // namespace shoal::cli
