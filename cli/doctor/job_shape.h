// The job that `shoal doctor` checks for: from its options, else from the variables of a launcher.
#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/facts.h"
#include "client/launch/job_environment.h"
#include "shoal/status.h"

namespace shoal::cli {

struct JobOptions {
  uint64_t ranks = 0;       // of this host; 0: not given
  std::string hosts;        // a number, names separated by commas, or a file with a name on each line
  std::string staged;       // bytes, as in "40GiB"
  std::string coordinator;  // HOST:PORT
};

struct ShapedJob {
  JobShape shape;
  Status variables;           // what the launcher's variables lack, so that no job can start with them
  bool has_launcher = false;  // a launcher started this process
  bool is_first_here = true;  // of the processes that the launcher started on this host
  std::string on_each_host;   // the command that starts one process on each host of the job
};

// Code::invalid_argument names the option.
Result<ShapedJob> shape_job(const JobOptions& options, const client::Variables& variables);

}  // namespace shoal::cli
