// Streams: TCP connections with TLS. They carry the handshakes, and all other frames of a session that stays
// on its stream.
#include <sys/epoll.h>

#include <algorithm>

#include "base/owned_fd.h"
#include "transport/live/engine.h"

namespace shoal::transport {

namespace {
// Bytes read or written for one peer per round, so that other peers get their turn.
constexpr size_t kBytesAtOnce = size_t{1} << 20;
constexpr const char* kLanes = "tls";

bool is_of_kind(ByteView header, FrameKind kind) {
  auto decoded = decode_frame_header(header);
  return decoded.ok() && decoded->kind == kind;
}
}  // namespace

// --- connections ---

void Engine::begin_stream(Peer& peer, base::OwnedFd socket) {
  const HandshakeRole role = peer.is_connector ? HandshakeRole::connector : HandshakeRole::listener;
  auto tls = TlsStream::open(tls_, std::move(socket), role);
  if (!tls.ok()) return break_link(peer, tls.status());
  peer.stream.emplace(std::move(*tls));
  peer.stream_interest = EPOLLIN | (peer.stream->tls().wants_to_write() ? EPOLLOUT : 0u);
  epoll_event event{.events = peer.stream_interest, .data = {.u64 = peer.id}};
  if (epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, peer.stream->tls().fd(), &event) != 0) {
    break_link(peer, Status(Code::unavailable, "cannot watch the connection"));
  }
  mark(peer);
}

void Engine::watch_stream(Peer& peer) {
  const bool reads = !peer.stream->awaits_room();
  const uint32_t interest = (reads ? EPOLLIN : 0u) | (peer.stream->tls().wants_to_write() ? EPOLLOUT : 0u);
  if (interest == peer.stream_interest) return;
  peer.stream_interest = interest;
  epoll_event event{.events = interest, .data = {.u64 = peer.id}};
  epoll_ctl(poll_fd_.get(), EPOLL_CTL_MOD, peer.stream->tls().fd(), &event);
}

void Engine::close_stream(Peer& peer) {
  peer.stream.reset();
  if (std::exchange(peer.holds_spare, false)) spare_descriptor_.refill();
}

void Engine::stay_on_stream(Peer& peer) {
  peer.path.on(PathTrigger::stream_chosen);
  peer.lanes = kLanes;
}

// Continues the stream in the next round, even without an epoll event.
void Engine::go_on(Peer& peer) {
  if (!std::exchange(peer.goes_on, true)) again_.push_back(peer.id);
}

void Engine::go_on_with_streams() {
  for (PeerId id : std::exchange(again_, {})) {
    Peer* peer = find(id);
    if (peer == nullptr) continue;
    peer->goes_on = false;
    if (peer->stream) progress_stream(*peer);
  }
}

// --- what arrives ---

// Reads from the stream; service() then writes.
void Engine::progress_stream(Peer& peer) {
  mark(peer);
  Status open = peer.is_proven() ? ok_status() : prove(peer);
  if (open.ok() && peer.is_proven()) open = read_stream(peer);
  if (open.ok()) return watch_stream(peer);
  forget_unproven(peer);
  close_stream(peer);
  const bool goes_on_by_ucx = peer.session->was_up() && !peer.stays_on_stream();
  if (!goes_on_by_ucx) break_link(peer, open);
}

Status Engine::read_stream(Peer& peer) {
  size_t budget = kBytesAtOnce;
  while (budget > 0) {
    const size_t most = peer.stays_on_stream() ? kMaxEagerBytes : kMaxHandshakeBytes;
    SHOAL_ASSIGN_OR_RETURN(FrameStream::Event event, peer.stream->read(most, &budget));
    if (event == FrameStream::Event::nothing) break;
    take_event(peer, event);
  }
  if (budget < kBytesAtOnce && peer.stays_on_stream()) peer.session->on_received(now_ms_);
  // epoll does not see what TLS has buffered. With budget left, that is less than a record.
  if (budget == 0 && !peer.stream->awaits_room()) go_on(peer);
  return ok_status();
}

void Engine::take_event(Peer& peer, FrameStream::Event event) {
  switch (event) {
    case FrameStream::Event::nothing:
      break;
    case FrameStream::Event::frame:
      return take_frame(peer, false);
    case FrameStream::Event::malformed:
      return take_frame(peer, true);
    case FrameStream::Event::announced:
      return take_announcement(peer);
    case FrameStream::Event::fetched:
      peer.session->on_fetched(now_ms_);
      if (!peer.session->is_receiving()) turns_.give_back(std::exchange(peer.reserved_bytes, 0));
      count_received(peer, peer.announced_bytes);
      break;
  }
}

void Engine::take_frame(Peer& peer, bool is_malformed) {
  Session& session = *peer.session;
  const ByteView header = peer.stream->header(), payload = peer.stream->payload();
  const bool is_attaching = session.state() == SessionState::attaching;
  if (!peer.stays_on_stream() || (is_attaching && is_of_kind(header, FrameKind::handshake))) {
    return session.on_handshake_frame(header, payload, now_ms_);
  }
  if (session.on_frame(header, payload, now_ms_)) count_received(peer, payload.size());
  // The position of the next frame is unknown.
  if (is_malformed) session.end(Status(Code::corrupt, "the peer sent something that is not a frame"));
}

// The first chunk of a message waits until the whole message has room, and nothing is read before. Later
// chunks have room already.
void Engine::take_announcement(Peer& peer) {
  Session& session = *peer.session;
  const ByteView header = peer.stream->header();
  if (!peer.stays_on_stream()) {
    peer.stream->ignore_rest();
    return session.on_handshake_frame(header, {}, now_ms_);
  }
  peer.announced_bytes = decode_frame_header(header)->payload_bytes;
  if (!session.on_announced(header, peer.announced_bytes, now_ms_)) {
    peer.stream->ignore_rest();
    return session.end(Status(Code::corrupt, "a chunk came without the tag of the session"));
  }
  if (session.announced_first_chunk()) {
    turns_.ask(peer.id, session.announced_message_bytes());
  } else {
    fetch_from_stream(peer);
  }
}

void Engine::fetch_from_stream(Peer& peer) {
  if (!peer.stream || !peer.stream->awaits_room() || !peer.session->is_up()) return;
  MutableByteView room = peer.session->fetch_buffer(now_ms_);
  if (room.empty()) {
    peer.stream->ignore_rest();
  } else {
    peer.stream->fetch_into(room);
  }
  mark(peer);
}

void Engine::count_received(Peer& peer, size_t bytes) {
  shared_.count([&](TransportStats& stats) {
    for (auto* counter : {&stats.received, &stats.by_transport[peer.lanes]}) {
      counter->frames += 1;
      counter->bytes += bytes;
    }
  });
}

// --- what is sent ---

void Engine::push_control(Peer& peer, const OutgoingFrame& frame) {
  // Queued output is a sign of life too.
  if (peer.stream->has_output() && is_of_kind(frame.header, FrameKind::heartbeat)) return;
  peer.stream->push(frame.header, frame.payload);
  peer.session->on_sent(now_ms_);
}

void Engine::pump_stream(Peer& peer) {
  if (!peer.stream || !peer.is_proven()) return;
  size_t budget = kBytesAtOnce;
  while (peer.link_error.ok()) {
    if (peer.stays_on_stream()) fill_stream(peer);
    if (!peer.stream->has_output()) break;
    Status flushed = peer.stream->flush(&budget);
    settle_sent(peer);
    if (!flushed.ok()) {
      (void)read_stream(peer);  // a peer that no longer accepts bytes may have sent the reason
      return break_link(peer, flushed);
    }
    if (peer.stream->tls().has_unsent()) break;
    if (budget == 0) {
      go_on(peer);
      break;
    }
  }
  if (peer.is_over() && !peer.stream->has_output()) peer.stream->tls().end_writing();
  watch_stream(peer);
}

void Engine::fill_stream(Peer& peer) {
  Session& session = *peer.session;
  while (session.is_up() && !peer.chunk_in_progress) {
    if (!peer.bulk.empty()) {
      const size_t bytes = std::min(kRendezvousChunkBytes, peer.bulk.size() - peer.bulk_offset);
      FrameHeaderBytes header = session.seal(peer.bulk.size(), peer.bulk_offset, bytes, true);
      peer.chunk_in_progress = true;
      peer.chunk_bytes = bytes;
      peer.stream->push_chunk(header, ByteView(peer.bulk).subspan(peer.bulk_offset, bytes));
      session.on_sent(now_ms_);
      count_sent(peer, bytes, true);
      return;
    }
    if (peer.outbox.empty() || peer.stream->queued_bytes() >= kStreamQueueBytes) return;
    Bytes message = std::move(peer.outbox.front());
    peer.outbox.pop_front();
    if (message.size() > kMaxEagerBytes) {
      peer.bulk = std::move(message);
      peer.bulk_offset = 0;
      continue;
    }
    peer.stream->push(session.seal(message.size(), 0, message.size(), false), message);
    session.on_sent(now_ms_);
    peer.eager_in_stream.push_back({peer.stream->pushed_bytes(), message.size()});
    count_sent(peer, message.size(), false);
  }
}

void Engine::settle_sent(Peer& peer) {
  auto settle = [&](size_t bytes) {
    shared_.sent(peer.id, bytes);
    ++peer.sent_messages;
    mark(peer);
  };
  auto& queued = peer.eager_in_stream;
  for (; !queued.empty() && queued.front().end <= peer.stream->written_bytes(); queued.pop_front()) {
    settle(queued.front().bytes);
  }
  if (!peer.chunk_in_progress || !peer.stream->is_bulk_written()) return;
  peer.chunk_in_progress = false;
  peer.bulk_offset += peer.chunk_bytes;
  if (peer.bulk_offset == peer.bulk.size()) settle(std::exchange(peer.bulk, Bytes()).size());
}

void Engine::count_sent(Peer& peer, size_t bytes, bool is_chunk) {
  shared_.count([&](TransportStats& stats) {
    auto* kind = is_chunk ? &stats.sent_rendezvous : &stats.sent_eager;
    for (auto* counter : {&stats.sent, kind, &stats.by_transport[peer.lanes]}) {
      counter->frames += 1;
      counter->bytes += bytes;
    }
  });
}

}  // namespace shoal::transport
