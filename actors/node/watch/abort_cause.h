// AbortCause: why a save was aborted, as the metrics count it. The set is closed: each cause is one series.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "actors/giving_up.h"

namespace shoal::actors {

enum class AbortCause : uint8_t {
  host_lost,
  rank_ended,
  rank_failed,
  deadline,
  storage,  // the root or the memory of a host: full, failing, or without a reported file
  contradiction,
  no_coordinator,
  stopped,  // somebody requested the job or a node to stop
  superseded,
  abandoned,  // found undecided, and the root does not prove it complete
  undecided,  // no decision could be published
  other,      // this node learned of the abort from the root, or from an older node
};
inline constexpr std::array kAbortCauseNames = {
    std::string_view("host_lost"),      std::string_view("rank_ended"), std::string_view("rank_failed"),
    std::string_view("deadline"),       std::string_view("storage"),    std::string_view("contradiction"),
    std::string_view("no_coordinator"), std::string_view("stopped"),    std::string_view("superseded"),
    std::string_view("abandoned"),      std::string_view("undecided"),  std::string_view("other")};
inline constexpr size_t kAbortCauses = kAbortCauseNames.size();
static_assert(static_cast<size_t>(AbortCause::other) + 1 == kAbortCauses);

constexpr AbortCause abort_cause_of(std::optional<GiveUp> why) {
  if (!why) return AbortCause::other;
  switch (*why) {
    case GiveUp::rank_ended:
      return AbortCause::rank_ended;
    case GiveUp::host_lost:
      return AbortCause::host_lost;
    case GiveUp::deadline:
      return AbortCause::deadline;
    case GiveUp::stopping:
      return AbortCause::stopped;
    case GiveUp::no_coordinator:
      return AbortCause::no_coordinator;
    case GiveUp::root_unreliable:
    case GiveUp::files_differ:
    case GiveUp::rank_lacks_space:
      return AbortCause::storage;
    case GiveUp::rank_failed:
      return AbortCause::rank_failed;
    case GiveUp::contradiction:
      return AbortCause::contradiction;
    case GiveUp::superseded:
      return AbortCause::superseded;
    case GiveUp::unproven:
      return AbortCause::abandoned;
  }
  return AbortCause::other;
}

}  // namespace shoal::actors
