#include "cli/doctor/job_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/host_port.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

constexpr uint64_t kMostHosts = 1'000'000;

// The first word of each line, except comments: a host file of mpirun has more words.
std::vector<std::string> names_in_file(const std::string& path) {
  std::vector<std::string> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    if (words >> name && !name.starts_with('#')) out.push_back(name);
  }
  return out;
}

std::vector<std::string> names_in_list(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    if (!name.empty()) out.push_back(name);
  }
  return out;
}

Status take_hosts(const std::string& text, JobShape* shape) {
  uint64_t count = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size()) {
    if (count == 0 || count > kMostHosts) {
      return Status(Code::invalid_argument,
                    fmt::format("--hosts {}: a job has 1 to {} hosts", text, kMostHosts));
    }
    shape->hosts = count;
    return ok_status();
  }
  std::error_code absent;
  const bool is_file = std::filesystem::is_regular_file(text, absent);
  shape->host_names = is_file ? names_in_file(text) : names_in_list(text);
  const bool is_missing_file = !is_file && text.find('/') != std::string::npos;
  if (shape->host_names.empty() || is_missing_file) {
    return Status(
        Code::invalid_argument,
        fmt::format("--hosts {}: this is neither a number, nor names with commas between them, nor a "
                    "file with names",
                    text));
  }
  shape->hosts = shape->host_names.size();
  return ok_status();
}

bool is_first_of_host(const client::Variables& variables) {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    if (const auto rank = variables(name)) return *rank == "0";
  }
  return true;
}

const char* one_process_a_host(client::JobEnvironment::Launcher launcher) {
  using Launcher = client::JobEnvironment::Launcher;
  if (launcher == Launcher::torchrun) return "torchrun --nproc-per-node 1 --no-python";
  if (launcher == Launcher::open_mpi) return "mpirun --map-by ppr:1:node";
  return "srun --ntasks-per-node=1";
}

void take_environment(const client::JobEnvironment& job, JobShape* shape) {
  shape->ranks_here = job.ranks_on_host.value_or(1);
  shape->hosts = (job.world_size + shape->ranks_here - 1) / shape->ranks_here;
  shape->coordinator = job.coordinator;
  shape->coordinates_here = job.coordinates;
  shape->serves_job_id = job.mints_job_id;
}

}  // namespace

Result<ShapedJob> shape_job(const JobOptions& options, const client::Variables& variables) {
  ShapedJob out;
  auto with_options = [&](const char* name) -> std::optional<std::string> {
    if (std::string_view(name) == "SHOAL_COORDINATOR" && !options.coordinator.empty())
      return options.coordinator;
    return variables(name);
  };
  if (!options.coordinator.empty()) {
    SHOAL_RETURN_IF_ERROR(base::parse_host_port(options.coordinator).status().with_context("--coordinator"));
  }
  const auto job = client::read_job_environment(with_options);
  out.variables = job.status();
  out.on_each_host = one_process_a_host(job.ok() ? job->launcher : client::JobEnvironment::Launcher::none);
  if (job.ok()) {
    take_environment(*job, &out.shape);
    out.has_launcher = job->launcher != client::JobEnvironment::Launcher::none;
  }
  out.is_first_here = is_first_of_host(variables);
  if (!options.hosts.empty()) SHOAL_RETURN_IF_ERROR(take_hosts(options.hosts, &out.shape));
  if (options.ranks != 0) out.shape.ranks_here = options.ranks;
  if (out.shape.coordinator.empty() && out.shape.hosts > 1) {
    if (const auto master = variables("MASTER_ADDR")) {
      out.shape.coordinator = base::to_string(base::HostPort{*master, client::kDefaultCoordinatorPort});
    }
  }
  if (!options.staged.empty()) {
    auto bytes = parse_bytes(options.staged);
    if (!bytes.ok()) return bytes.status().with_context("--staged");
    out.shape.staged_bytes = *bytes;
  }
  return out;
}

}  // namespace shoal::cli
