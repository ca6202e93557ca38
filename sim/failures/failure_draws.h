// Draws failures from a scenario's seed. A string has rules joined by '+':
//
//   poisson:mtbf_node_hours=1000            each host dies at this rate, independently
//   weibull:k=0.78,scale_node_hours=1000    the same with a hazard that falls (k < 1) or grows (k > 1)
//     rack_hosts=8, mtbf_rack_hours=9000    whole racks die too
//     spread_permille=200, spread_ms=10000  within spread_ms, other hosts of the rack may die too
//     back_after_ms=60000                   nodes start again after this time
//   mixed:count=8                           this many failures of all kinds, or of kinds=stalls/cut
//
// All failures are before until_ms, by default about the end of the job's last save.
//
// Times to failure of hosts in large systems have a Weibull distribution with a shape below one: Schroeder
// and Gibson, "A large-scale study of failures in high-performance computing systems", DSN 2006, find 0.7 to
// 0.8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/failures/failure.h"

namespace shoal::sim {

struct FailureRule {
  enum class Kind : uint8_t { poisson, weibull, mixed } kind = Kind::poisson;
  uint64_t node_hours = 0;  // poisson: mean time to the failure of a host; weibull: the scale
  uint64_t shape_permille = kPermille;
  uint64_t rack_hosts = 0;
  uint64_t rack_hours = 0;  // mean time to the failure of a rack
  uint64_t spread_permille = 0;
  uint64_t spread_ms = 10'000;
  uint64_t back_after_ms = 0;
  uint64_t until_ms = 0;  // 0: DrawnJob::until_ms
  uint64_t count = 0;
  std::vector<Failure::Kind> kinds;  // empty: all
};
struct DrawnJob {
  uint64_t hosts = 1;
  uint64_t ranks = 1;
  uint64_t until_ms = 0;
  uint64_t seed = 0;
};

Result<std::vector<FailureRule>> parse_failure_rules(std::string_view text);  // no rules for ""
// The failures are not sorted. Code::too_large beyond kMaxFailures.
Result<std::vector<Failure>> draw_failures(const std::vector<FailureRule>& rules, const DrawnJob& job);

}  // namespace shoal::sim
