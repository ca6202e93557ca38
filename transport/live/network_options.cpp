#include "transport/live/network_options.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <charconv>
#include <filesystem>
#include <fstream>

namespace shoal {

Result<TransportKind> parse_transport_kind(const std::string& text) {
  if (text == "auto") return TransportKind::automatic;
  if (text == "tcp") return TransportKind::tcp;
  if (text == "ucx") return TransportKind::ucx;
  return Status(Code::invalid_argument,
                fmt::format("'{}' is no transport: expected {}", text, kTransportKinds));
}

const char* to_string(TransportKind kind) {
  switch (kind) {
    case TransportKind::automatic:
      return "auto";
    case TransportKind::tcp:
      return "tcp";
    case TransportKind::ucx:
      return "ucx";
  }
  return "?";
}

bool has_active_rdma_device() {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", error)) {
    for (const auto& port : fs::directory_iterator(device.path() / "ports", error)) {
      std::string state;  // "4: ACTIVE"
      std::getline(std::ifstream(port.path() / "state"), state);
      if (state.find("ACTIVE") != std::string::npos) return true;
    }
  }
  return false;
}

Result<PortRange> parse_port_range(const std::string& text) {
  PortRange ports;
  if (text.empty()) return ports;
  const char* const end = text.data() + text.size();
  auto [dash, first_error] = std::from_chars(text.data(), end, ports.first);
  if (first_error == std::errc() && dash != end && *dash == '-') {
    auto [rest, last_error] = std::from_chars(dash + 1, end, ports.last);
    if (last_error == std::errc() && rest == end && ports.first != 0 && ports.first <= ports.last)
      return ports;
  }
  return Status(Code::invalid_argument,
                fmt::format("'{}' is no range of ports: expected FIRST-LAST, for example 7100-7199", text));
}

std::string to_string(const PortRange& ports) {
  return ports.is_set() ? fmt::format("{}-{}", ports.first, ports.last) : "";
}

Result<std::string> address_of_interface(const std::string& interface) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return Status(Code::io, "the system does not list its network interfaces");
  std::string known, found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text, sizeof text);
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", each->ifa_name, text);
    if (found.empty() && (interface == each->ifa_name || interface == text)) found = text;
  }
  freeifaddrs(first);
  if (!found.empty()) return found;
  return Status(Code::not_found,
                fmt::format("this host has no interface '{}' with an IPv4 address; it has {}", interface,
                            known.empty() ? "none" : known));
}

}  // namespace shoal
