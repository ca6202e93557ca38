// Shoal show: prints the tensors, files and options of one checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "admin/root_reader.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/root/choice_options.h"
#include "cli/table.h"
#include "plan/layout/sharding_text.h"
#include "plan/saving/options_difference.h"

namespace shoal::cli {

namespace {

struct ShowOptions {
  std::string root;
  admin::AttemptChoice choice;
  bool json = false;
};

constexpr const char* kShowFooter =
    "Without --step it shows the latest checkpoint. With --step alone it shows the newest checkpoint at\n"
    "that step, or else the newest attempt in any state. If a newer decision is unreadable, the command\n"
    "fails and names it. Of an aborted attempt it prints the cause.\n"
    "\n"
    "Examples:\n"
    "  shoal show /checkpoints/run7\n"
    "  shoal show /checkpoints/run7 --step 1000 --attempt g3a1 --json\n"
    "\n"
    "Exit status: 0 success; 1 the decision is damaged; 2 the checkpoint or the root does not exist.";

struct ValueView {
  const LayoutEntry* entry = nullptr;
  std::vector<std::string> shardings;  // distinct shardings; several if layouts differ
};

std::map<std::string, ValueView> values_of(const World& world) {
  std::map<std::string, ValueView> values;
  for (const TensorMetadata& value : list_values(world)) {
    const LayoutEntry* entry = find_value(world, value.fqn);
    if (!is_per_rank(*entry)) continue;
    values[value.fqn] = {entry, {fmt::format("whole on rank {}", split_rank_fqn(value.fqn)->rank)}};
  }
  for (const LayoutPtr& layout : world.layouts) {
    for (const LayoutEntry& entry : layout->entries()) {
      if (is_per_rank(entry)) continue;
      ValueView& value = values[entry.fqn];
      value.entry = &entry;
      std::string text = plan::describe_sharding(*layout, entry);
      auto& known = value.shardings;
      if (std::find(known.begin(), known.end(), text) == known.end()) known.push_back(std::move(text));
    }
  }
  return values;
}

std::string_view type_of(const LayoutEntry& entry) {
  return entry.kind == LayoutEntry::Kind::object ? "object" : dtype_name(entry.dtype);
}

std::string contents_text(const storage::FileEntry& file) {
  if (const auto* pieces = std::get_if<std::vector<storage::FilePiece>>(&file.contents)) {
    return admin::counted(pieces->size(), "listed piece");
  }
  return fmt::format("file {} of the rank's plan", std::get<uint32_t>(file.contents));
}

// Escapes line breaks and other control characters, which would break the table.
std::string escaped(std::string_view value) {
  std::string out;
  for (char c : value) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\\')
      out += "\\\\";
    else
      out.push_back(c);
  }
  return out;
}

void print_user(const UserMetadata& user) {
  if (user.empty()) return;
  Table table({{"METADATA"}, {"VALUE"}});
  for (const auto& [key, value] : user) table.add_row({key, escaped(value)});
  fmt::print("{}\n", table.to_string());
}

void print_manifest(const storage::Manifest& manifest) {
  fmt::print(
      "saved by {}, {} of values in {} ({}); roster {}, rule version {}, mode {}, dedupe {}, "
      "units of {}\n\n",
      admin::counted(manifest.world->roster.world_size(), "rank"), human_bytes(manifest.payload_bytes),
      admin::counted(manifest.files.size(), "file"), human_bytes(admin::file_bytes_of(manifest)),
      manifest.world->roster.id().to_hex(), manifest.rule_version, mode_name(manifest.options.mode),
      plan::dedupe_name(manifest.options.dedupe), human_bytes(manifest.options.unit_bytes));
  print_user(manifest.user);
  Table values({{"NAME"}, {"DTYPE"}, {"SHAPE"}, {"SHARDING"}});
  for (const auto& [fqn, value] : values_of(*manifest.world)) {
    bool is_object = value.entry->kind == LayoutEntry::Kind::object;
    values.add_row({fqn, std::string(type_of(*value.entry)),
                    is_object ? "-" : fmt::format("[{}]", fmt::join(value.entry->shape, ", ")),
                    fmt::format("{}", fmt::join(value.shardings, "; "))});
  }
  Table files({{"FILE"},
               {"RANK", Table::Align::right},
               {"SIZE", Table::Align::right},
               {"HEADER DIGEST"},
               {"CONTENTS"}});
  for (const storage::FileEntry& file : manifest.files) {
    files.add_row({file.name, fmt::to_string(file.rank), human_bytes(file.size), file.header_digest.to_hex(),
                   contents_text(file)});
  }
  fmt::print("{}\n{}", values.to_string(), files.to_string());
}

nlohmann::ordered_json manifest_json(const storage::Manifest& manifest) {
  nlohmann::ordered_json out;
  out["world_size"] = manifest.world->roster.world_size();
  out["roster_id"] = manifest.world->roster.id().to_hex();
  out["layouts"] = manifest.world->layouts.size();
  out["payload_bytes"] = manifest.payload_bytes;
  out["file_bytes"] = admin::file_bytes_of(manifest);
  if (!manifest.user.empty()) out["metadata"] = manifest.user;
  out["options"] = {{"rule_version", manifest.rule_version},
                    {"mode", mode_name(manifest.options.mode)},
                    {"dedupe", plan::dedupe_name(manifest.options.dedupe)},
                    {"unit_bytes", manifest.options.unit_bytes}};
  out["values"] = nlohmann::ordered_json::array();
  for (const auto& [fqn, value] : values_of(*manifest.world)) {
    nlohmann::ordered_json one;
    one["fqn"] = fqn;
    one["kind"] = value.entry->kind == LayoutEntry::Kind::object ? "object" : "tensor";
    if (value.entry->kind == LayoutEntry::Kind::tensor) {
      one["dtype"] = dtype_name(value.entry->dtype);
      one["shape"] = value.entry->shape;
    }
    one["sharding"] = value.shardings;
    out["values"].push_back(std::move(one));
  }
  out["files"] = nlohmann::ordered_json::array();
  for (const storage::FileEntry& file : manifest.files) {
    nlohmann::ordered_json one;
    one["name"] = file.name;
    one["rank"] = file.rank;
    one["size"] = file.size;
    one["header_digest"] = file.header_digest.to_hex();
    one["contents"] = std::holds_alternative<uint32_t>(file.contents) ? "derived" : "listed";
    out["files"].push_back(std::move(one));
  }
  return out;
}

void print_attempt(const admin::OpenRoot& root, const storage::AttemptView& view) {
  fmt::print("step {} ({}) in {}: {}", view.key.step, admin::attempt_name(view.key), root.storage->describe(),
             view.state_name());
  if (view.decision) fmt::print(", {} UTC", admin::utc_time(view.decision->unix_time_ns));
  fmt::print("\n");
  if (view.committed()) {
    print_manifest(view.decision->manifest());
    return;
  }
  if (view.decision) fmt::print("cause: {}\n", view.decision->tombstone().cause);
  if (!view.decision && !view.proof.empty()) fmt::print("undecided: {}\n", view.proof);
  fmt::print("its folder has {}, {} in total\n", admin::counted(view.info.leftover_files, "other file"),
             human_bytes(view.info.files_bytes));
}

nlohmann::ordered_json attempt_json(const admin::OpenRoot& root, const storage::AttemptView& view) {
  nlohmann::ordered_json out;
  out["root"] = root.storage->describe();
  out["root_id"] = root.id.to_hex();
  out["step"] = view.key.step;
  out["generation"] = view.key.generation;
  out["attempt"] = view.key.attempt;
  out["state"] = view.state_name();
  out["folder"] = storage::attempt_folder(view.key);
  out["folder_bytes"] = view.info.files_bytes;
  if (view.decision) out["unix_time_ns"] = view.decision->unix_time_ns;
  if (view.committed()) {
    out.update(manifest_json(view.decision->manifest()));
  } else if (view.decision) {
    out["cause"] = view.decision->tombstone().cause;
  } else if (!view.damage.ok()) {
    out["cause"] = view.damage.message();
  } else if (!view.proof.empty()) {
    out["cause"] = view.proof;
  }
  return out;
}

// The newest of the chosen checkpoints, or a damaged attempt that may be one. If there is none and a step was
// named: the newest attempt.
Result<storage::AttemptView> pick(const admin::OpenRoot& root, const ShowOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<storage::AttemptView> views,
                         admin::choose_attempts(root, options.choice));
  if (const storage::AttemptView* newest = admin::newest_checkpoint(views)) return *newest;
  if (!options.choice.names_one()) {
    return Status(Code::not_found, fmt::format("root {} has no checkpoint yet", root.storage->describe()));
  }
  return std::move(views.back());
}

int run_show(const ShowOptions& options) {
  auto root = admin::open_root_for_reading(options.root);
  if (!root.ok()) return report_unusable(root.status());
  auto view = pick(*root, options);
  if (!view.ok()) return report_unusable(view.status());
  const bool is_damaged = !view->damage.ok();
  if (is_damaged)
    report_unusable(options.choice.names_one() ? view->damage : admin::check_reads_back(&*view));
  if (options.json) {
    print_json("show", attempt_json(*root, *view));
  } else if (!is_damaged) {
    print_attempt(*root, *view);
  }
  return is_damaged ? kExitDamaged : kExitOk;
}

}  // namespace

void add_show_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("show", "Show the tensors, files and options of one checkpoint");
  auto options = std::make_shared<ShowOptions>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the checkpoints")->required();
  options->choice.newest_only = true;
  add_choice_options(*command, &options->choice, "Show this step instead of the latest checkpoint");
  command->add_flag("--json", options->json, "One JSON object instead of tables");
  command->footer(kShowFooter);
  command->callback([=] { *chosen = [=] { return run_show(*options); }; });
}

}  // namespace shoal::cli
