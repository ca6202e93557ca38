// Why an attempt is given up, and whether what the root holds is looked at first. Read the table.
//
// A coordinator or node that gives up an attempt may not have heard of a shard that is durable all the same:
// its host died before the report, say. Where something does not come, whoever gives up therefore commits the
// attempt if the root proves it complete (storage/decisions/completion.h), as those do who find it later.
// Where something that came is wrong, it is aborted, whatever lies in the root.
#pragma once

#include <cstdint>

#include "shoal/status.h"

namespace shoal::actors {

enum class GiveUp : uint8_t {
  // Something does not come.
  rank_gone,       // a trainer has ended, or the node of its host stops, and it has not staged the save
  host_lost,       // neither node nor trainers of a host came back
  deadline,        // the coordinator heard nothing new, or a node no decision
  stopping,        // the coordinator or the node is told to stop, and what is missing cannot come any more
  no_coordinator,  // it is lost, or could publish nothing
  // Something is wrong.
  rank_failed,    // a rank could not write its share, or did not stage it: a full disk, a cancelled save
  contradiction,  // reports, layouts, metadata or planners contradict the plan or one another
  files_differ,   // a reported file is missing in the folder, or has another size
  // Others decide by what lies in the root, or have looked.
  superseded,  // another run has the root: this one commits nothing more
  unproven,    // whoever gives up has looked already
};

constexpr bool looks_at_root_first(GiveUp why) {
  switch (why) {
    case GiveUp::rank_gone:
    case GiveUp::host_lost:
    case GiveUp::deadline:
    case GiveUp::stopping:
    case GiveUp::no_coordinator:
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

// What a rank's failure means. Code::unavailable: its trainer or node has ended, and nothing came of it here.
inline GiveUp give_up_after(const Status& failure) {
  return failure.code() == Code::unavailable ? GiveUp::rank_gone : GiveUp::rank_failed;
}

}  // namespace shoal::actors
