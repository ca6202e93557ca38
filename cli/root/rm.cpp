// shoal rm: deletes the checkpoints of one step.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/root/choice_options.h"
#include "cli/root/collected_report.h"

namespace shoal::cli {

namespace {

struct RmOptions {
  std::string root;
  admin::AttemptChoice choice;
  bool force = false, dry_run = false, json = false;
};

constexpr const char* kRmFooter =
    "Deletes every checkpoint of the step, or the one attempt that --attempt names. Only --force deletes\n"
    "the newest checkpoint, the newest one that `shoal verify` found intact, and the one that the newest "
    "run\n"
    "loaded as the latest. No option deletes a pinned or tagged checkpoint, one that a load reads, or the\n"
    "only verified one: remove the pin or tag first. The command is safe while jobs run. If it is\n"
    "interrupted, `shoal gc` continues the deletion.\n"
    "\n"
    "Examples:\n"
    "  shoal rm /checkpoints/run7 --step 1000\n"
    "  shoal rm /checkpoints/run7 --step 1000 --attempt g3a1 --dry-run\n"
    "\n"
    "Exit status: 0 success; 1 something could not be removed; 2 the checkpoint does not exist, or must be\n"
    "kept.";

// OK if all items may be deleted; otherwise why the rules keep one of them.
Status check_may_go(const admin::OpenRoot& root, const std::vector<storage::RetentionPlan::Item>& items) {
  storage::RetentionPolicy only_newest;
  only_newest.keep_last = 1;
  SHOAL_ASSIGN_OR_RETURN(
      storage::RetentionPlan plan,
      storage::plan_retention(*root.storage, only_newest, admin::unix_time_now_ns(), nullptr));
  for (const storage::RetentionPlan::Item& kept : plan.keep) {
    bool is_asked =
        std::any_of(items.begin(), items.end(), [&](const auto& item) { return item.key == kept.key; });
    if (is_asked) {
      return Status(Code::refused, fmt::format("{} in {} must be kept: {}", to_string(kept.key),
                                               root.storage->describe(), kept.why));
    }
  }
  return ok_status();
}

// Prints the effect of the command, as far as it is known now.
int show_plan(const admin::OpenRoot& root, const RmOptions& options,
              const std::vector<storage::RetentionPlan::Item>& items) {
  storage::RetentionPlan plan;
  for (const storage::RetentionPlan::Item& item : items) {
    auto why = storage::why_not_deleted(*root.storage, item.key);
    if (!why.ok()) return report_unusable(why.status());
    if (why->empty()) {
      plan.remove.push_back(item);
    } else {
      plan.keep.push_back({item.key, *why});
    }
  }
  if (options.json && print_plan_as_json("rm", root, plan) != kExitOk) return kExitUnusable;
  if (!options.json) print_plan(root, plan);
  return plan.keep.empty() ? kExitOk : kExitUnusable;
}

// The rules can decide only about merged checkpoints.
Status check_merged(const std::vector<storage::AttemptView>& views) {
  for (const storage::AttemptView& view : views) {
    if (view.is_merged) continue;
    return Status(
        Code::busy,
        to_string(view.key) +
            ": its ranks have published it, and no load has merged it yet; --dry-run does not merge it");
  }
  return ok_status();
}

int run_rm(const RmOptions& options) {
  auto root = admin::open_root_for_reading(options.root);
  if (!root.ok()) return report_unusable(root.status());
  auto views = admin::choose_attempts(*root, options.choice);
  if (!views.ok()) return report_unusable(views.status());
  std::vector<storage::RetentionPlan::Item> items;
  for (const storage::AttemptView& view : *views) {
    bool was_checkpoint = view.committed() || view.info.state == storage::AttemptInfo::State::deleted;
    if (view.decision && was_checkpoint) items.push_back({view.key, "removed by command"});
  }
  if (items.empty()) {
    return report_unusable(
        Status(Code::not_found, fmt::format("root {} has no such checkpoint", root->storage->describe())));
  }
  Status merged = options.dry_run ? check_merged(*views) : admin::merge_attempts(*root, *views);
  if (!merged.ok()) return report_unusable(merged);
  if (!options.force) {
    Status status = check_may_go(*root, items);
    if (!status.ok()) return report_unusable(status);
  }
  if (options.dry_run) return show_plan(*root, options, items);
  admin::Collected collected;
  admin::Collector(*root, {}).delete_all(items, &collected);
  if (options.json) print_json("rm", collected_json(*root, collected, false));
  if (!options.json) print_collected(collected);
  return collected.kept.empty() ? exit_status_of(collected) : kExitUnusable;
}

}  // namespace

void add_rm_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("rm", "Delete the checkpoints of one step");
  auto options = std::make_shared<RmOptions>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the checkpoints")->required();
  add_choice_options(*command, &options->choice, "Step of the checkpoints to delete")->required();
  command->add_flag("--force", options->force,
                    "Also delete the newest checkpoint, or the one that the newest run loaded");
  command->add_flag("--dry-run", options->dry_run, "Print what the command would do; change nothing");
  command->add_flag("--json", options->json, "One JSON object instead of lines");
  command->footer(kRmFooter);
  command->callback([=] { *chosen = [=] { return run_rm(*options); }; });
}

}  // namespace shoal::cli
