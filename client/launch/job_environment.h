// JobEnvironment: the job and this rank's place in it, from a launcher's variables. read_job_environment is a
// pure function of the variables. docs/how-to/clusters.md describes it in prose.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "shoal/roster.h"
#include "shoal/status.h"

namespace shoal::client {

// The port of a job's coordinator if its host is known but no port is given. Rank 0 serves the job id on the
// next port (client/launch/job_id_service.h).
inline constexpr uint16_t kDefaultCoordinatorPort = 7070;

struct JobEnvironment {
  // What started this process. `variables`: a program that sets RANK and WORLD_SIZE, such as shoal launch.
  enum class Launcher { none, variables, torchrun, open_mpi, slurm };
  Launcher launcher = Launcher::none;
  Rank rank = 0;
  uint32_t world_size = 1;

  // Empty: the variables have none. If mints_job_id, rank 0 then creates one and serves it to the other
  // ranks.
  std::string job_id;
  bool mints_job_id = false;

  std::string coordinator;  // "HOST:PORT"; empty: unknown, or a job on one host needs none
  // Whether this host's node is the coordinator. nullopt: the variables do not tell; it is the coordinator if
  // HOST is this host.
  std::optional<bool> coordinates;
  std::optional<uint32_t> ranks_on_host;  // nullopt: unknown
  std::optional<bool> is_one_host;        // whether all ranks are on this host; nullopt: unknown
  std::string node_name;                  // the launcher's name of this host; empty: the host name
};

// Returns the value of a variable; nullopt if it is not set or empty.
using Variables = std::function<std::optional<std::string>(const char* name)>;

// Code::invalid_argument names the missing or wrong variable. Several hosts without a coordinator, and
// several ranks without a job id, are such errors too.
Result<JobEnvironment> read_job_environment(const Variables& variables);
// SHOAL_READ_ONLY, which is 0 or 1; false if it is not set.
Result<bool> read_only_of(const Variables& variables);
// The Variables of this process.
std::optional<std::string> environment_variable(const char* name);

// The job id from the launcher's variables: SHOAL_JOB_ID, Open MPI's job, or Slurm's job, step and restart.
// "": there is none.
std::string job_id_of(const Variables& variables);

}  // namespace shoal::client
