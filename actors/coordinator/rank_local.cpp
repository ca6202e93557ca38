// Coordinator: rank-local saves. They need no coordinator: nodes decide them by the root alone, and find the
// decision by polls. Hints of the coordinator spare them the wait for the next poll.
#include "actors/coordinator/coordinator.h"

namespace shoal::actors {

void Coordinator::on_manifests_published(NodeId from, const wire::ManifestsPublished& published,
                                         EffectWriter& out) {
  nodes_.insert(from);
  if (manifests_published_.is_committed(
          published.key)) {  // its session had ended when the others heard of it
    return out.send(from, RoleKind::shard_writer, wire::Decided{published.key, true, ""});
  }
  if (!manifests_published_.take(from, published)) return;
  out.send(from, RoleKind::shard_writer,
           wire::ManifestsPublished{published.key, published.world_size, published.world_size});
}

void Coordinator::on_found_committed(NodeId from, const wire::Decided& decided, EffectWriter& out) {
  nodes_.insert(from);
  if (!decided.committed || !manifests_published_.committed(decided.key)) return;
  for (NodeId node : nodes_) {
    if (node != from) out.send(node, RoleKind::shard_writer, wire::Decided{decided.key, true, ""});
  }
  retention_.committed(out);
}

}  // namespace shoal::actors
