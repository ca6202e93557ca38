#include "actors/loader/sharing/chunk_exchange.h"

#include <algorithm>
#include <utility>

namespace shoal::actors {

namespace {

uint64_t bytes_of(const ChunkPlan& plan) {
  uint64_t bytes = 0;
  for (const ChunkPlan::PlannedChunk& chunk : plan.chunks) {
    if (!chunk.header_of) bytes += chunk.bytes;
  }
  return bytes;
}

std::vector<operation::ReadRange> ranges_of(const ChunkPlan& plan, const ChunkPlan::PlannedChunk& chunk) {
  std::vector<operation::ReadRange> ranges;
  ranges.reserve(chunk.reads.size());
  for (const PlannedRead& each : chunk.reads) {
    ranges.push_back({plan.pieces->ref(each.piece), each.begin, each.end, 0});
  }
  return ranges;
}

std::variant<operation::ReadHeader, operation::ReadChunk> reading_of(const ChunkPlan& plan,
                                                                     const ChunkPlan::PlannedChunk& chunk) {
  if (chunk.header_of) return operation::ReadHeader{plan.pieces->ref(*chunk.header_of)};
  return operation::ReadChunk{ranges_of(plan, chunk)};
}

std::variant<operation::CheckHeader, operation::CheckChunk> check_of(const ChunkPlan& plan,
                                                                     const ChunkPlan::PlannedChunk& chunk,
                                                                     const ChunkPtr& got) {
  if (chunk.header_of) return operation::CheckHeader{got, plan.pieces->ref(*chunk.header_of)};
  return operation::CheckChunk{got, ranges_of(plan, chunk)};
}

}  // namespace

ChunkExchange::ChunkExchange(Pendings pendings, std::shared_ptr<const ChunkPlan> plan, Settings settings,
                             Hooks hooks)
    : operations_(pendings.operations),
      timers_(pendings.timers),
      sends_(pendings.sends),
      counts_(pendings.counts),
      kept_plan_(std::move(plan)),
      plan_(*kept_plan_),
      settings_(std::move(settings)),
      hooks_(std::move(hooks)),
      held_(plan_.chunks.size()),
      rooms_(plan_.users.size()),
      forgotten_(plan_.users.size()),
      copying_(plan_.users.size()),
      dead_(plan_.groups.size()),
      tried_(settings_.may_go_direct
                 ? trial_chunks(
                       plan_, settings_.buffer_bytes,
                       [this](uint32_t chunk) { return !tree_of(chunk).parent(plan_.chunks[chunk].ordinal); })
                 : std::vector<uint32_t>()),
      trial_(tried_.size(), bytes_of(plan_), counts_.trials) {
  for (uint32_t chunk = 0; chunk < plan_.chunks.size(); ++chunk) {
    held_[chunk].parts_left = static_cast<uint32_t>(plan_.chunks[chunk].parts.size());
  }
}

void ChunkExchange::begin(TimeNs now, EffectWriter& out) {
  trial_.begin(now);
  for (uint32_t chunk : tried_) fetch(now, chunk, out);
  go_on(now, out);
  tick(now, out);
}

uint32_t ChunkExchange::place_in(const std::vector<uint32_t>& hosts, uint32_t host) {
  return static_cast<uint32_t>(std::lower_bound(hosts.begin(), hosts.end(), host) - hosts.begin());
}

LoadTree ChunkExchange::tree_of(uint32_t chunk) const {
  const uint32_t group = plan_.chunks[chunk].group;
  const HostGroup& hosts = plan_.groups[group];
  if (hosts == nullptr) return LoadTree(1, 0, dead_[group]);
  return LoadTree(static_cast<uint32_t>(hosts->size()), place_in(*hosts, settings_.own_host), dead_[group]);
}

// --- getting chunks ---

void ChunkExchange::go_on(TimeNs now, EffectWriter& out) {
  if (trial_.is_in_progress()) return;
  const uint64_t buffer_bytes = std::max(settings_.buffer_bytes, least_buffer_bytes(plan_.groups.size()));
  while (next_ < held_.size()) {
    if (!held_[next_].state.is(ChunkState::waiting)) {
      ++next_;
      continue;
    }
    const bool has_room = bytes_held_ + plan_.chunks[next_].bytes <= buffer_bytes;
    if (!has_room) give_up_takers(now, out);
    if (!has_room && in_progress_ != 0) break;
    if (!has_room) {  // chunks that only peers still want make room first
      const uint64_t before = bytes_held_;
      release_late(now);
      if (bytes_held_ == before) break;  // wait until users have room, or peers have requested or are late
      continue;
    }
    if (trial_.reads_storage() && next_ >= read_end_) read_ahead(out);
    fetch(now, next_++, out);
  }
  send_requests(out);
}

void ChunkExchange::fetch(TimeNs now, uint32_t chunk, EffectWriter& out) {
  HeldChunk& held = held_[chunk];
  held.bytes = plan_.chunks[chunk].bytes;
  bytes_held_ += held.bytes;
  ++in_progress_;
  const bool is_read_here = trial_.is_in_progress() || chunk < read_end_;
  const std::optional<uint32_t> parent =
      is_read_here ? std::nullopt : tree_of(chunk).parent(plan_.chunks[chunk].ordinal);
  if (!parent) return read(now, chunk, out);
  on(held, ChunkTrigger::request_sent);
  held.last_news = now;
  held.requested_from = (*plan_.groups[plan_.chunks[chunk].group])[*parent];
  Peer& peer = peers_[held.requested_from];
  if (peer.awaited++ == 0) peer.last_chunk = now;
  if (peer.to_request.empty()) hosts_to_request_.push_back(held.requested_from);
  peer.to_request.push_back(plan_.chunks[chunk].number);
  receiving_.begin(now);
}

void ChunkExchange::send_requests(EffectWriter& out) {
  std::sort(hosts_to_request_.begin(), hosts_to_request_.end());
  for (uint32_t host : hosts_to_request_) {
    Peer& peer = peers_[host];
    for (size_t at = 0; at < peer.to_request.size(); at += kMaxChunksPerMessage) {
      const size_t end = std::min(peer.to_request.size(), at + kMaxChunksPerMessage);
      auto begin = peer.to_request.begin() + static_cast<std::ptrdiff_t>(at);
      wire::ChunkRequest request{settings_.id, {begin, begin + static_cast<std::ptrdiff_t>(end - at)}};
      out.send_to((*settings_.addresses)[host], RoleKind::loader, std::move(request));
    }
    peer.to_request.clear();
  }
  hosts_to_request_.clear();
}

void ChunkExchange::take_back(TimeNs now, HeldChunk& held) {
  --peers_[held.requested_from].awaited;
  receiving_.end(now);
}

void ChunkExchange::read(TimeNs now, uint32_t chunk, EffectWriter& out) {
  if (waits_for_header(chunk, nullptr)) return;
  HeldChunk& held = held_[chunk];
  on(held, ChunkTrigger::read_begun);
  held.read_since = now;
  reading_.begin(now);
  operations_.start(reading_of(plan_, plan_.chunks[chunk]), out,
                    [this, chunk, alive = std::weak_ptr<bool>(alive_)](TimeNs then_now, Result<ChunkPtr> got,
                                                                       EffectWriter& then_out) {
                      if (alive.expired()) return;
                      reading_.end(then_now);
                      longest_read_ = std::max(longest_read_, then_now - held_[chunk].read_since);
                      if (!got.ok()) return failed(then_now, chunk, got.status(), then_out);
                      if (!is_header(chunk)) bytes_read_ += plan_.chunks[chunk].bytes;
                      for (uint32_t header : plan_.chunks[chunk].headers) held_[header].is_known = true;
                      for (const ReadDamage& one : damaged_.add((*got)->damaged)) {
                        then_out.warning("load: " + to_string(one));
                      }
                      arrived(then_now, chunk, std::move(*got), then_out);
                    });
}

void ChunkExchange::on_data(TimeNs now, const wire::ChunkData& message, EffectWriter& out) {
  const std::optional<uint32_t> found = plan_.find(message.number);
  if (!found) return;
  HeldChunk& held = held_[*found];
  if (!held.state.is(ChunkState::requested)) return;  // it came late: the chunk is being read, or is here
  Peer& peer = peers_[held.requested_from];
  peer.last_chunk = now;
  peer.has_sent = true;
  take_back(now, held);
  check(now, *found, message.chunk, out);
}

void ChunkExchange::check(TimeNs, uint32_t chunk, ChunkPtr got, EffectWriter& out) {
  if (waits_for_header(chunk, got)) return;
  on(held_[chunk], ChunkTrigger::received);
  operations_.start(
      check_of(plan_, plan_.chunks[chunk], got), out,
      [this, chunk, got, alive = std::weak_ptr<bool>(alive_)](TimeNs now, Result<operation::Done> result,
                                                              EffectWriter& then_out) {
        if (alive.expired()) return;
        if (result.ok()) {
          if (!is_header(chunk)) bytes_received_ += got->size;
          return arrived(now, chunk, got, then_out);
        }
        then_out.warning(result.status().to_string() + "; this node reads the chunk from storage");
        ++given_up_;
        read(now, chunk, then_out);
      });
}

void ChunkExchange::on_unavailable(TimeNs now, const wire::ChunksUnavailable& message, EffectWriter& out) {
  for (uint64_t number : message.chunks) {
    const std::optional<uint32_t> found = plan_.find(number);
    if (!found || !held_[*found].state.is(ChunkState::requested)) continue;
    HeldChunk& held = held_[*found];
    peers_[held.requested_from].last_chunk = now;
    take_back(now, held);
    ++given_up_;
    read(now, *found, out);
  }
}

bool ChunkExchange::waits_for_header(uint32_t chunk, const ChunkPtr& got) {
  if (trial_.is_in_progress()) return false;
  for (uint32_t header : plan_.chunks[chunk].headers) {
    const HeldChunk& held = held_[header];
    if (held.is_known || held.state.is_one_of(ChunkState::here, ChunkState::gone)) continue;
    held_[header].needed_by.push_back(chunk);
    on(held_[chunk], ChunkTrigger::header_missing);
    held_[chunk].chunk = got;
    return true;
  }
  return false;
}

void ChunkExchange::header_settled(TimeNs now, uint32_t header, EffectWriter& out) {
  for (uint32_t chunk : std::exchange(held_[header].needed_by, {})) {
    if (ChunkPtr got = std::exchange(held_[chunk].chunk, nullptr)) {
      check(now, chunk, std::move(got), out);
    } else {
      read(now, chunk, out);
    }
  }
}

void ChunkExchange::arrived(TimeNs now, uint32_t chunk, ChunkPtr got, EffectWriter& out) {
  HeldChunk& held = held_[chunk];
  if (is_header(chunk)) {
    bytes_held_ -= held.bytes - got->size;
    held.bytes = got->size;
  }
  on(held, ChunkTrigger::arrived);
  held.chunk = std::move(got);
  held.here_since = now;
  --in_progress_;
  if (!trial_.is_in_progress()) serve_waiting(now, chunk, out);
  std::vector<size_t> ready;
  for (size_t i = 0; i < plan_.chunks[chunk].parts.size(); ++i) {
    const ChunkPlan::Part& part = plan_.chunks[chunk].parts[i];
    if (!forgotten_[part.user] && rooms_[part.user].contains(part.batch)) ready.push_back(i);
  }
  copy(now, chunk, ready, out);
  if (is_header(chunk)) {
    header_settled(now, chunk, out);
  } else {
    look_at_speed(now, chunk, out);
  }
  if (may_release(held, chunk)) release(chunk);
  go_on(now, out);
}

// Fails the users that need the chunk. Peers that want it read it themselves.
void ChunkExchange::failed(TimeNs now, uint32_t chunk, const Status& why, EffectWriter& out) {
  --in_progress_;
  const bool ends_trial = trial_.is_in_progress();
  if (!is_header(chunk)) trial_.give_up();
  if (ends_trial) serve_tried(now, out);
  HeldChunk& held = held_[chunk];
  for (NodeId peer : std::exchange(held.requesters, {})) {
    out.send(peer, RoleKind::loader, wire::ChunksUnavailable{settings_.id, {plan_.chunks[chunk].number}});
  }
  release(chunk, ChunkTrigger::read_failed);
  header_settled(now, chunk, out);
  std::set<uint32_t> users;
  for (const ChunkPlan::Part& part : plan_.chunks[chunk].parts) users.insert(part.user);
  for (uint32_t user : users) {
    if (!forgotten_[user]) hooks_.failed(now, user, why, out);
  }
  go_on(now, out);
}

// --- to the windows ---

void ChunkExchange::give_room(TimeNs now, uint32_t user, uint32_t batch, const SlabRange& room,
                              EffectWriter& out) {
  const std::vector<ChunkPlan::PartAt>& parts_of = plan_.users[user].parts_of[batch];
  if (parts_of.empty()) return hooks_.batch_complete(now, user, batch, out);
  rooms_[user][batch] = {room, static_cast<uint32_t>(parts_of.size())};
  std::map<uint32_t, std::vector<size_t>> ready;
  for (const ChunkPlan::PartAt& each : parts_of) {
    if (held_[each.chunk].state.is(ChunkState::here)) ready[each.chunk].push_back(each.part);
  }
  for (const auto& [chunk, parts] : ready) copy(now, chunk, parts, out);
  go_on(now, out);
}

void ChunkExchange::copy(TimeNs, uint32_t chunk, const std::vector<size_t>& parts, EffectWriter& out) {
  if (parts.empty()) return;
  operation::CopyChunk copy{held_[chunk].chunk, {}};
  for (size_t i : parts) {
    const ChunkPlan::Part& part = plan_.chunks[chunk].parts[i];
    const Room& room = rooms_[part.user].at(part.batch);
    copy.copies.push_back({room.range.client, room.range.slab_id, room.range.offset + part.batch_offset,
                           part.chunk_offset, part.bytes});
    ++copying_[part.user];
  }
  held_[chunk].copied.resize(plan_.chunks[chunk].parts.size());
  ++in_progress_;
  operations_.start(std::move(copy), out,
                    [this, chunk, parts, alive = std::weak_ptr<bool>(alive_)](
                        TimeNs now, Result<operation::Done> result, EffectWriter& then_out) {
                      if (alive.expired()) return;
                      --in_progress_;
                      std::set<std::pair<uint32_t, uint32_t>> complete;
                      std::set<uint32_t> users, quiet;
                      for (size_t i : parts) {
                        const ChunkPlan::Part& part = plan_.chunks[chunk].parts[i];
                        const bool is_last = --copying_[part.user] == 0;
                        held_[chunk].copied[i] = true;
                        if (forgotten_[part.user]) {
                          if (is_last) quiet.insert(part.user);
                          continue;
                        }
                        users.insert(part.user);
                        --held_[chunk].parts_left;
                        auto room = rooms_[part.user].find(part.batch);
                        if (result.ok() && --room->second.parts_left == 0) {
                          rooms_[part.user].erase(room);
                          complete.insert({part.user, part.batch});
                        }
                      }
                      if (may_release(held_[chunk], chunk)) release(chunk);
                      if (!result.ok()) {
                        for (uint32_t user : users) hooks_.failed(now, user, result.status(), then_out);
                      }
                      for (uint32_t user : quiet) hooks_.quiet(now, user, then_out);
                      for (const auto& [user, batch] : complete)
                        hooks_.batch_complete(now, user, batch, then_out);
                      if (!alive.expired()) go_on(now, then_out);
                    });
}

void ChunkExchange::forget_user(TimeNs now, uint32_t user, EffectWriter& out) {
  if (forgotten_[user]) return;
  forgotten_[user] = true;
  rooms_[user].clear();
  const bool is_last = std::find(forgotten_.begin(), forgotten_.end(), false) == forgotten_.end();
  for (uint32_t chunk = 0; chunk < held_.size(); ++chunk) {
    HeldChunk& held = held_[chunk];
    const std::vector<ChunkPlan::Part>& parts = plan_.chunks[chunk].parts;
    held.parts_left = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool is_copied = !held.copied.empty() && held.copied[i];
      held.parts_left += forgotten_[parts[i].user] || is_copied ? 0 : 1;
    }
    if (held.state.is(ChunkState::here) && may_release(held, chunk)) release(chunk);
    if (!is_last || !held.state.is(ChunkState::waiting)) continue;
    on(held, ChunkTrigger::not_needed);
    for (NodeId peer : std::exchange(held.requesters, {})) {
      out.send(peer, RoleKind::loader, wire::ChunksUnavailable{settings_.id, {plan_.chunks[chunk].number}});
    }
  }
  go_on(now, out);
}

// --- to peers ---

void ChunkExchange::on_request(TimeNs now, NodeId from, const wire::ChunkRequest& message,
                               EffectWriter& out) {
  last_contact_.try_emplace(from, now);
  wire::ChunksUnavailable not_here{settings_.id, {}};
  for (uint64_t number : message.chunks) {
    const std::optional<uint32_t> found = plan_.find(number);
    if (!found || held_[*found].state.is(ChunkState::gone)) {
      not_here.chunks.push_back(number);
    } else if (held_[*found].state.is(ChunkState::here) && !trial_.is_in_progress()) {
      serve(now, *found, from, out);
      if (may_release(held_[*found], *found)) release(*found);
    } else if (held_[*found].requesters.size() < settings_.addresses->size()) {
      held_[*found].requesters.push_back(from);
    }
  }
  if (!not_here.chunks.empty()) out.send(from, RoleKind::loader, std::move(not_here));
  go_on(now, out);
}

void ChunkExchange::on_cancelled(TimeNs now, const wire::ChunksCancelled& message, EffectWriter& out) {
  for (uint64_t number : message.chunks) {
    const std::optional<uint32_t> found = plan_.find(number);
    if (!found || held_[*found].state.is(ChunkState::gone)) continue;
    ++held_[*found].served;
    if (may_release(held_[*found], *found)) release(*found);
  }
  go_on(now, out);
}

void ChunkExchange::serve(TimeNs now, uint32_t chunk, NodeId to, EffectWriter& out) {
  HeldChunk& held = held_[chunk];
  ++held.served;
  ++held.leaving;
  has_served_ = true;
  Taker& taker = takers_[to];
  if (taker.leaving++ == 0) taker.last_left = now;
  last_contact_[to] = now;
  sends_.send(
      to, RoleKind::loader, wire::ChunkData{settings_.id, plan_.chunks[chunk].number, held.chunk}, out,
      [this, chunk, to, alive = std::weak_ptr<bool>(alive_)](TimeNs then_now, EffectWriter& then_out) {
        if (!alive.expired()) on_left(then_now, chunk, to, then_out);
      });
}

void ChunkExchange::on_left(TimeNs now, uint32_t chunk, NodeId to, EffectWriter& out) {
  const auto taker = takers_.find(to);
  taker->second.last_left = now;
  if (--taker->second.leaving == 0) takers_.erase(taker);
  HeldChunk& held = held_[chunk];
  if (--held.leaving != 0 || !held.state.is(ChunkState::gone)) return;
  bytes_held_ -= held.bytes;
  go_on(now, out);
}

void ChunkExchange::serve_waiting(TimeNs now, uint32_t chunk, EffectWriter& out) {
  for (NodeId peer : std::exchange(held_[chunk].requesters, {})) serve(now, chunk, peer, out);
}

// Serves what peers requested during the storage trial, which serving would have disturbed.
void ChunkExchange::serve_tried(TimeNs now, EffectWriter& out) {
  for (uint32_t chunk : tried_) {
    if (!held_[chunk].state.is(ChunkState::here)) continue;
    serve_waiting(now, chunk, out);
    if (may_release(held_[chunk], chunk)) release(chunk);
  }
}

bool ChunkExchange::may_release(const HeldChunk& held, uint32_t chunk) const {
  if (!held.state.is(ChunkState::here) || held.parts_left != 0) return false;
  return held.served >= tree_of(chunk).children(plan_.chunks[chunk].ordinal);
}

// A chunk on its way to peers takes room until it has left.
void ChunkExchange::release(uint32_t chunk, ChunkTrigger how) {
  HeldChunk& held = held_[chunk];
  if (held.leaving == 0) bytes_held_ -= held.bytes;
  on(held, how);
  held.chunk.reset();
}

// Releases chunks that only peers want and have not requested in time.
void ChunkExchange::release_late(TimeNs now) {
  const uint32_t end = tried_.empty() ? next_ : std::max(next_, tried_.back() + 1);
  for (uint32_t chunk = 0; chunk < end; ++chunk) {
    const HeldChunk& held = held_[chunk];
    if (held.state.is(ChunkState::here) && held.parts_left == 0 &&
        now - held.here_since >= settings_.deadline) {
      release(chunk);
    }
  }
}

}  // namespace shoal::actors
