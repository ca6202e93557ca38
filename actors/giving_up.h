// Why an attempt is given up, and whether to look at the root first. Read the table.
//
// A coordinator or node that gives up an attempt may not know of a shard that is durable: its host may have
// died before it reported. So if something did not come, the party that gives up commits the attempt if the
// root proves it complete (storage/decisions/completion.h). A later coordinator that finds the attempt does
// the same. If something that came is wrong, the attempt is aborted, whatever the root holds.
#pragma once

#include <cstdint>
#include <string>

#include "shoal/status.h"

namespace shoal::actors {

enum class GiveUp : uint8_t {
  // Something did not arrive.
  rank_ended,  // a trainer has ended, or the node of its host stops, before it staged the save
  host_lost,   // neither the node nor the trainers of a host came back
  deadline,    // the coordinator received no news, or a node no decision
  stopping,  // the coordinator or the node was requested to stop, and the missing part cannot arrive any more
  no_coordinator,   // the coordinator is lost, or could publish nothing
  root_unreliable,  // the coordinator could not publish the roster, or not check the reported files
  // Something is wrong.
  rank_failed,    // a rank could not write its pieces, or did not stage them: a full disk, a cancelled save
  contradiction,  // reports, layouts, metadata or planners contradict the plan or one another
  files_differ,   // a reported file is missing in the folder, or has another size
  // Another run decides by what the root holds, or this party has examined the root.
  superseded,  // another run has the root: this run commits nothing more
  unproven,    // the party that gives up has examined the root already
};

constexpr bool looks_at_root_first(GiveUp why) {
  switch (why) {
    case GiveUp::rank_ended:
    case GiveUp::host_lost:
    case GiveUp::deadline:
    case GiveUp::stopping:
    case GiveUp::no_coordinator:
    case GiveUp::root_unreliable:
      return true;
    case GiveUp::rank_failed:
    case GiveUp::contradiction:
    case GiveUp::files_differ:
    case GiveUp::superseded:
    case GiveUp::unproven:
      return false;
  }
  return false;
}

// How the cause of an abort states the failure of a rank: "no space: …", "its trainer ended …".
inline std::string failure_text(const Status& failure) {
  return failure.code() == Code::unavailable ? failure.message() : failure.to_string();
}

// How it states that all ranks of a host fail, and none of them is the cause.
inline std::string host_failure_text(const std::string& host, const Status& failure) {
  return "host " + host + ": " + failure.message();
}

// Whether something did not come in time. Then ranks that have staged nothing may be the cause.
constexpr bool is_overdue(GiveUp why) {
  return why == GiveUp::deadline || why == GiveUp::stopping;
}

// What the failure of a rank means. Code::unavailable: its trainer or node has ended, and the save with it.
inline GiveUp give_up_after(const Status& failure) {
  return failure.code() == Code::unavailable ? GiveUp::rank_ended : GiveUp::rank_failed;
}

}  // namespace shoal::actors
