// Whether a host is this one.
#pragma once

#include <optional>
#include <string>

#include "shoal/status.h"

namespace shoal::client {

// The IPv4 address to listen on, so that others reach this host by the name or address `host`; nullopt where
// that is another host, or unknown. "0.0.0.0" where the name is ours, but leads to the loopback alone, as
// Debian has it. Blocks while a name is looked up.
std::optional<std::string> own_address(const std::string& host);

// The address to listen at, for those who come by `host`: own_address. Where that is unknown, or any address:
// that of SHOAL_INTERFACE, else of the only interface beyond the loopback, and "0.0.0.0" where there are
// several. Code::not_found: there is no SHOAL_INTERFACE.
Result<std::string> address_to_serve_at(const std::string& host);

}  // namespace shoal::client
