#include "sim/failures/abort_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

#include "sim/basics/integer_math.h"

namespace shoal::sim {

namespace {

// What a text says. The first rule of kRules whose words are in the text counts.
enum class Cause : uint8_t {
  host_lost,   // each host that it names was away from the coordinator for long
  disk_fails,  // the disk of the named host failed
  disk_full,
  file_lost,      // a disk has lost a shard
  hangs,          // a disk makes no progress
  left_in_parts,  // the connection of the named rank ended before all parts of the save were copied
  rank_left,      // the named rank has left before it staged the save
  closed,         // the named rank has closed its Checkpointer
  dropped,        // a node of the named rank has ended that had dropped its bytes
  stopping,       // the node of the named rank's host was requested to stop
  later_run,      // another run has taken over the root
  replicas_differ,
  silence,  // something that was awaited did not come in time
};

struct Rule {
  std::string_view words;
  Cause cause;
};
constexpr std::array kRules = {
    Rule{"the disk fails", Cause::disk_fails},
    Rule{"the disk is full", Cause::disk_full},
    Rule{"replicas differ", Cause::replicas_differ},
    Rule{"while it staged in parts", Cause::left_in_parts},
    Rule{"has taken over the root", Cause::later_run},
    Rule{"it was still undecided when a later load began", Cause::silence},
    Rule{"it lost the coordinator", Cause::host_lost},
    Rule{"makes no progress", Cause::hangs},
    Rule{"is stopping, and the rank has not staged this save", Cause::stopping},
    Rule{"its trainer closed its Checkpointer", Cause::closed},
    Rule{"before it staged this save", Cause::rank_left},
    Rule{"dropped what this rank had staged", Cause::dropped},
    Rule{"did not attach to the new node of its host", Cause::rank_left},
    Rule{"was stopped while the coordinator could not be reached", Cause::silence},
    Rule{" is lost", Cause::host_lost},
    Rule{" are lost", Cause::host_lost},
    Rule{"were reported", Cause::file_lost},
    Rule{"are expected", Cause::file_lost},
    Rule{"does not exist: rank", Cause::file_lost},
    Rule{"cannot open", Cause::file_lost},
    Rule{"received no decision within", Cause::silence},
    Rule{"did not report within", Cause::silence},
    Rule{"nothing came from", Cause::silence},
    Rule{"no layout came from", Cause::silence},
    Rule{"did not send", Cause::silence},
    Rule{"did not write the pieces of its new plan", Cause::silence},
    Rule{"no node serve", Cause::silence},
};

// The numbers in "host host3", "hosts host3, host4", "host 3: WriteShard", "rank 3" or "ranks 3, 4 and 2
// more".
std::vector<uint64_t> numbers_after(std::string_view text, std::string_view word) {
  std::vector<uint64_t> numbers;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    size_t digits = at + word.size();
    if (text.substr(digits).starts_with('s')) ++digits;
    if (text.substr(digits).starts_with(' ')) ++digits;
    while (true) {
      uint64_t number = 0;
      const auto [end, error] = std::from_chars(text.data() + digits, text.data() + text.size(), number);
      if (error != std::errc()) break;
      numbers.push_back(number);
      digits = static_cast<size_t>(end - text.data());
      if (!text.substr(digits).starts_with(", ")) break;
      digits += 2;
    }
  }
  return numbers;
}

actors::TimeNs begins(const Failure& failure) {
  return nanoseconds(failure.at_ms) + static_cast<actors::TimeNs>(failure.at_ns);
}
constexpr actors::TimeNs kForever = std::numeric_limits<actors::TimeNs>::max() / 4;
// Until an outage is noticed, and until all have found each other again.
constexpr actors::TimeNs kOutage = 8'000 * actors::kMillisecond;
constexpr actors::TimeNs kRecovery = 15'000 * actors::kMillisecond;
// A trainer that lost its connection attaches again, and its node has noticed both.
constexpr actors::TimeNs kReconnected = 5'000 * actors::kMillisecond;
// Longest time until a trainer whose connection broke attaches again, if the failure states none.
constexpr actors::TimeNs kReattached = 2'000 * actors::kMillisecond;

actors::TimeNs lasts(const Failure& failure) {
  if (loses_trainers(failure.kind)) return kForever;  // they never come back in their run
  return nanoseconds(std::max(failure.for_ms, failure.back_after_ms) + failure.by_ms);
}

// While it lasts, nothing may pass between a host and the coordinator.
bool is_outage(Failure::Kind kind) {
  switch (kind) {
    case Failure::Kind::dies:
    case Failure::Kind::stalls:
    case Failure::Kind::restarts:
    case Failure::Kind::coordinates:
    case Failure::Kind::stops:
    case Failure::Kind::job_restarts:
    case Failure::Kind::reads_fail:  // a node that starts again cannot read what it needs
    case Failure::Kind::disk_fails:
      return true;
    case Failure::Kind::ends:  // a node ends with its last trainer
    case Failure::Kind::vanishes:
    case Failure::Kind::reopens:
    case Failure::Kind::reconnects:
      return true;
    default:
      return is_of_link(kind);
  }
}

// A trainer leaves its node for longer than it is awaited, or its node leaves it.
bool is_leave(const Failure& failure, actors::TimeNs host_lost) {
  switch (failure.kind) {
    case Failure::Kind::ends:
    case Failure::Kind::vanishes:
    case Failure::Kind::dies:
    case Failure::Kind::restarts:
    case Failure::Kind::coordinates:
    case Failure::Kind::stops:
    case Failure::Kind::job_restarts:
      return true;
    case Failure::Kind::reconnects:
    case Failure::Kind::reopens:
      return lasts(failure) + kReattached >= host_lost;
    default:
      return false;
  }
}

}  // namespace

void AbortCauses::coordinates(size_t host) {
  if (std::ranges::find(coordinators_, host) == coordinators_.end()) coordinators_.push_back(host);
}

bool AbortCauses::reaches_host(const Failure& failure, size_t host) const {
  if (failure.kind == Failure::Kind::twins) return false;
  if (is_of_rank(failure.kind)) return facts_.host_of(static_cast<Rank>(failure.rank)) == host;
  return is_one_of_hosts(host, failure.host, failure.hosts) ||
         (is_of_link(failure.kind) && is_one_of_hosts(host, failure.to_host, failure.to_hosts));
}

bool AbortCauses::reaches_rank(const Failure& failure, Rank rank) const {
  if (failure.kind == Failure::Kind::twins) return false;
  if (is_of_rank(failure.kind)) return failure.rank == rank;
  return reaches_host(failure, facts_.host_of(rank));
}

// Whether it has begun, and was over no longer than `lookback` before the save began.
bool AbortCauses::is_in_time(const Failure& failure, const Aborted& aborted, actors::TimeNs lookback) const {
  if (loses_trainers(failure.kind) && begins(failure) < facts_.run_began) return false;
  return begins(failure) <= aborted.now && begins(failure) + lasts(failure) + lookback >= aborted.began;
}

bool AbortCauses::is_away(const Aborted& aborted, size_t host) const {
  actors::TimeNs away = 0;
  for (const Failure& failure : facts_.failures) {
    const bool reaches = reaches_host(failure, host) || std::ranges::any_of(coordinators_, [&](size_t each) {
                           return reaches_host(failure, each);
                         });
    if (!is_outage(failure.kind) || !reaches) continue;
    if (!is_in_time(failure, aborted, 2 * facts_.host_lost + kRecovery)) continue;
    away = std::min(kForever, away + lasts(failure) + kOutage);
  }
  return away >= facts_.host_lost;
}

bool AbortCauses::fails_disk(const Aborted& aborted, size_t host, bool is_full) const {
  return std::ranges::any_of(facts_.failures, [&](const Failure& failure) {
    const bool gives_it =
        is_full ? failure.kind == Failure::Kind::disk_full
                : failure.kind == Failure::Kind::disk_fails || failure.kind == Failure::Kind::reads_fail;
    return gives_it && is_one_of_hosts(host, failure.host, failure.hosts) && is_in_time(failure, aborted, 0);
  });
}

bool AbortCauses::has_left(const Aborted& aborted, Rank rank) const {
  return std::ranges::any_of(facts_.failures, [&](const Failure& failure) {
    return is_leave(failure, facts_.host_lost) && reaches_rank(failure, rank) &&
           is_in_time(failure, aborted, facts_.host_lost + kReconnected);
  });
}

bool AbortCauses::loses_connection(const Aborted& aborted, Rank rank) const {
  return std::ranges::any_of(facts_.failures, [&](const Failure& failure) {
    const bool breaks_it = is_leave(failure, facts_.host_lost) || failure.kind == Failure::Kind::reconnects ||
                           failure.kind == Failure::Kind::reopens;
    return breaks_it && reaches_rank(failure, rank) && is_in_time(failure, aborted, kReconnected);
  });
}

bool AbortCauses::is_disturbed(const Aborted& aborted) const {
  return std::ranges::any_of(facts_.failures, [&](const Failure& failure) {
    return !excuses_nothing(failure.kind) && failure.kind != Failure::Kind::flips &&
           failure.kind != Failure::Kind::twins &&
           is_in_time(failure, aborted, 2 * facts_.host_lost + kRecovery);
  });
}

bool AbortCauses::happened(const Aborted& aborted, Failure::Kind kind) const {
  return std::ranges::any_of(facts_.failures, [&](const Failure& failure) {
    return failure.kind == kind && begins(failure) <= aborted.now;
  });
}

std::string AbortCauses::doubt(const Aborted& aborted) const {
  const auto rule = std::ranges::find_if(
      kRules, [&](const Rule& each) { return aborted.cause.find(each.words) != std::string::npos; });
  if (rule == kRules.end()) return "sim/failures/abort_causes.cpp has no rule for this cause";
  const std::vector<uint64_t> hosts = numbers_after(aborted.cause, "host");
  const std::vector<uint64_t> ranks = numbers_after(aborted.cause, "rank");
  bool is_explained = true;
  switch (rule->cause) {
    case Cause::host_lost:
      if (facts_.nodes_end) {
        is_explained = is_disturbed(aborted);
        break;
      }
      is_explained = std::ranges::all_of(hosts, [&](uint64_t host) { return is_away(aborted, host); });
      break;
    case Cause::disk_fails:
    case Cause::disk_full: {
      const bool is_full = rule->cause == Cause::disk_full;
      is_explained =
          std::ranges::any_of(hosts, [&](uint64_t host) { return fails_disk(aborted, host, is_full); });
      break;
    }
    case Cause::file_lost:
      is_explained = happened(aborted, Failure::Kind::disk_loses);
      break;
    case Cause::hangs:
      is_explained = happened(aborted, Failure::Kind::disk_hangs);
      break;
    case Cause::dropped:
    case Cause::closed:
    case Cause::rank_left: {
      if (ranks.empty()) break;  // the trainer's own; it hears of its end
      const Rank rank = static_cast<Rank>(ranks.front());
      if (!has_left(aborted, rank)) return fmt::format("no failure took rank {} away", rank);
      // Else what it staged did not reach the node, or was lost with that.
      const bool is_connected = std::ranges::none_of(facts_.failures, [&](const Failure& failure) {
        const bool only_ends = failure.kind == Failure::Kind::ends || failure.kind == Failure::Kind::vanishes;
        return is_outage(failure.kind) && !only_ends && reaches_rank(failure, rank);
      });
      if (is_connected && facts_.has_staged(rank, aborted.save)) {
        return fmt::format("rank {} has staged it, and was connected to its node", rank);
      }
      break;
    }
    case Cause::left_in_parts:
      is_explained = std::ranges::any_of(
          ranks, [&](uint64_t rank) { return loses_connection(aborted, static_cast<Rank>(rank)); });
      break;
    case Cause::stopping:
      is_explained = happened(aborted, Failure::Kind::stops);
      break;
    case Cause::later_run:
      is_explained = happened(aborted, Failure::Kind::job_restarts);
      break;
    case Cause::replicas_differ:
      is_explained = happened(aborted, Failure::Kind::flips);
      break;
    case Cause::silence:
      is_explained = is_disturbed(aborted);
      break;
  }
  return is_explained ? "" : "no failure gives this cause";
}

}  // namespace shoal::sim
