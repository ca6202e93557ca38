#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "base/host_port.h"
#include "transport/live/engine.h"
#include "transport/tcp/resolver.h"

namespace shoal::transport {

namespace {
constexpr uint64_t kShortestTickMs = 20;  // because each tick visits every peer
constexpr int kClosingPollMs = 5;         // UCX sends no event when an endpoint is closed
constexpr uint64_t kCloseTimeoutMs = 2000;

uint64_t monotonic_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}
}  // namespace

Engine::Engine(const TransportOptions& options, Shared& shared, TransportHandler& handler)
    : options_(options),
      shared_(shared),
      handler_(handler),
      token_(std::make_shared<const Bytes>(options.token)),
      // A wait lasts at most one heartbeat interval; another half allows for scheduling delays.
      clock_(options.limits.heartbeat_interval_ms + options.limits.heartbeat_interval_ms / 2),
      turns_(options.limits.inbound_bytes) {}

Engine::~Engine() {
  resolver_.reset();
  shared_.set_wake(nullptr);
  if (worker_ != nullptr) worker_->close_all();
  for (RetiredWorker& retired : retired_workers_) retired.worker->close_all();
}

Result<std::string> Engine::open() {
  std::string listening;
  if (!options_.listen.empty()) {
    SHOAL_ASSIGN_OR_RETURN(base::HostPort address, base::parse_host_port(options_.listen));
    SHOAL_ASSIGN_OR_RETURN(listen_address_, resolve(address, false));
    auto listener = Listener::listen(listen_address_, options_.network.ports);
    if (!listener.ok()) return listener.status().with_context(options_.listen);
    listener_ = std::move(*listener);
    address.port = listener_->port();
    listening = base::to_string(address);
  }
  const TransportKind asked = options_.network.transport;
  may_use_rdma_ = asked == TransportKind::automatic && listener_ && has_active_rdma_device();
  SHOAL_ASSIGN_OR_RETURN(tls_, TlsContext::create(*token_, options_.identity.root_id));
  SHOAL_RETURN_IF_ERROR(open_poll());
  resolver_ = std::make_unique<Resolver>(options_.find_host);
  now_ms_ = clock_.advance(monotonic_ms());
  return listening;
}

void Engine::run() {
  while (true) {
    now_ms_ = clock_.advance(monotonic_ms());
    has_been_woken_ = false;
    bool busy = take_work();
    busy |= progress_workers();
    go_on_with_streams();
    poll(0);
    accept_requests();
    start_fetches();
    busy |= !marked_.empty();
    service_marked();
    tidy_links();
    reap();
    retire_idle_workers();
    if (now_ms_ >= next_due_ms_) tick();
    if (has_stopped()) return;
    if (!busy && !has_been_woken_ && marked_.empty() && again_.empty()) sleep();
  }
}

void Engine::service_marked() {
  for (PeerId id : std::exchange(marked_, {})) {
    Peer* peer = find(id);
    if (peer == nullptr) continue;
    peer->is_marked = false;
    service(*peer);
  }
}

bool Engine::take_work() {
  std::vector<Command> commands = shared_.take_commands();
  for (Command& command : commands) carry_out(command);
  std::vector<OutgoingQueues::Batch> early = std::exchange(early_, {});
  for (OutgoingQueues::Batch& batch : early) {
    if (Peer* peer = find(batch.peer)) put_out(*peer, batch);
  }
  std::vector<OutgoingQueues::Batch> batches = shared_.take_messages();
  for (OutgoingQueues::Batch& batch : batches) {
    Peer* peer = find(batch.peer);
    if (peer == nullptr) {
      early_.push_back(std::move(batch));
    } else {
      put_out(*peer, batch);
    }
  }
  return !commands.empty() || !early.empty() || !batches.empty();
}

void Engine::put_out(Peer& peer, OutgoingQueues::Batch& batch) {
  if (peer.is_over()) return;
  for (Bytes& message : batch.messages) peer.outbox.push_back(std::move(message));
  mark(peer);
}

void Engine::carry_out(Command& command) {
  if (command.kind == Command::Kind::connect) return begin_connect(command.peer, command.address);
  if (command.kind == Command::Kind::stop) {
    stage_ = Stage::draining;
    stop_at_ms_ = monotonic_ms() + command.drain_ms;
    stop_reason_ = command.status;
    parting_ms_ = std::min(command.drain_ms, options_.limits.farewell_ms);
    shared_.refuse_new();
    listener_.reset();
    return;
  }
  Peer* peer = find(command.peer);
  if (peer == nullptr || peer->is_over()) return;
  if (command.kind == Command::Kind::disconnect) {
    peer->session->end(command.status);
    mark(*peer);
    return;
  }
  peer->awaits_address = false;
  peer->session->begin(now_ms_);
  if (command.status.ok()) {
    connect_stream(*peer, command.socket);
  } else {
    break_link(*peer, command.status);
  }
}

void Engine::tick() {
  close_late_unproven();
  report_flood();
  uint64_t due = listener_shut_until_ms_ > now_ms_ ? listener_shut_until_ms_ : UINT64_MAX;
  if (flood_.closed != 0) due = std::min(due, flood_.report_at_ms);
  if (!unproven_.empty()) {
    due = std::min(due, find(unproven_.front())->came_at_ms + options_.limits.unproven_life_max_ms);
  }
  for (auto& [id, peer] : peers_) {
    if (peer->is_closing()) continue;
    if (peer->is_over()) {
      if (now_ms_ >= peer->cut_at_ms) mark(*peer);
      due = std::min(due, peer->cut_at_ms);
      continue;
    }
    if (peer->awaits_address) peer->session->begin(now_ms_);
    // The peer is silent because this node does not read its stream until it is the peer's turn.
    if (peer->stream && peer->stream->awaits_room()) peer->session->on_received(now_ms_);
    if (now_ms_ >= peer->session->next_due_ms()) {
      peer->session->tick(now_ms_);
      mark(*peer);
    }
    due = std::min(due, peer->session->next_due_ms());
  }
  for (const Endpoint* endpoint : unattached_) due = std::min(due, endpoint->attach_by_ms);
  next_due_ms_ = std::max(due, now_ms_ + kShortestTickMs);
}

void Engine::sleep() {
  if (next_due_ms_ <= now_ms_ || !arm_workers()) return;
  uint64_t wait_ms = std::min<uint64_t>(options_.limits.heartbeat_interval_ms, next_due_ms_ - now_ms_);
  if (stage_ != Stage::serving) {
    uint64_t now = monotonic_ms();
    wait_ms = std::min(wait_ms, stop_at_ms_ > now ? stop_at_ms_ - now : 0);
  }
  bool is_closing = !closing_.empty() || !closing_endpoints_.empty();
  int timeout_ms = static_cast<int>(wait_ms);
  if (is_closing) timeout_ms = std::min(timeout_ms, kClosingPollMs);
  if (peers_.empty() && next_due_ms_ > now_ms_ + 60000 && stage_ == Stage::serving && !is_closing)
    timeout_ms = -1;
  poll(timeout_ms);
}

// Draining: queued messages are sent. Parting: every peer is sent the reason and gets time to read it.
// Stopped: all connections are closed.
bool Engine::has_stopped() {
  if (stage_ == Stage::serving) return false;
  bool in_time = monotonic_ms() < stop_at_ms_;
  if (stage_ == Stage::draining) {
    bool idle = std::all_of(peers_.begin(), peers_.end(), [&](auto& each) { return is_idle(*each.second); });
    if (in_time && !idle) return false;
    stage_ = Stage::parting;
    stop_at_ms_ = monotonic_ms() + parting_ms_;
    end_all(stop_reason_);
    service_marked();
    return false;
  }
  if (in_time && !peers_.empty()) return false;
  for (auto& [id, peer] : peers_) {
    if (!peer->is_closing()) cut(*peer);
  }
  while (!unattached_.empty()) close_endpoint(*unattached_.back());
  accept_requests();
  stop_at_ms_ = monotonic_ms() + kCloseTimeoutMs;
  while (!(peers_.empty() && closing_endpoints_.empty()) && monotonic_ms() < stop_at_ms_) {
    if (!progress_workers() && arm_workers()) poll(kClosingPollMs);
    reap();
  }
  stage_ = Stage::stopped;
  return true;
}

void Engine::end_all(const Status& why) {
  shared_.refuse_all();
  for (auto& [id, peer] : peers_) {
    if (peer->is_over()) continue;
    peer->session->end(why);
    mark(*peer);
  }
}

}  // namespace shoal::transport
