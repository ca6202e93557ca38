// UCX workers: one for new connections, and earlier ones that still have some. UCX lists the network
// interfaces when a worker is created. A worker that was created before an interface was up, or before it got
// its address, never uses that interface.
#include <sys/epoll.h>

#include <algorithm>

#include "transport/live/engine.h"

namespace shoal::transport {

namespace {
constexpr uint64_t kInterfacesCheckMs = 20;  // minimum time between checks, however many peers connect
// Each worker costs some descriptors and a few MiB of shared memory. At the maximum, new connections use the
// interfaces of the newest worker until the last connection of an earlier worker has been closed.
constexpr size_t kMaxWorkers = 4;
}  // namespace

Status Engine::open_worker() {
  // Listed before UCX lists them, so that a change in between is noticed later.
  InterfaceAddresses interfaces = interface_addresses();
  SHOAL_ASSIGN_OR_RETURN(auto worker,
                         UcxWorker::create(*this, {devices_, to_string(options_.network.ports)}));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, worker->event_fd(), &event) != 0) {
    return Status(Code::io, "cannot watch the descriptor of UCX");
  }
  worker_.swap(worker);
  interfaces_ = std::move(interfaces);
  if (worker != nullptr) {
    retired_workers_.push_back({std::move(worker), now_ms_ + options_.limits.handshake_timeout_ms});
  }
  return ok_status();
}

// Called before a connection is made. An interface that is gone needs no new worker, because UCX detects that
// itself. Not OK: there is no worker, and none can be created.
Status Engine::renew_worker(const Peer& peer) {
  const std::string device = peer.stream ? interface_of_socket(peer.stream->tls().fd()) : "";
  const bool is_new_device = !device.empty() && devices_.insert(device).second;
  if (worker_ == nullptr) return open_worker();
  if (!is_new_device) {
    if (now_ms_ < check_interfaces_at_ms_) return ok_status();
    check_interfaces_at_ms_ = now_ms_ + kInterfacesCheckMs;
    InterfaceAddresses now = interface_addresses();
    if (std::includes(interfaces_.begin(), interfaces_.end(), now.begin(), now.end())) return ok_status();
  }
  // If no worker can be created, the current one stays, and the next connection tries again.
  const bool is_renewed = retired_workers_.size() + 1 < kMaxWorkers && open_worker().ok();
  if (!is_renewed && is_new_device) devices_.erase(device);
  return ok_status();
}

void Engine::retire_idle_workers() {
  std::erase_if(retired_workers_, [&](RetiredWorker& retired) {
    // A peer that knows the worker's port connects there within the handshake's timeout.
    bool is_awaited = !by_tag_.empty() && now_ms_ < retired.listens_until_ms;
    if (retired.worker->is_listening() && !is_awaited && requests_.empty()) retired.worker->stop_listening();
    bool is_idle = retired.worker.use_count() == 1 && !retired.worker->is_listening();
    if (is_idle) epoll_ctl(poll_fd_.get(), EPOLL_CTL_DEL, retired.worker->event_fd(), nullptr);
    return is_idle;
  });
}

bool Engine::progress_workers() {
  bool any = worker_ != nullptr && worker_->progress();
  for (RetiredWorker& retired : retired_workers_) any |= retired.worker->progress();
  return any;
}

bool Engine::arm_workers() {
  if (worker_ != nullptr && !worker_->arm()) return false;
  return std::all_of(retired_workers_.begin(), retired_workers_.end(),
                     [](RetiredWorker& retired) { return retired.worker->arm(); });
}

}  // namespace shoal::transport
