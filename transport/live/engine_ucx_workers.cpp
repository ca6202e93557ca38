// Workers of UCX: one for new connections, and those before it that still have some. UCX lists the network
// interfaces when a worker is created: whoever began before an interface was up, or was given its address,
// would never find a way over it.
#include <sys/epoll.h>

#include <algorithm>

#include "transport/live/engine_internal.h"

namespace shoal::transport {

namespace {
constexpr uint64_t kInterfacesCheckMs = 20;  // not more often, however many connect
// Each costs some descriptors and a few MiB of shared memory. Beyond it new connections know the interfaces
// that the newest worker knows, until an earlier worker's last connection has been closed.
constexpr size_t kMaxWorkers = 4;
}  // namespace

Status Engine::open_worker() {
  // Before UCX looks: what changes in between counts as a change.
  InterfaceAddresses interfaces = interface_addresses();
  SHOAL_ASSIGN_OR_RETURN(auto worker,
                         UcxWorker::create(*this, {devices_, to_string(options_.network.ports)}));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, worker->event_fd(), &event) != 0) {
    return Status(Code::io, "UCX's descriptor cannot be watched");
  }
  worker_.swap(worker);
  interfaces_ = std::move(interfaces);
  if (worker != nullptr) {
    retired_workers_.push_back({std::move(worker), now_ms_ + options_.limits.handshake_timeout_ms});
  }
  return ok_status();
}

// Before a connection is made. An interface that has gone is no reason: UCX finds out by itself. Not OK:
// there is no worker, and none can be had.
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
  // Where none can be had the present one goes on, and the next connection asks again.
  const bool is_renewed = retired_workers_.size() + 1 < kMaxWorkers && open_worker().ok();
  if (!is_renewed && is_new_device) devices_.erase(device);
  return ok_status();
}

void Engine::retire_idle_workers() {
  std::erase_if(retired_workers_, [&](RetiredWorker& retired) {
    // Whoever was told its port connects there within the time for a handshake.
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
