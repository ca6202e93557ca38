// Measurements for a profile of `shoal sim`: the costs of a node's work on this machine, its storage and its
// network. Each takes a few seconds at most, uses the production code, and leaves no files behind.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/status.h"

namespace shoal::cli {

inline double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}
// At least 1: a profile has no cost of zero.
inline int64_t nanoseconds(double seconds) {
  return std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e9));
}

// Precondition: `sorted` is ascending and not empty.
inline double quantile_of(const std::vector<double>& sorted, double part) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(part * static_cast<double>(sorted.size())))];
}

// One number of a profile (sim/models/profile.h).
struct MeasuredNumber {
  std::string key;  // "network.latency_ns"
  int64_t value = 0;
  bool is_measured = true;  // false: assumed
  std::string how;          // method, for the number's source
};
using MeasuredNumbers = std::vector<MeasuredNumber>;

// Measures the tables [cpu] (without message_ns) and [trainer].
MeasuredNumbers measure_processor();

// Measures the table [network] and cpu.message_ns. `peer`: HOST:PORT of `shoal calibrate --serve`; empty: two
// ends in this process, over the loopback. Code::unavailable if the peer does not answer.
Result<MeasuredNumbers> measure_network(const std::string& peer, const std::string& secret);
// Serves measurements of other hosts until `stop`. Calls `listening` with its address once it listens.
Status serve_measurements(const std::string& listen, const std::string& secret, const std::atomic<bool>& stop,
                          void (*listening)(const std::string& address));

// Measures the table [storage] of the file system of `folder`. Works in a temporary folder there, which it
// removes, with up to `bytes` of files at the same time.
Result<MeasuredNumbers> measure_storage(const std::string& folder, uint64_t bytes);

// The profile as a file for `shoal sim`. `about`: one line.
std::string profile_file(const std::string& name, const std::string& about, const MeasuredNumbers& numbers,
                         const std::string& source_prefix);

}  // namespace shoal::cli
