// LayoutRequests: requests layouts that many nodes have from one of them, and keeps those that ranks of open
// attempts wait with. Part of the Coordinator.
#pragma once

#include <map>
#include <set>

#include "actors/ids.h"
#include "actors/messages/messages.h"
#include "base/paged_map.h"

namespace shoal::actors {

class LayoutRequests {
 public:
  // Whether this node must send the layout. Another node may have been requested to; if that node is lost,
  // this one must. `nodes`: those that are not lost.
  bool must_request(const LayoutId& id, NodeId node, const base::PagedSet<NodeId>& nodes);
  // Whether a node that is not lost was requested to send it, and it is awaited.
  bool is_requested(const LayoutId& id, const base::PagedSet<NodeId>& nodes) const;
  // Forgets what this node was requested to send, because a request may be lost.
  void request_again(NodeId node);

  // Keeps this layout once a node has sent it.
  void await(const LayoutId& id) { awaited_.try_emplace(id); }
  void take(const LayoutPtr& layout);
  LayoutPtr find(const LayoutId& id) const;  // null: not awaited, or not here yet
  // Forgets all other layouts and requests.
  void keep_only(const std::set<LayoutId>& ids);
  bool empty() const { return awaited_.empty(); }
  const std::map<LayoutId, LayoutPtr>& awaited() const { return awaited_; }

 private:
  std::map<LayoutId, LayoutPtr> awaited_;  // null: not here yet
  std::map<LayoutId, NodeId> requested_;   // from which node
};

}  // namespace shoal::actors
