// Coordinator: rank-local saves. They need no coordinator: nodes decide them by the root alone, and find the
// decision by polls. Hints of the coordinator spare them the wait for the next poll.
#include <algorithm>

#include "actors/coordinator/coordinator.h"
#include "base/rare_path.h"

namespace shoal::actors {

namespace {

constexpr TimeNs kProgressPasses = 4;  // at most so many within the shorter deadline of a save

}  // namespace

void Coordinator::on_manifests_published(NodeId from, const wire::ManifestsPublished& published,
                                         EffectWriter& out) {
  nodes_.insert(from);
  // Its session may have ended when the others heard of the commit.
  if (answer_decided(from, published.key, out) || !manifests_published_.take(from, published)) return;
  out.send(from, RoleKind::shard_writer,
           wire::ManifestsPublished{published.key, published.world_size, published.world_size});
}

void Coordinator::leave_to_nodes(EffectWriter& out) {
  for (auto each = attempts_.begin(); each != attempts_.end();) {
    Attempt& attempt = (each++)->second;  // close() destroys it
    if (!attempt.is_unheard_of() || !attempt.may(AttemptTrigger::handed_over)) continue;
    base::rare_path<"coordinator: leaves a rank-local save to its nodes">();
    close(attempt, AttemptTrigger::handed_over, out);
  }
}

// One message to each node covers the progress of all of them.
void Coordinator::pass_progress(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  const uint32_t shorter = std::min(config_.timeouts.node_deadline_ms, config_.timeouts.attempt_deadline_ms);
  progress_passed_.put(key, {});
  Passed& passed = *progress_passed_.get(key);
  if (passed.times != 0 && now - passed.at < shorter * kMillisecond / kProgressPasses) return;
  passed = {now, passed.times + 1};
  base::rare_path<"rank-local: passes on that a node still writes">();
  for (NodeId node : nodes_) {
    out.send(node, RoleKind::shard_writer, wire::SaveProgress{key, passed.times, true});
  }
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
