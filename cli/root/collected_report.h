// The output of rm and gc: lines, or one JSON object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "admin/collector.h"

namespace shoal::cli {

void print_collected(const admin::Collected& collected);
// With `is_dry_run`, `collected` is what the command would do.
nlohmann::ordered_json collected_json(const admin::OpenRoot& root, const admin::Collected& collected,
                                      bool is_dry_run);
// The effect of a plan, for --dry-run.
void print_plan(const admin::OpenRoot& root, const storage::RetentionPlan& plan);
// The same as JSON, with the fields of collected_json and those of `more`. Returns an exit status.
int print_plan_as_json(std::string_view command, const admin::OpenRoot& root,
                       const storage::RetentionPlan& plan,
                       const nlohmann::ordered_json& more = nlohmann::ordered_json::object());
// kExitOk, or kExitDamaged if something could not be done.
int exit_status_of(const admin::Collected& collected);

}  // namespace shoal::cli
