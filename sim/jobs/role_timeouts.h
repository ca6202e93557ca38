// The timeouts of the roles that a simulated job sets: `timeouts.NAME`, where NAME is a field of
// actors::Timeouts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "actors/config.h"

namespace shoal::sim {

inline constexpr std::string_view kTimeoutsPrefix = "timeouts.";

using RoleTimeouts = std::map<std::string, uint32_t>;  // by name, without the prefix

// `key` has the prefix. Code::invalid_argument if there is no such timeout, or if the value is not positive
// or longer than a day.
Status set_role_timeout(std::string_view key, int64_t value, RoleTimeouts* into);
// The defaults, but for the timeouts that are set. Precondition: set_role_timeout accepted each.
actors::Timeouts timeouts_of(const RoleTimeouts& set);
// Code::invalid_argument if two of them contradict each other.
Status check_role_timeouts(const RoleTimeouts& set);

}  // namespace shoal::sim
