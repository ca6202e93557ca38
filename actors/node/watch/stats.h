// The stats file that a node writes when it ends: key=value lines.
#pragma once

#include <cstdint>
#include <string>

#include "actors/caf/caf_host.h"
#include "actors/node/links/peer_links.h"
#include "actors/node/links/relay_server.h"
#include "actors/node/links/sharing_links.h"
#include "shoal/status.h"
#include "transport/transport.h"

namespace shoal::actors {

struct NodeStats {
  transport::TransportStats transport;
  CafHostStats host;
  uint64_t saves_committed = 0;  // by the coordinator here
  uint64_t saves_aborted = 0;
  uint64_t sends_dropped = 0;
  PeerLinks::Reach reach;  // of the coordinator here
  RelayCounts relay;       // of the relay here
  SharingCounts sharing;   // of shared loads
};

std::string format_node_stats(const NodeStats& stats);
Status write_stats_file(const std::string& path, const NodeStats& stats);

}  // namespace shoal::actors
