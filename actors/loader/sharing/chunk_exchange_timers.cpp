// ChunkExchange: how long it waits for peers, and when it reads from storage instead.
#include <algorithm>
#include <utility>

#include "actors/loader/sharing/chunk_exchange.h"

namespace shoal::actors {

namespace {

constexpr int64_t kTicksPerDeadline = 5;
constexpr int64_t kTicksOfSilence = 2;  // then this node announces the chunks that a peer waits for
static_assert(kTicksOfSilence + 1 < kTicksPerDeadline,
              "the announcement must arrive before the deadline of the peer");
// A read that takes longer than this many deadlines, and than this many times the longest read so far, may
// never end. Then this node no longer announces its chunk.
constexpr int64_t kDeadlinesOfARead = 12;
constexpr int64_t kReadsOfARead = 3;
// If storage is faster than peers, this node reads so many chunks at a time. It informs peers before.
constexpr uint32_t kReadAheadChunks = 8;

}  // namespace

// --- time ---

bool ChunkExchange::may_never_end(TimeNs now, const HeldChunk& held) const {
  const TimeNs longest = std::max(kDeadlinesOfARead * settings_.deadline, kReadsOfARead * longest_read_);
  return held.state.is(ChunkState::reading) && now - held.read_since > longest;
}

void ChunkExchange::give_up_peers(TimeNs now, EffectWriter& out) {
  std::set<uint32_t> late;
  for (uint32_t chunk = 0; chunk < held_.size(); ++chunk) {
    const HeldChunk& held = held_[chunk];
    if (!held.state.is(ChunkState::requested)) continue;
    const TimeNs last_news = std::max(held.last_news, peers_[held.requested_from].last_chunk);
    if (now - last_news >= settings_.deadline) late.insert(held.requested_from);
  }
  if (late.empty()) return;
  for (uint32_t host : late) {
    out.warning("shared load: " + (*settings_.addresses)[host] +
                " has sent nothing in time; this node requests no more chunks from it");
    for (uint32_t group = 0; group < plan_.groups.size(); ++group) {
      if (plan_.groups[group] == nullptr) continue;
      const std::vector<uint32_t>& hosts = *plan_.groups[group];
      const uint32_t place = place_in(hosts, host);
      if (place < hosts.size() && hosts[place] == host) dead_[group].insert(place);
    }
  }
  for (uint32_t chunk = 0; chunk < next_; ++chunk) {
    HeldChunk& held = held_[chunk];
    if (!held.state.is(ChunkState::requested) || !late.contains(held.requested_from)) continue;
    take_back(now, held);
    ++given_up_;
    --in_progress_;
    bytes_held_ -= held.bytes;
    on(held, ChunkTrigger::peer_given_up);
    fetch(now, chunk, out);
  }
  send_requests(out);
}

// Has no effect for chunks that were not requested, that were requested from another host since, or that are
// here.
void ChunkExchange::on_pending(TimeNs now, const wire::ChunksPending& message) {
  for (uint64_t number : message.chunks) {
    const std::optional<uint32_t> found = plan_.find(number);
    if (!found) continue;
    HeldChunk& held = held_[*found];
    if (message.host && *message.host != held.requested_from) continue;
    held.last_news = now;
  }
}

// Announces only if this node waits for storage or for peers. A wait for its own users may last for ever.
void ChunkExchange::send_pending(TimeNs now, EffectWriter& out) {
  bool goes_on = false;
  std::map<NodeId, std::vector<uint64_t>> pending;
  for (uint32_t chunk = 0; chunk < held_.size(); ++chunk) {
    const HeldChunk& held = held_[chunk];
    if (may_never_end(now, held)) continue;
    goes_on =
        goes_on || held.state.is_one_of(ChunkState::requested, ChunkState::reading, ChunkState::checking);
    for (NodeId peer : held.requesters) {
      std::vector<uint64_t>& numbers = pending[peer];
      if (numbers.size() < kMaxChunksPerMessage) numbers.push_back(plan_.chunks[chunk].number);
    }
  }
  if (!goes_on) return;
  for (auto& [peer, numbers] : pending) {
    TimeNs& notified = last_contact_[peer];
    if (now - notified < kTicksOfSilence * settings_.deadline / kTicksPerDeadline) continue;
    notified = now;
    out.send(peer, RoleKind::loader,
             wire::ChunksPending{settings_.id, std::move(numbers), settings_.own_host});
  }
}

// Messages to such a peer occupy room that others need. The peer requests again what it still needs, or reads
// it.
void ChunkExchange::give_up_takers(TimeNs now, EffectWriter& out) {
  for (auto& [peer, taker] : takers_) {
    if (now - taker.last_left < settings_.deadline) continue;
    taker.last_left = now;  // so that it is reported once
    const std::string why = "the peer has received nothing of a shared load in time";
    out.warning("this node ends the session with a peer: " + why);
    out.end_session(peer, Status(Code::unavailable, why));
  }
}

// --- where storage is faster ---

void ChunkExchange::look_at_speed(TimeNs now, uint32_t chunk, EffectWriter& out) {
  const bool tried = trial_.is_in_progress(), waited = trial_.waits_for_peers();
  const bool all_send = waited && std::all_of(peers_.begin(), peers_.end(), [](const auto& each) {
                          return each.second.awaited == 0 || each.second.has_sent;
                        });
  trial_.came(now, {plan_.chunks[chunk].bytes, all_send, !receiving_.is_busy()});
  if (tried && !trial_.is_in_progress()) serve_tried(now, out);
  // Not earlier: peers send only after they have begun, and then they handle this message.
  if (waited && !trial_.waits_for_peers()) send_cancelled(tried_, out);
}

void ChunkExchange::read_ahead(EffectWriter& out) {
  std::vector<uint32_t> chunks;
  for (read_end_ = next_; read_end_ < held_.size() && chunks.size() < kReadAheadChunks; ++read_end_) {
    if (held_[read_end_].state.is(ChunkState::waiting)) chunks.push_back(read_end_);
  }
  send_cancelled(chunks, out);
}

// Informs peers that have those chunks, or will have them, that they need not keep them for this node.
void ChunkExchange::send_cancelled(const std::vector<uint32_t>& chunks, EffectWriter& out) {
  std::map<uint32_t, std::vector<uint64_t>> cancelled;  // by host
  for (uint32_t chunk : chunks) {
    const ChunkPlan::PlannedChunk& planned = plan_.chunks[chunk];
    if (const auto parent = tree_of(chunk).parent(planned.ordinal)) {
      cancelled[(*plan_.groups[planned.group])[*parent]].push_back(planned.number);
    }
  }
  static_assert(kReadAheadChunks <= kMaxChunksPerMessage);
  for (auto& [host, numbers] : cancelled) {
    out.send_to((*settings_.addresses)[host], RoleKind::loader,
                wire::ChunksCancelled{settings_.id, std::move(numbers)});
  }
}

void ChunkExchange::tick(TimeNs now, EffectWriter& out) {
  give_up_peers(now, out);
  go_on(now, out);
  send_pending(now, out);
  const bool has_all = std::all_of(held_.begin(), held_.end(), [&](const HeldChunk& held) {
    return held.state.is(ChunkState::gone) || (held.state.is(ChunkState::here) && held.parts_left == 0 &&
                                               now - held.here_since >= 2 * settings_.deadline);
  });
  is_over_ = has_all && takers_.empty();
  if (is_over_) return;
  if (has_all) give_up_takers(now, out);  // other loads may need the room
  timers_.set(now + settings_.deadline / kTicksPerDeadline, out,
              [this, alive = std::weak_ptr<bool>(alive_)](TimeNs then_now, EffectWriter& then_out) {
                if (!alive.expired()) tick(then_now, then_out);
              });
}

// Whether the user shared a chunk with another user here or with a peer.
bool ChunkExchange::has_shared(uint32_t user) const {
  if (plan_.users[user].shared.empty()) return false;
  if (bytes_received_ > 0 || has_served_) return true;
  for (const auto& batch : plan_.users[user].parts_of) {
    for (const ChunkPlan::PartAt& at : batch) {
      for (const ChunkPlan::Part& part : plan_.chunks[at.chunk].parts) {
        if (part.user != user) return true;
      }
    }
  }
  return false;
}

void ChunkExchange::add_times(TimeNs now, uint32_t user, LoadTimes& times) const {
  times.was_shared = has_shared(user);
  times.reading_ns += reading_.until(now);
  times.receiving_ns += receiving_.until(now);
  times.bytes_read += bytes_read_;
  times.bytes_received += bytes_received_;
  times.chunks_given_up += given_up_;
}

}  // namespace shoal::actors
