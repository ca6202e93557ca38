// Measurements for a profile of shoal sim: what this machine, its storage and its network take for what a
// node does. Each takes a few seconds at most, uses what nodes use, and leaves nothing behind.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/status.h"

namespace shoal::cli {

// One number of a profile (sim/models/profile.h).
struct MeasuredNumber {
  std::string key;  // "network.latency_ns"
  int64_t value = 0;
  bool is_measured = true;  // false: assumed
  std::string how;          // in words, for its source
};
using MeasuredNumbers = std::vector<MeasuredNumber>;

// Tables [cpu] (but message_ns) and [trainer].
MeasuredNumbers measure_processor();

// Table [network], and cpu.message_ns. `peer`: HOST:PORT of `shoal calibrate --serve`; empty: two ends within
// this process, over the loopback. Code::unavailable where nobody answers.
Result<MeasuredNumbers> measure_network(const std::string& peer, const std::string& secret);
// Answers who measures until `stop`. `*address`: where, once it listens.
Status serve_measurements(const std::string& listen, const std::string& secret, const std::atomic<bool>& stop,
                          void (*listening)(const std::string& address));

// Table [storage], of the file system that `folder` lies on: in a folder of its own there, which is removed,
// up to `bytes` of files at once.
Result<MeasuredNumbers> measure_storage(const std::string& folder, uint64_t bytes);

// The profile as a file of shoal sim. `about`: one line.
std::string profile_file(const std::string& name, const std::string& about, const MeasuredNumbers& numbers,
                         const std::string& source_prefix);

}  // namespace shoal::cli
