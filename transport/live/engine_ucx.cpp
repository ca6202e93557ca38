#include <fmt/format.h>

#include <algorithm>

#include "transport/live/engine.h"

namespace shoal::transport {

namespace {
Status describe(ucs_status_t status) {
  return Status(Code::unavailable, std::string("the connection broke: ") + ucs_status_string(status));
}
}  // namespace

// On a welcomed connector: uses the transport that the listener chose.
void Engine::choose_data_path(Peer& peer) {
  const bool by_ucx = peer.session->data_port() != 0;
  const TransportKind used = by_ucx ? TransportKind::ucx : TransportKind::tcp;
  const TransportKind asked = options_.network.transport;
  if (asked != TransportKind::automatic && asked != used) {
    return peer.session->end(
        Status(Code::refused,
               fmt::format("the transports differ: the listener uses {}, but the connector was started with "
                           "{}; start all nodes with the same --transport (SHOAL_TRANSPORT)",
                           to_string(used), to_string(asked))));
  }
  if (by_ucx) {
    connect_data(peer);
  } else {
    stay_on_stream(peer);
  }
}

// On a listener: by the configured transport, otherwise by the interface on which the session came.
bool Engine::goes_by_ucx(const Peer& peer) const {
  if (options_.network.transport == TransportKind::ucx) return true;
  return may_use_rdma_ && peer.stream && is_rdma_interface(interface_of_socket(peer.stream->tls().fd()));
}

void Engine::offer_data_port(Peer& peer) {
  if (!goes_by_ucx(peer)) {
    peer.session->offer_data_port(0);
    return stay_on_stream(peer);
  }
  if (Status ready = renew_worker(peer); !ready.ok()) return peer.session->end(ready);
  if (Status opened = open_data_port(peer); !opened.ok()) {
    return peer.session->end(opened.with_context("cannot open a port for data"));
  }
  peer.path.on(PathTrigger::port_offered);
  by_tag_[peer.session->incoming_tag()] = &peer;
  peer.session->offer_data_port(data_port_);
}

// Listens on the address on which the session came. While sessions on different addresses are expected,
// listens on the transport's own address instead.
Status Engine::open_data_port(const Peer& peer) {
  SocketAddress address = local_end_of(peer.stream->tls().fd());
  uint16_t port = 0;
  if (worker_->is_listening()) {
    if (data_host_ == host_of(address) || data_host_ == host_of(listen_address_)) return ok_status();
    address = listen_address_;
    port = data_port_;  // expected sessions know this port
    worker_->stop_listening();
  }
  set_port(address, port);
  auto opened = port == 0 ? Result<uint16_t>(Status(Code::unavailable, "no port"))
                          : worker_->listen(address.get(), address.bytes);
  if (!opened.ok()) opened = listen_for_data(address);
  SHOAL_ASSIGN_OR_RETURN(data_port_, std::move(opened));
  data_host_ = host_of(address);
  return ok_status();
}

Result<uint16_t> Engine::listen_for_data(SocketAddress address) {
  const PortRange& ports = options_.network.ports;
  Result<uint16_t> port = Status(Code::unavailable, "no port");
  for (uint32_t next = ports.first; next <= ports.last && !port.ok(); ++next) {
    set_port(address, static_cast<uint16_t>(next));
    port = worker_->listen(address.get(), address.bytes);
  }
  return port;
}

void Engine::stop_waiting_for(Peer& peer) {
  if (!peer.path.is(PathState::expected)) return;
  by_tag_.erase(peer.session->incoming_tag());
  peer.path.on(PathTrigger::session_ended);
}

void Engine::connect_data(Peer& peer) {
  SocketAddress address = peer.socket_address;
  set_port(address, peer.session->data_port());
  if (Status ready = renew_worker(peer); !ready.ok()) return peer.session->end(ready);
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
    endpoint->peer->path.on(PathTrigger::connected);
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
    // Each expected session needs one connection. There is some room for unknown peers, of which the oldest
    // is closed first.
    const size_t unattached_max = by_tag_.size() + options_.limits.unproven_sessions;
    const bool is_full = unattached_.size() >= unattached_max;
    if (by_tag_.empty() || (is_full && closing_endpoints_.size() >= unattached_max)) {
      request.worker->reject(request.handle);
      continue;
    }
    if (is_full) close_endpoint(*unattached_.front());
    auto endpoint = std::make_unique<Endpoint>();
    endpoint->attach_by_ms = now_ms_ + options_.limits.handshake_timeout_ms;
    next_due_ms_ = std::min(next_due_ms_, endpoint->attach_by_ms);
    endpoint->worker = request.worker;
    auto handle = request.worker->accept(request.handle, *endpoint);
    adopt(std::move(handle), std::move(endpoint));
  }
}

// The peer that sent the endpoint's first frame, if it is expected.
Engine::Peer* Engine::attach(Endpoint& endpoint, ByteView header) {
  auto decoded = decode_frame_header(header);
  if (!decoded.ok() || decoded->kind != FrameKind::attach) return nullptr;
  auto found = by_tag_.find(decoded->tag);
  if (found == by_tag_.end()) return nullptr;
  Peer& peer = *found->second;
  by_tag_.erase(found);
  peer.path.on(PathTrigger::connected);
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

// Closes connections that no session claimed, and the data port once no session is expected there.
void Engine::tidy_links() {
  for (Endpoint* endpoint : std::vector(unattached_)) {
    if (endpoint->is_broken || now_ms_ >= endpoint->attach_by_ms) close_endpoint(*endpoint);
  }
  if (worker_ != nullptr && worker_->is_listening() && by_tag_.empty() && requests_.empty())
    worker_->stop_listening();
}

}  // namespace shoal::transport
