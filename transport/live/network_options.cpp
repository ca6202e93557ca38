#include "transport/live/network_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/interfaces.h"

namespace shoal::transport {

Result<TransportKind> parse_transport_kind(const std::string& text) {
  if (text == "auto") return TransportKind::automatic;
  if (text == "tcp") return TransportKind::tcp;
  if (text == "ucx") return TransportKind::ucx;
  return Status(Code::invalid_argument,
                fmt::format("'{}' is not a transport: expected {}", text, kTransportKinds));
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

namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

// The folders of a device's active ports.
std::vector<fs::path> active_ports(const fs::path& device) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& port : fs::directory_iterator(device / "ports", error)) {
    const bool is_active = first_line(port.path() / "state").find("ACTIVE") != std::string::npos;
    if (is_active) out.push_back(port.path());  // "4: ACTIVE"
  }
  return out;
}

// RoCE over a bond or a VLAN: each address of the port names its interface.
bool names_interface(const fs::path& port, const std::string& interface) {
  std::error_code error;
  for (const auto& each : fs::directory_iterator(port / "gid_attrs" / "ndevs", error)) {
    if (first_line(each.path()) == interface) return true;
  }
  return false;
}

}  // namespace

bool has_active_rdma_device(const std::string& devices) {
  std::error_code error;
  for (const auto& device : fs::directory_iterator(devices, error)) {
    if (!active_ports(device.path()).empty()) return true;
  }
  return false;
}

bool is_rdma_interface(const std::string& interface, const std::string& devices) {
  if (interface.empty()) return false;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(devices, error)) {
    const std::vector<fs::path> ports = active_ports(device.path());
    if (ports.empty()) continue;
    std::error_code absent;
    if (fs::exists(device.path() / "device" / "net" / interface, absent)) return true;
    if (std::any_of(ports.begin(), ports.end(),
                    [&](const fs::path& port) { return names_interface(port, interface); })) {
      return true;
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
  return Status(
      Code::invalid_argument,
      fmt::format("'{}' is not a range of ports: expected FIRST-LAST, for example 7100-7199", text));
}

std::string to_string(const PortRange& ports) {
  return ports.is_set() ? fmt::format("{}-{}", ports.first, ports.last) : "";
}

Result<std::string> address_of_interface(const std::string& interface) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<base::NetworkInterface> interfaces, base::network_interfaces());
  if (auto found = base::address_to_listen_at(interfaces, interface)) return *found;
  std::string known;
  for (const base::NetworkInterface& each : interfaces) {
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", each.name, each.address);
  }
  return Status(Code::not_found,
                fmt::format("this host has no interface '{}' with an IPv4 address; it has {}", interface,
                            known.empty() ? "none" : known));
}

}  // namespace shoal::transport
