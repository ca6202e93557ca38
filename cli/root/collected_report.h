// The output of rm and gc: lines, or one JSON object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "admin/collector.h"

namespace shoal::cli {

void print_collected(const admin::Collected& collected);
nlohmann::ordered_json collected_json(const admin::OpenRoot& root, const admin::Collected& collected);
// The effect of a plan, for --dry-run.
void print_plan(const admin::OpenRoot& root, const storage::RetentionPlan& plan);
nlohmann::ordered_json plan_json(const admin::OpenRoot& root, const storage::RetentionPlan& plan);
// kExitOk, or kExitDamaged if something could not be done.
int exit_status_of(const admin::Collected& collected);

}  // namespace shoal::cli
