#include "client/launch/job_environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "base/host_port.h"
#include "client/launch/slurm_nodelist.h"

namespace shoal::client {

namespace {

using Launcher = JobEnvironment::Launcher;

Status invalid(std::string what) {
  return Status(Code::invalid_argument, std::move(what));
}

Result<uint32_t> number_in(const Variables& variables, const char* name) {
  const std::optional<std::string> text = variables(name);
  if (!text) return invalid(fmt::format("{} is not set", name));
  uint32_t value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) {
    return invalid(fmt::format("{} is '{}', which is not a number", name, *text));
  }
  return value;
}

std::optional<uint32_t> number_if_any(const Variables& variables, const char* name) {
  auto value = number_in(variables, name);
  return value.ok() ? std::optional(*value) : std::nullopt;
}

// The launcher that started this process directly: srun may have started torchrun or mpirun.
Launcher find_launcher(const Variables& variables) {
  if (variables("TORCHELASTIC_RUN_ID")) return Launcher::torchrun;
  if (variables("RANK") || variables("WORLD_SIZE")) return Launcher::variables;
  if (variables("OMPI_COMM_WORLD_RANK")) return Launcher::open_mpi;
  if (variables("SLURM_PROCID")) return Launcher::slurm;
  return Launcher::none;
}

struct RankVariables {
  const char* rank;
  const char* world_size;
};
RankVariables rank_variables(Launcher launcher) {
  if (launcher == Launcher::open_mpi) return {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
  if (launcher == Launcher::slurm) return {"SLURM_PROCID", "SLURM_NTASKS"};
  return {"RANK", "WORLD_SIZE"};
}

// Slurm's number of hosts: of the step, else of the job.
std::optional<uint32_t> slurm_hosts(const Variables& variables) {
  for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}) {
    if (auto hosts = number_if_any(variables, name)) return hosts;
  }
  return std::nullopt;
}

std::optional<uint32_t> slurm_tasks_here(const Variables& variables) {
  const std::optional<uint32_t> node = number_if_any(variables, "SLURM_NODEID");
  if (!node) return std::nullopt;
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (auto list = variables(name)) return tasks_on_node(*list, *node);
  }
  return std::nullopt;
}

// The number of this host in the job, if the launcher that set RANK provides it.
std::optional<uint32_t> host_index(const JobEnvironment& job, const Variables& variables) {
  if (job.launcher != Launcher::torchrun && job.launcher != Launcher::variables) return std::nullopt;
  if (auto index = number_if_any(variables, "GROUP_RANK")) return index;
  return number_if_any(variables, "NODE_RANK");
}

// Programs that start ranks themselves, such as those with torch.multiprocessing, set an address by which
// only ranks of the same host can meet.
bool meet_on_loopback(const JobEnvironment& job, const Variables& variables) {
  if (job.launcher != Launcher::variables || host_index(job, variables)) return false;
  const std::string address = variables("MASTER_ADDR").value_or("");
  const bool is_ipv4 = address.find_first_not_of("0123456789.") == std::string::npos;
  return address == "localhost" || address == "::1" || (is_ipv4 && address.starts_with("127."));
}

std::optional<uint32_t> find_ranks_on_host(const JobEnvironment& job, const Variables& variables) {
  std::optional<uint32_t> here;
  switch (job.launcher) {
    case Launcher::slurm:
      here = slurm_tasks_here(variables);
      break;
    case Launcher::open_mpi:
      here = number_if_any(variables, "OMPI_COMM_WORLD_LOCAL_SIZE");
      break;
    case Launcher::variables:
    case Launcher::torchrun:
      here = number_if_any(variables, "LOCAL_WORLD_SIZE");
      if (!here && meet_on_loopback(job, variables)) here = job.world_size;
      break;
    case Launcher::none:
      here = 1;
      break;
  }
  return here == 0u ? std::nullopt : here;
}

std::optional<bool> find_is_one_host(const JobEnvironment& job, const Variables& variables) {
  if (job.world_size == 1) return true;
  if (job.launcher == Launcher::slurm) {
    if (auto hosts = slurm_hosts(variables)) return *hosts == 1;
    return std::nullopt;
  }
  if (!job.ranks_on_host) return std::nullopt;
  return *job.ranks_on_host == job.world_size;
}

// The first of these: SHOAL_COORDINATOR (also from the flag), MASTER_ADDR, Slurm's first host.
// SHOAL_COORDINATOR may be ":PORT" alone.
Status find_coordinator(const Variables& variables, JobEnvironment* job) {
  base::HostPort coordinator{"", kDefaultCoordinatorPort};
  std::string& host = coordinator.host;
  if (auto given = variables("SHOAL_COORDINATOR")) {
    const bool is_port_alone = given->starts_with(':');
    auto parsed = base::parse_host_port(is_port_alone ? "localhost" + *given : *given);
    if (!parsed.ok()) {
      return invalid(fmt::format("SHOAL_COORDINATOR is '{}': it must be HOST:PORT or :PORT", *given));
    }
    coordinator = *parsed;
    if (is_port_alone) host.clear();
  }
  std::optional<uint32_t> index = host_index(*job, variables);
  if (index) job->coordinates = *index == 0;
  if (host.empty() && job->is_one_host == true) return ok_status();
  if (host.empty()) host = variables("MASTER_ADDR").value_or("");
  auto nodelist = variables("SLURM_STEP_NODELIST");
  if (host.empty() && job->launcher == Launcher::slurm && nodelist) {
    auto hosts = expand_nodelist(*nodelist, 1);
    if (!hosts.ok()) return hosts.status().with_context("SLURM_STEP_NODELIST");
    host = hosts->front();
    if (auto node = number_if_any(variables, "SLURM_NODEID")) job->coordinates = *node == 0;
  }
  if (!host.empty()) {
    job->coordinator = base::to_string(coordinator);
  } else if (job->is_one_host == false) {
    return invalid(
        "the ranks are on several hosts, and the address of the coordinator is unknown: set "
        "SHOAL_COORDINATOR to HOST:PORT, or MASTER_ADDR, on all of them");
  }
  return ok_status();
}

// A requeued job keeps its number, so that the id must contain the restart count.
std::string slurm_job_id(const Variables& variables, bool with_step) {
  auto job = variables("SLURM_JOB_ID");
  if (!job) return "";
  std::string restart = variables("SLURM_RESTART_COUNT").value_or("0");
  if (!with_step) return fmt::format("slurm-{}-{}", *job, restart);
  return fmt::format("slurm-{}-{}-{}", *job, variables("SLURM_STEP_ID").value_or("0"), restart);
}

// PMIx derives its namespace from a process id, so that it may repeat. Open MPI's transport key is random and
// the same on all ranks of a job. Inside Slurm the step is that of mpirun's daemon and differs between hosts.
std::string open_mpi_job_id(const Variables& variables) {
  auto name = variables("PMIX_NAMESPACE");
  if (!name) return "";
  std::string id = "pmix-" + *name;
  if (auto key = variables("OMPI_MCA_orte_precondition_transports")) id += "-" + *key;
  if (std::string slurm = slurm_job_id(variables, false); !slurm.empty()) id += "-" + slurm;
  return id;
}

const char* launcher_name(Launcher launcher) {
  if (launcher == Launcher::open_mpi) return "mpirun: neither PMIX_NAMESPACE nor SHOAL_JOB_ID is set";
  if (launcher == Launcher::slurm) return "srun: neither SLURM_JOB_ID nor SHOAL_JOB_ID is set";
  return "SHOAL_JOB_ID is not set";
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

Result<bool> read_only_of(const Variables& variables) {
  const std::optional<std::string> given = variables("SHOAL_READ_ONLY");
  if (!given || *given == "0") return false;
  if (*given == "1") return true;
  return Status(Code::invalid_argument, fmt::format("SHOAL_READ_ONLY is '{}': it must be 0 or 1", *given));
}

std::string job_id_of(const Variables& variables) {
  if (auto given = variables("SHOAL_JOB_ID")) return *given;
  switch (find_launcher(variables)) {
    case Launcher::torchrun:
      return "";
    case Launcher::open_mpi:
      return open_mpi_job_id(variables);
    case Launcher::slurm:
    case Launcher::variables:
    case Launcher::none:
      return slurm_job_id(variables, true);
  }
  return "";
}

Result<JobEnvironment> read_job_environment(const Variables& variables) {
  JobEnvironment job;
  job.launcher = find_launcher(variables);
  if (job.launcher != Launcher::none) {
    RankVariables names = rank_variables(job.launcher);
    SHOAL_ASSIGN_OR_RETURN(job.rank, number_in(variables, names.rank));
    SHOAL_ASSIGN_OR_RETURN(job.world_size, number_in(variables, names.world_size));
    if (job.world_size == 0 || job.rank >= job.world_size) {
      return invalid(
          fmt::format("{} is {}, but {} is {}", names.rank, job.rank, names.world_size, job.world_size));
    }
  }
  job.ranks_on_host = find_ranks_on_host(job, variables);
  job.is_one_host = find_is_one_host(job, variables);
  job.job_id = job_id_of(variables);
  job.mints_job_id = job.job_id.empty() && job.launcher == Launcher::torchrun && job.world_size > 1;
  if (job.job_id.empty() && !job.mints_job_id && job.world_size != 1) {
    return invalid(fmt::format(
        "{}: set SHOAL_JOB_ID to one value on all ranks, and to a new one at each start of the job",
        launcher_name(job.launcher)));
  }
  SHOAL_RETURN_IF_ERROR(find_coordinator(variables, &job));
  if (job.launcher == Launcher::slurm) job.node_name = variables("SLURMD_NODENAME").value_or("");
  return job;
}

}  // namespace shoal::client
