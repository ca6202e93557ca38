// The node: the process that hosts the roles beside the trainers of one host. `shoal node` and `shoal launch`
// start it.
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

struct NodeOptions {
  // An existing folder. Becomes a root (ROOT_ID) if it is none yet, but not where `rejoin` names a
  // generation: that run has a root, and a folder without one is the mount point of storage that is not
  // there.
  std::string root;
  std::string job_id;                               // the same on all hosts of a run
  std::string name;                                 // of this host, distinct in the job; default: host name
  bool coordinate = false;                          // host the Coordinator here
  std::string coordinator;                          // HOST:PORT of the coordinator; unused if coordinate
  std::string listen;                               // HOST:PORT; used if coordinate; port 0: any
  transport::NetworkOptions network;                // --transport, --interface, --ports
  uint32_t max_direct_nodes = kDefaultDirectNodes;  // beyond them nodes go by way of relays; if coordinate
  bool take_over = false;  // coordinate although another run's coordinator is live on this root
  // For a job that loads and never saves: beside the one that trains on this root, if there is one, which
  // notices nothing. The root must be there. Claims a number under readers/ in the place of a generation.
  bool read_only = false;
  // The generation that an earlier node served, in whose place this one comes; kGenerationOfJob: that of the
  // job id, which then no earlier run has had. Not set: a run starts here, and where this node coordinates,
  // it is a generation of its own.
  std::optional<uint32_t> rejoin;
  Bytes token;                       // the job's secret
  uint32_t world_size = 0;           // 0: from the first client
  std::vector<Rank> expected_ranks;  // of this host; empty: those that attach
  std::string catalog_dir;           // of the coordinator; default: node_paths(root).catalog_dir
  std::string socket_file;           // default: $SHOAL_SOCKET, else node_paths(root).socket_file
  bool idle_exit = false;            // end by itself some time after the last client left and all is decided
  uint32_t idle_exit_after_ms = 5'000;
  // A descriptor that does not block: "ended RANK HOW" lines of whoever starts this host's trainers, and
  // stops this node after them. -1: nobody says so.
  int launcher_fd = -1;
  std::string stats_file;    // key=value lines written at the end, if set
  std::string protocol_log;  // every message between this node and others (protocol_log.h); empty: none
  std::string metrics;       // HOST:PORT to serve Prometheus metrics at; empty: nowhere
  uint64_t load_memory_bytes = kDefaultLoadMemoryBytes;  // of NodeFacts
  // What the slabs of this host's trainers may take together (staging_budget.h); 0: what the host leaves.
  uint64_t staging_memory_bytes = 0;
  RoleTimes times;
  storage::RetentionPolicy retention;  // applied where the Coordinator is
  std::string settings_said;  // which of these were set, and where: a line of the log; empty: none is written
  // How much memory the host has left; not set: as its kernel says. Tests say other figures.
  std::function<HostMemory()> host_memory;
  // Called around every operation on storage, on the thread that carries it out: tests end the node there.
  std::function<void(std::string_view operation, bool is_done)> around_operation;
};

// Runs until *stop becomes 1 (a clean stop: what is staged is written and decided first, bounded by
// node_deadline_ms) or 2 (at once); *stop is polled. Holds the host's lock for its life: Code::already_exists
// names the pid of the node that has it. `on_ready` is called once clients can attach, with the address
// listened on ("" if it does not coordinate) and the generation. A coordinator that a later epoch of its run
// has superseded follows that one while it has clients here, then ends by itself; one that another run has
// superseded stops cleanly, tells its clients why, and returns Code::superseded, naming that one's job.
Status run_node(const NodeOptions& options, const std::atomic<int>& stop,
                const std::function<void(const std::string& address, uint32_t generation)>& on_ready = {});

}  // namespace shoal::actors
