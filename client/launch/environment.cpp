#include "client/launch/environment.h"

#include <fmt/format.h>

#include "base/host_port.h"
#include "client/launch/job_environment.h"
#include "client/launch/own_address.h"
#include "client/launch/settings.h"
#include "shoal/checkpointer.h"

namespace shoal {

namespace {

Result<base::HostPort> parse_coordinator(const std::string& text) {
  auto out = base::parse_host_port(text);
  if (!out.ok()) return out.status().with_context("the coordinator's address");
  // The next port serves the job id.
  if (out->port == 0 || out->port == UINT16_MAX) {
    return Status(Code::invalid_argument,
                  fmt::format("the coordinator's address is '{}': its port must be from 1 to 65534", text));
  }
  return out;
}

// Sets the options that follow from the launcher's variables. Looks up the coordinator's host to find whether
// this host's node coordinates.
Status apply(const client::JobEnvironment& job, const client::Variables& variables,
             CheckpointerOptions* options) {
  options->rank = job.rank;
  options->world_size = job.world_size;
  options->job_id = job.job_id;
  options->node_name = job.node_name;
  options->ranks_on_host = job.ranks_on_host.value_or(0);
  options->coordinator = job.coordinator;
  if (job.mints_job_id) {
    options->job_id_exchange.emplace();
    options->job_id_exchange->run = variables("TORCHELASTIC_RUN_ID").value_or("");
  }
  if (job.coordinator.empty()) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(const base::HostPort place, parse_coordinator(job.coordinator));
  const std::optional<std::string> here = client::own_address(place.host);
  if (job.coordinates.value_or(here.has_value())) {
    SHOAL_ASSIGN_OR_RETURN(const std::string address, client::address_to_serve_at(place.host));
    options->coordinate_at = base::to_string(base::HostPort{address, place.port});
  }
  if (job.mints_job_id) {
    const auto next_port = static_cast<uint16_t>(place.port + 1);
    options->job_id_exchange->address = base::to_string(base::HostPort{place.host, next_port});
  }
  return ok_status();
}

}  // namespace

Result<CheckpointerOptions> client::options_from(const client::Variables& variables) {
  CheckpointerOptions options;
  const std::optional<std::string> root = variables("SHOAL_ROOT");
  if (!root) return Status(Code::invalid_argument, "SHOAL_ROOT is not set");
  options.root = *root;
  SHOAL_ASSIGN_OR_RETURN(client::JobEnvironment job, client::read_job_environment(variables));
  SHOAL_RETURN_IF_ERROR(apply(job, variables, &options));
  local::Settings settings;
  SHOAL_RETURN_IF_ERROR(settings.add_variables(variables));
  SHOAL_RETURN_IF_ERROR(settings.add_files(options.root));
  SHOAL_RETURN_IF_ERROR(settings.check());
  client::apply_trainer_settings(settings, &options);
  return options;
}

Result<CheckpointerOptions> CheckpointerOptions::from_environment() {
  return client::options_from(client::environment_variable);
}

}  // namespace shoal
