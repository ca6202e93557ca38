#include "cli/root/collected_report.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/json_text.h"
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

ordered_json plan_items_json(const std::vector<storage::RetentionPlan::Item>& items) {
  ordered_json out = ordered_json::array();
  for (const storage::RetentionPlan::Item& item : items) {
    ordered_json one = key_json(item.key);
    one["why"] = item.why;
    out.push_back(std::move(one));
  }
  return out;
}

ordered_json keys_json(const std::vector<AttemptKey>& keys) {
  ordered_json out = ordered_json::array();
  for (const AttemptKey& key : keys) out.push_back(key_json(key));
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

ordered_json collected_json(const admin::OpenRoot& root, const admin::Collected& collected) {
  ordered_json out;
  out["root"] = root.storage->describe();
  out["dry_run"] = false;
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
    const Status proven = storage::prove_complete(*root.storage, info.key).status();
    if (!proven.ok() && !storage::is_unproven(proven)) {
      fmt::print("{}: undecided, gc would not change it: {}\n", to_string(info.key), proven.to_string());
      continue;
    }
    fmt::print("{}: undecided, would be {} unless a save is writing it\n", to_string(info.key),
               proven.ok() ? "completed" : "aborted");
  }
  for (const auto& [key, why] : plan.damaged)
    fmt::print("{}: not changed: {}\n", to_string(key), why.to_string());
  fmt::print("{} would be deleted, {} kept\n", admin::counted(plan.remove.size(), "checkpoint"),
             plan.keep.size());
}

ordered_json plan_json(const admin::OpenRoot& root, const storage::RetentionPlan& plan) {
  ordered_json out;
  out["root"] = root.storage->describe();
  out["dry_run"] = true;
  out["keep"] = plan_items_json(plan.keep);
  out["delete"] = plan_items_json(plan.remove);
  out["finish"] = keys_json(plan.finish);
  out["sweep"] = keys_json(plan.sweep);
  out["undecided"] = ordered_json::array();
  for (const storage::AttemptInfo& info : plan.undecided) out["undecided"].push_back(key_json(info.key));
  out["damaged"] = ordered_json::array();
  for (const auto& [key, why] : plan.damaged) {
    ordered_json one = key_json(key);
    one["why"] = why.to_string();
    out["damaged"].push_back(std::move(one));
  }
  return out;
}

int exit_status_of(const admin::Collected& collected) {
  return collected.failed.empty() ? kExitOk : kExitDamaged;
}

}  // namespace shoal::cli
