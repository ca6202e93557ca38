#include <fmt/format.h>

#include <algorithm>

#include "base/host_port.h"
#include "transport/handshake.h"
#include "transport/live/engine.h"

namespace shoal::transport {

Engine::Peer* Engine::find(PeerId id) {
  auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.get();
}

void Engine::mark(Peer& peer) {
  if (std::exchange(peer.is_marked, true)) return;
  marked_.push_back(peer.id);
}

void Engine::break_link(Peer& peer, const Status& why) {
  if (peer.link_error.ok()) peer.link_error = why;
  mark(peer);
}

Engine::Peer& Engine::add(PeerId id, bool is_connector, const std::string& remote) {
  auto peer = std::make_unique<Peer>();
  peer->id = id;
  peer->is_connector = is_connector;
  if (is_connector) peer->address = remote;
  SessionSettings settings{shared_.identity(), token_, options_.limits};
  peer->session = std::make_unique<Session>(is_connector ? HandshakeRole::connector : HandshakeRole::listener,
                                            settings, random_handshake_nonce(), remote, now_ms_);
  next_due_ms_ = std::min(next_due_ms_, peer->session->next_due_ms());
  return *peers_.emplace(id, std::move(peer)).first->second;
}

void Engine::begin_connect(PeerId id, const std::string& address) {
  Peer& peer = add(id, true, address);
  auto parsed = base::parse_host_port(address);
  if (!parsed.ok()) return break_link(peer, parsed.status());
  if (parsed->port == 0) return break_link(peer, Status(Code::invalid_argument, "cannot connect to port 0"));
  if (known_peers() > options_.limits.peers) {
    return break_link(
        peer, Status(Code::busy, fmt::format("this node has at most {} peers", options_.limits.peers)));
  }
  if (auto socket = resolve(*parsed, true); socket.ok()) return connect_stream(peer, *socket);
  // The system's resolver may take longer than a handshake, for example if a name server does not answer.
  peer.awaits_address = true;
  resolver_->ask(*parsed, [shared = &shared_, id](Result<SocketAddress> answer) {
    Command command;
    command.kind = Command::Kind::resolved;
    command.peer = id;
    command.status = answer.status();
    if (answer.ok()) command.socket = *answer;
    shared->post(std::move(command));
  });
}

void Engine::connect_stream(Peer& peer, const SocketAddress& address) {
  peer.socket_address = address;
  auto socket = begin_connecting(address);
  if (!socket.ok()) return break_link(peer, socket.status());
  begin_stream(peer, std::move(*socket));
}

// Processes what happened to a peer: sends frames, calls the handler, ends the peer, sends messages.
void Engine::service(Peer& peer) {
  if (peer.is_closing()) return;
  Session& session = *peer.session;
  if (!peer.link_error.ok()) session.on_link_lost(peer.link_error);
  if (uint64_t malformed = session.take_malformed_frames(); malformed != 0) {
    shared_.count([&](TransportStats& stats) { stats.malformed_frames += malformed; });
  }
  if (session.wants_data_port()) offer_data_port(peer);
  if (session.state() == SessionState::attaching && peer.is_connector && peer.path.is(PathState::undecided)) {
    choose_data_path(peer);
  }
  bool has_ended = session.has_ended();
  bool has_sent = send_control(peer);
  report(peer);
  if (has_ended && !peer.is_over()) end_peer(peer, has_sent);
  if (!peer.is_over()) {
    if (peer.endpoint != nullptr) pump(peer);
    pump_stream(peer);
    next_due_ms_ = std::min(next_due_ms_, session.next_due_ms());
  } else if (!peer.link_error.ok() || now_ms_ >= peer.cut_at_ms) {
    cut(peer);
  } else {
    pump_stream(peer);
  }
}

// True if it sent anything, or if pump_stream will.
bool Engine::send_control(Peer& peer) {
  bool any = false;
  if (peer.stream && peer.is_proven() && peer.link_error.ok()) {
    std::vector<OutgoingFrame> frames = peer.session->take_handshake_frames();
    for (const OutgoingFrame& frame : frames) peer.stream->push(frame.header, frame.payload);
    any = !frames.empty();
  }
  if (!peer.stays_on_stream() && peer.endpoint == nullptr) return any;
  for (OutgoingFrame& frame : peer.session->take_frames()) {
    if (!peer.link_error.ok()) return any;
    if (peer.endpoint != nullptr) {
      submit(Operation::Kind::control, peer, frame.header, std::move(frame.payload), {});
    } else if (peer.stream) {
      push_control(peer, frame);
    }
    any = true;
  }
  return any;
}

void Engine::report(Peer& peer) {
  if (stage_ == Stage::parting || peer.is_over()) return;
  if (peer.session->was_up() && !peer.life.is(PeerState::up)) report_up(peer);
  for (Bytes& message : peer.session->take_messages()) handler_.on_message(peer.id, std::move(message));
  if (peer.sent_messages != 0) handler_.on_sent(peer.id, std::exchange(peer.sent_messages, 0));
}

void Engine::report_up(Peer& peer) {
  peer.life.on(PeerTrigger::came_up);
  if (peer.is_connector && !peer.stays_on_stream()) close_stream(peer);
  if (peer.endpoint != nullptr) peer.lanes = UcxWorker::lanes(peer.endpoint->handle);
  shared_.count([](TransportStats& stats) { ++stats.peers_up; });
  handler_.on_peer_up(peer.id, peer.session->peer());
}

// Ends a peer. A listener's session that never came up belongs to an unknown peer: it is counted, and only
// its refusal is reported.
void Engine::end_peer(Peer& peer, bool reason_sent) {
  const bool was_up = peer.life.is(PeerState::up);
  peer.life.on(PeerTrigger::session_ended);
  forget_unproven(peer);
  if (peer.stream) peer.stream->ignore_rest();
  stop_waiting_for(peer);
  shared_.remove_peer(peer.id, peer.address);
  peer.outbox.clear();
  turns_.forget(peer.id);
  if (peer.announced != nullptr) peer.worker->drop(std::exchange(peer.announced, nullptr));
  peer.cut_at_ms = reason_sent ? now_ms_ + options_.limits.farewell_ms : now_ms_;
  next_due_ms_ = std::min(next_due_ms_, peer.cut_at_ms);
  bool was_refused = peer.session->was_refused();
  shared_.count([&](TransportStats& stats) {
    stats.peers_lost += was_up ? 1 : 0;
    stats.handshakes_rejected += was_refused ? 1 : 0;
  });
  if (stage_ == Stage::parting) return;
  if (!peer.is_connector && !was_up) {
    if (was_refused) handler_.on_refused(peer.address, peer.session->end_reason());
    return;
  }
  handler_.on_peer_lost(peer.id, peer.session->end_reason());
}

void Engine::cut(Peer& peer) {
  if (peer.life.is(PeerState::parting)) peer.life.on(PeerTrigger::farewell_over);
  closing_.push_back(peer.id);
  close_stream(peer);
  if (peer.announced != nullptr) peer.worker->drop(std::exchange(peer.announced, nullptr));
  if (peer.endpoint != nullptr) close_endpoint(*peer.endpoint);
}

// Removes peers. A peer stays until UCX no longer uses its endpoint or its memory.
void Engine::reap() {
  std::erase_if(closing_endpoints_, [&](std::unique_ptr<Endpoint>& endpoint) {
    if (!UcxWorker::is_closed(endpoint->closing)) return false;
    if (endpoint->peer != nullptr) endpoint->peer->endpoint = nullptr;
    return true;
  });
  std::erase_if(closing_, [&](PeerId id) {
    Peer& peer = *find(id);
    if (peer.endpoint != nullptr || peer.operations_in_progress != 0) return false;
    turns_.give_back(peer.reserved_bytes);
    if (!peer.is_connector && !peer.is_proven()) --strangers_;
    peers_.erase(id);
    return true;
  });
}

}  // namespace shoal::transport
