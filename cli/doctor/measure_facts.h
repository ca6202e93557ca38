// Measures the facts of `shoal doctor`. Where a node does the same when it starts, these functions call what
// the node calls.
#pragma once

#include <functional>
#include <string>

#include "cli/doctor/facts.h"
#include "local/settings/settings.h"
#include "storage/files/file_system.h"

namespace shoal::cli {

// Makes files in a folder of its own within the root (or beside it, if it does not exist), and removes them.
// Ends early if `is_stopped` returns true, but still removes them. `disk`: the file system of the trials.
RootFacts measure_root(const std::string& root, storage::FileSystem& disk,
                       const std::function<bool()>& is_stopped);

// Of "s3://BUCKET/PREFIX". Makes objects under probes/ there, and removes them.
BucketFacts measure_bucket(const std::string& root, const std::function<bool()>& is_stopped);

ClockFacts measure_clock();
MemoryFacts measure_memory();
RuntimeFolderFacts measure_runtime_folder();
// Waits up to kProbeCoordinatorTimeoutMs for the coordinator that used the root last.
UseFacts measure_use(const std::string& root, const std::string& token_file);
TokenFacts measure_token(const std::string& token_file);
// Listens for a moment at each address.
NetworkFacts measure_network_of_job(const JobShape& job, const local::Settings& settings);
VersionFacts measure_versions();
GpuFacts measure_gpu();

}  // namespace shoal::cli
