#include <algorithm>

#include "transport/live/engine.h"

namespace shoal::transport {

namespace {
constexpr size_t kMaxEagerInProgress = 64;  // frames of one peer passed to UCX and not finished
}  // namespace

void Engine::on_frame(ucp_ep_h handle, ByteView header, ByteView payload) noexcept {
  auto found = endpoints_.find(handle);
  Peer* peer = nullptr;
  if (found != endpoints_.end()) {
    peer = found->second->peer != nullptr ? found->second->peer : attach(*found->second, header);
  }
  if (peer == nullptr) {
    shared_.count([](TransportStats& stats) { ++stats.malformed_frames; });
    return;
  }
  if (peer->session->on_frame(header, payload, now_ms_)) count_received(*peer, payload.size());
  mark(*peer);
}

bool Engine::on_announced(ucp_ep_h handle, ByteView header, void* descriptor, size_t bytes) noexcept {
  auto found = endpoints_.find(handle);
  if (found == endpoints_.end() || found->second->peer == nullptr) {
    shared_.count([](TransportStats& stats) { ++stats.malformed_frames; });
    return false;
  }
  Peer& peer = *found->second->peer;
  bool is_required = peer.session->on_announced(header, bytes, now_ms_);
  mark(peer);
  if (!is_required) return false;
  peer.announced = descriptor;
  peer.announced_bytes = bytes;
  if (peer.session->announced_first_chunk()) {
    turns_.ask(peer.id, peer.session->announced_message_bytes());
  }
  return true;
}

void Engine::on_done(UcxOperation& operation, ucs_status_t status) noexcept {
  done(static_cast<Operation&>(operation),
       status == UCS_OK ? Status() : Status(Code::unavailable, "the connection broke"));
}

void Engine::done(Operation& operation, const Status& status) {
  Peer& peer = *operation.peer;
  peer.operations_in_progress -= 1;
  if (!status.ok()) {
    break_link(peer, status);
  } else if (operation.kind == Operation::Kind::fetch) {
    fetched(peer);
  }
  if (operation.kind == Operation::Kind::eager) {
    peer.eager_in_progress -= 1;
    shared_.sent(peer.id, operation.bytes);
    ++peer.sent_messages;
  } else if (operation.kind == Operation::Kind::chunk) {
    peer.chunk_in_progress = false;
    peer.bulk_offset += operation.bytes;
    if (peer.bulk_offset == peer.bulk.size()) {
      shared_.sent(peer.id, std::exchange(peer.bulk, Bytes()).size());
      ++peer.sent_messages;
    }
  }
  mark(peer);
  operations_.erase(operation.self);
}

void Engine::submit(Operation::Kind kind, Peer& peer, const FrameHeaderBytes& header, Bytes payload,
                    ByteView chunk) {
  Operation& operation = operations_.emplace_back();
  operation.self = std::prev(operations_.end());
  operation.kind = kind;
  operation.peer = &peer;
  operation.header = header;
  operation.payload = std::move(payload);
  bool is_chunk = kind == Operation::Kind::chunk;
  ByteView data = is_chunk ? chunk : ByteView(operation.payload);
  operation.bytes = data.size();
  peer.operations_in_progress += 1;
  peer.session->on_sent(now_ms_);
  auto sent = peer.worker->send(peer.endpoint->handle, operation.header, data, is_chunk, operation);
  if (!sent.ok() || *sent == UcxWorker::Progress::done) done(operation, sent.status());
}

bool Engine::is_idle(const Peer& peer) const {
  const bool has_output = peer.stream && peer.stays_on_stream() && peer.stream->has_output();
  return peer.is_over() ||
         (peer.outbox.empty() && peer.bulk.empty() && peer.operations_in_progress == 0 && !has_output);
}

void Engine::pump(Peer& peer) {
  while (peer.session->is_up() && peer.link_error.ok() && !peer.chunk_in_progress) {
    if (!peer.bulk.empty()) {
      send_chunk(peer);
      continue;
    }
    if (peer.outbox.empty() || peer.eager_in_progress >= kMaxEagerInProgress) return;
    Bytes message = std::move(peer.outbox.front());
    peer.outbox.pop_front();
    if (message.size() <= kMaxEagerBytes) {
      send_eager(peer, std::move(message));
    } else {
      peer.bulk = std::move(message);
      peer.bulk_offset = 0;
    }
  }
}

void Engine::send_eager(Peer& peer, Bytes message) {
  size_t bytes = message.size();
  FrameHeaderBytes header = peer.session->seal(bytes, 0, bytes, false);
  peer.eager_in_progress += 1;
  count_sent(peer, bytes, false);
  submit(Operation::Kind::eager, peer, header, std::move(message), {});
}

void Engine::send_chunk(Peer& peer) {
  size_t bytes = std::min(kRendezvousChunkBytes, peer.bulk.size() - peer.bulk_offset);
  FrameHeaderBytes header = peer.session->seal(peer.bulk.size(), peer.bulk_offset, bytes, true);
  peer.chunk_in_progress = true;
  count_sent(peer, bytes, true);
  submit(Operation::Kind::chunk, peer, header, Bytes(), ByteView(peer.bulk).subspan(peer.bulk_offset, bytes));
}

// The first chunk of a message waits until the whole message has room; later chunks have room already.
void Engine::start_fetches() {
  while (std::optional<PeerId> turn = turns_.next()) {
    Peer& peer = *find(*turn);
    peer.reserved_bytes = peer.session->announced_message_bytes();
    mark(peer);
    if (!peer.stays_on_stream()) continue;
    fetch_from_stream(peer);
    go_on(peer);
  }
  // By index, because a fetch that finishes at once marks its peer.
  for (size_t i = 0; i < marked_.size(); ++i) {
    Peer* peer = find(marked_[i]);
    if (peer != nullptr && peer->announced != nullptr && peer->reserved_bytes != 0) fetch(*peer);
  }
}

void Engine::fetch(Peer& peer) {
  MutableByteView room = peer.session->fetch_buffer(now_ms_);
  void* descriptor = std::exchange(peer.announced, nullptr);
  if (room.empty()) return peer.worker->drop(descriptor);
  Operation& operation = operations_.emplace_back();
  operation.self = std::prev(operations_.end());
  operation.kind = Operation::Kind::fetch;
  operation.peer = &peer;
  operation.bytes = room.size();
  peer.operations_in_progress += 1;
  auto fetched_now = peer.worker->fetch(descriptor, room, operation);
  if (fetched_now.ok() && *fetched_now == UcxWorker::Progress::later) return;
  done(operation, fetched_now.status());
}

void Engine::fetched(Peer& peer) {
  peer.session->on_fetched(now_ms_);
  if (!peer.session->is_receiving()) turns_.give_back(std::exchange(peer.reserved_bytes, 0));
  count_received(peer, peer.announced_bytes);
}

}  // namespace shoal::transport
