#include "cli/node_times.h"

#include <fmt/format.h>

#include <string_view>

namespace shoal {

namespace {

constexpr uint32_t kMaxTimeMs = 24u * 3600 * 1000;

struct TimeFlag {
  const char* name;
  uint32_t RoleTimes::*member;
  const char* help;
};
constexpr TimeFlag kTimeFlags[] = {
    {"--report-partial-after-ms", &RoleTimes::report_partial_after_ms,
     "Report the ranks that have written, when others here have not"},
    {"--attempt-deadline-ms", &RoleTimes::attempt_deadline_ms,
     "Abort a save of which not every rank was reported, this long after the last one that was"},
    {"--node-deadline-ms", &RoleTimes::node_deadline_ms,
     "Abort a staged save of which the coordinator has said nothing; longer than the former"},
    {"--drain-patience-ms", &RoleTimes::drain_patience_ms,
     "After being told to stop: give up a save that nobody left can complete"},
    {"--host-lost-ms", &RoleTimes::host_lost_ms,
     "Abort saves that wait for a host, this long after its session broke and nobody of it came back"},
    {"--find-coordinator-ms", &RoleTimes::find_coordinator_ms,
     "A node that starts and cannot reach its coordinator ends after this time"},
    {"--epoch-check-ms", &RoleTimes::epoch_check_ms,
     "How often a coordinator looks whether a later one has come"},
    {"--abandoned-after-ms", &RoleTimes::abandoned_after_ms,
     "Before a load: abort what an earlier job left undecided and nobody has touched this long"},
    {"--lease-renew-ms", &RoleTimes::lease_renew_ms,
     "How often a load renews the pin by which it keeps its checkpoint"},
    {"--lease-ttl-ms", &RoleTimes::lease_ttl_ms,
     "A load that has not renewed its pin for this long is over; several times the former"},
};

}  // namespace

void add_time_options(CLI::App& command, RoleTimes* times) {
  for (const TimeFlag& flag : kTimeFlags) {
    command.add_option(flag.name, times->*flag.member, flag.help)
        ->check(CLI::Range(1u, kMaxTimeMs))
        ->capture_default_str()
        ->group("Deadlines");
  }
}

Status check_times(const RoleTimes& times) {
  auto too_short = [](std::string_view flag, uint32_t value, std::string_view other, uint32_t least) {
    return Status(Code::invalid_argument,
                  fmt::format("{} {} is too short beside {}: at least {}", flag, value, other, least));
  };
  if (times.node_deadline_ms <= times.attempt_deadline_ms) {
    return too_short("--node-deadline-ms", times.node_deadline_ms, "--attempt-deadline-ms",
                     times.attempt_deadline_ms + 1);
  }
  // Else whoever looks twice between two renewals takes a load that is alive for one that has ended.
  if (times.lease_ttl_ms < 2 * times.lease_renew_ms) {
    return too_short("--lease-ttl-ms", times.lease_ttl_ms, "--lease-renew-ms", 2 * times.lease_renew_ms);
  }
  return ok_status();
}

std::vector<std::string> time_arguments(const RoleTimes& times) {
  const RoleTimes defaults;
  std::vector<std::string> arguments;
  for (const TimeFlag& flag : kTimeFlags) {
    if (times.*flag.member == defaults.*flag.member) continue;
    arguments.push_back(flag.name);
    arguments.push_back(std::to_string(times.*flag.member));
  }
  return arguments;
}

}  // namespace shoal
