// The text form of a network address: HOST:PORT, with an IPv6 address in brackets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shoal/status.h"

namespace shoal::base {

struct HostPort {
  std::string host;  // without brackets; never empty after parse_host_port
  uint16_t port = 0;
};

// Parses "HOST:PORT" or "[v6]:PORT"; otherwise Code::invalid_argument. Looks up no name. Port 0 is allowed
// for listening.
Result<HostPort> parse_host_port(std::string_view text);
// The text that parse_host_port parses.
std::string to_string(const HostPort& address);

}  // namespace shoal::base
