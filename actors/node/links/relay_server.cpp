#include "actors/node/links/relay_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/node/descriptors.h"
#include "actors/node/links/own_address.h"
#include "base/clock.h"
#include "base/crash_report.h"
#include "base/host_port.h"

namespace shoal::actors {

namespace {

constexpr uint32_t kDrainChildrenMs = 1'000;
constexpr std::chrono::milliseconds kFullTick{5};  // interval at which a full session is tried again

}  // namespace

RelayServer::RelayServer(Settings settings, SendUp send_up)
    : settings_(std::move(settings)),
      send_up_(std::move(send_up)),
      thread_(base::vital_thread([this] { run(); })) {}

RelayServer::~RelayServer() {
  {
    std::lock_guard lock(mutex_);
    wanted_.reset();
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RelayServer::open(const std::string& coordinator, const transport::Identity& followed,
                       uint32_t children_max) {
  std::lock_guard lock(mutex_);
  wanted_ = Grant{coordinator, followed, children_max, ++grants_};
  changed_.notify_all();
}

void RelayServer::close() {
  std::lock_guard lock(mutex_);
  if (!wanted_) return;
  wanted_.reset();
  changed_.notify_all();
}

void RelayServer::to_child(uint64_t child, Bytes message) {
  std::lock_guard lock(mutex_);
  bool is_sent = transport_ != nullptr && transport_->send(child, std::move(message)).ok();
  ++(is_sent ? counts_.messages_down : counts_.dropped);
}

void RelayServer::drop_child(uint64_t child, const Status& why) {
  std::lock_guard lock(mutex_);
  if (transport_ != nullptr) transport_->disconnect(child, why);
}

RelayCounts RelayServer::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

void RelayServer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    uint64_t wanted = wanted_ ? wanted_->number : 0;
    if (wanted != opened_) {
      change(lock);
    } else if (ends_) {
      return;
    } else if (!queue_.empty()) {
      pump(lock);
    } else {
      changed_.wait(lock);
    }
  }
}

// Replaces the grant that is served by the one that is wanted.
void RelayServer::change(std::unique_lock<std::mutex>& lock) {
  std::unique_ptr<transport::Transport> before = std::move(transport_);
  std::optional<Grant> wanted = wanted_;
  const Status why(Code::unavailable, ends_ ? "the node is stopping"
                                            : "the relay has lost the coordinator, or follows another one");
  opened_ = wanted ? wanted->number : 0;
  queue_.clear();
  counts_.children = 0;
  lock.unlock();
  if (before != nullptr) {
    before->stop(kDrainChildrenMs, why);
    before.reset();
  }
  std::unique_ptr<transport::Transport> transport;
  Bytes answer;
  if (wanted) {
    auto received = start_listening(*wanted, &transport);
    answer =
        encode_link(received.ok() ? *received : LinkMessage(link::RelayFailed{received.status().message()}));
    settings_.log(received.ok()
                      ? fmt::format("this node serves as a relay at {}", transport->listen_address())
                      : fmt::format("this node cannot serve as a relay: {}", received.status().to_string()));
  }
  lock.lock();
  queue_.clear();  // of the earlier children
  counts_.children = 0;
  transport_ = std::move(transport);
  if (wanted) queue_.push(0, std::move(answer), true);
}

Result<LinkMessage> RelayServer::start_listening(const Grant& grant,
                                                 std::unique_ptr<transport::Transport>* transport) {
  DescriptorDemand demand;
  demand.listens = true;
  demand.peers = 2;  // the coordinator, and at least one child
  demand.trainers = settings_.trainers;
  SHOAL_ASSIGN_OR_RETURN(uint64_t peers, ensure_descriptors(demand, uint64_t{grant.children_max} + 1));
  transport::TransportOptions options = settings_.transport;
  options.identity.generation = grant.followed.generation;
  options.identity.epoch = grant.followed.epoch;
  options.limits.peers = peers - 1;
  SHOAL_ASSIGN_OR_RETURN(std::string host,
                         own_address_towards(grant.coordinator, settings_.transport.network));
  options.listen = base::to_string(base::HostPort{host, 0});
  auto made = transport::make_transport(std::move(options));
  SHOAL_RETURN_IF_ERROR(made->start(*this));
  std::string address = made->listen_address();
  *transport = std::move(made);
  return LinkMessage(link::RelayReady{address, static_cast<uint32_t>(peers - 1)});
}

void RelayServer::pump(std::unique_lock<std::mutex>& lock) {
  Bytes next = queue_.front();
  uint64_t grant = opened_;
  lock.unlock();
  Status sent = send_up_(std::move(next));
  lock.lock();
  if (grant != opened_ || queue_.empty()) return;
  if (sent.code() == Code::busy) {
    changed_.wait_for(lock, kFullTick);
    return;
  }
  queue_.pop();
  ++(sent.ok() ? counts_.messages_up : counts_.dropped);
}

void RelayServer::notify(uint64_t child, const LinkMessage& message, bool must_go) {
  if (!queue_.push(child, encode_link(message), must_go)) ++counts_.dropped;
  changed_.notify_all();
}

void RelayServer::on_peer_up(transport::PeerId child, const transport::Identity& identity) {
  std::lock_guard lock(mutex_);
  ++counts_.children;
  notify(child, link::ChildUp{child, identity.name, identity.incarnation}, true);
}

void RelayServer::on_message(transport::PeerId child, Bytes message) {
  std::lock_guard lock(mutex_);
  if (message.size() <= kMaxRelayedBytes) {
    notify(child, link::FromChild{child, std::move(message)}, false);
  } else {
    ++counts_.dropped;
  }
}

void RelayServer::on_peer_lost(transport::PeerId child, const Status& why) {
  std::lock_guard lock(mutex_);
  if (counts_.children > 0) --counts_.children;
  notify(child, link::ChildLost{child, why.message()}, true);
}

void RelayServer::on_refused(const std::string& address, const Status& why) {
  const auto line = rejections_.line(base::steady_now_ns(), address, why);
  if (line) settings_.warn ? settings_.warn(*line) : settings_.log(*line);
}

}  // namespace shoal::actors
