// ChunkExchange: how long it waits for peers, and when it would sooner read than ask.
#include <algorithm>
#include <utility>

#include "actors/chunk_exchange.h"

namespace shoal {

namespace {

constexpr int64_t kTicksPerDeadline = 5;
constexpr int64_t kReadsOfPatience = 3;  // with a peer, in reads as long as this node's longest
// Where storage is faster than peers, so many more are read here at a time; peers are told so before.
constexpr uint32_t kReadAheadChunks = 8;

}  // namespace

// --- time ---

TimeNs ChunkExchange::patience(TimeNs now) const {
  TimeNs longest = longest_read_;
  for (const Held& held : held_) {
    if (held.state == State::reading) longest = std::max(longest, now - held.read_since);
  }
  return std::max(settings_.deadline, kReadsOfPatience * longest);
}

void ChunkExchange::give_up_peers(TimeNs now, EffectWriter& out) {
  const TimeNs patient_for = patience(now);
  std::set<uint32_t> late;
  for (const auto& [host, peer] : peers_) {
    if (peer.awaited != 0 && now - peer.last_word >= patient_for) late.insert(host);
  }
  if (late.empty()) return;
  for (uint32_t host : late) {
    out.warning("a load that is shared: " + settings_.addresses[host] +
                " has sent nothing in time, and is asked no more");
    for (uint32_t group = 0; group < plan_.groups.size(); ++group) {
      if (plan_.groups[group] == nullptr) continue;
      const std::vector<uint32_t>& hosts = *plan_.groups[group];
      const uint32_t place = place_in(hosts, host);
      if (place < hosts.size() && hosts[place] == host) dead_[group].insert(place);
    }
  }
  for (uint32_t chunk = 0; chunk < next_; ++chunk) {
    Held& held = held_[chunk];
    if (held.state != State::asked || !late.contains(held.asked_host)) continue;
    take_back(now, held);
    ++given_up_;
    --under_way_;
    bytes_held_ -= held.bytes;
    held.state = State::waiting;
    fetch(now, chunk, out);
  }
  send_asks(out);
}

// What is for them keeps others from theirs. Those to whom more is to be sent come again, or read it.
void ChunkExchange::give_up_takers(TimeNs now, EffectWriter& out) {
  for (auto& [peer, taker] : takers_) {
    if (now - taker.last_left < settings_.deadline) continue;
    taker.last_left = now;  // said once
    const std::string why = "it has taken in nothing of a load that is shared in time";
    out.warning("the session with a peer ends: " + why);
    out.end_session(peer, Status(Code::unavailable, why));
  }
}

// --- where storage is faster ---

void ChunkExchange::look_at_speed(TimeNs now, uint32_t chunk, EffectWriter& out) {
  const bool tried = trial_.is_under_way(), waited = trial_.waits_for_peers();
  const bool all_send = waited && std::all_of(peers_.begin(), peers_.end(), [](const auto& each) {
                          return each.second.awaited == 0 || each.second.has_sent;
                        });
  trial_.came(now, {plan_.chunks[chunk].bytes, all_send, !receiving_.is_busy()});
  if (tried && !trial_.is_under_way()) serve_tried(now, out);
  // Not before: who sends has begun, and takes it in.
  if (waited && !trial_.waits_for_peers()) say_not_wanted(tried_, out);
}

void ChunkExchange::read_ahead(EffectWriter& out) {
  std::vector<uint32_t> chunks;
  for (read_end_ = next_; read_end_ < held_.size() && chunks.size() < kReadAheadChunks; ++read_end_) {
    if (held_[read_end_].state == State::waiting) chunks.push_back(read_end_);
  }
  say_not_wanted(chunks, out);
}

// Peers that have those chunks, or will, need not keep them for this node.
void ChunkExchange::say_not_wanted(const std::vector<uint32_t>& chunks, EffectWriter& out) {
  std::map<uint32_t, std::vector<uint64_t>> not_wanted;  // by host
  for (uint32_t chunk : chunks) {
    const ChunkPlan::PlannedChunk& planned = plan_.chunks[chunk];
    if (const auto parent = tree_of(chunk).parent(planned.ordinal)) {
      not_wanted[(*plan_.groups[planned.group])[*parent]].push_back(planned.number);
    }
  }
  static_assert(kReadAheadChunks <= kMaxChunksPerMessage);
  for (auto& [host, numbers] : not_wanted) {
    out.send_to(settings_.addresses[host], RoleKind::loader,
                wire::ChunksNotWanted{settings_.id, std::move(numbers)});
  }
}

void ChunkExchange::tick(TimeNs now, EffectWriter& out) {
  give_up_peers(now, out);
  go_on(now, out);
  const bool has_all = std::all_of(held_.begin(), held_.end(), [&](const Held& held) {
    if (held.leaving != 0) return false;
    return held.state == State::gone || (held.state == State::here && held.parts_left == 0 &&
                                         now - held.here_since >= 2 * settings_.deadline);
  });
  if (has_all) {
    is_over_ = true;
    return;
  }
  timers_.set(now + settings_.deadline / kTicksPerDeadline, out,
              [this, alive = std::weak_ptr<bool>(alive_)](TimeNs then_now, EffectWriter& then_out) {
                if (!alive.expired()) tick(then_now, then_out);
              });
}

void ChunkExchange::add_times(TimeNs now, LoadTimes& times) const {
  times.was_shared = true;
  times.reading_ns += reading_.until(now);
  times.receiving_ns += receiving_.until(now);
  times.bytes_read += bytes_read_;
  times.bytes_received += bytes_received_;
  times.chunks_given_up += given_up_;
}

}  // namespace shoal
