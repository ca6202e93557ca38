#include "actors/node/links/sharing_links.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "actors/node/descriptors.h"
#include "actors/node/links/own_address.h"
#include "base/clock.h"
#include "base/crash_report.h"
#include "base/host_port.h"
#include "base/visit.h"

namespace shoal::actors {

namespace {

constexpr std::chrono::milliseconds kRoomTick{2};  // interval at which a full transport is tried again
constexpr size_t kMaxSharingStrangers = 64;        // connections that have not authenticated yet
constexpr uint64_t kFewestSessions = 2;            // with descriptors for fewer sessions, nothing is shared
// Descriptors of this transport besides its sessions, expressed as a number of sessions.
constexpr uint64_t kOwnWorth =
    (transport::kDescriptorsOfTransport + kMaxSharingStrangers) / transport::kDescriptorsPerPeer;

// The number of chunks or bytes that a message between Loaders carries; none: no Loader sends it to another.
struct Carried {
  size_t numbers = 0;
  const Chunk* chunk = nullptr;
};
std::optional<Carried> carried_by(const WireMessage& message) {
  return std::visit(
      base::Overloaded{
          [](const base::OneOf<wire::ChunkRequest, wire::ChunksUnavailable, wire::ChunksCancelled,
                               wire::ChunksPending> auto& each) -> std::optional<Carried> {
            return Carried{each.chunks.size()};
          },
          [](const wire::ChunkData& data) -> std::optional<Carried> {
            return Carried{0, data.chunk.get()};
          },
          [](const base::OneOf<wire::JoinRanks, wire::LayoutRequest, wire::Layouts, wire::RosterUpdate,
                               wire::JoinRejected, wire::ShardsWritten, wire::SaveFailed, wire::Pending,
                               wire::Decided, wire::Superseded, wire::Undecided, wire::LayoutsStaged,
                               wire::AttemptRoster, wire::RanksEnded, wire::LocalPlans, wire::GlobalPlan,
                               wire::PlanGathering, wire::JoinLoad, wire::LoadRoster, wire::SaveProgress,
                               wire::ManifestsPublished> auto&) -> std::optional<Carried> {
            return std::nullopt;
          }},
      *message.body);
}

const Chunk* chunk_of(const WireMessage& message) {
  return carried_by(message).value_or(Carried{}).chunk;
}

// An upper estimate of the encoded size.
size_t bytes_of(const WireMessage& message) {
  constexpr size_t kAround = 4096;
  const Carried carried = carried_by(message).value_or(Carried{});
  return kAround + carried.numbers * sizeof(uint64_t) +
         (carried.chunk == nullptr ? 0 : carried.chunk->bytes.size());
}

bool is_between_loaders(const WireMessage& message) {
  return message.from == RoleKind::loader && message.to == RoleKind::loader && carried_by(message);
}

}  // namespace

SharingLinks::SharingLinks(Settings settings, Receive receive)
    : settings_(std::move(settings)), receive_(std::move(receive)) {}

SharingLinks::~SharingLinks() {
  stop(0);
}

// --- the transport ---

Result<std::string> SharingLinks::listen() {
  std::lock_guard opening(opening_);
  {
    std::lock_guard lock(mutex_);
    if (ends_) return Status(Code::unavailable, "this node is stopping");
    if (transport_) return address_;
  }
  auto transport = open();
  if (!transport.ok()) {
    settings_.log(fmt::format("this node cannot share loads: {}", transport.status().to_string()));
    return Status(Code::unavailable, transport.status().message());
  }
  std::lock_guard lock(mutex_);
  transport_ = std::move(*transport);
  address_ = reachable_address(transport_->listen_address(), settings_.host_name);
  sender_ = base::vital_thread([this] { run(); });
  settings_.log(fmt::format("this node shares loads at {}", address_));
  return address_;
}

Result<std::unique_ptr<transport::Transport>> SharingLinks::open() {
  const uint64_t others = settings_.other_peers + kOwnWorth;
  DescriptorDemand demand;
  demand.listens = true;
  demand.peers = others + kFewestSessions;
  demand.trainers = settings_.trainers;
  SHOAL_ASSIGN_OR_RETURN(uint64_t peers, ensure_descriptors(demand, others + kMaxSharingSessions));
  transport::TransportOptions options = settings_.transport;
  options.limits.peers = peers - others;
  options.limits.unproven_sessions = kMaxSharingStrangers;
  options.limits.queued_bytes_per_peer = kMaxQueuedForSharer;
  options.limits.inbound_bytes = kMaxInboundShared;
  SHOAL_ASSIGN_OR_RETURN(std::string host, settings_.own_host());
  options.listen = base::to_string(base::HostPort{host, 0});
  auto transport = transport::make_transport(std::move(options));
  SHOAL_RETURN_IF_ERROR(transport->start(*this));
  return transport;
}

void SharingLinks::stop(uint32_t drain_ms) {
  std::lock_guard opening(opening_);
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (sender_.joinable()) sender_.join();
  if (!transport_) return;
  transport_->stop(drain_ms);
  std::lock_guard lock(mutex_);
  transport_.reset();
}

SharingCounts SharingLinks::counts() const {
  std::lock_guard lock(mutex_);
  SharingCounts out = counts_;
  out.sessions = sessions_.size();
  return out;
}

// --- what is sent ---

void SharingLinks::send_to(const std::string& address, const WireMessage& message) {
  std::lock_guard lock(mutex_);
  if (!transport_ || ends_) {
    ++counts_.dropped;
    return;
  }
  hold(transport_->connect(address), message, 0);
}

void SharingLinks::send(NodeId to, const WireMessage& message, SendId id) {
  std::lock_guard lock(mutex_);
  auto peer = peers_.find(to);
  if (peer == peers_.end() || ends_) {
    ++counts_.dropped;
    return report_left(id);
  }
  hold(peer->second, message, id);
}

void SharingLinks::end_session(NodeId node, const Status& why) {
  std::lock_guard lock(mutex_);
  auto peer = peers_.find(node);
  if (peer == peers_.end() || !transport_ || ends_) return;
  end(peer->second, sessions_.at(peer->second), why);
}

// Call this and all functions below with the lock held.
void SharingLinks::hold(transport::PeerId peer, const WireMessage& message, SendId id) {
  Session& to = session(peer);
  const size_t bytes = bytes_of(message);
  if (to.is_ending || to.held.size() >= kMaxHeldMessagesForSharer ||
      to.held_bytes + bytes > kMaxHeldForSharer) {
    ++counts_.dropped;
    return report_left(id);
  }
  to.held.emplace_back(message, id);
  to.held_bytes += bytes;
  changed_.notify_all();
}

void SharingLinks::report_left(SendId id) const {
  if (id != 0 && settings_.on_left) settings_.on_left(id);
}

SharingLinks::Session& SharingLinks::session(transport::PeerId peer) {
  auto [found, is_new] = sessions_.try_emplace(peer);
  if (is_new) {
    found->second.node = next_node_++;
    found->second.last_message = base::steady_now_ns();
    peers_[found->second.node] = peer;
  }
  return found->second;
}

// Encodes as late as possible: a chunk for many peers is held only once.
void SharingLinks::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    std::vector<transport::PeerId> wanting;
    for (const auto& [peer, session] : sessions_) {
      if (!session.held.empty()) wanting.push_back(peer);
    }
    bool has_sent = false;
    for (transport::PeerId peer : wanting) has_sent = pass_on(lock, peer) || has_sent;
    if (has_sent || ends_) continue;
    if (wanting.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, kRoomTick);
    }
  }
}

// False: the transport has no room for the next message of the session.
bool SharingLinks::pass_on(std::unique_lock<std::mutex>& lock, transport::PeerId peer) {
  auto found = sessions_.find(peer);
  if (found == sessions_.end() || found->second.held.empty()) return true;
  Session& session = found->second;
  const size_t bytes = bytes_of(session.held.front().first);
  if (!transport_->has_room(peer, bytes)) return false;
  const auto [message, id] = std::move(session.held.front());
  session.held.pop_front();
  session.held_bytes -= bytes;
  session.in_transport.push_back(id);  // before the transport may send it
  session.last_message = base::steady_now_ns();
  lock.unlock();
  const bool is_taken = transport_->send(peer, encode_wire(message)).ok();
  lock.lock();
  if (!is_taken) {
    ++counts_.dropped;
    found = sessions_.find(peer);
    if (found == sessions_.end()) return true;  // on_left was called when the session ended
    found->second.in_transport.pop_back();
    report_left(id);
  } else if (const Chunk* chunk = chunk_of(message)) {
    ++counts_.chunks_sent;
    counts_.bytes_sent += chunk->size;
  }
  return true;
}

void SharingLinks::close_idle() {
  std::lock_guard lock(mutex_);
  if (!transport_) return;
  const TimeNs before = base::steady_now_ns() - TimeNs{settings_.idle_ms} * kMillisecond;
  for (auto& [peer, session] : sessions_) {
    if (session.held.empty() && session.last_message < before) {
      end(peer, session, Status(Code::unavailable, "no load is shared any more"));
    }
  }
}

void SharingLinks::end(transport::PeerId peer, Session& session, const Status& why) {
  if (std::exchange(session.is_ending, true)) return;
  drop_held(session);
  transport_->disconnect(peer, why);
}

void SharingLinks::drop_held(Session& session) {
  counts_.dropped += session.held.size();
  session.held_bytes = 0;
  for (const auto& [message, id] : std::exchange(session.held, {})) report_left(id);
}

// --- what the transport says ---

void SharingLinks::on_peer_up(transport::PeerId peer, const transport::Identity& identity) {
  std::lock_guard lock(mutex_);
  session(peer).name = identity.name;
}

void SharingLinks::on_message(transport::PeerId peer, Bytes message) {
  auto decoded = decode_wire(message);
  Status wrong = decoded.status();
  if (decoded.ok() && !is_between_loaders(*decoded)) {
    wrong = Status(Code::refused, fmt::format("a node must not send {} in a session for shared loads",
                                              describe(*decoded->body)));
  }
  NodeId from = kThisNode;
  {
    std::lock_guard lock(mutex_);
    auto found = sessions_.find(peer);
    if (found == sessions_.end() || found->second.is_ending || !transport_ || ends_) return;
    Session& session = found->second;
    if (!wrong.ok()) {
      settings_.log(fmt::format("this node ends the session with {}: {}", session.name, wrong.message()));
      return end(peer, session, wrong);
    }
    session.last_message = base::steady_now_ns();
    from = session.node;
    if (const Chunk* chunk = chunk_of(*decoded)) {
      ++counts_.chunks_received;
      counts_.bytes_received += chunk->size;
    }
  }
  if (receive_(from, std::move(*decoded), message.size())) return;
  std::lock_guard lock(mutex_);
  ++counts_.dropped;
}

void SharingLinks::on_sent(transport::PeerId peer, size_t messages) {
  std::lock_guard lock(mutex_);
  auto found = sessions_.find(peer);
  if (found == sessions_.end()) return;
  std::deque<SendId>& in_transport = found->second.in_transport;
  for (size_t i = 0; i < messages && !in_transport.empty(); ++i) {
    report_left(in_transport.front());
    in_transport.pop_front();
  }
  changed_.notify_all();  // there is room for more
}

void SharingLinks::on_peer_lost(transport::PeerId peer, const Status& /*why*/) {
  std::lock_guard lock(mutex_);
  auto found = sessions_.find(peer);
  if (found == sessions_.end()) return;
  drop_held(found->second);
  for (SendId id : found->second.in_transport) report_left(id);
  peers_.erase(found->second.node);
  sessions_.erase(found);
}

void SharingLinks::on_refused(const std::string& address, const Status& why) {
  const auto line = rejections_.line(base::steady_now_ns(), address, why);
  if (line) settings_.warn ? settings_.warn(*line) : settings_.log(*line);
}

}  // namespace shoal::actors
