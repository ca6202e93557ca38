#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>

#include "transport/handshake_codec_internal.h"
#include "transport/ucx/engine_internal.h"

namespace shoal {

namespace {
// What epoll's events belong to: 0 is UCX, a peer's id its door, and this the listener.
constexpr uint64_t kListenerKey = UINT64_MAX;
constexpr uint64_t kDoorShutMs = 100;
constexpr int kEventsAtOnce = 64;
constexpr int kVisitorsAtOnce = 64;

Status describe(ucs_status_t status) {
  return Status(Code::unavailable, std::string("the connection broke: ") + ucs_status_string(status));
}
}  // namespace

void Engine::poll_door(int timeout_ms) {
  update_door_interest();
  epoll_event events[kEventsAtOnce];
  int count = epoll_wait(poll_fd_.get(), events, kEventsAtOnce, timeout_ms);
  if (timeout_ms != 0) return;  // it was for sleeping: the next round looks again
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kListenerKey) {
      accept_visitors();
    } else if (Peer* peer = find(events[i].data.u64); peer != nullptr && peer->door) {
      progress_door(*peer);
    }
  }
}

// Strangers beyond the bound wait outside, in the system's queue.
void Engine::update_door_interest() {
  if (!door_listener_) {
    is_door_open_ = false;
    return;
  }
  bool opens = unproven_ < options_.limits.unproven_sessions && now_ms_ >= door_shut_until_ms_;
  if (opens == is_door_open_) return;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListenerKey}};
  epoll_ctl(poll_fd_.get(), opens ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, door_listener_->fd(), &event);
  is_door_open_ = opens;
}

void Engine::accept_visitors() {
  for (int i = 0; i < kVisitorsAtOnce && unproven_ < options_.limits.unproven_sessions; ++i) {
    auto visitor = door_listener_->accept();
    if (visitor.ok() && peers_.size() >= options_.limits.peers) {
      turn_away(std::move(visitor->socket), to_string(visitor->from),
                Status(Code::busy,
                       fmt::format("{} peers are the most that this node takes", options_.limits.peers)));
      continue;
    }
    if (visitor.ok()) {
      ++unproven_;
      watch(add(shared_.add_peer(), false, to_string(visitor->from)),
            DoorConnection(std::move(visitor->socket), true));
      continue;
    }
    if (visitor.status().code() != Code::busy) return;
    if (turn_away_in_place()) continue;
    door_shut_until_ms_ = now_ms_ + kDoorShutMs;
    next_due_ms_ = std::min(next_due_ms_, door_shut_until_ms_);
    return;
  }
}

// Says why, and closes, without waiting for a word of the visitor.
void Engine::turn_away(FileDescriptor socket, const std::string& from, const Status& why) {
  DoorConnection door(std::move(socket), true);
  Bytes payload = encode_refusal(why);
  FrameHeader header;
  header.kind = FrameKind::handshake;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  door.write({encode_frame_header(header), std::move(payload)});
  door.end_writing();
  std::vector<DoorConnection::Frame> ignored;
  (void)door.progress(
      ignored);  // reads too: what is left unread when a socket closes takes back what was sent
  shared_.count([](TransportStats& stats) { ++stats.handshakes_refused; });
  handler_.on_refused(from, why);
}

// Where there is no descriptor for whoever waits. False: not even to say so.
bool Engine::turn_away_in_place() {
  FileDescriptor socket(spare_descriptor_.accept_in_place(door_listener_->fd()));
  if (socket.get() < 0) return false;
  turn_away(std::move(socket), "somebody", out_of_descriptors());
  spare_descriptor_.refill();
  return true;
}

void Engine::watch(Peer& peer, DoorConnection door) {
  peer.door.emplace(std::move(door));
  peer.door_interest = EPOLLIN | (peer.door->wants_to_write() ? EPOLLOUT : 0u);
  epoll_event event{.events = peer.door_interest, .data = {.u64 = peer.id}};
  if (epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, peer.door->fd(), &event) != 0) {
    break_link(peer, Status(Code::unavailable, "the connection cannot be watched"));
  }
  mark(peer);
}

void Engine::progress_door(Peer& peer) {
  std::vector<DoorConnection::Frame> frames;
  Status open = peer.door->progress(frames);
  for (const DoorConnection::Frame& frame : frames) {
    peer.session->on_door_frame(frame.header, frame.payload, now_ms_);
  }
  mark(peer);
  if (open.ok()) {
    uint32_t interest = EPOLLIN | (peer.door->wants_to_write() ? EPOLLOUT : 0u);
    if (interest == peer.door_interest) return;
    peer.door_interest = interest;
    epoll_event event{.events = interest, .data = {.u64 = peer.id}};
    epoll_ctl(poll_fd_.get(), EPOLL_CTL_MOD, peer.door->fd(), &event);
    return;
  }
  close_door(peer);
  if (!peer.session->was_up()) break_link(peer, open);
}

void Engine::close_door(Peer& peer) {
  peer.door.reset();
}

void Engine::offer_data_port(Peer& peer) {
  renew_worker();
  if (!worker_->is_listening()) {
    SocketAddress address = listen_address_;
    set_port(address, 0);
    auto port = worker_->listen(address.get(), address.bytes);
    if (!port.ok()) return peer.session->end(port.status().with_context("a port for data"));
    data_port_ = *port;
  }
  peer.is_expected = true;
  by_tag_[peer.session->incoming_tag()] = &peer;
  peer.session->offer_data_port(data_port_);
}

void Engine::stop_waiting_for(Peer& peer) {
  if (std::exchange(peer.is_expected, false)) by_tag_.erase(peer.session->incoming_tag());
}

void Engine::connect_data(Peer& peer) {
  SocketAddress address = peer.door_address;
  set_port(address, peer.session->data_port());
  renew_worker();
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->worker = peer.worker = worker_;
  endpoint->peer = &peer;
  auto handle = worker_->connect(address.get(), address.bytes, *endpoint);
  adopt(std::move(handle), std::move(endpoint));
}

void Engine::adopt(Result<ucp_ep_h> handle, std::unique_ptr<Endpoint> endpoint) {
  if (!handle.ok()) {
    if (endpoint->peer != nullptr) break_link(*endpoint->peer, handle.status());
    return;
  }
  endpoint->handle = *handle;
  if (endpoint->peer != nullptr) {
    endpoint->peer->endpoint = endpoint.get();
  } else {
    unattached_.push_back(endpoint.get());
  }
  endpoints_[*handle] = std::move(endpoint);
}

void Engine::on_connection_request(UcxWorker& worker, ucp_conn_request_h request) noexcept {
  requests_.push_back({worker.shared_from_this(), request});
}

void Engine::accept_requests() {
  for (ConnectionRequest& request : std::exchange(requests_, {})) {
    if (by_tag_.empty() || unattached_.size() >= options_.limits.unproven_sessions) {
      request.worker->reject(request.handle);
      continue;
    }
    auto endpoint = std::make_unique<Endpoint>();
    endpoint->attach_by_ms = now_ms_ + options_.limits.handshake_timeout_ms;
    next_due_ms_ = std::min(next_due_ms_, endpoint->attach_by_ms);
    endpoint->worker = request.worker;
    auto handle = request.worker->accept(request.handle, *endpoint);
    adopt(std::move(handle), std::move(endpoint));
  }
}

// The peer that the endpoint's first frame comes from, if it is awaited.
Engine::Peer* Engine::attach(Endpoint& endpoint, ByteView header) {
  auto decoded = decode_frame_header(header);
  if (!decoded.ok() || decoded->kind != FrameKind::attach) return nullptr;
  auto found = by_tag_.find(decoded->tag);
  if (found == by_tag_.end()) return nullptr;
  Peer& peer = *found->second;
  stop_waiting_for(peer);
  std::erase(unattached_, &endpoint);
  endpoint.peer = &peer;
  peer.endpoint = &endpoint;
  peer.worker = endpoint.worker;
  return &peer;
}

void Engine::on_endpoint_error(UcxLink& link, ucs_status_t status) noexcept {
  Endpoint& endpoint = static_cast<Endpoint&>(link);
  endpoint.is_broken = true;
  if (endpoint.peer != nullptr) break_link(*endpoint.peer, describe(status));
}

void Engine::close_endpoint(Endpoint& endpoint) {
  std::erase(unattached_, &endpoint);
  auto found = endpoints_.find(endpoint.handle);
  endpoint.closing = endpoint.worker->close(endpoint.handle);
  closing_endpoints_.push_back(std::move(found->second));
  endpoints_.erase(found);
}

// Closes connections that nobody claimed, and the data port once nobody is expected there.
void Engine::tidy_links() {
  for (Endpoint* endpoint : std::vector(unattached_)) {
    if (endpoint->is_broken || now_ms_ >= endpoint->attach_by_ms) close_endpoint(*endpoint);
  }
  if (worker_->is_listening() && by_tag_.empty() && requests_.empty()) worker_->stop_listening();
}

}  // namespace shoal
