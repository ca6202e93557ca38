// What one host gets of a storage, alone or while other hosts load it too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/calibrate/measure.h"
#include "shoal/status.h"

namespace shoal::cli {

// How the load of this host meets that of others. Each counts while all of them load, whatever their clocks
// show: all load before one counts, and all have counted before one stops.
struct LoadGate {
  std::function<Status()> loads;    // this host loads: returns when all do
  std::function<Status()> counted;  // this host has counted: returns when all have
  std::function<Status()> check;    // an error ends the measurement
  double seconds = 0;               // how long this host counts, at least
};
LoadGate no_gate(std::function<Status()> check, double seconds);  // a host alone

struct ChangeSpeed {
  double changes_per_s = 0;  // names created and removed, by all threads
  double create_p50_s = 0, create_p99_s = 0;
};
// Creates and removes empty files in a folder that all hosts use, as all hosts of a job create the files of a
// save in one folder. `name`: of this host's files.
Result<ChangeSpeed> measure_changes(const std::string& folder, const std::string& name, size_t threads,
                                    const LoadGate& gate);
// Bytes per second of files that are written, synced and removed again, several at the same time and together
// of `bytes`.
Result<double> measure_writes(const std::string& folder, const std::string& name, uint64_t bytes,
                              const LoadGate& gate);

}  // namespace shoal::cli
