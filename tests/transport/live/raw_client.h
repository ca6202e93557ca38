// A stranger that knows the protocol: sends any bytes and frames that a test wants, in plain text, over TLS
// and over UCX, without the checks of the transport.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "transport/frame.h"
#include "transport/handshake.h"
#include "transport/live/make_transport.h"
#include "transport/tcp/frame_stream.h"
#include "transport/ucx/worker.h"

namespace shoal::testing {

class RawClient final : private transport::UcxEvents {
 public:
  explicit RawClient(const std::string& address);  // connects, and says nothing
  ~RawClient() override;

  // In the clear. What came back before TLS began is in `plain_received`.
  void send_plain(ByteView bytes);
  Bytes plain_received;

  // TLS with these options' token and root; true once both sides are proven.
  bool begin_tls(const transport::TransportOptions& options);
  // Takes part in TLS and the handshake as a node with these options would; the port for its data (0: this
  // connection), or nothing if it is refused.
  std::optional<uint16_t> prove_itself(const transport::TransportOptions& options);
  // Connects to a data port by UCX, proven or not.
  void connect_data(uint16_t port);
  // Goes on by the data way, and attaches; true once the listener has answered.
  bool attach(std::optional<uint16_t> port);
  uint64_t tag() const { return tags_.connector; }

  void send_to_listener(const transport::FrameHeader& header, ByteView payload);
  void send(ByteView header, ByteView payload);
  void send(const transport::FrameHeader& header, ByteView payload) {
    send(transport::encode_frame_header(header), payload);
  }
  // Announces `claimed_bytes`; there is nothing behind the claim.
  void announce(const transport::FrameHeader& header, size_t claimed_bytes);

  // Drives the connections until the condition holds; false if it does not in time.
  bool drive(const std::function<bool()>& condition);
  bool wait_closed() {
    return drive([this] { return is_closed(); });
  }
  bool is_closed() const { return endpoint_ != nullptr ? is_broken_ : is_stream_closed_; }

  struct Received {
    transport::FrameHeader header;
    Bytes payload;
  };
  std::vector<Received> received;
  // Of the last handshake or closing frame received; OK if there was none.
  Status refusal() const;

 private:
  void on_connection_request(transport::UcxWorker&, ucp_conn_request_h) noexcept override {}
  void on_frame(ucp_ep_h, ByteView header, ByteView payload) noexcept override;
  bool on_announced(ucp_ep_h, ByteView, void*, size_t) noexcept override { return false; }
  void on_endpoint_error(transport::UcxLink&, ucs_status_t) noexcept override { is_broken_ = true; }
  void on_done(transport::UcxOperation&, ucs_status_t) noexcept override {}
  void drive_plain();
  Status drive_stream();

  struct Sent : transport::UcxOperation {
    Bytes header, payload;
  };
  std::list<Sent> sent_;  // until the client goes
  transport::SocketAddress address_;
  base::OwnedFd plain_;  // until TLS begins
  std::optional<transport::FrameStream> stream_;
  bool is_stream_closed_ = false;
  std::shared_ptr<transport::UcxWorker> worker_;
  transport::UcxLink link_;
  ucp_ep_h endpoint_ = nullptr;
  bool is_broken_ = false;
  transport::FrameTags tags_;
};

}  // namespace shoal::testing
