// JobEnvironment: what a launcher's variables say about the job and this rank's place in it. Pure: variables
// in, facts out; docs/how-to/clusters.md is the same as prose.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "shoal/roster.h"
#include "shoal/status.h"

namespace shoal::client {

// Where a job's coordinator listens if the host is known, but no port is said. The next port is where rank 0
// tells the job's id (client/launch/job_id_service.h).
inline constexpr uint16_t kDefaultCoordinatorPort = 7070;

struct JobEnvironment {
  // Who started this process. `variables`: somebody who set RANK and WORLD_SIZE, as shoal launch does.
  enum class Launcher { none, variables, torchrun, open_mpi, slurm };
  Launcher launcher = Launcher::none;
  Rank rank = 0;
  uint32_t world_size = 1;

  // The generation's token. Empty: nobody says, or, where mints_job_id, rank 0 has to make one and tell the
  // others.
  std::string job_id;
  bool mints_job_id = false;

  std::string coordinator;  // "HOST:PORT"; empty: none is said, or one host needs none
  // Whether the node of this host is the coordinator. nullopt: the variables do not say, it is so where HOST
  // is this one.
  std::optional<bool> coordinates;
  std::optional<uint32_t> ranks_on_host;  // on this one; nullopt: not said
  std::optional<bool> is_one_host;        // all ranks are here; nullopt: not said
  std::string node_name;                  // of this host, as the launcher calls it; empty: its host name
};

// The value of a variable; nullopt where it is not set or empty.
using Variables = std::function<std::optional<std::string>(const char* name)>;

// Code::invalid_argument names the variable that is missing or wrong. Several hosts without a coordinator, or
// several ranks without a job id, are such errors.
Result<JobEnvironment> read_job_environment(const Variables& variables);
// SHOAL_READ_ONLY, which is 0 or 1; false where it is not set.
Result<bool> read_only_of(const Variables& variables);
// Of this process.
std::optional<std::string> environment_variable(const char* name);

// The job's id by its launcher alone: SHOAL_JOB_ID, Open MPI's job, Slurm's job, step and restart; "" if none
// says.
std::string job_id_of(const Variables& variables);

}  // namespace shoal::client
