// Faults drawn from a scenario's seed, by rules of one line each, joined by '+':
//
//   poisson:mtbf_node_hours=1000            each host dies at a rate of its own
//   weibull:k=0.78,scale_node_hours=1000    the same with a hazard that falls (k < 1) or grows
//     with rack_hosts=8, mtbf_rack_hours=9000 whole racks die too; with spread_permille=200 each other host
//     of its rack follows one that dies, within spread_ms; back_after_ms=60000: nodes come back
//   mixed:count=8                           so many faults of all kinds, or of kinds=stalls/cut
//
// All of them fall before until_ms: by default about when the job's last save ends.
//
// Times to failure of hosts in large systems are Weibull of a shape below one: Schroeder and Gibson, "A
// large-scale study of failures in high-performance computing systems", DSN 2006, find 0.7 to 0.8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/failures/fault.h"

namespace shoal::sim {

struct FaultRule {
  enum class Kind : uint8_t { poisson, weibull, mixed } kind = Kind::poisson;
  uint64_t node_hours = 0;  // poisson: mean time to a host's failure; weibull: its scale
  uint64_t shape_permille = kPermille;
  uint64_t rack_hosts = 0;
  uint64_t rack_hours = 0;  // mean time to a rack's failure
  uint64_t spread_permille = 0;
  uint64_t spread_ms = 10'000;
  uint64_t back_after_ms = 0;
  uint64_t until_ms = 0;  // 0: as the job says
  uint64_t count = 0;
  std::vector<Fault::Kind> kinds;  // empty: all
};
struct DrawnJob {
  uint64_t hosts = 1;
  uint64_t ranks = 1;
  uint64_t until_ms = 0;
  uint64_t seed = 0;
};

Result<std::vector<FaultRule>> parse_fault_rules(std::string_view text);  // of "" none
// In no order. Code::too_large beyond kMaxFaults.
Result<std::vector<Fault>> draw_faults(const std::vector<FaultRule>& rules, const DrawnJob& job);

}  // namespace shoal::sim
