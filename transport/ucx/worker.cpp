#include <netinet/in.h>
#include <sys/socket.h>
#include <ucs/config/global_opts.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "transport/ucx/interfaces.h"
#include "transport/ucx/worker.h"

// Exported by libucs, but not in its installed headers.
extern "C" void ucs_debug_disable_signals(void);

namespace shoal::transport {

namespace {
constexpr unsigned kActiveMessageId = 0;
constexpr int kProgressSteps = 256;
// UCX selects transports by the number of endpoints that a worker expects. Its TCP offers itself for at most
// 256 (UCX_TCP_MAX_NUM_EPS), but serves any number.
constexpr size_t kExpectedEndpoints = 8;

// All networks that UCX finds, but no shared memory: nodes are on different hosts, and containers forbid CMA.
// A /dev/shm that is small or not shared makes a worker or a connection fail.
constexpr const char* kTransports = "^cma,knem,posix,sysv,xpmem";

// On load the library installs handlers for SIGSEGV and similar signals to print backtraces, and for SIGHUP
// to start a debugger. These signals belong to the program. The library also writes to standard output; its
// errors reach us as statuses.
[[maybe_unused]] const bool is_quiet = [] {
  ucs_debug_disable_signals();
  if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  return true;
}();

Status ucx_error(Code code, const std::string& what, ucs_status_t status) {
  return Status(code, what + ": " + ucs_status_string(status));
}

void set_unless_in_environment(ucp_config_t* config, const char* name, const char* value) {
  if (std::getenv((std::string("UCX_") + name).c_str()) != nullptr) return;
  ucp_config_modify(config, name, value);
}
}  // namespace

Result<std::shared_ptr<UcxWorker>> UcxWorker::create(UcxEvents& events, const Places& places) {
  std::shared_ptr<UcxWorker> worker(new UcxWorker(events));
  SHOAL_RETURN_IF_ERROR(worker->open(places));
  return worker;
}

Status UcxWorker::open(const Places& places) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return ucx_error(Code::io, "cannot read the configuration of UCX", status);
  set_unless_in_environment(config, "TLS", kTransports);
  // Without this setting a connection may use any device: UCX assumes that any two TCP interfaces can reach
  // each other, and sends into a network that does not contain the peer.
  set_unless_in_environment(config, "CM_USE_ALL_DEVICES", "n");
  // UCX listens on every interface that it uses, and trusts every peer that connects there.
  if (!places.ports.empty() && std::getenv("UCX_TCP_PORT_RANGE") == nullptr) {
    // UCX 1.13 names a transport's own settings without the transport's prefix, later versions with it. Each
    // ignores the other form.
    ucp_config_modify(config, "PORT_RANGE", places.ports.c_str());
    ucp_config_modify(config, "TCP_PORT_RANGE", places.ports.c_str());
  }
  if (!places.interfaces.empty()) {
    std::set<std::string> devices = rdma_ports();
    devices.insert(places.interfaces.begin(), places.interfaces.end());
    std::string names;
    for (const std::string& device : devices) names += (names.empty() ? "" : ",") + device;
    set_unless_in_environment(config, "NET_DEVICES", names.c_str());
  }

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = kExpectedEndpoints;
  params.name = "shoal";
  status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) return ucx_error(Code::io, "UCX finds no transport", status);

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) return ucx_error(Code::io, "UCX cannot open its transports", status);
  status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return ucx_error(Code::io, "UCX has no descriptor to wait on", status);
  return set_handler();
}

Status UcxWorker::set_handler() {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kActiveMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &UcxWorker::on_active_message;
  handler.arg = this;
  ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return ucx_error(Code::io, "UCX does not accept active messages", status);
  return ok_status();
}

void UcxWorker::close_all() {
  stop_listening();
  if (worker_ != nullptr) ucp_worker_destroy(std::exchange(worker_, nullptr));
  if (context_ != nullptr) ucp_cleanup(std::exchange(context_, nullptr));
}

Result<uint16_t> UcxWorker::listen(const sockaddr* address, unsigned address_bytes) {
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = address;
  params.sockaddr.addrlen = address_bytes;
  params.conn_handler.arg = this;
  params.conn_handler.cb = [](ucp_conn_request_h request, void* self) {
    UcxWorker& worker = *static_cast<UcxWorker*>(self);
    worker.events_.on_connection_request(worker, request);
  };
  ucs_status_t status = ucp_listener_create(worker_, &params, &listener_);
  if (status != UCS_OK) return ucx_error(Code::unavailable, "cannot listen on it", status);
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  status = ucp_listener_query(listener_, &attributes);
  if (status != UCS_OK) return ucx_error(Code::io, "UCX does not report its port", status);
  const sockaddr_storage& bound = attributes.sockaddr;
  if (bound.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

void UcxWorker::stop_listening() {
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
  listener_ = nullptr;
}

Result<ucp_ep_h> UcxWorker::make_endpoint(ucp_ep_params_t params, UcxLink& link) {
  link.events = &events_;
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &link;
  params.err_handler.cb = [](void* argument, ucp_ep_h, ucs_status_t why) {
    UcxLink& failed = *static_cast<UcxLink*>(argument);
    failed.events->on_endpoint_error(failed, why);
  };
  ucp_ep_h endpoint = nullptr;
  ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint);
  if (status != UCS_OK) return ucx_error(Code::unavailable, "cannot connect to it", status);
  return endpoint;
}

Result<ucp_ep_h> UcxWorker::connect(const sockaddr* address, unsigned address_bytes, UcxLink& link) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = address;
  params.sockaddr.addrlen = address_bytes;
  return make_endpoint(params, link);
}

Result<ucp_ep_h> UcxWorker::accept(ucp_conn_request_h request, UcxLink& link) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  return make_endpoint(params, link);
}

void UcxWorker::reject(ucp_conn_request_h request) {
  ucp_listener_reject(listener_, request);
}

namespace {
void prepare(UcxOperation& operation, UcxEvents& events, ucp_request_param_t& param) {
  operation.events = &events;
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &operation;
}

void finish(void* request, ucs_status_t status, void* user_data) {
  ucp_request_free(request);
  UcxOperation& operation = *static_cast<UcxOperation*>(user_data);
  operation.events->on_done(operation, status);
}

Result<UcxWorker::Progress> outcome(ucs_status_ptr_t request) {
  if (request == nullptr) return UcxWorker::Progress::done;
  if (UCS_PTR_IS_ERR(request))
    return ucx_error(Code::unavailable, "the connection broke", UCS_PTR_STATUS(request));
  return UcxWorker::Progress::later;
}
}  // namespace

Result<UcxWorker::Progress> UcxWorker::send(ucp_ep_h endpoint, ByteView header, ByteView payload,
                                            bool rendezvous, UcxOperation& operation) {
  ucp_request_param_t param{};
  prepare(operation, events_, param);
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_REPLY | (rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
  param.cb.send = finish;
  return outcome(ucp_am_send_nbx(endpoint, kActiveMessageId, header.data(), header.size(), payload.data(),
                                 payload.size(), &param));
}

Result<UcxWorker::Progress> UcxWorker::fetch(void* descriptor, MutableByteView into,
                                             UcxOperation& operation) {
  ucp_request_param_t param{};
  prepare(operation, events_, param);
  param.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user_data) {
    finish(request, status, user_data);
  };
  return outcome(ucp_am_recv_data_nbx(worker_, descriptor, into.data(), into.size(), &param));
}

void UcxWorker::drop(void* descriptor) {
  ucp_am_data_release(worker_, descriptor);
}

ucs_status_t UcxWorker::on_active_message(void* self, const void* header, size_t header_bytes, void* data,
                                          size_t bytes, const ucp_am_recv_param_t* param) {
  UcxEvents& events = static_cast<UcxWorker*>(self)->events_;
  ByteView header_view(static_cast<const std::byte*>(header), header == nullptr ? 0 : header_bytes);
  ucp_ep_h endpoint = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 ? param->reply_ep : nullptr;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    // OK drops the data and reports to the sender that it has arrived. So a caller that rejects it also ends
    // the session.
    return events.on_announced(endpoint, header_view, data, bytes) ? UCS_INPROGRESS : UCS_OK;
  }
  // With or without UCP_AM_RECV_ATTR_FLAG_DATA the data is valid until this function returns, and unaligned,
  // so it is copied.
  events.on_frame(endpoint, header_view, ByteView(static_cast<const std::byte*>(data), bytes));
  return UCS_OK;
}

ucs_status_ptr_t UcxWorker::close(ucp_ep_h endpoint) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint, &param);
  return UCS_PTR_IS_ERR(closing) ? nullptr : closing;
}

bool UcxWorker::is_closed(ucs_status_ptr_t closing) {
  if (closing == nullptr) return true;
  if (ucp_request_check_status(closing) == UCS_INPROGRESS) return false;
  ucp_request_free(closing);
  return true;
}

bool UcxWorker::progress() {
  bool any = false;
  for (int step = 0; step < kProgressSteps; ++step) {
    if (ucp_worker_progress(worker_) == 0) break;
    any = true;
  }
  return any;
}

}  // namespace shoal::transport
