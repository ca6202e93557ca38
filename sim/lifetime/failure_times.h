// Failure times: when a job of months is interrupted. Hosts, racks, the job's own processes and the storage
// fail independently of each other, each by a mean time and one shape. The draws of a seed do not depend on
// what the job does, so jobs that differ only in their interval meet the same failures.
//
// Times between failures of large systems are not exponential: Schroeder and Gibson, "A large-scale study of
// failures in high-performance computing systems", DSN 2006, fit a Weibull distribution with shape 0.7 to
// 0.8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/ids.h"
#include "shoal/status.h"

namespace shoal::sim {

inline constexpr actors::TimeNs kSecond = 1000 * actors::kMillisecond;
inline constexpr actors::TimeNs kHour = 3600 * kSecond;
inline constexpr size_t kMaxRecordedFailures = 1'000'000;
inline constexpr size_t kMaxFailuresOfALife = 10'000'000;
inline constexpr int64_t kMaxMtbfHours = 1'000'000;

// The distribution of the times between two failures of the same kind. All have the mean that
// FailureModel states; recorded gaps have their own.
struct GapShape {
  enum class Kind : uint8_t {
    poisson,   // exponential gaps
    weibull,   // shape below 1: failures come in groups
    recorded,  // the gaps of a file, in its order, from a random one on; after the last comes the first
  };
  Kind kind = Kind::poisson;
  uint32_t shape_permille = 1000;    // weibull
  std::vector<actors::TimeNs> gaps;  // recorded

  friend bool operator==(const GapShape&, const GapShape&) = default;
};
// "poisson" or "weibull:shape=0.78". Code::invalid_argument.
Result<GapShape> parse_gap_shape(std::string_view text);
// The gaps between the failures of a CSV file: the first line names a column `hours`, the time of each
// failure from the begin of the record, ascending; other columns are ignored. At least two failures
// at different times. Code::invalid_argument names file and line.
Result<GapShape> parse_recorded_failures(std::string_view csv, const std::string& file);

// A mean of 0: such failures do not occur.
struct FailureModel {
  GapShape shape;                   // of the failures of hosts; the others are Poisson
  actors::TimeNs host_mtbf = 0;     // of one host. Not used by recorded gaps, which are those of the job
  actors::TimeNs rack_mtbf = 0;     // of one rack: all its hosts fail at once
  uint32_t rack_hosts = 0;          // hosts of a rack
  actors::TimeNs process_mtbf = 0;  // of the whole job: it ends, but no host is lost
  actors::TimeNs outage_every = 0;  // mean time between two outages of the storage
  actors::TimeNs outage_lasts = 0;  // nothing is stored or read during an outage

  friend bool operator==(const FailureModel&, const FailureModel&) = default;
};

struct FailureTime {
  enum class Kind : uint8_t { host, rack, process };
  actors::TimeNs at = 0;
  Kind kind = Kind::host;
};
struct Outage {
  actors::TimeNs begin = 0, end = 0;
};
struct DrawnFailures {
  std::vector<FailureTime> ends;  // failures that end the job, ascending
  std::vector<Outage> outages;    // ascending, none overlaps another
};
// The failures of a job of `hosts` hosts before `until`. Code::too_large: more than kMaxFailuresOfALife.
Result<DrawnFailures> draw_failure_times(const FailureModel& model, uint32_t hosts, actors::TimeNs until,
                                         uint64_t seed);
// The mean time between two failures that end the job, at least 1 ns. Greatest value: it never fails.
actors::TimeNs mean_time_to_interruption(const FailureModel& model, uint32_t hosts);

}  // namespace shoal::sim
