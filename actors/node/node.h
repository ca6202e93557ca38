// The node: the process beside the trainers of one host, which hosts the roles. `shoal node` and `shoal
// launch` start it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/node/clients/staging_budget.h"
#include "actors/node/links/relay_tree.h"
#include "actors/role.h"
#include "shoal/bytes.h"
#include "shoal/status.h"
#include "transport/live/network_options.h"

namespace shoal::actors {

// The settings of the roles come first: a job that only reads may run while another job trains on this root,
// which it does not disturb. The root must then exist.
struct NodeOptions : RoleSettings {
  // An existing folder. It becomes a root (ROOT_ID) if it is none yet. But if `rejoin` names a generation,
  // that is an error: the run has a root, and a folder without one is the mount point of storage that is not
  // mounted.
  std::string root;
  std::string name;                   // of this host, distinct in the job; default: the host name
  bool coordinate = false;            // host the Coordinator here
  std::string coordinator;            // HOST:PORT of the coordinator; unused if coordinate
  std::string listen;                 // HOST:PORT, used if coordinate; port 0: any
  transport::NetworkOptions network;  // --transport, --interface, --ports
  // If coordinate: further nodes connect through relays.
  uint32_t max_direct_nodes = kDefaultDirectNodes;
  bool take_over = false;  // coordinate even if another run's coordinator is live on this root
  // The generation of an earlier node that this one replaces. kGenerationOfJob: the generation of this job
  // id, which no earlier run may have had. Not set: a run starts here, and if this node coordinates, it
  // claims a new generation.
  std::optional<uint32_t> rejoin;
  Bytes token;              // the job's secret
  std::string catalog_dir;  // of the coordinator; default: node_paths(root).catalog_dir
  std::string socket_file;  // default: $SHOAL_SOCKET, else node_paths(root).socket_file
  bool idle_exit = false;   // end some time after the last client has left and all saves are decided
  uint32_t idle_exit_after_ms = 5'000;
  // The process of the client that started this node; 0: another did. If it ends before the node is ready, so
  // does the node: otherwise it would keep the host's lock from the next job.
  int32_t started_by = 0;
  // A descriptor that does not block, on which the launcher of this host's trainers writes "ended RANK HOW"
  // lines. The launcher stops this node after the trainers. -1: there is no launcher.
  int launcher_fd = -1;
  std::string stats_file;  // if set: key=value lines written at the end
  // Logs every message between this node and others (protocol_log.h); empty: no log.
  std::string protocol_log;
  std::string metrics;      // HOST:PORT at which to serve Prometheus metrics; empty: none
  std::string status_page;  // HOST:PORT at which the coordinator's node serves the status page; empty: none
  // Bound of the slabs of this host's trainers together (staging_budget.h); 0: what the host has left.
  uint64_t staging_memory_bytes = 0;
  // A log line about which settings were set, and where; empty: none.
  std::string settings_sources;
  // The free memory of the host; not set: as the kernel states it. Tests set it.
  std::function<HostMemory()> host_memory;
  // Called before and after every operation on storage, on its thread. Tests end the node there.
  std::function<void(std::string_view operation, bool is_done)> around_operation;
};

// Runs until *stop becomes 1 or 2; polls *stop. 1 is a clean stop: what is staged is written and decided
// first, for at most node_deadline_ms. 2 stops at once. Holds the lock of the host. Code::already_exists:
// another node has it; the message has its pid.
//
// Calls `on_ready` once clients can attach, with the address at which it listens ("" if it does not
// coordinate) and the generation.
//
// A coordinator that a later epoch of its run has superseded follows that one while it has clients, then
// ends. One that another run has superseded stops cleanly, reports the cause to its clients, and returns
// Code::superseded, with the job of that run.
Status run_node(const NodeOptions& options, const std::atomic<int>& stop,
                const std::function<void(const std::string& address, uint32_t generation)>& on_ready = {});

}  // namespace shoal::actors
