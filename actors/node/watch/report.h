// NodeReport: collects the status, the metrics and the stats of a live node from its parts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/caf/caf_host.h"
#include "actors/node/clients/slab_table.h"
#include "actors/node/links/peer_links.h"
#include "actors/node/watch/activity.h"
#include "actors/node/watch/metrics_text.h"
#include "local/status/node_status.h"
#include "storage/files/call_watch.h"
#include "transport/transport.h"

namespace shoal::actors {

class NodeReport {
 public:
  struct Facts {
    std::string host, root;
    transport::Identity identity;
    std::string own_address;  // at which it listens, if it coordinates
    bool read_only = false;
  };
  // All arguments outlive the report.
  NodeReport(Facts facts, const Activity& activity, const PeerLinks& links,
             const transport::Transport& transport, const storage::CallWatch& watch, const SlabTable& slabs,
             const std::atomic<int>& stop);
  void set_host(const CafHost* host) { host_ = host; }  // nullptr: before the host is destroyed
  void set_sharing(const SharingLinks* sharing) { sharing_ = sharing; }  // likewise

  // The methods below may be called on any thread.
  local::NodeStatus status() const;
  NodeMetrics metrics() const;
  NodeStats stats() const;

 private:
  bool coordinates() const;
  uint32_t epoch() const;
  void add_shared(local::NodeCounts* counts) const;

  const Facts facts_;
  const Activity& activity_;
  const PeerLinks& links_;
  const transport::Transport& transport_;
  const storage::CallWatch& watch_;
  const SlabTable& slabs_;
  const std::atomic<int>& stop_;
  std::atomic<const CafHost*> host_{nullptr};
  std::atomic<const SharingLinks*> sharing_{nullptr};
  const TimeNs start_;
  const int64_t start_unix_time_ms_;
};

}  // namespace shoal::actors
