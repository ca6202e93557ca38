// Measures what the nodes of a job need of the network, and the job's token.
#include <fmt/format.h>

#include <memory>
#include <set>

#include "actors/node/bootstrap.h"
#include "actors/node/links/own_address.h"
#include "actors/node/watch/metrics_server.h"
#include "base/host_port.h"
#include "base/interfaces.h"
#include "cli/doctor/measure_facts.h"
#include "cli/interrupt.h"
#include "cli/node/node_settings.h"
#include "client/launch/job_environment.h"
#include "client/launch/own_address.h"
#include "local/job/job_token.h"
#include "shoal/bytes.h"
#include "transport/live/make_transport.h"

namespace shoal::cli {

namespace {

class IgnoringHandler final : public transport::TransportHandler {
 public:
  void on_peer_up(transport::PeerId, const transport::Identity&) override {}
  void on_message(transport::PeerId, Bytes) override {}
  void on_peer_lost(transport::PeerId, const Status&) override {}
};

// The transport of a node, which listens until the object is destroyed.
class TriedListener {
 public:
  TriedListener(const std::string& address, const transport::NetworkOptions& network) {
    transport::TransportOptions options;
    options.listen = address;
    options.network = network;
    options.identity.job_id = "shoal-doctor";
    options.identity.name = actors::own_host_name();
    options.identity.incarnation = random_128();
    const std::string token = local::mint_token();
    options.token.assign(as_view(token).begin(), as_view(token).end());
    transport_ = transport::make_transport(std::move(options));
    started_ = transport_->start(handler_);
  }
  ~TriedListener() {
    if (started_.ok()) transport_->stop(0);
  }
  TriedListener(const TriedListener&) = delete;
  const Status& started() const { return started_; }
  std::string address() const { return started_.ok() ? transport_->listen_address() : ""; }

 private:
  IgnoringHandler handler_;
  std::unique_ptr<transport::Transport> transport_;
  Status started_;
};

void try_coordinator(const JobShape& job, const transport::NetworkOptions& network, NetworkFacts* facts) {
  const auto place = base::parse_host_port(job.coordinator);
  if (!place.ok()) {
    facts->advertised = place.status();
    return;
  }
  if (!job.coordinates_here.value_or(client::own_address(place->host).has_value())) {
    facts->advertised = actors::own_address_towards(job.coordinator, network);
    return;
  }
  const auto host = client::address_to_serve_at(place->host);
  if (!host.ok()) {
    facts->advertised = host.status();
    return;
  }
  const base::HostPort listen{*host, place->port};
  const TriedListener listener(base::to_string(listen), network);
  constexpr const char* kOtherPort = "end what uses this port, or set SHOAL_COORDINATOR=:PORT to another one";
  facts->ports.push_back({"coordinator", base::to_string(listen), kOtherPort, listener.started()});
  // Other hosts know the coordinator by the name that the job gives it.
  facts->advertised = *host == "0.0.0.0" ? place->host : *host;
  if (!job.serves_job_id || place->port == UINT16_MAX) return;
  const std::string next = base::to_string({*host, static_cast<uint16_t>(place->port + 1)});
  const TriedListener of_job_id(next,
                                {.transport = transport::TransportKind::tcp, .interface = "", .ports = {}});
  facts->ports.push_back({"job id of torchrun", next, kOtherPort, of_job_id.started()});
}

// A node that shares loads listens once, and one that is a relay once more.
void try_port_range(const JobShape& job, const transport::NetworkOptions& network, NetworkFacts* facts) {
  const std::string range = transport::to_string(network.ports);
  std::string host = "0.0.0.0";
  if (facts->advertised.ok() && base::parse_host_port(*facts->advertised + ":0").ok() &&
      client::own_address(*facts->advertised).has_value() && !facts->advertised->empty()) {
    host = client::own_address(*facts->advertised).value();
  }
  if (!network.ports.is_set() || job.hosts < 2) return;
  const TriedListener first(host + ":0", network), second(host + ":0", network);
  facts->ports.push_back({"shared loads and relays", host + ":" + range,
                          "a node needs two free ports: set SHOAL_PORTS to a larger range",
                          first.started().ok() ? second.started() : first.started()});
}

std::string rdma_interface_names() {
  std::string out;
  const auto interfaces = base::network_interfaces();
  if (!interfaces.ok()) return out;
  std::set<std::string> names;
  for (const base::NetworkInterface& each : *interfaces) names.insert(each.name);
  for (const std::string& name : names) {
    if (transport::is_rdma_interface(name)) out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

}  // namespace

TokenFacts measure_token(const std::string& token_file) {
  TokenFacts facts;
  const auto token = local::find_token(token_file);
  facts.read = token.status();
  if (token.ok()) facts.bytes = token->size();
  return facts;
}

namespace {

bool coordinates_here(const JobShape& job) {
  if (job.coordinator.empty()) return true;
  const auto place = base::parse_host_port(job.coordinator);
  return job.coordinates_here.value_or(place.ok() && client::own_address(place->host).has_value());
}

void try_page(const char* use, const std::string& address, const char* variable, NetworkFacts* facts) {
  if (address.empty()) return;
  const auto server = actors::MetricsServer::start(address, use, {});
  facts->ports.push_back({use, address,
                          fmt::format("end what uses this port, or set {} to another one", variable),
                          server.status()});
}

}  // namespace

NetworkFacts measure_network_of_job(const JobShape& job, const local::Settings& settings) {
  NetworkFacts facts;
  actors::NodeOptions node;
  const Status applied = apply_settings(settings, &node);
  if (!applied.ok()) facts.advertised = applied;
  facts.transport = transport::to_string(node.network.transport);
  facts.has_rdma_device = transport::has_active_rdma_device();
  facts.rdma_interfaces = rdma_interface_names();
  if (!job.coordinator.empty()) try_coordinator(job, node.network, &facts);
  try_port_range(job, node.network, &facts);
  try_page("metrics", node.metrics, "SHOAL_METRICS", &facts);
  if (coordinates_here(job)) try_page("status page", node.status_page, "SHOAL_STATUS_PAGE", &facts);
  for (const std::string& name : job.host_names) {
    if (Interrupts::signal_number() != 0) break;  // each look-up may take seconds
    HostFacts host;
    host.name = name;
    host.is_this_host = client::own_address(name).has_value();
    host.address_towards =
        actors::own_address_towards(base::to_string({name, client::kDefaultCoordinatorPort}));
    facts.hosts.push_back(std::move(host));
  }
  return facts;
}

}  // namespace shoal::cli
