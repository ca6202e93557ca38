// Requests the status of running nodes of this host. Only commands use it; saves and loads do not.
#pragma once

#include <string>
#include <vector>

#include "local/status/job_status.h"
#include "local/status/node_status.h"
#include "shoal/status.h"

namespace shoal::local {

inline constexpr int kNodeAnswerTimeoutMs = 5'000;

// The status of the node that listens on this socket. Code::unavailable: no node listens.
// Code::deadline_exceeded: it did not answer in time; the message has its pid if the kernel provides it.
Result<NodeStatus> ask_node(const std::string& socket_file, int timeout_ms = kNodeAnswerTimeoutMs);

// The status of the job of that node, with the same errors. If the coordinator does not answer, the node
// returns what it knows itself, with the cause (JobStatus::incomplete).
Result<JobStatus> ask_job(const std::string& socket_file,
                          int timeout_ms = kJobStatusPatienceMs + kNodeAnswerTimeoutMs);

// $SHOAL_RUNTIME_DIR, else $XDG_RUNTIME_DIR/shoal, else /tmp/shoal-<uid>. It may not exist.
std::string runtime_folder();
// The end of an error about a runtime folder that has no space.
inline constexpr const char* kFreeRuntimeFolder =
    "; free space there, or choose another runtime folder with SHOAL_RUNTIME_DIR";
// Creates it if it does not exist. Code::refused: it belongs to another user, or others may write to it.
Status make_runtime_folder();
// The sockets of all nodes that this user started on this host, running or not, ascending by name.
std::vector<std::string> list_node_sockets();
// Those of jobs that only read this root. Code::not_found: there is no folder `root`.
Result<std::vector<std::string>> list_reader_sockets(const std::string& root);

}  // namespace shoal::local
