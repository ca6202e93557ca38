// UcxWorker: one UCP context, worker and listener, owned and driven by one thread. It hides how UCX 1.13
// wants to be configured and called; policy is the engine's. UCX lists the network interfaces when a worker
// is created, and never again.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "shoal/bytes.h"
#include "shoal/status.h"

struct sockaddr;

namespace shoal::transport {

class UcxEvents;
class UcxWorker;

// What an endpoint's errors refer to; lives until the endpoint is closed.
struct UcxLink {
  UcxEvents* events = nullptr;  // set by UcxWorker
};

// A send or fetch that is under way; lives until on_done.
struct UcxOperation {
  UcxEvents* events = nullptr;  // set by UcxWorker
};

// Called from within UcxWorker::progress. None may close endpoints; all of them note what happened and
// return. None may throw: the caller is C.
class UcxEvents {
 public:
  virtual ~UcxEvents() = default;
  // To be answered by accept or reject, later.
  virtual void on_connection_request(UcxWorker& worker, ucp_conn_request_h request) noexcept = 0;
  // Header and payload are gone when it returns. `endpoint` is null where the sender did not name itself.
  virtual void on_frame(ucp_ep_h endpoint, ByteView header, ByteView payload) noexcept = 0;
  // True: `descriptor` is kept, to be given to fetch or drop.
  virtual bool on_announced(ucp_ep_h endpoint, ByteView header, void* descriptor, size_t bytes) noexcept = 0;
  virtual void on_endpoint_error(UcxLink& link, ucs_status_t status) noexcept = 0;
  virtual void on_done(UcxOperation& operation, ucs_status_t status) noexcept = 0;
};

class UcxWorker : public std::enable_shared_from_this<UcxWorker> {
 public:
  // Created, used and destroyed by one thread.
  struct Places {
    std::set<std::string> interfaces;  // that UCX may use, and listen on, beside RDMA devices; none: all
    std::string ports;                 // "FIRST-LAST", that it may listen on; "": any
  };
  static Result<std::shared_ptr<UcxWorker>> create(UcxEvents& events, const Places& places);
  ~UcxWorker() { close_all(); }
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  // Ends everything at once; what is under way may end with an error, before it returns. Nothing may be
  // called after it.
  void close_all();

  // Returns the port that is listened on.
  Result<uint16_t> listen(const sockaddr* address, unsigned address_bytes);
  void stop_listening();
  bool is_listening() const { return listener_ != nullptr; }

  Result<ucp_ep_h> connect(const sockaddr* address, unsigned address_bytes, UcxLink& link);
  Result<ucp_ep_h> accept(ucp_conn_request_h request, UcxLink& link);
  void reject(ucp_conn_request_h request);

  enum class Progress { done, later };  // later: on_done follows
  // Header and payload stay valid until done. `rendezvous`: announce and wait until the other side has
  // fetched it.
  Result<Progress> send(ucp_ep_h endpoint, ByteView header, ByteView payload, bool rendezvous,
                        UcxOperation& operation);
  Result<Progress> fetch(void* descriptor, MutableByteView into, UcxOperation& operation);
  void drop(void* descriptor);

  // Cuts the connection; what is under way ends with an error. Null: done at once. Else ask is_closed, which
  // may be asked until it has said true.
  ucs_status_ptr_t close(ucp_ep_h endpoint);
  static bool is_closed(ucs_status_ptr_t closing);

  // The transports of a connected endpoint's lanes: "rc_mlx5", "posix+tcp". "?" if UCX will not say.
  static std::string lanes(ucp_ep_h endpoint);

  // At most kProgressSteps steps; true if anything happened.
  bool progress();
  // Before waiting on event_fd(): false if there is something to progress first.
  bool arm() { return ucp_worker_arm(worker_) == UCS_OK; }
  int event_fd() const { return event_fd_; }

 private:
  explicit UcxWorker(UcxEvents& events) : events_(events) {}
  Status open(const Places& places);
  Status set_handler();
  Result<ucp_ep_h> make_endpoint(ucp_ep_params_t params, UcxLink& link);
  static ucs_status_t on_active_message(void* self, const void* header, size_t header_bytes, void* data,
                                        size_t bytes, const ucp_am_recv_param_t* param);

  UcxEvents& events_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  int event_fd_ = -1;
};

}  // namespace shoal::transport
