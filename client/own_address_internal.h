// Whether a host is this one.
#pragma once

#include <optional>
#include <string>

namespace shoal {

// The IPv4 address to listen on, so that others reach this host by the name or address `host`; nullopt where
// that is another host, or unknown. "0.0.0.0" where the name is ours, but leads to the loopback alone, as
// Debian has it. Blocks while a name is looked up.
std::optional<std::string> own_address(const std::string& host);

}  // namespace shoal
