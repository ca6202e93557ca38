// The flags of a node's deadlines, which `shoal node` takes and `shoal launch` passes on.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "actors/role.h"
#include "base/status.h"

namespace shoal {

void add_time_options(CLI::App& command, RoleTimes* times);
// Code::invalid_argument where two of them contradict each other: a lease that ends before it is renewed, a
// node that gives up before the coordinator does.
Status check_times(const RoleTimes& times);
// Flags that make a node have these times: those that differ from the default.
std::vector<std::string> time_arguments(const RoleTimes& times);

}  // namespace shoal
