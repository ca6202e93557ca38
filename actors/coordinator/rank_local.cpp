// Coordinator: rank-local saves. They need no coordinator: nodes decide them by the root alone, and find the
// decision by polls. Hints of the coordinator spare them the wait for the next poll.
#include "actors/coordinator/coordinator.h"

namespace shoal::actors {

void Coordinator::on_manifests_published(NodeId from, const wire::ManifestsPublished& published,
                                         EffectWriter& out) {
  nodes_.insert(from);
  // Its session may have ended when the others heard of the commit.
  if (answer_decided(from, published.key, out) || !manifests_published_.take(from, published)) return;
  out.send(from, RoleKind::shard_writer,
           wire::ManifestsPublished{published.key, published.world_size, published.world_size});
}

void Coordinator::on_found_committed(NodeId from, const wire::Decided& decided, EffectWriter& out) {
  nodes_.insert(from);
  if (!decided.committed || decided_.contains(decided.key)) return;
  const Outcome outcome{.committed = true};
  decided_.put(decided.key, outcome);
  manifests_published_.forget(decided.key);
  for (NodeId node : nodes_) {
    if (node != from) out.send(node, RoleKind::shard_writer, decided_message(decided.key, outcome));
  }
  retention_.committed(out);
}

}  // namespace shoal::actors
