// Why an attempt is given up, and whether to look at the root first. Read the table.
//
// A coordinator or node that gives up an attempt may not know of a shard that is durable: its host may have
// died before it reported. So if something did not come, the party that gives up commits the attempt if the
// root proves it complete (storage/decisions/completion.h). A later coordinator that finds the attempt does
// the same. If something that came is wrong, the attempt is aborted, whatever the root holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shoal/status.h"

namespace shoal::actors {

// The numbers are on the wire (giveUp, schema/wire.capnp), where 0 means that the cause is not stated: only
// append.
enum class GiveUp : uint8_t {
  // Something did not arrive.
  rank_ended = 1,  // a trainer has ended, or the node of its host stops, before it staged the save
  host_lost = 2,   // neither the node nor the trainers of a host came back
  deadline = 3,    // the coordinator received no news, or a node no decision
  // The coordinator or the node was requested to stop, and the missing part cannot arrive any more.
  stopping = 4,
  no_coordinator = 5,   // the coordinator is lost, or could publish nothing
  root_unreliable = 6,  // the coordinator could not publish the roster, or not check the reported files
  // Something is wrong.
  rank_failed = 7,    // a rank did not stage its pieces, or contradicts itself: a cancelled save
  contradiction = 8,  // reports, layouts, metadata or planners contradict the plan or one another
  files_differ = 9,   // a reported file is missing in the folder, or has another size
  // Another run decides by what the root holds, or this party has examined the root.
  superseded = 10,  // another run has the root: this run commits nothing more
  unproven = 11,    // the party that gives up has examined the root already
  // Something is wrong, as above.
  rank_lacks_space = 12,  // a rank could not write or stage: its root or memory is full, or fails
};
inline constexpr GiveUp kLastGiveUp = GiveUp::rank_lacks_space;

// nullopt: not stated, or by a newer program that knows more causes.
constexpr std::optional<GiveUp> give_up_of(uint8_t on_wire) {
  if (on_wire == 0 || on_wire > static_cast<uint8_t>(kLastGiveUp)) return std::nullopt;
  return static_cast<GiveUp>(on_wire);
}

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
    case GiveUp::rank_lacks_space:
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
  switch (failure.code()) {
    case Code::unavailable:
      return GiveUp::rank_ended;
    case Code::io:
    case Code::no_space:
      return GiveUp::rank_lacks_space;
    default:
      return GiveUp::rank_failed;
  }
}

}  // namespace shoal::actors
