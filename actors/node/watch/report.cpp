#include "actors/node/watch/report.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/process_state.h"

namespace shoal::actors {

NodeReport::NodeReport(Facts facts, const Activity& activity, const PeerLinks& links,
                       const transport::Transport& transport, const storage::CallWatch& watch,
                       const SlabTable& slabs, const std::atomic<int>& stop)
    : facts_(std::move(facts)),
      activity_(activity),
      links_(links),
      transport_(transport),
      watch_(watch),
      slabs_(slabs),
      stop_(stop),
      start_(base::steady_now_ns()),
      start_unix_time_ms_(std::chrono::system_clock::now().time_since_epoch() /
                          std::chrono::milliseconds(1)) {}

// A coordinator that a later one of its run has superseded follows that one.
bool NodeReport::coordinates() const {
  return links_.coordinator().empty();
}

uint32_t NodeReport::epoch() const {
  return std::max(facts_.identity.epoch, links_.epoch());
}

local::NodeStatus NodeReport::status() const {
  local::NodeStatus out;
  TimeNs now = base::steady_now_ns();
  out.version = SHOAL_VERSION;
  out.host = facts_.host;
  out.pid = getpid();
  out.root = facts_.root;
  out.root_id = facts_.identity.root_id.to_hex();
  out.job_id = facts_.identity.job_id;
  out.generation = facts_.identity.generation;
  out.epoch = epoch();
  out.coordinator = links_.coordinator();
  out.coordinates = out.coordinator.empty();
  if (out.coordinates) out.coordinator = facts_.own_address;
  out.uptime_ms = static_cast<uint64_t>((now - start_) / kMillisecond);
  out.read_only = facts_.read_only;
  out.is_stopping = stop_.load() != 0;
  auto peers = links_.peers();
  out.peers_count = peers.size();
  peers.resize(std::min(peers.size(), local::kMaxStatusPeers));
  for (auto& [node, identity] : peers) {
    out.peers.push_back({std::move(identity.name), node == kCoordinatorNode});
  }
  activity_.describe(now, out.coordinates, &out);
  for (local::TrainerStatus& trainer : out.trainers) {
    trainer.is_stopped = base::is_process_stopped(trainer.pid);
  }
  add_shared(&out.counts);
  for (storage::SlowCall& call : watch_.slow(local::kMaxStatusSlowCalls)) {
    out.slow_calls.push_back({std::move(call.what), call.age_ms});
  }
  return out;
}

void NodeReport::add_shared(local::NodeCounts* counts) const {
  const SharingLinks* sharing = sharing_.load();
  if (sharing == nullptr) return;
  const SharingCounts shared = sharing->counts();
  counts->bytes_to_peers = shared.bytes_sent;
  counts->bytes_from_peers = shared.bytes_received;
}

NodeStats NodeReport::stats() const {
  NodeStats out;
  out.transport = transport_.stats();
  out.sends_dropped = links_.sends_dropped();
  out.reach = links_.reach();
  if (const CafHost* host = host_.load()) out.host = host->stats();
  if (const SharingLinks* sharing = sharing_.load()) out.sharing = sharing->counts();
  return out;
}

NodeMetrics NodeReport::metrics() const {
  NodeMetrics out;
  out.version = SHOAL_VERSION;
  out.host = facts_.host;
  out.job_id = facts_.identity.job_id;
  out.root_id = facts_.identity.root_id.to_hex();
  out.coordinates = coordinates();
  out.generation = facts_.identity.generation;
  out.epoch = epoch();
  out.start_unix_time_ms = start_unix_time_ms_;
  out.peers = links_.peers_up();
  out.storage_oldest_call_ns = watch_.oldest_ns();
  out.read_only = facts_.read_only;
  out.slab_bytes = slabs_.bytes();
  out.activity = activity_.counts();
  add_shared(&out.activity.node);
  out.stats = stats();
  return out;
}

}  // namespace shoal::actors
