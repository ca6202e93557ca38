// UcxWorker: one UCP context, worker and listener, owned and driven by one thread. It hides how UCX 1.13 must
// be configured and called; the engine makes the decisions. UCX lists the network interfaces only when a
// worker is created.
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

// The target of an endpoint's errors. Must live until the endpoint is closed.
struct UcxLink {
  UcxEvents* events = nullptr;  // set by UcxWorker
};

// A running send or fetch. Must live until on_done.
struct UcxOperation {
  UcxEvents* events = nullptr;  // set by UcxWorker
};

// Called from UcxWorker::progress. Implementations only record what happened: they must not close endpoints.
// They must not throw, because the caller is C.
class UcxEvents {
 public:
  virtual ~UcxEvents() = default;
  // Answer later with accept or reject.
  virtual void on_connection_request(UcxWorker& worker, ucp_conn_request_h request) noexcept = 0;
  // Header and payload are invalid after it returns. `endpoint` is null if the sender did not identify
  // itself.
  virtual void on_frame(ucp_ep_h endpoint, ByteView header, ByteView payload) noexcept = 0;
  // True: the caller keeps `descriptor` and passes it later to fetch or drop.
  virtual bool on_announced(ucp_ep_h endpoint, ByteView header, void* descriptor, size_t bytes) noexcept = 0;
  virtual void on_endpoint_error(UcxLink& link, ucs_status_t status) noexcept = 0;
  virtual void on_done(UcxOperation& operation, ucs_status_t status) noexcept = 0;
};

class UcxWorker : public std::enable_shared_from_this<UcxWorker> {
 public:
  // One thread creates, uses and destroys the worker.
  struct Places {
    std::set<std::string> interfaces;  // that UCX may use and listen on, besides RDMA devices; empty: all
    std::string ports;                 // "FIRST-LAST", on which it may listen; "": any
  };
  static Result<std::shared_ptr<UcxWorker>> create(UcxEvents& events, const Places& places);
  ~UcxWorker() { close_all(); }
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  // Ends everything at once. Running operations may end with an error before it returns. No other method may
  // be called afterwards.
  void close_all();

  // Returns the port on which it listens.
  Result<uint16_t> listen(const sockaddr* address, unsigned address_bytes);
  void stop_listening();
  bool is_listening() const { return listener_ != nullptr; }

  Result<ucp_ep_h> connect(const sockaddr* address, unsigned address_bytes, UcxLink& link);
  Result<ucp_ep_h> accept(ucp_conn_request_h request, UcxLink& link);
  void reject(ucp_conn_request_h request);

  enum class Progress { done, later };  // later: on_done follows
  // Header and payload must stay valid until done. `rendezvous`: announces the data and waits until the other
  // side has fetched it.
  Result<Progress> send(ucp_ep_h endpoint, ByteView header, ByteView payload, bool rendezvous,
                        UcxOperation& operation);
  Result<Progress> fetch(void* descriptor, MutableByteView into, UcxOperation& operation);
  void drop(void* descriptor);

  // Closes the connection; running operations end with an error. Null: closed at once. Otherwise poll
  // is_closed, but not again after it has returned true.
  ucs_status_ptr_t close(ucp_ep_h endpoint);
  static bool is_closed(ucs_status_ptr_t closing);

  // The transports of a connected endpoint's lanes, such as "rc_mlx5" or "posix+tcp". "?" if UCX does not
  // report them.
  static std::string lanes(ucp_ep_h endpoint);

  // Makes at most kProgressSteps steps. True if anything happened.
  bool progress();
  // Call it before you wait on event_fd(). False: call progress first.
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
