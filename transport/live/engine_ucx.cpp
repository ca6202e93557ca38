#include <fmt/format.h>

#include <algorithm>

#include "transport/live/engine_internal.h"

namespace shoal {

namespace {
Status describe(ucs_status_t status) {
  return Status(Code::unavailable, std::string("the connection broke: ") + ucs_status_string(status));
}
}  // namespace

// A connector's, once it is welcome: the listener has decided.
void Engine::choose_data_way(Peer& peer) {
  const bool by_ucx = peer.session->data_port() != 0;
  const TransportKind used = by_ucx ? TransportKind::ucx : TransportKind::tcp;
  const TransportKind asked = options_.network.transport;
  if (asked != TransportKind::automatic && asked != used) {
    return peer.session->end(
        Status(Code::refused, fmt::format("the transports differ: the listener uses {}, the connector was "
                                          "started with {}; start all nodes with the same --transport "
                                          "(SHOAL_TRANSPORT)",
                                          to_string(used), to_string(asked))));
  }
  if (by_ucx) {
    connect_data(peer);
  } else {
    stay_on_stream(peer);
  }
}

void Engine::offer_data_port(Peer& peer) {
  if (!uses_ucx_) {
    peer.session->offer_data_port(0);
    return stay_on_stream(peer);
  }
  if (Status ready = renew_worker(peer); !ready.ok()) return peer.session->end(ready);
  if (!worker_->is_listening()) {
    auto port = listen_for_data();
    if (!port.ok()) return peer.session->end(port.status().with_context("a port for data"));
    data_port_ = *port;
  }
  peer.is_expected = true;
  by_tag_[peer.session->incoming_tag()] = &peer;
  peer.session->offer_data_port(data_port_);
}

Result<uint16_t> Engine::listen_for_data() {
  SocketAddress address = listen_address_;
  const PortRange& ports = options_.network.ports;
  Result<uint16_t> port = Status(Code::unavailable, "no port");
  for (uint32_t next = ports.first; next <= ports.last && !port.ok(); ++next) {
    set_port(address, static_cast<uint16_t>(next));
    port = worker_->listen(address.get(), address.bytes);
  }
  return port;
}

void Engine::stop_waiting_for(Peer& peer) {
  if (std::exchange(peer.is_expected, false)) by_tag_.erase(peer.session->incoming_tag());
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
    // One of those who are expected has one connection; some room beyond is for strangers.
    const size_t unattached_max = by_tag_.size() + options_.limits.unproven_sessions;
    if (by_tag_.empty() || unattached_.size() >= unattached_max) {
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
  if (worker_ != nullptr && worker_->is_listening() && by_tag_.empty() && requests_.empty())
    worker_->stop_listening();
}

}  // namespace shoal
