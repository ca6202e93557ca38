// Fault: one thing that goes wrong in a simulated job, and when. Lists of faults are data: written by hand in
// a scenario, drawn from a seed (sim/failures/fault_draws.h), printed, cut down and run again. In a file:
//
//   [[failure]]
//   at_ms = 61_000
//   kind = "dies"          # a host's power fails: its node and its trainers are gone
//   host = 3
//   hosts = 8              # hosts 3 to 10: a rack
//
// What each kind means, and which keys it has, is said in docs/how-to/simulate.md; injected is only what must
// be survived. sim/failures/fault_injector.h carries them out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/status.h"
#include "sim/basics/toml_tree.h"

namespace shoal::sim {

inline constexpr size_t kMaxFaults = 100'000;  // of a scenario, drawn ones included
inline constexpr uint32_t kPermille = 1000;

struct Fault {
  enum class Kind : uint8_t {
    dies,         // hosts; with back_after_ms a node comes back there, without trainers
    stalls,       // hosts: their nodes stand still for_ms; after 2.5 s their peers take them for dead
    restarts,     // hosts: their nodes' processes end; others take their places after for_ms
    coordinates,  // host: its node begins again as the coordinator of the next epoch
    ends,         // rank: its trainer ends, and its launcher tells the node
    vanishes,     // rank: its trainer ends, and nobody tells
    cut,          // messages from hosts to to_hosts are lost for_ms, and those alone
    loses,        // of messages from hosts to to_hosts, permille are lost, for_ms
    delays,       // of these, permille come by_ms later, and those behind them too
    doubles,      // of these, permille come again, up to by_ms later
    reorders,     // of these, permille come up to by_ms later, others overtake them
    disk_slow,    // what hosts ask of the storage takes factor times as long, for_ms
    disk_fails,   // permille of hosts' operations on the storage fail, for_ms
    disk_full,    // hosts' operations that write fail, for_ms
    stops,        // hosts: their nodes are told to stop, and end when they have drained; others take their
                  // places for_ms after that
  };
  static constexpr size_t kKinds = 15;

  Kind kind = Kind::dies;
  uint64_t at_ms = 0;
  uint64_t host = 0;  // the first of ...
  uint64_t for_ms = 0;
  uint64_t hosts = 1;    // ... so many; 0: all
  uint64_t to_host = 0;  // of links: who receives
  uint64_t to_hosts = 0;
  uint64_t rank = 0;
  uint64_t back_after_ms = 0;  // 0: never
  uint64_t by_ms = 0;
  uint64_t permille = kPermille;
  uint64_t factor = 1;
  SaidAt said_at;

  // When it is over: for one that lasts at_ms + for_ms, for one that does not at_ms.
  uint64_t ends_ms() const { return at_ms + (for_ms > back_after_ms ? for_ms : back_after_ms); }
  friend bool operator==(const Fault&, const Fault&) = default;
};

std::string_view fault_kind_name(Fault::Kind kind);
std::string to_string(const Fault& fault);  // "host 3 dies at 61000 ms"
// Its keys beside at_ms and kind, without those that it leaves at what is usual.
std::vector<std::pair<std::string_view, uint64_t>> fault_values(const Fault& fault);
std::string fault_toml(const Fault& fault);  // a [[failure]], which parse_fault reads back
// "file:line: why" of a key that its kind has not, or lacks, and of absurd values.
Result<Fault> parse_fault(const TomlTable& said);
// That its hosts and its rank are there. Code::invalid_argument, with file and line where a file says it.
Status check_fault(const Fault& fault, uint64_t hosts, uint64_t ranks);
// "hosts 3 to 10"
std::string name_hosts(uint64_t first, uint64_t count);

}  // namespace shoal::sim
