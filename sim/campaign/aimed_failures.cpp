#include "sim/campaign/aimed_failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "actors/operation_traits.h"
#include "sim/basics/random.h"
#include "sim/failures/failure_draws.h"
#include "sim/reports/event_text.h"
#include "sim/simulation.h"

namespace shoal::sim {

namespace {

struct Moment {
  actors::TimeNs at = 0;
  size_t node = 0;
};
using Moments = std::map<std::string, std::vector<Moment>>;  // by kind

// From a nanosecond before the moment, so that the event itself is hit, to well behind it. Three of eight hit
// the event: a disk that fails must fail when an operation begins.
constexpr std::array<actors::TimeNs, 8> kOffsets = {-1, -1, -1, 1, 10'000, 100'000, 1'000'000, 20'000'000};

// Until then trainers attach. The simulator does not model trainers and nodes that end before.
constexpr actors::TimeNs kAttachedNs = 100'000;

Result<Moments> moments_of(const Scenario& scenario, const Profile& profile) {
  Moments moments;
  SimulationListeners listeners;
  listeners.is_rehearsal = true;
  listeners.event = [&](actors::TimeNs now, size_t node, actors::RoleKind role, const actors::Event& event,
                        size_t) {
    moments[fmt::format("{}: {}", actors::role_name(role), event_name(event))].push_back({now, node});
  };
  listeners.operation = [&](actors::TimeNs now, size_t node, const actors::Operation& operation) {
    moments[fmt::format("node: {}", actors::traits_of(operation).name)].push_back({now, node});
  };
  SHOAL_ASSIGN_OR_RETURN(SimulationReport report, simulate(scenario, profile, listeners));
  (void)report;  // a violation is found again by the run that counts
  return moments;
}

// What begins while a job still recovers from another failure is what roles handle least often. Roles keep
// the state of a save for a much shorter time, and at one node.
constexpr actors::TimeNs kRecoversNs = 20'000 * actors::kMillisecond, kOneSaveNs = 50 * actors::kMillisecond;

// Where and when the failure before begins.
struct Before {
  actors::TimeNs at = -1;      // -1: there is none
  std::optional<size_t> node;  // none: several
};

Before before_of(const Failure& failure, const Scenario& scenario) {
  Before before;
  before.at = static_cast<actors::TimeNs>(failure.at_ms) * actors::kMillisecond +
              static_cast<actors::TimeNs>(failure.at_ns);
  if (is_of_rank(failure.kind)) {
    before.node = failure.rank / scenario.ranks_per_host;
  } else if (failure.hosts == 1) {
    before.node = failure.host;
  }
  return before;
}

// Keeps the moments within kRecoversNs after the failure before, or those of its node within kOneSaveNs, if
// there are any.
void keep_those_after(const Before& before, bool of_its_node, Moments& moments) {
  if (before.at < 0) return;
  const actors::TimeNs until = before.at + (of_its_node ? kOneSaveNs : kRecoversNs);
  Moments kept;
  for (const auto& [name, of_kind] : moments) {
    for (const Moment& moment : of_kind) {
      const bool is_there = !of_its_node || !before.node || moment.node == *before.node;
      if (is_there && moment.at >= before.at && moment.at <= until) kept[name].push_back(moment);
    }
  }
  if (!kept.empty()) moments = std::move(kept);
}

// Half of the failures that are aimed at an operation of a node are failures of its disk, and half of those
// aimed at a message are failures of links.
std::string rules_for(const Aim& aim, const std::string& moment, Random& random) {
  std::vector<Failure::Kind> kinds = aim.kinds;
  for (size_t kind = 0; aim.kinds.empty() && kind < Failure::kMixedKinds; ++kind) {
    kinds.push_back(static_cast<Failure::Kind>(kind));
  }
  const bool is_operation = moment.starts_with("node: ");
  const bool is_message = moment.find(": Received ") != std::string::npos;
  if ((is_operation || is_message) && random.below(2) == 0) {
    std::vector<Failure::Kind> fitting;
    std::ranges::copy_if(kinds, std::back_inserter(fitting), is_operation ? is_of_disk : is_of_link);
    if (!fitting.empty()) kinds = fitting;
  }
  std::vector<std::string_view> names;
  for (const Failure::Kind kind : kinds) names.push_back(failure_kind_name(kind));
  return fmt::format("mixed:count=1,until_ms=1,kinds={}", fmt::join(names, "/"));
}

// A job that starts again in the middle of a save must decide that one.
bool is_of_a_save(const std::string& moment) {
  constexpr std::array kParts = {"Staged",   "Written",    "WriteShard", "Publish",
                                 "Manifest", "CheckFiles", "Decision"};
  return std::ranges::any_of(kParts,
                             [&](const char* part) { return moment.find(part) != std::string::npos; });
}

void keep_those_of_saves(Moments& moments) {
  Moments kept;
  for (const auto& [name, of_kind] : moments) {
    if (is_of_a_save(name)) kept[name] = of_kind;
  }
  if (!kept.empty()) moments = std::move(kept);
}

void make_brief(Failure& failure) {
  constexpr uint64_t kLongestMs = 2'000, kMostDelayMs = 500;
  if (failure.for_ms > kLongestMs) failure.for_ms = 1 + failure.for_ms % kLongestMs;
  if (failure.by_ms > kMostDelayMs) failure.by_ms = 1 + failure.by_ms % kMostDelayMs;
}

void set_time_and_place(Failure& failure, const Moment& moment, const Scenario& scenario, Random& random) {
  const actors::TimeNs offset = kOffsets[random.below(kOffsets.size())];
  const actors::TimeNs at = std::max(kAttachedNs, moment.at + offset);
  failure.at_ms = static_cast<uint64_t>(at / actors::kMillisecond);
  failure.at_ns = static_cast<uint64_t>(at % actors::kMillisecond);
  const bool is_there = random.below(4) != 0;  // else where it was drawn
  if (!is_there || failure.hosts == 0) return;
  if (moment.node >= scenario.hosts()) return;  // of a later run, which has more hosts
  const bool is_rank = is_of_rank(failure.kind);
  if (is_rank) {
    const uint64_t first = moment.node * scenario.ranks_per_host;
    const uint64_t after = std::min<uint64_t>(first + scenario.ranks_per_host, scenario.ranks);
    failure.rank = first + random.below(after - first);
  } else {
    failure.host = moment.node;
    failure.hosts = std::min<uint64_t>(failure.hosts, scenario.hosts() - moment.node);
  }
}

}  // namespace

Result<Scenario> aim_failures(const Scenario& scenario, const Profile& profile, const std::vector<Aim>& aims,
                              uint64_t seed, AimCounts* counts) {
  SHOAL_ASSIGN_OR_RETURN(Scenario aimed, with_all_failures(scenario));
  Random random(stream_seed(seed, Stream::aims));
  Before before = aimed.failures.empty() ? Before() : before_of(aimed.failures.back(), aimed);
  Moments seen;
  bool is_other_run = true;  // than the one whose moments were seen
  for (const Aim& aim : aims) {
    // What excuses nothing hardly changes a run.
    if (is_other_run) {
      SHOAL_ASSIGN_OR_RETURN(seen, moments_of(aimed, profile));
    }
    Moments moments = seen;
    const DrawnJob job{aimed.hosts(), aimed.ranks, 1, random.next()};
    if (moments.empty()) break;  // everything died before anything began
    if (!aim.moment.empty()) {
      const auto wanted = moments.find(aim.moment);
      if (wanted == moments.end()) continue;
      Moments only;
      only.insert(*wanted);
      moments = std::move(only);
    }
    const bool restarts = aim.kinds == std::vector{Failure::Kind::job_restarts};
    if (const uint64_t near = random.below(8); near < 4 || aim.is_near) {
      keep_those_after(before, aim.is_near || (near == 0 && !restarts), moments);
    }
    if (restarts && random.below(4) != 0) keep_those_of_saves(moments);
    const auto& [name, of_kind] = *std::next(moments.begin(), random.below(moments.size()));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<FailureRule> rules,
                           parse_failure_rules(rules_for(aim, name, random)));
    SHOAL_ASSIGN_OR_RETURN(std::vector<Failure> drawn, draw_failures(rules, job));
    if (aim.is_brief) make_brief(drawn.front());
    if (random.below(2) == 0) drawn.front().permille = kPermille;  // what it is aimed at surely fails
    set_time_and_place(drawn.front(), of_kind[random.below(of_kind.size())], aimed, random);
    before = before_of(drawn.front(), aimed);
    is_other_run = !excuses_nothing(drawn.front().kind);
    ++(*counts)[{name, drawn.front().kind}];
    aimed.failures.push_back(drawn.front());
    SHOAL_ASSIGN_OR_RETURN(aimed, with_all_failures(aimed));  // sorts them
  }
  return aimed;
}

}  // namespace shoal::sim
