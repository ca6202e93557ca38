// --keep-last, --keep-every and --keep-for, which `shoal node`, `launch` and `gc` take.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "storage/retention.h"

namespace shoal {

void add_retention_options(CLI::App& command, RetentionPolicy* policy);
// Flags that make a node have this policy.
std::vector<std::string> retention_arguments(const RetentionPolicy& policy);
// "90s", "15m", "36h", "7d", or seconds without a unit. Code::invalid_argument.
Result<uint64_t> parse_duration_s(const std::string& text);

}  // namespace shoal
