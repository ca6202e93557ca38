#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "transport/ucx/engine_internal.h"

namespace shoal {

namespace {
constexpr uint64_t kShortestTickMs = 20;  // a tick looks at every peer
constexpr int kClosingPollMs = 5;         // UCX wakes nobody when an endpoint is closed
constexpr uint64_t kCloseTimeoutMs = 2000;

uint64_t monotonic_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}
}  // namespace

Engine::Engine(const UcxTransportOptions& options, Shared& shared, TransportHandler& handler)
    : options_(options),
      shared_(shared),
      handler_(handler),
      token_(std::make_shared<const Bytes>(options.token)),
      // Waits are at most one heartbeat interval long; half an interval more is the machine's delay.
      clock_(options.limits.heartbeat_interval_ms + options.limits.heartbeat_interval_ms / 2),
      turns_(options.limits.inbound_bytes) {}

Engine::~Engine() {
  resolver_.reset();
  shared_.set_wake(nullptr);
  worker_.reset();
}

Result<std::string> Engine::open() {
  SHOAL_ASSIGN_OR_RETURN(worker_, UcxWorker::create(*this));
  std::string listening;
  if (!options_.listen.empty()) {
    SHOAL_ASSIGN_OR_RETURN(HostPort address, parse_host_port(options_.listen));
    SHOAL_ASSIGN_OR_RETURN(SocketAddress socket, resolve(address, false));
    auto port = worker_->listen(socket.get(), socket.bytes);
    if (!port.ok()) return port.status().with_context(options_.listen);
    address.port = *port;
    listening = to_string(address);
  }
  resolver_ = std::make_unique<Resolver>();
  shared_.set_wake([worker = worker_.get()] { worker->wake(); });
  now_ms_ = clock_.advance(monotonic_ms());
  return listening;
}

void Engine::run() {
  while (stage_ != Stage::stopped) {
    now_ms_ = clock_.advance(monotonic_ms());
    bool busy = take_work();
    busy |= worker_->progress();
    accept_requests();
    start_fetches();
    busy |= !marked_.empty();
    for (PeerId id : std::exchange(marked_, {})) {
      Peer* peer = find(id);
      if (peer == nullptr) continue;
      peer->is_marked = false;
      service(*peer);
    }
    reap();
    if (now_ms_ >= next_due_ms_) tick();
    if (has_stopped()) break;
    if (!busy && marked_.empty()) sleep();
  }
}

bool Engine::take_work() {
  std::vector<Command> commands = shared_.take_commands();
  for (Command& command : commands) carry_out(command);
  std::vector<OutgoingQueues::Batch> batches = shared_.take_messages();
  for (OutgoingQueues::Batch& batch : batches) {
    Peer* peer = find(batch.peer);
    if (peer == nullptr || peer->is_over) continue;
    for (Bytes& message : batch.messages) peer->outbox.push_back(std::move(message));
    mark(*peer);
  }
  return !commands.empty() || !batches.empty();
}

void Engine::carry_out(Command& command) {
  switch (command.kind) {
    case Command::Kind::connect:
      begin_connect(command.peer, command.address);
      break;
    case Command::Kind::resolved: {
      Peer* peer = find(command.peer);
      if (peer == nullptr || peer->is_over) break;
      if (command.status.ok()) {
        link(*peer, worker_->connect(command.socket.get(), command.socket.bytes, *peer));
      } else {
        break_link(*peer, command.status);
      }
      break;
    }
    case Command::Kind::disconnect: {
      Peer* peer = find(command.peer);
      if (peer == nullptr || peer->is_over) break;
      peer->session->end(command.status);
      mark(*peer);
      break;
    }
    case Command::Kind::stop:
      stage_ = Stage::draining;
      stop_at_ms_ = monotonic_ms() + command.drain_ms;
      parting_ms_ = std::min(command.drain_ms, options_.limits.farewell_ms);
      shared_.refuse_new();
      break;
  }
}

void Engine::accept_requests() {
  for (ucp_conn_request_h request : std::exchange(requests_, {})) {
    bool has_room = unproven_ < options_.limits.unproven_sessions && peers_.size() < options_.limits.peers;
    if (stage_ != Stage::serving || !has_room) {
      worker_->reject(request);
      continue;
    }
    Peer& peer = add(shared_.add_peer(), false, UcxWorker::remote_address(request));
    ++unproven_;
    link(peer, worker_->accept(request, peer));
  }
  if (stage_ != Stage::serving) worker_->stop_listening();
}

void Engine::tick() {
  uint64_t due = UINT64_MAX;
  for (auto& [id, peer] : peers_) {
    if (peer->is_closing) continue;
    if (peer->is_over) {
      if (now_ms_ >= peer->cut_at_ms) mark(*peer);
      due = std::min(due, peer->cut_at_ms);
      continue;
    }
    if (now_ms_ >= peer->session->next_due_ms()) {
      peer->session->tick(now_ms_);
      mark(*peer);
    }
    due = std::min(due, peer->session->next_due_ms());
  }
  next_due_ms_ = std::max(due, now_ms_ + kShortestTickMs);
}

void Engine::sleep() {
  uint64_t wait_ms = options_.limits.heartbeat_interval_ms;
  if (next_due_ms_ <= now_ms_) return;
  wait_ms = std::min(wait_ms, next_due_ms_ - now_ms_);
  if (stage_ != Stage::serving) {
    uint64_t now = monotonic_ms();
    wait_ms = std::min(wait_ms, stop_at_ms_ > now ? stop_at_ms_ - now : 0);
  }
  int timeout_ms = static_cast<int>(wait_ms);
  if (peers_.empty() && stage_ == Stage::serving) timeout_ms = -1;
  if (!closing_.empty()) timeout_ms = std::min(timeout_ms, kClosingPollMs);
  worker_->wait(timeout_ms);
}

// Draining: what is queued goes out. Parting: every peer is told, and given time to have read it. Stopped:
// all is cut.
bool Engine::has_stopped() {
  if (stage_ == Stage::serving) return false;
  bool in_time = monotonic_ms() < stop_at_ms_;
  if (stage_ == Stage::draining) {
    bool idle = std::all_of(peers_.begin(), peers_.end(), [&](auto& each) { return is_idle(*each.second); });
    if (in_time && !idle) return false;
    stage_ = Stage::parting;
    stop_at_ms_ = monotonic_ms() + parting_ms_;
    end_all(Status(Code::unavailable, "the node stops"));
    return false;
  }
  if (in_time && !peers_.empty()) return false;
  for (auto& [id, peer] : peers_) {
    if (!peer->is_closing) cut(*peer);
  }
  stop_at_ms_ = monotonic_ms() + kCloseTimeoutMs;
  while (!peers_.empty() && monotonic_ms() < stop_at_ms_) {
    if (!worker_->progress()) worker_->wait(kClosingPollMs);
    reap();
  }
  stage_ = Stage::stopped;
  return true;
}

void Engine::end_all(const Status& why) {
  shared_.refuse_all();
  for (auto& [id, peer] : peers_) {
    if (peer->is_over) continue;
    peer->session->end(why);
    mark(*peer);
  }
}

}  // namespace shoal
