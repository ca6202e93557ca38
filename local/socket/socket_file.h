// The file of a unix socket. Users may give its path, so it may name something else.
#pragma once

#include <string>

#include "local/socket/socket.h"
#include "shoal/status.h"

namespace shoal::local {

// Removes the socket file of a process that has ended, if there is one. Code::invalid_argument: `path` names
// something that is not a socket, and it stays.
Status remove_socket_file(const std::string& path);

// Code::already_exists: a process has the socket `path` open. OK: none does, or there is no such socket.
Status check_nobody_listens(const std::string& path);

// The socket of the node of a root: `given`, else SHOAL_SOCKET, else that of the root; "" counts as not
// given.
std::string node_socket_file(const std::string& given, const NodePaths& paths);

}  // namespace shoal::local
