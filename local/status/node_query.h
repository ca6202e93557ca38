// Asks running nodes of this host what they do. For commands: nothing of a save or load passes here.
#pragma once

#include <string>
#include <vector>

#include "local/status/node_status.h"
#include "shoal/status.h"

namespace shoal::local {

inline constexpr int kNodeAnswerTimeoutMs = 5'000;

// The status of the node that listens on this socket. Code::unavailable: nobody does.
// Code::deadline_exceeded: it did not answer in time; the message has its pid where the kernel tells it.
Result<NodeStatus> ask_node(const std::string& socket_file, int timeout_ms = kNodeAnswerTimeoutMs);

// $SHOAL_RUNTIME_DIR, else $XDG_RUNTIME_DIR/shoal, else /tmp/shoal-<uid>; it need not be there.
std::string runtime_folder();
// Of every node that this user started on this host, running or not, by name.
std::vector<std::string> list_node_sockets();
// Of these, of jobs that only read this root. Code::not_found: there is no such folder.
Result<std::vector<std::string>> list_reader_sockets(const std::string& root);

}  // namespace shoal::local
