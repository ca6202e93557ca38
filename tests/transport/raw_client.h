// A stranger who knows the protocol: sends whatever frames a test wants, at the door and by UCX, without any
// of the transport's checks.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/frame.h"
#include "transport/handshake.h"
#include "transport/ucx/door_internal.h"
#include "transport/ucx/ucx_transport.h"
#include "transport/ucx/worker_internal.h"

namespace shoal::testing {

class RawClient final : private UcxEvents {
 public:
  explicit RawClient(const std::string& address);
  ~RawClient() override;

  // Takes part in the handshake as a node with these options would; the port for its data, or 0 if it is
  // refused.
  uint16_t prove_itself(const UcxTransportOptions& options);
  // Connects to a data port by UCX, proven or not.
  void connect_data(uint16_t port);
  // Connects and attaches; true once the listener has answered.
  bool attach(uint16_t port);
  uint64_t tag() const { return tags_.connector; }

  void send_to_door(ByteView bytes);
  void send_to_door(const FrameHeader& header, ByteView payload);
  void send(ByteView header, ByteView payload);
  void send(const FrameHeader& header, ByteView payload) { send(encode_frame_header(header), payload); }
  // Announces `claimed_bytes` by rendezvous; there is nothing behind the claim.
  void announce(const FrameHeader& header, size_t claimed_bytes);

  // Drives door and UCX until the condition holds; false if it does not in time.
  bool drive(const std::function<bool()>& condition);
  bool wait_closed() {
    return drive([this] { return is_closed(); });
  }
  bool is_closed() const { return endpoint_ != nullptr ? is_broken_ : !door_; }

  struct Received {
    FrameHeader header;
    Bytes payload;
  };
  std::vector<Received> received;
  // Of the last handshake or closing frame received; OK if there was none.
  Status refusal() const;

 private:
  void on_connection_request(UcxWorker&, ucp_conn_request_h) noexcept override {}
  void on_frame(ucp_ep_h, ByteView header, ByteView payload) noexcept override;
  bool on_announced(ucp_ep_h, ByteView, void*, size_t) noexcept override { return false; }
  void on_endpoint_error(UcxLink&, ucs_status_t) noexcept override { is_broken_ = true; }
  void on_done(UcxOperation&, ucs_status_t) noexcept override {}
  void read_door();

  struct Sent : UcxOperation {
    Bytes header, payload;
  };
  std::list<Sent> sent_;  // until the client goes
  SocketAddress address_;
  std::optional<DoorConnection> door_;
  std::shared_ptr<UcxWorker> worker_;
  UcxLink link_;
  ucp_ep_h endpoint_ = nullptr;
  bool is_broken_ = false;
  FrameTags tags_;
};

}  // namespace shoal::testing
