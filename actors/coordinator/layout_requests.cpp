#include "actors/coordinator/layout_requests.h"

namespace shoal::actors {

bool LayoutRequests::must_request(const LayoutId& id, NodeId node, const base::PagedSet<NodeId>& nodes) {
  auto [requested, fresh] = requested_.try_emplace(id, node);
  if (!fresh && nodes.contains(requested->second)) return false;
  requested->second = node;
  return true;
}

bool LayoutRequests::is_requested(const LayoutId& id, const base::PagedSet<NodeId>& nodes) const {
  const auto requested = requested_.find(id);
  return requested != requested_.end() && nodes.contains(requested->second) && awaited_.contains(id);
}

void LayoutRequests::request_again(NodeId node) {
  std::erase_if(requested_, [&](const auto& requested) { return requested.second == node; });
}

void LayoutRequests::take(const LayoutPtr& layout) {
  auto awaited = awaited_.find(layout->id());
  if (awaited != awaited_.end() && !awaited->second) awaited->second = layout;
}

LayoutPtr LayoutRequests::find(const LayoutId& id) const {
  auto awaited = awaited_.find(id);
  return awaited == awaited_.end() ? nullptr : awaited->second;
}

void LayoutRequests::keep_only(const std::set<LayoutId>& ids) {
  std::erase_if(awaited_, [&](const auto& layout) { return !ids.contains(layout.first); });
  std::erase_if(requested_, [&](const auto& layout) { return !ids.contains(layout.first); });
}

}  // namespace shoal::actors
