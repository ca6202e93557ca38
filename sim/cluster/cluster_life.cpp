// VirtualCluster: processes that end, stop and start again, and the sessions between nodes. A session behaves
// as in the transport (transport/transport.h): messages in transit are lost with it, and each end is notified
// when it can be.
#include <algorithm>
#include <charconv>
#include <utility>

#include "sim/basics/integer_math.h"
#include "sim/bytes/virtual_host.h"
#include "sim/cluster/virtual_cluster.h"

namespace shoal::sim {

namespace {

// A node that cannot reach the coordinator tries again after this time.
constexpr actors::TimeNs kJoinAgainNs = 500 * actors::kMillisecond;
constexpr std::string_view kAddress = "node";  // "node7"

const Status kSilent(Code::unavailable, "the peer sends nothing"),
    kClosed(Code::unavailable, "closed by the peer");

}  // namespace

void VirtualCluster::open_and_connect(bool earlier_host_lives, std::function<void()> claimed,
                                      std::function<void()> connected) {
  const RunStart::Job job{.nodes = nodes_.size(),
                          .generation = job_.generation,
                          .attempts = root_->attempts().size(),
                          .epochs = epoch_ - 1,  // ours is claimed for the roles already
                          .answers_late = !earlier_host_lives};
  run_start_ =
      std::make_unique<RunStart>(events_, storage_, network_, relays_,
                                 RunStart::Costs{profile_.storage, profile_.network, profile_.cpu}, job);
  run_start_->begin(std::move(claimed), std::move(connected));
}

void VirtualCluster::stop_connecting() {
  if (run_start_) run_start_->stop();
}

void VirtualCluster::kill(size_t dead) {
  Node& node = nodes_[dead];
  if (!node.alive) return;
  node.alive = false;
  if (part_writes_) part_writes_->process_ended(dead);
  while (!node.inputs.empty()) give_back(take_input(node));
  relays_.kill(dead);
  node.silent_since = events_.now();
  events_.schedule(events_.now() + kSilenceNs, [this, dead] { check_links_of(dead); });
}

void VirtualCluster::crash(size_t index) {
  if (!nodes_[index].alive) return;
  kill(index);
  events_.schedule(events_.now() + profile_.network.latency_ns, [this, index, life = nodes_[index].life] {
    if (nodes_[index].life == life) lose_sessions_of(index, kClosed);
  });
}

void VirtualCluster::stop(size_t index, bool trainers_live, std::function<void()> has_ended) {
  begin_drain(index, {.by_request = true, .trainers_live = trainers_live}, std::move(has_ended));
}

void VirtualCluster::end_idle(size_t index, std::function<void()> has_ended) {
  begin_drain(index, {.by_request = false, .trainers_live = false}, std::move(has_ended));
}

void VirtualCluster::begin_drain(size_t index, const actors::event::Drain& how,
                                 std::function<void()> has_ended) {
  if (!nodes_[index].alive) return;
  const Life life = life_of(index);
  if (!stopping_.try_emplace(life, Stopping{how, std::move(has_ended)}).second) return;
  if (is_coordinator(index) && how.by_request)
    offer(index, actors::RoleKind::coordinator, actors::event::Stopping{how.trainers_live});
  offer(index, actors::RoleKind::shard_writer, how);
  events_.schedule(events_.now() + timeouts().node_deadline_ms * actors::kMillisecond,
                   [this, life, index, asked = events_.now()] {
                     if (stopping_.contains(life) && lives(life)) undrained_ = {index, asked};
                     end_stopped(life);
                   });
}

bool VirtualCluster::has_followers(size_t index) const {
  for (size_t other = 0; other < nodes_.size(); ++other) {
    if (other == index || !nodes_[other].alive) continue;
    if (is_coordinator(index) || (index != 0 && relays_.relay_of(other) == index)) return true;
  }
  return false;
}

// The ShardWriter drains first. If the node coordinates, its Coordinator drains next, until the saves of the
// other nodes are decided.
void VirtualCluster::drained(size_t index, actors::RoleKind role) {
  const Life life = life_of(index);
  auto found = stopping_.find(life);
  if (found == stopping_.end()) return;
  if (role == actors::RoleKind::shard_writer && is_coordinator(index)) {
    return offer(index, actors::RoleKind::coordinator, found->second.how);
  }
  // The last messages leave before the process ends.
  events_.schedule(events_.now() + 10 * actors::kMillisecond, [this, life] { end_stopped(life); });
}

void VirtualCluster::end_stopped(Life life) {
  auto found = stopping_.find(life);
  if (found == stopping_.end()) return;
  const std::function<void()> has_ended = std::move(found->second.has_ended);
  stopping_.erase(found);
  if (!lives(life)) return;
  crash(static_cast<uint32_t>(life));
  has_ended();
}

void VirtualCluster::start_again(size_t index, bool coordinates, std::function<void()> is_up) {
  kill(index);
  lose_sessions_of(index, kClosed);
  coordinator_peers_.reset();
  Node& node = nodes_[index];
  const uint32_t life = node.life + 1;
  count_transitions(node);
  node = Node();
  node.life = life;
  node.alive = true;
  cpu_.forget(index, job_.ranks_of_node[index]);
  relays_.revive(index);
  if (!coordinates && coordinator_ != index) {
    node.coordinator = coordinator_;
    return join_again(life_of(index), std::make_shared<std::function<void()>>(std::move(is_up)));
  }
  epoch_ = root_->claim_epoch(job_.generation, std::string(kAddress) + std::to_string(index));
  coordinator_ = index;
  node.coordinator = index;
  make_roles(index, epoch_, true);
  begin_roles(index);
  is_up();
}

// A node learns epoch and generation from the handshake, so its roles start after it.
void VirtualCluster::join_again(Life life, const std::shared_ptr<std::function<void()>>& is_up) {
  if (!lives(life)) return;
  const auto index = static_cast<uint32_t>(life);
  if (!reachable(index, coordinator_)) {
    return events_.schedule(events_.now() + kJoinAgainNs, [this, life, is_up] { join_again(life, is_up); });
  }
  Node& node = nodes_[index];
  node.coordinator = coordinator_;
  node.session = actors::kFirstPeerNode + session_owners_.size();
  session_owners_.push_back(index);
  coordinator_peers_.reset();
  make_roles(index, epoch_, false);
  begin_roles(index);
  (*is_up)();
}

void VirtualCluster::stall(size_t index, actors::TimeNs duration) {
  Node& node = nodes_[index];
  if (!node.alive) return;
  node.stalled_until = std::max(node.stalled_until, events_.now() + duration);
  if (node.silent_since < 0) node.silent_since = events_.now();
  const Life life = life_of(index);
  events_.schedule(node.silent_since + kSilenceNs, [this, life] {
    if (lives(life)) check_links_of(static_cast<uint32_t>(life));
  });
  events_.schedule(events_.now() + duration, [this, life] {
    Node& stalled = nodes_[static_cast<uint32_t>(life)];
    if (lives(life) && stalled.stalled_until <= events_.now()) stalled.silent_since = -1;
  });
}

void VirtualCluster::lose_connection(size_t node, actors::ClientId client, actors::TimeNs later,
                                     bool process_lives) {
  const actors::event::ClientLost lost{client, process_lives};
  const auto lose = [this, life = life_of(node), lost] {
    if (!lives(life)) return;
    if (part_writes_) part_writes_->client_lost(static_cast<uint32_t>(life), lost.client);
    offer(static_cast<uint32_t>(life), std::nullopt, lost);
  };
  events_.schedule(events_.now() + profile_.cpu.local_latency_ns + later, lose);
}

void VirtualCluster::break_connection(size_t node, Rank rank, actors::TimeNs later) {
  lose_connection(node, client(rank), later, true);
  ++broken_connections_[rank];
}

void VirtualCluster::end_trainer(size_t node, Rank rank, const std::string& how) {
  if (!job_.has_launcher) return;
  events_.schedule(events_.now() + profile_.cpu.local_latency_ns, [this, life = life_of(node), rank, how] {
    if (!lives(life)) return;
    offer(static_cast<uint32_t>(life), actors::RoleKind::shard_writer,
          actors::event::TrainerEnded{rank, how});
  });
}

// Bulk operations end with the process that runs them. A small request may already be on its way.
void VirtualCluster::abandon(actors::OperationId id, bool is_small, const CountedRoot::Work& work) {
  const bool arrives = is_small && (mix64(id + static_cast<uint64_t>(events_.now())) & 1) != 0;
  if (arrives) static_cast<void>(work.finish());
}

// --- sessions ---

std::optional<VirtualCluster::Route> VirtualCluster::find_route(size_t from, actors::NodeId to) const {
  const Node& sender = nodes_[from];
  if (to == actors::kCoordinatorNode) {
    if (sender.session == 0) return std::nullopt;
    return Route{sender.coordinator, sender.session, sender.session, from};
  }
  SHOAL_CHECK(to - actors::kFirstPeerNode < session_owners_.size());
  const size_t receiver = session_owners_[to - actors::kFirstPeerNode];
  if (nodes_[receiver].session != to || nodes_[receiver].coordinator != from) return std::nullopt;
  return Route{receiver, to, actors::kCoordinatorNode, receiver};
}

bool VirtualCluster::reachable(size_t one, size_t other) const {
  const actors::TimeNs now = events_.now();
  return nodes_[one].silent_since < 0 && nodes_[other].silent_since < 0 && is_coordinator(other) &&
         !hazards_.is_cut(one, other, now) && !hazards_.is_cut(other, one, now);
}

bool VirtualCluster::is_silent(size_t one, size_t other) const {
  const actors::TimeNs now = events_.now();
  auto is_gone = [&](const Node& node) {
    return node.silent_since >= 0 && now - node.silent_since >= kSilenceNs;
  };
  // The side that receives nothing ends the session, which also closes it for the other side.
  auto is_deaf = [&](size_t from, size_t to) {
    const std::optional<actors::TimeNs> since = hazards_.cut_since(from, to, now);
    return since && now - *since >= kSilenceNs;
  };
  return is_gone(nodes_[one]) || is_gone(nodes_[other]) || is_deaf(one, other) || is_deaf(other, one);
}

void VirtualCluster::sweep_attempts(size_t node) {
  const auto carry_out = [&](const actors::Operation& operation) {
    (void)work_of(node, operation).finish();  // StoredPayload compares the results
  };
  for (const AttemptKey& key : root_->attempts()) {
    carry_out(actors::operation::InspectAttempt{key});
    carry_out(actors::operation::ReadDecision{key});
    carry_out(actors::operation::SweepAttempt{key});
  }
  carry_out(actors::operation::ListAttempts{});
}

void VirtualCluster::begin_hazard(const Failure& failure) {
  hazards_.begin(failure, events_.now());
  if (failure.kind == Failure::Kind::disk_slow) {
    storage_.set_slowness([this](size_t node) { return hazards_.slowness(node, events_.now()); });
  }
  if (failure.kind != Failure::Kind::cut) return;
  events_.schedule(events_.now() + kSilenceNs, [this] {
    for (size_t node = 0; node < nodes_.size(); ++node) {
      const Node& follower = nodes_[node];
      if (follower.session != 0 && is_silent(node, follower.coordinator)) lose_session(node, kSilent);
    }
  });
}

void VirtualCluster::check_links_of(size_t node) {
  coordinator_peers_.reset();  // nodes may have left their relays too
  for (size_t other = 0; other < nodes_.size(); ++other) {
    const Node& follower = nodes_[other];
    if (other != node && follower.coordinator != node) continue;
    if (follower.session != 0 && is_silent(other, follower.coordinator)) lose_session(other, kSilent);
  }
}

void VirtualCluster::lose_sessions_of(size_t node, const Status& why) {
  for (size_t other = 0; other < nodes_.size(); ++other) {
    if (other == node || nodes_[other].coordinator == node) lose_session(other, why);
  }
}

// The message that closes a session may be lost. Then the coordinator notices the silence, perhaps when it
// has a session with the next process already.
actors::TimeNs VirtualCluster::notice_time(size_t index, const Status& why) const {
  const uint64_t drawn = mix64(life_of(index) ^ static_cast<uint64_t>(events_.now()));
  const bool is_lost = why.message() == kClosed.message() && drawn % 2 == 0;
  return is_lost ? kSilenceNs : 0;
}

void VirtualCluster::lose_session(size_t index, const Status& why) {
  const actors::NodeId session = std::exchange(nodes_[index].session, 0);
  if (session == 0) return;
  coordinator_peers_.reset();
  auto notice = [this, coordinator = life_of(nodes_[index].coordinator), session, why] {
    if (!lives(coordinator)) return;
    offer(static_cast<uint32_t>(coordinator), actors::RoleKind::coordinator,
          actors::event::PeerLost{session, why});
  };
  const actors::TimeNs later = notice_time(index, why);
  later == 0 ? notice() : events_.schedule(events_.now() + later, std::move(notice));
  offer(index, std::nullopt, actors::event::PeerLost{actors::kCoordinatorNode, why});
}

void VirtualCluster::connect(size_t index) {
  Node& node = nodes_[index];
  if (node.session != 0 || node.coordinator == index || !reachable(index, node.coordinator)) return;
  node.session = actors::kFirstPeerNode + session_owners_.size();
  session_owners_.push_back(static_cast<uint32_t>(index));
  coordinator_peers_.reset();
  offer(index, std::nullopt, actors::event::PeerUp{actors::kCoordinatorNode});
}

// Behaves as a live node does: it reconnects to its own coordinator if it has lost that session, and follows
// a later coordinator.
void VirtualCluster::redirect(size_t index, const actors::effect::Redirect& to) {
  Node& node = nodes_[index];
  if (to.epoch < node.epoch) return;
  node.epoch = to.epoch;
  size_t coordinator = 0;
  const char* number = to.address.c_str() + kAddress.size();
  std::from_chars(number, to.address.c_str() + to.address.size(), coordinator);
  if (coordinator == index) return;
  if (coordinator == node.coordinator && node.session != 0) {
    return offer(index, std::nullopt, actors::event::PeerUp{actors::kCoordinatorNode});
  }
  lose_session(index, kClosed);
  node.coordinator = coordinator;
  coordinator_peers_.reset();
  // The handshake takes one round trip.
  events_.schedule(events_.now() + 2 * profile_.network.latency_ns, [this, life = life_of(index)] {
    if (lives(life)) connect(static_cast<uint32_t>(life));
  });
}

}  // namespace shoal::sim
