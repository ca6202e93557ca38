#include <charconv>

#include "transport/transport.h"

namespace shoal::transport {

namespace {
constexpr size_t kMaxHostBytes = 255;  // of a DNS name

Status bad_address(const std::string& text, const char* why) {
  return Status(Code::invalid_argument, "'" + text + "' is no HOST:PORT: " + why);
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
         c == '_' || c == ':' || c == '%';
}
}  // namespace

Result<HostPort> parse_host_port(const std::string& text) {
  size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad_address(text.substr(0, kMaxHostBytes), "there is no port");
  HostPort out;
  out.host = text.substr(0, colon);
  bool bracketed = out.host.size() >= 2 && out.host.front() == '[' && out.host.back() == ']';
  if (bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  if (out.host.empty()) return bad_address(text, "the host is empty");
  if (out.host.size() > kMaxHostBytes)
    return bad_address(text.substr(0, kMaxHostBytes), "the host is too long");
  for (char c : out.host) {
    if (!is_host_character(c)) return bad_address("HOST:PORT", "the host has a character that none may have");
  }
  bool has_colon = out.host.find(':') != std::string::npos;
  if (has_colon && !bracketed) return bad_address(text, "an IPv6 address goes in brackets, [::1]:PORT");
  if (bracketed && !has_colon) return bad_address(text, "brackets are for IPv6 addresses");
  std::string_view port = std::string_view(text).substr(colon + 1);
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size()) {
    return bad_address(text, "the port is no number from 0 to 65535");
  }
  return out;
}

std::string to_string(const HostPort& address) {
  bool bracketed = address.host.find(':') != std::string::npos;
  return (bracketed ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace shoal::transport
