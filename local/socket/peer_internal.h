// What both ends of a local socket need from the system.
#pragma once

#include <sys/un.h>

#include <string>

#include "shoal/status.h"

namespace shoal::local {

// Code::refused unless the process at the other end runs as this user or as root.
Status check_peer(int fd);

// Code::invalid_argument: the path does not fit.
Result<sockaddr_un> socket_address(const std::string& path);

}  // namespace shoal::local
