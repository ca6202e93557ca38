// Judges the settings of a job, and what its nodes need of the network.
#include <fmt/format.h>

#include "cli/doctor/checks.h"
#include "local/job/job_token.h"

namespace shoal::cli {

namespace {

constexpr uint64_t kShortTokenBytes = 16;  // 128 random bits

bool is_loopback_host(const std::string& address) {
  return address.starts_with("127.") || address == "localhost";
}

Finding check_ports(const NetworkFacts& facts, uint64_t hosts) {
  constexpr const char* kCheck = "ports";
  std::string measured;
  for (const PortFacts& port : facts.ports) {
    if (!port.listening.ok()) {
      return found_error(kCheck, fmt::format("{}: {}", port.use, port.listening.message()), port.setting);
    }
    measured += fmt::format("{}{} ({})", measured.empty() ? "" : ", ", port.address, port.use);
  }
  if (facts.ports.empty()) {
    return found_skipped(kCheck, hosts < 2 ? "a job on one host lets the system choose its port"
                                           : "this host's node lets the system choose its ports");
  }
  return found_ok(kCheck, measured + ": free");
}

Finding check_address(const NetworkFacts& facts, const JobShape& job) {
  constexpr const char* kCheck = "address";
  constexpr const char* kRemedy =
      "set SHOAL_INTERFACE to the interface that reaches the other hosts, and "
      "SHOAL_COORDINATOR or MASTER_ADDR to a name that all hosts resolve";
  if (job.hosts < 2) return found_skipped(kCheck, "a job on one host needs none");
  if (!facts.advertised.ok()) return found_error(kCheck, facts.advertised.status().message(), kRemedy);
  if (facts.advertised->empty()) {
    return found_skipped(kCheck,
                         "the coordinator's address is unknown: set SHOAL_COORDINATOR or MASTER_ADDR");
  }
  if (is_loopback_host(*facts.advertised)) {
    return found_error(
        kCheck,
        fmt::format("other nodes would connect to {}, which is the loopback of each host", *facts.advertised),
        kRemedy);
  }
  return found_ok(kCheck, fmt::format("this host's node is reached at {}", *facts.advertised));
}

Finding check_host_names(const NetworkFacts& facts) {
  constexpr const char* kCheck = "hosts";
  if (facts.hosts.empty()) return found_skipped(kCheck, "--hosts names no host");
  for (const HostFacts& host : facts.hosts) {
    if (!host.address_towards.ok()) {
      return found_error(kCheck, host.address_towards.status().message(),
                         "correct the name, or the name service of this host");
    }
    if (!host.is_this_host && is_loopback_host(*host.address_towards)) {
      return found_error(kCheck, fmt::format("{} leads to the loopback of this host", host.name),
                         "correct /etc/hosts");
    }
  }
  return found_ok(kCheck, fmt::format("the names of {} hosts are known here", facts.hosts.size()));
}

Finding check_transport(const NetworkFacts& facts) {
  constexpr const char* kCheck = "transport";
  const std::string devices =
      facts.has_rdma_device
          ? fmt::format("an RDMA device is active{}{}",
                        facts.rdma_interfaces.empty() ? "" : ", with interface ", facts.rdma_interfaces)
          : std::string("no RDMA device is active");
  const std::string measured = fmt::format("transport {}; {}", facts.transport, devices);
  if (facts.transport == "ucx" && !facts.has_rdma_device) {
    return found_warning(kCheck, measured + ", so that UCX uses TCP, which it does not encrypt",
                         "set the setting transport to auto or tcp");
  }
  if (facts.transport == "auto" && facts.has_rdma_device) {
    return found_ok(kCheck, measured + ": UCX on its interface, TCP with TLS on others");
  }
  return found_ok(kCheck, measured);
}

}  // namespace

Finding check_token(const TokenFacts& facts, uint64_t hosts) {
  constexpr const char* kCheck = "token";
  if (!facts.read.ok()) {
    return found_error(
        kCheck, facts.read.message(),
        "correct the file, or make another: (umask 077; head -c 32 /dev/urandom | base64 > FILE)");
  }
  if (facts.bytes == 0 && hosts < 2) return found_skipped(kCheck, "a job on one host needs none");
  if (facts.bytes == 0) {
    return found_error(kCheck, fmt::format("none is set, and the job has {} hosts", hosts),
                       fmt::format("make a file of mode 0600 with 32 random bytes as text, and set {} to it",
                                   local::kTokenFileVariable));
  }
  const std::string measured = fmt::format("{} bytes", facts.bytes);
  if (facts.bytes >= kShortTokenBytes) return found_ok(kCheck, measured);
  return found_warning(kCheck, measured + ", which can be guessed",
                       fmt::format("use at least {} random bytes", kShortTokenBytes));
}

Findings check_network(const NetworkFacts& facts, const JobShape& job) {
  return {check_transport(facts), check_address(facts, job), check_ports(facts, job.hosts),
          check_host_names(facts)};
}

Findings check_settings(const std::string& root, const local::Settings::Variables& variables,
                        const std::vector<std::string>& unknown, local::Settings* settings) {
  constexpr const char* kCheck = "settings";
  constexpr const char* kRemedy = "correct or remove it";
  Findings out;
  auto expect = [&](const Status& status) {
    if (!status.ok()) out.push_back(found_error(kCheck, status.message(), kRemedy));
  };
  for (const local::Setting& setting : local::all_settings()) {
    const std::optional<std::string> text = variables(setting.variable().c_str());
    if (text) expect(settings->set(setting.name, *text, setting.variable()));
  }
  expect(settings->add_files(root));
  expect(settings->check());
  for (const std::string& name : unknown) {
    const std::optional<std::string> nearest = local::nearest_variable(name);
    out.push_back(found_warning(kCheck, fmt::format("{} is not a setting and has no effect", name),
                                nearest ? fmt::format("did you mean {}?", *nearest)
                                        : std::string("remove it; `shoal settings` lists all settings")));
  }
  if (!out.empty()) return out;
  const std::string described = settings->describe();
  return {found_ok(kCheck, described.empty() ? "all have their defaults" : described)};
}

}  // namespace shoal::cli
