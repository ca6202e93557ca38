// The status of a job and its parts as JSON, for `shoal status --json` and the status page.
// docs/reference/json.md has every name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "local/status/job_status.h"

namespace shoal::actors {

std::string calls_json(const std::vector<local::SlowCallStatus>& calls);
// `on_disk`: bytes in the folder of the attempt, from all writers; nullopt: not known.
std::string save_json(const local::SaveStatus& save, std::optional<uint64_t> on_disk);
std::string commit_json(const local::CommitStatus& commit);
std::string job_json(const local::JobStatus& job);

}  // namespace shoal::actors
