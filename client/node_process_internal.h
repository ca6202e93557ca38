// The node of this host and run: where its socket is, and how one is started.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "client/checkpointer.h"
#include "local/socket.h"

namespace shoal {

// $SHOAL_SOCKET, else where node_paths puts it.
Result<std::string> socket_of(const CheckpointerOptions& options, const NodePaths& paths);

// Starts a node that outlives this process: a session of its own, standard output and error appended to
// `log_file`. Code::unavailable names the program that cannot be run. That the node then serves is not said:
// several candidates may start, their lock elects one.
Status start_node(const CheckpointerOptions& options, const std::string& log_file);

// The command of start_node. Code::not_found: there is no program to start.
Result<std::vector<std::string>> node_command(const CheckpointerOptions& options);

// Connects, starting a node where nobody listens, until `deadline`. Code::unavailable names the socket, the
// log and, if a process holds the lock, its pid.
Result<std::unique_ptr<LocalSocket>> reach_node(const CheckpointerOptions& options,
                                                std::chrono::steady_clock::time_point deadline);

}  // namespace shoal
