// System calls that both ends of a local socket need.
#pragma once

#include <sys/un.h>

#include <string>

#include "shoal/status.h"

namespace shoal::local {

// Code::refused unless the process at the other end runs as this user or as root.
Status check_peer(int fd);

// Code::invalid_argument: the path is too long for a unix socket.
Result<sockaddr_un> socket_address(const std::string& path);

}  // namespace shoal::local
