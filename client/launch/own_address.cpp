#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <set>

#include "base/interfaces.h"
#include "client/launch/job_environment.h"
#include "client/launch/own_address.h"

namespace shoal::client {

namespace {

constexpr const char* kAnyAddress = "0.0.0.0";

std::string dotted(const in_addr& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  return ::inet_ntop(AF_INET, &address, text.data(), text.size()) != nullptr ? text.data() : "";
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.");
}

std::set<std::string> interface_addresses() {
  std::set<std::string> out;
  auto interfaces = base::network_interfaces();
  if (!interfaces.ok()) return out;
  for (const base::NetworkInterface& each : *interfaces) out.insert(each.address);
  return out;
}

std::set<std::string> addresses_of(const std::string& host) {
  std::set<std::string> out;
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return out;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    out.insert(dotted(reinterpret_cast<const sockaddr_in*>(each->ai_addr)->sin_addr));
  }
  ::freeaddrinfo(found);
  return out;
}

// "n1" equals "n1.cluster", but "n1.here" does not equal "n1.there".
bool is_own_name(const std::string& host) {
  std::array<char, 256> own{};
  if (::gethostname(own.data(), own.size() - 1) != 0) return false;
  std::string name = own.data();
  if (name == host) return true;
  bool has_domains = name.find('.') != std::string::npos && host.find('.') != std::string::npos;
  return !has_domains && name.substr(0, name.find('.')) == host.substr(0, host.find('.'));
}

}  // namespace

std::optional<std::string> own_address(const std::string& host) {
  in_addr numeric{};
  if (::inet_pton(AF_INET, host.c_str(), &numeric) == 1) {
    std::string address = dotted(numeric);
    bool is_ours = is_loopback(address) || interface_addresses().count(address) > 0;
    return is_ours ? std::optional(address) : std::nullopt;
  }
  if (host == "localhost") return "127.0.0.1";
  const std::set<std::string> ours = interface_addresses();
  bool leads_to_loopback = false;
  for (const std::string& address : addresses_of(host)) {
    if (is_loopback(address)) leads_to_loopback = true;
    if (!is_loopback(address) && ours.count(address) > 0) return address;
  }
  if (leads_to_loopback || is_own_name(host)) return kAnyAddress;
  return std::nullopt;
}

Result<std::string> address_to_serve_at(const std::string& host) {
  const std::optional<std::string> own = own_address(host);
  if (own && *own != kAnyAddress) return *own;
  SHOAL_ASSIGN_OR_RETURN(auto interfaces, base::network_interfaces());
  const std::string wanted = environment_variable("SHOAL_INTERFACE").value_or("");
  if (auto found = base::address_to_listen_at(interfaces, wanted)) return *found;
  if (wanted.empty()) return std::string(kAnyAddress);
  return Status(Code::not_found, fmt::format("SHOAL_INTERFACE is '{}': this host has no such interface with "
                                             "an IPv4 address",
                                             wanted));
}

}  // namespace shoal::client
