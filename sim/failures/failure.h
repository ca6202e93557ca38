// Failure: one failure in a simulated job, and its time. Lists of failures are data: a user may write them in
// a scenario, a seed may draw them (sim/failures/failure_draws.h), and a program may print them, shorten them
// and run them again. In a file:
//
//   [[failure]]
//   at_ms = 61_000
//   kind = "dies"          # the power of a host fails: its node and its trainers are gone
//   host = 3
//   hosts = 8              # hosts 3 to 10: a rack
//
// docs/how-to/simulate.md describes each kind and its keys. Only failures that Shoal must survive are
// injected. sim/failures/failure_injector.h carries them out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/status.h"
#include "sim/basics/toml_tree.h"

namespace shoal::sim {

inline constexpr size_t kMaxFailures = 100'000;         // per scenario, including drawn failures
inline constexpr uint32_t kMaxFailureHosts = 1u << 22;  // and ranks, that a failure may name
inline constexpr uint32_t kPermille = 1000;

struct Failure {
  enum class Kind : uint8_t {
    dies,          // hosts die; after back_after_ms a node starts there again, without trainers
    stalls,        // nodes of hosts pause for for_ms; after 2.5 s their peers consider them lost
    restarts,      // processes of the hosts' nodes end; new ones replace them after for_ms
    coordinates,   // the node of host restarts as the coordinator of the next epoch
    ends,          // the trainer of rank ends, and its launcher reports this to the node
    vanishes,      // the trainer of rank ends without a report
    cut,           // messages from hosts to to_hosts are lost for for_ms; the other direction works
    loses,         // for for_ms, permille of the messages from hosts to to_hosts are lost
    delays,        // permille of these messages arrive by_ms later, and so do those behind them
    doubles,       // permille of these messages arrive twice, the second time up to by_ms later
    reorders,      // permille of these messages arrive up to by_ms later, and others overtake them
    disk_slow,     // storage requests of hosts take factor times as long, for for_ms
    disk_hangs,    // writes of shards by hosts make no progress for for_ms
    disk_fails,    // permille of the hosts' storage operations fail, for for_ms
    disk_full,     // operations of hosts that create files fail, for for_ms
    reads_fail,    // permille of the hosts' storage operations that only read fail, for for_ms
    disk_loses,    // for for_ms, permille of the shards that hosts write are missing or too short afterwards,
                   // although the write reports success
    sweeps,        // an operator on the host runs `shoal gc`: it removes the files of all aborted attempts
    stops,         // nodes of hosts are requested to stop, and end when drained; new ones start for_ms later
    reconnects,    // the connection of the trainer of rank to its node breaks; the trainer attaches again
                   // within a second, or for_ms later
    flips,         // a bit of the memory of the trainer of rank flips, in what other ranks hold too; the
                   // digests of replica_check show it, the stored bytes do not
    job_restarts,  // nodes and trainers of hosts are killed; for_ms later another run of the job starts on
                   // `ranks` ranks, loads the newest checkpoint and goes on saving. The other hosts go on
                   // too.
    // What operators do while the job runs. No save may fail because of it. `behind`: how many checkpoints
    // are newer than the one that is meant; without so many, nothing happens.
    pins,      // `shoal pin`; for_ms later, if that is set, `shoal pin --remove`
    tags,      // the same with `shoal tag`
    removes,   // `shoal rm`, which refuses what must be kept
    collects,  // `shoal gc --keep-last`, which keeps `keep` checkpoints
    rots,     // a bit of a file of a committed checkpoint flips on the disk. `part`: 0 the data of a shard, 1
              // its header, 2 the manifest; `permille`: where. Needs true bytes. No save may fail because of
              // it, and no load may bring other bytes
    reopens,  // the trainer of rank closes its Checkpointer, and opens another one for_ms later
    corrupts,  // for for_ms, a bit flips in permille of the chunks that hosts send to others that load the
               // same checkpoint. No load may fail because of it, or bring other bytes. Needs true bytes
    twins,     // another process of rank attaches to the node of host, which is not its own, and ends for_ms
               // later
  };
  static constexpr size_t kKinds = 30;
  static constexpr size_t kMixedKinds = 21;  // the first ones: those that a rule "mixed" draws by default

  Kind kind = Kind::dies;
  uint64_t at_ms = 0;
  uint64_t host = 0;  // the first host
  uint64_t for_ms = 0;
  uint64_t hosts = 1;    // number of hosts; 0: all
  uint64_t to_host = 0;  // failures of links: the first receiving host
  uint64_t to_hosts = 0;
  uint64_t rank = 0;
  uint64_t back_after_ms = 0;  // 0: never
  uint64_t by_ms = 0;
  uint64_t permille = kPermille;
  uint64_t factor = 1;
  uint64_t ranks = 0;  // of the job that starts again
  uint64_t behind = 0;
  uint64_t keep = 0;
  uint64_t part = 0;
  uint64_t at_ns = 0;  // added to at_ms, for a failure that is aimed at an event; less than a millisecond
  TomlPlace toml_place;

  // The time at which the failure is over: at_ms plus its duration, or at_ms if it has no duration.
  uint64_t ends_ms() const { return at_ms + (for_ms > back_after_ms ? for_ms : back_after_ms); }
  friend bool operator==(const Failure&, const Failure&) = default;
};

inline bool is_of_rank(Failure::Kind kind) {  // of one trainer, not of hosts
  return kind == Failure::Kind::ends || kind == Failure::Kind::vanishes ||
         kind == Failure::Kind::reconnects || kind == Failure::Kind::reopens ||
         kind == Failure::Kind::flips || kind == Failure::Kind::twins;
}
inline bool is_of_link(Failure::Kind kind) {
  return kind >= Failure::Kind::cut && kind <= Failure::Kind::reorders;
}
inline bool is_of_disk(Failure::Kind kind) {
  return kind >= Failure::Kind::disk_slow && kind <= Failure::Kind::disk_loses;
}
// Trainers end, and their run goes on without them.
inline bool loses_trainers(Failure::Kind kind) {
  return kind == Failure::Kind::ends || kind == Failure::Kind::vanishes || kind == Failure::Kind::dies;
}
// Whether the host is one of `count` hosts from `first` on; 0: of all.
inline bool is_one_of_hosts(uint64_t host, uint64_t first, uint64_t count) {
  return count == 0 || (host >= first && host < first + count);
}
// No save may fail, or take longer, because of it.
inline bool excuses_nothing(Failure::Kind kind) {
  return kind == Failure::Kind::sweeps || kind == Failure::Kind::corrupts ||
         (kind >= Failure::Kind::pins && kind <= Failure::Kind::rots);
}
// It may happen after trainers have closed their Checkpointers: no process of a node or trainer ends, of
// which the next one would have to hear what was staged.
bool is_for_closed_trainers(Failure::Kind kind);
std::string_view failure_kind_name(Failure::Kind kind);
std::string failure_kind_names();               // "dies, stalls, ..."
std::string to_string(const Failure& failure);  // "host 3 dies at 61000 ms"
// Its keys and values, without at_ms, at_ns and kind and without keys that have their default value.
std::vector<std::pair<std::string_view, uint64_t>> failure_values(const Failure& failure);
std::string failure_toml(const Failure& failure);  // a [[failure]] table that parse_failure reads back
// Errors are "file:line: why", for a key that the kind does not have or that is missing, and for values out
// of range.
Result<Failure> parse_failure(const TomlTable& message);
// Checks that its hosts and its rank exist. Code::invalid_argument; names file and line if the failure is
// from a file.
Status check_failure(const Failure& failure, uint64_t hosts, uint64_t ranks);
// "hosts 3 to 10"
std::string name_hosts(uint64_t first, uint64_t count);

}  // namespace shoal::sim
