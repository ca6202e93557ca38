#include "base/host_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace shoal::base {

namespace {
constexpr size_t kMaxHostBytes = 255;  // of a DNS name

Status bad_address(std::string_view text, const char* why) {
  return Status(Code::invalid_argument, fmt::format("'{}' is not HOST:PORT: {}", text, why));
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
         c == '_' || c == ':' || c == '%';
}
}  // namespace

Result<HostPort> parse_host_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return bad_address(text.substr(0, kMaxHostBytes), "the port is missing");
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  const bool is_bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty()) return bad_address(text.substr(0, kMaxHostBytes), "the host is empty");
  if (host.size() > kMaxHostBytes) return bad_address(text.substr(0, kMaxHostBytes), "the host is too long");
  if (!std::all_of(host.begin(), host.end(), is_host_character)) {
    return bad_address("HOST:PORT", "the host has a character that is not allowed");
  }
  const bool has_colon = host.find(':') != std::string_view::npos;
  if (has_colon && !is_bracketed)
    return bad_address(text, "an IPv6 address needs brackets, as in [::1]:PORT");
  if (is_bracketed && !has_colon) return bad_address(text, "brackets are for IPv6 addresses");
  HostPort out{std::string(host), 0};
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size()) {
    return bad_address(text, "the port is not a number from 0 to 65535");
  }
  return out;
}

std::string to_string(const HostPort& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace shoal::base
