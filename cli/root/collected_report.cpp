#include "cli/root/collected_report.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "storage/decisions/completion.h"

namespace shoal::cli {

namespace {

using nlohmann::ordered_json;

ordered_json items_json(const std::vector<admin::Collected::Item>& items, bool with_bytes) {
  ordered_json out = ordered_json::array();
  for (const admin::Collected::Item& item : items) {
    ordered_json one = key_json(item.key);
    one["why"] = item.why;
    if (with_bytes) one["bytes"] = item.bytes;
    out.push_back(std::move(one));
  }
  return out;
}

std::string what_becomes_of(const admin::OpenRoot& root, const AttemptKey& undecided) {
  const Status proven = storage::prove_complete(*root.storage, undecided).status();
  if (!proven.ok() && !storage::is_unproven(proven)) return "gc would not change it: " + proven.to_string();
  return fmt::format("would be {} unless a save is writing it", proven.ok() ? "completed" : "aborted");
}

// What a command would do by this plan. `kept` also has the checkpoints that the rules keep.
Result<admin::Collected> planned_collection(const admin::OpenRoot& root, const storage::RetentionPlan& plan) {
  admin::Collected out;
  for (const auto& item : plan.keep) out.kept.push_back({item.key, item.why, 0});
  for (const auto& [key, why] : plan.damaged) out.kept.push_back({key, why.to_string(), 0});
  for (const auto& item : plan.remove) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t bytes, admin::removable_bytes(root, item.key));
    out.deleted.push_back({item.key, item.why, bytes});
  }
  for (const AttemptKey& key : plan.finish) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t bytes, admin::removable_bytes(root, key));
    out.deleted.push_back({key, admin::kWhyFinished, bytes});
  }
  for (const AttemptKey& key : plan.sweep) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t bytes, admin::removable_bytes(root, key));
    out.swept.push_back({key, admin::kWhySwept, bytes});
  }
  for (const storage::AttemptInfo& info : plan.undecided) {
    out.undecided.push_back({info.key, what_becomes_of(root, info.key), 0});
  }
  return out;
}

}  // namespace

void print_collected(const admin::Collected& collected) {
  for (const auto& item : collected.deleted) {
    fmt::print("{}: deleted, {} freed ({})\n", to_string(item.key), human_bytes(item.bytes), item.why);
  }
  for (const auto& item : collected.held) {
    fmt::print("{}: deleted, but its files remain for now: {}\n", to_string(item.key), item.why);
  }
  for (const auto& item : collected.kept) fmt::print("{}: kept: {}\n", to_string(item.key), item.why);
  for (const auto& item : collected.swept) {
    fmt::print("{}: {} freed ({})\n", to_string(item.key), human_bytes(item.bytes), item.why);
  }
  for (const auto& item : collected.completed) {
    fmt::print("{}: completed: {}\n", to_string(item.key), item.why);
  }
  for (const auto& item : collected.undecided) {
    fmt::print("{}: undecided, not changed: {}\n", to_string(item.key), item.why);
  }
  for (const auto& [what, why] : collected.failed) fmt::print("{}: FAILED: {}\n", what, why.to_string());
  fmt::print("{} deleted, {} freed\n",
             admin::counted(collected.deleted.size() + collected.held.size(), "checkpoint"),
             human_bytes(collected.freed_bytes()));
}

ordered_json collected_json(const admin::OpenRoot& root, const admin::Collected& collected, bool is_dry_run) {
  ordered_json out;
  out["root"] = root.storage->describe();
  out["dry_run"] = is_dry_run;
  out["deleted"] = items_json(collected.deleted, true);
  out["held"] = items_json(collected.held, false);
  out["kept"] = items_json(collected.kept, false);
  out["swept"] = items_json(collected.swept, true);
  out["completed"] = items_json(collected.completed, false);
  out["undecided"] = items_json(collected.undecided, false);
  out["failed"] = ordered_json::array();
  for (const auto& [what, why] : collected.failed) {
    out["failed"].push_back({{"what", what}, {"why", why.to_string()}});
  }
  out["freed_bytes"] = collected.freed_bytes();
  return out;
}

void print_plan(const admin::OpenRoot& root, const storage::RetentionPlan& plan) {
  for (const auto& item : plan.keep) fmt::print("{}: kept: {}\n", to_string(item.key), item.why);
  for (const auto& item : plan.remove)
    fmt::print("{}: would be deleted: {}\n", to_string(item.key), item.why);
  for (const AttemptKey& key : plan.finish) fmt::print("{}: gc would finish its deletion\n", to_string(key));
  for (const AttemptKey& key : plan.sweep)
    fmt::print("{}: gc would remove the leftovers of an unfinished save or deletion\n", to_string(key));
  for (const storage::AttemptInfo& info : plan.undecided) {
    fmt::print("{}: undecided, {}\n", to_string(info.key), what_becomes_of(root, info.key));
  }
  for (const auto& [key, why] : plan.damaged)
    fmt::print("{}: not changed: {}\n", to_string(key), why.to_string());
  fmt::print("{} would be deleted, {} kept\n", admin::counted(plan.remove.size(), "checkpoint"),
             plan.keep.size());
}

int print_plan_as_json(std::string_view command, const admin::OpenRoot& root,
                       const storage::RetentionPlan& plan, const ordered_json& more) {
  const auto planned = planned_collection(root, plan);
  if (!planned.ok()) return report_unusable(planned.status());
  ordered_json out = collected_json(root, *planned, true);
  out.update(more);
  print_json(command, out);
  return kExitOk;
}

int exit_status_of(const admin::Collected& collected) {
  return collected.failed.empty() ? kExitOk : kExitDamaged;
}

}  // namespace shoal::cli
