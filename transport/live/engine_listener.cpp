// Incoming connections. There are few that have not proven the token; they live for a short time and are
// closed first. A flood of them does not delay a peer that can prove the token, because it does so with its
// first bytes.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/owned_fd.h"
#include "transport/live/engine.h"

namespace shoal::transport {

namespace {
// Keys of epoll events besides the ids of peers and 0, which is UCX.
constexpr uint64_t kListenerKey = UINT64_MAX;
constexpr uint64_t kWakeKey = UINT64_MAX - 1;
constexpr uint64_t kListenerShutMs = 100;
constexpr uint64_t kFloodReportMs = 5000;
constexpr int kEventsAtOnce = 64;
constexpr int kVisitorsAtOnce = 64;
}  // namespace

Status Engine::open_poll() {
  poll_fd_ = base::OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  wake_fd_ = base::OwnedFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeKey}};
  if (poll_fd_.get() < 0 || wake_fd_.get() < 0 ||
      epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, wake_fd_.get(), &event) != 0) {
    return Status(Code::io, "cannot make an epoll descriptor");
  }
  shared_.set_wake([this] {
    const uint64_t one = 1;
    if (!is_woken_.exchange(true)) (void)!write(wake_fd_.get(), &one, sizeof one);
  });
  return ok_status();
}

void Engine::poll(int timeout_ms) {
  update_listener_interest();
  epoll_event events[kEventsAtOnce];
  int count = epoll_wait(poll_fd_.get(), events, kEventsAtOnce, timeout_ms);
  if (timeout_ms != 0) return;  // the call was only for sleeping; the next round polls again
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kListenerKey) {
      accept_visitors();
    } else if (events[i].data.u64 == kWakeKey) {
      // Read before is_woken_ is reset, so that a command posted from now on wakes this thread again.
      uint64_t ignored = 0;
      (void)!read(wake_fd_.get(), &ignored, sizeof ignored);
      is_woken_ = false;
      has_been_woken_ = true;
    } else if (Peer* peer = find(events[i].data.u64); peer != nullptr && peer->stream) {
      // A stream that waits for its turn is not read, so only this event shows that the peer is gone.
      bool is_broken = (events[i].events & (EPOLLERR | EPOLLHUP)) != 0 && peer->stream->awaits_room();
      if (is_broken) break_link(*peer, Status(Code::unavailable, "the connection broke"));
      progress_stream(*peer);
    }
  }
}

void Engine::update_listener_interest() {
  if (!listener_) {
    is_listener_watched_ = false;
    return;
  }
  bool watches = now_ms_ >= listener_shut_until_ms_;
  if (watches == is_listener_watched_) return;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListenerKey}};
  epoll_ctl(poll_fd_.get(), watches ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_->fd(), &event);
  is_listener_watched_ = watches;
}

void Engine::shut_listener_until(uint64_t until_ms) {
  listener_shut_until_ms_ = until_ms;
  next_due_ms_ = std::min(next_due_ms_, until_ms);
}

void Engine::accept_visitors() {
  for (int i = 0; i < kVisitorsAtOnce; ++i) {
    const bool is_full = unproven_.size() >= options_.limits.unproven_sessions;
    Peer* goes = is_full ? &first_to_go() : nullptr;
    if (goes != nullptr && now_ms_ < may_go_at_ms(*goes)) return shut_listener_until(may_go_at_ms(*goes));
    auto visitor = listener_->accept();
    if (visitor.ok()) {
      if (goes != nullptr) make_room(*goes);
      add_visitor(std::move(*visitor), false);
      continue;
    }
    if (visitor.status().code() != Code::busy) return;
    if (!unproven_.empty() && now_ms_ >= may_go_at_ms(first_to_go())) {
      make_room(first_to_go());
    } else if (!accept_in_place()) {
      return shut_listener_until(now_ms_ + kListenerShutMs);
    }
  }
}

// Accepts a connection when no descriptor is left. One at a time gets the spare descriptor, proves the token,
// and is sent the reason. False: not even that is possible.
bool Engine::accept_in_place() {
  base::OwnedFd socket = spare_descriptor_.accept_in_place(listener_->fd());
  if (!socket.valid()) return false;
  send_at_once(socket.get());
  Listener::Visitor visitor;
  visitor.socket = std::move(socket);
  visitor.from.bytes = sizeof visitor.from.storage;
  getpeername(visitor.socket.get(), reinterpret_cast<sockaddr*>(&visitor.from.storage), &visitor.from.bytes);
  add_visitor(std::move(visitor), true);
  return true;
}

void Engine::add_visitor(Listener::Visitor visitor, bool holds_spare) {
  Peer& peer = add(shared_.add_peer(), false, to_string(visitor.from));
  peer.socket_address = visitor.from;
  peer.host = host_of(visitor.from);
  peer.holds_spare = holds_spare;
  peer.came_at_ms = now_ms_;
  next_due_ms_ = std::min(next_due_ms_, now_ms_ + options_.limits.unproven_life_max_ms);
  ++strangers_;
  peer.unproven = unproven_.insert(unproven_.end(), peer.id);
  ++unproven_by_host_[peer.host];
  begin_stream(peer, std::move(visitor.socket));
  // A peer that knows the token proves it with its first bytes, before any other peer is closed to make room.
  if (peer.stream) progress_stream(peer);
}

// The oldest unproven peer of the host that has the most. Peers that have offered the key are chosen last:
// each is about to prove it, or replays what it has overheard.
Engine::Peer& Engine::first_to_go() {
  std::pair<bool, size_t> best{false, 0};
  Peer* chosen = nullptr;
  for (PeerId id : unproven_) {
    Peer* each = find(id);
    const std::pair<bool, size_t> rank{!has_offered_key(*each), unproven_by_host_[each->host]};
    if (rank <= best) continue;
    best = rank;
    chosen = each;
  }
  SHOAL_CHECK(chosen != nullptr);
  return *chosen;
}

bool Engine::has_offered_key(const Peer& peer) {
  return peer.stream && peer.stream->tls().has_offered_key();
}

uint64_t Engine::may_go_at_ms(const Peer& peer) const {
  const TransportLimits& limits = options_.limits;
  return peer.came_at_ms + (has_offered_key(peer) ? limits.offered_life_min_ms : limits.unproven_life_min_ms);
}

void Engine::make_room(Peer& goes) {
  constexpr size_t kHostsToName = 64;
  if (flood_.by_host.size() < kHostsToName || flood_.by_host.contains(goes.host)) ++flood_.by_host[goes.host];
  ++flood_.closed;
  next_due_ms_ = std::min(next_due_ms_, flood_.report_at_ms);
  close_unproven(goes, Status(Code::unavailable, "closed to make room for other connections"));
}

// Closes at once: the descriptor is free when this returns.
void Engine::close_unproven(Peer& peer, const Status& why) {
  forget_unproven(peer);
  break_link(peer, why);
  close_stream(peer);
}

void Engine::forget_unproven(Peer& peer) {
  if (!peer.unproven) return;
  unproven_.erase(*std::exchange(peer.unproven, std::nullopt));
  listener_shut_until_ms_ = std::min(listener_shut_until_ms_, now_ms_);  // a place is free now
  auto count = unproven_by_host_.find(peer.host);
  if (--count->second == 0) unproven_by_host_.erase(count);
}

// Called by tick: closes those that took too long.
void Engine::close_late_unproven() {
  const uint64_t life_ms = options_.limits.unproven_life_max_ms;
  while (!unproven_.empty()) {
    Peer& oldest = *find(unproven_.front());
    if (now_ms_ < oldest.came_at_ms + life_ms) return;
    close_unproven(oldest,
                   Status(Code::unavailable,
                          fmt::format("it did not prove within {} ms that it belongs to this job", life_ms)));
  }
}

// Writes at most one line per kFloodReportMs.
void Engine::report_flood() {
  if (flood_.closed == 0 || now_ms_ < flood_.report_at_ms) return;
  auto worst = std::max_element(flood_.by_host.begin(), flood_.by_host.end(),
                                [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = fmt::format(
      "closed {} connections that had not proved that they belong to this job, to make room for others ({} "
      "are kept at most); {} of them came from {}",
      flood_.closed, options_.limits.unproven_sessions, worst->second, worst->first);
  const uint64_t closed = flood_.closed;
  shared_.count([&](TransportStats& stats) { stats.handshakes_rejected += closed; });
  flood_ = Flood{{}, 0, now_ms_ + kFloodReportMs};
  if (stage_ != Stage::parting) handler_.on_refused("", Status(Code::busy, text));
}

// Continues the TLS handshake. Once the peer is proven, a listener may send reasons that an unproven peer
// must not learn.
Status Engine::prove(Peer& peer) {
  SHOAL_ASSIGN_OR_RETURN(const bool is_proven, peer.stream->tls().prove());
  if (!is_proven) return ok_status();
  peer.life.on(PeerTrigger::proven);
  if (peer.is_connector) return ok_status();
  forget_unproven(peer);
  --strangers_;
  if (peer.holds_spare) {
    peer.session->end(base::out_of_descriptors());
  } else if (known_peers() > options_.limits.peers) {
    peer.session->end(
        Status(Code::busy, fmt::format("this node accepts at most {} peers", options_.limits.peers)));
  }
  return ok_status();
}

}  // namespace shoal::transport
