// Shoal calibrate on several hosts at once (host_meeting.h): each host measures the storage alone, one after
// the other, then all of them at the same time.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/calibrate/host_meeting.h"
#include "cli/calibrate/measure.h"
#include "shoal/status.h"

namespace shoal::cli {

struct HostsCalibrated {
  bool is_here = false;             // this host writes the profile, and has what follows
  std::string profile_by;           // the host that writes it
  std::string folder;               // in the root; removed at the end
  MeasuredNumbers numbers;          // of the table [storage]; they replace those of one host
  nlohmann::ordered_json speeds;    // fields of --json
  std::vector<std::string> report;  // lines
};

// What only the host that writes the profile calls: first whether it can, and when all have measured, to do
// it.
struct ProfileWriter {
  std::function<Status()> check;
  std::function<Status(HostsCalibrated&)> write;
};

// If any host fails or is lost, all of them return an error that names it.
// `seconds`: how long each measurement counts, at least.
Result<HostsCalibrated> calibrate_hosts(const MeetingOptions& options, double seconds,
                                        const ProfileWriter& writer);

}  // namespace shoal::cli
