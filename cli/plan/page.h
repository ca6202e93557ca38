// The page of `shoal plan --html`.
#pragma once

#include <string>

#include "cli/plan/plan_case.h"

namespace shoal::cli {

// One self-contained HTML page: the takeaway, the curve of each case against the interval with the band of
// the asked one, a bar of where the time goes, and tables. No script, no network; light and dark. Equal input
// gives equal text.
std::string plan_page(const PlanResult& result);

}  // namespace shoal::cli
