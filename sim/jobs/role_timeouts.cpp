#include "sim/jobs/role_timeouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/edit_distance.h"

namespace shoal::sim {

namespace {

struct NamedTimeout {
  std::string_view name;
  uint32_t actors::Timeouts::*field;
};

constexpr NamedTimeout kNamedTimeouts[] = {
    {"join_gather_ms", &actors::Timeouts::join_gather_ms},
    {"resend_first_ms", &actors::Timeouts::resend_first_ms},
    {"resend_most_ms", &actors::Timeouts::resend_most_ms},
    {"resend_host_us", &actors::Timeouts::resend_host_us},
    {"report_partial_after_ms", &actors::Timeouts::report_partial_after_ms},
    {"attempt_deadline_ms", &actors::Timeouts::attempt_deadline_ms},
    {"node_deadline_ms", &actors::Timeouts::node_deadline_ms},
    {"abandoned_after_ms", &actors::Timeouts::abandoned_after_ms},
    {"poll_ms", &actors::Timeouts::poll_ms},
    {"drain_patience_ms", &actors::Timeouts::drain_patience_ms},
    {"host_lost_ms", &actors::Timeouts::host_lost_ms},
    {"find_coordinator_ms", &actors::Timeouts::find_coordinator_ms},
    {"epoch_check_ms", &actors::Timeouts::epoch_check_ms},
    {"lease_renew_ms", &actors::Timeouts::lease_renew_ms},
    {"lease_ttl_ms", &actors::Timeouts::lease_ttl_ms},
    {"load_gather_quiet_ms", &actors::Timeouts::load_gather_quiet_ms},
    {"load_gather_longest_ms", &actors::Timeouts::load_gather_longest_ms},
    {"load_gather_most_ms", &actors::Timeouts::load_gather_most_ms},
    {"load_join_patience_ms", &actors::Timeouts::load_join_patience_ms},
    {"load_verify_patience_ms", &actors::Timeouts::load_verify_patience_ms},
    {"chunk_deadline_ms", &actors::Timeouts::chunk_deadline_ms},
};
static_assert(std::size(kNamedTimeouts) * sizeof(uint32_t) == sizeof(actors::Timeouts));

constexpr int64_t kLongestTimeoutMs = int64_t{24} * 3600 * 1000;

const NamedTimeout* timeout_named(std::string_view name) {
  const auto* found = std::ranges::find(kNamedTimeouts, name, &NamedTimeout::name);
  return found == std::end(kNamedTimeouts) ? nullptr : found;
}

Status invalid_timeout(const std::string& what) {
  return Status(Code::invalid_argument, what);
}

}  // namespace

Status set_role_timeout(std::string_view key, int64_t value, RoleTimeouts* into) {
  const std::string_view name = key.substr(kTimeoutsPrefix.size());
  if (timeout_named(name) == nullptr) {
    std::vector<std::string> names;
    for (const NamedTimeout& each : kNamedTimeouts) names.emplace_back(each.name);
    const auto nearest = base::nearest_name(std::string(name), names);
    return invalid_timeout(
        fmt::format("'{}' is not a timeout of the roles{}", key,
                    nearest ? fmt::format(": did you mean '{}{}'?", kTimeoutsPrefix, *nearest) : ""));
  }
  if (value < 1 || value > kLongestTimeoutMs) {
    return invalid_timeout(
        fmt::format("{} = {}: it must lie between 1 and {}", key, value, kLongestTimeoutMs));
  }
  into->insert_or_assign(std::string(name), static_cast<uint32_t>(value));
  return ok_status();
}

actors::Timeouts timeouts_of(const RoleTimeouts& set) {
  actors::Timeouts timeouts;
  for (const auto& [name, value] : set) timeouts.*(timeout_named(name)->field) = value;
  return timeouts;
}

Status check_role_timeouts(const RoleTimeouts& set) {
  const actors::Timeouts timeouts = timeouts_of(set);
  if (timeouts.lease_renew_ms >= timeouts.lease_ttl_ms) {
    return invalid_timeout(fmt::format("timeouts.lease_renew_ms = {}: it must be less than lease_ttl_ms = {}",
                                       timeouts.lease_renew_ms, timeouts.lease_ttl_ms));
  }
  if (timeouts.resend_first_ms > timeouts.resend_most_ms) {
    return invalid_timeout(
        fmt::format("timeouts.resend_first_ms = {}: it must not exceed resend_most_ms = {}",
                    timeouts.resend_first_ms, timeouts.resend_most_ms));
  }
  return ok_status();
}

}  // namespace shoal::sim
