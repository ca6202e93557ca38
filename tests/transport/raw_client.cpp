#include "tests/transport/raw_client.h"

#include <thread>

#include "tests/transport/recording_handler.h"

namespace shoal::testing {

RawClient::RawClient(const std::string& address) {
  auto worker = UcxWorker::create(*this);
  SHOAL_CHECK(worker.ok());
  worker_ = std::move(*worker);
  auto socket = resolve(*parse_host_port(address), true);
  SHOAL_CHECK(socket.ok());
  address_ = *socket;
  auto door = DoorConnection::connect(address_);
  SHOAL_CHECK(door.ok());
  door_.emplace(std::move(*door));
}

RawClient::~RawClient() {
  if (endpoint_ != nullptr) {
    ucs_status_ptr_t closing = worker_->close(endpoint_);
    drive([closing] { return UcxWorker::is_closed(closing); });
  }
  worker_.reset();
}

bool RawClient::drive(const std::function<bool()>& condition) {
  auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    if (door_) read_door();
    if (!worker_->progress()) std::this_thread::yield();
  }
  return true;
}

void RawClient::read_door() {
  std::vector<DoorConnection::Frame> frames;
  Status open = door_->progress(frames);
  for (DoorConnection::Frame& frame : frames) on_frame(nullptr, frame.header, frame.payload);
  if (!open.ok()) door_.reset();
}

void RawClient::on_frame(ucp_ep_h, ByteView header, ByteView payload) noexcept {
  auto decoded = decode_frame_header(header);
  if (decoded.ok()) received.push_back({*decoded, Bytes(payload.begin(), payload.end())});
}

void RawClient::send_to_door(ByteView bytes) {
  if (door_) door_->write_raw(bytes);
}

void RawClient::send_to_door(const FrameHeader& header, ByteView payload) {
  send_to_door(encode_frame_header(header));
  send_to_door(payload);
}

void RawClient::send(ByteView header, ByteView payload) {
  Sent& sent = sent_.emplace_back();
  sent.header.assign(header.begin(), header.end());
  sent.payload.assign(payload.begin(), payload.end());
  (void)worker_->send(endpoint_, sent.header, sent.payload, false, sent);
}

void RawClient::announce(const FrameHeader& header, size_t claimed_bytes) {
  Sent& sent = sent_.emplace_back();
  FrameHeaderBytes bytes = encode_frame_header(header);
  sent.header.assign(bytes.begin(), bytes.end());
  sent.payload.resize(4096);
  (void)worker_->send(endpoint_, sent.header, ByteView(sent.payload.data(), claimed_bytes), true, sent);
}

uint16_t RawClient::prove_itself(const UcxTransportOptions& options) {
  Handshake handshake(HandshakeRole::connector, options.identity,
                      std::make_shared<const Bytes>(options.token), random_handshake_nonce());
  for (Bytes frame = handshake.hello(); !frame.empty();) {
    FrameHeader header;
    header.kind = FrameKind::handshake;
    header.payload_bytes = static_cast<uint32_t>(frame.size());
    size_t seen = received.size();
    send_to_door(header, frame);
    if (!drive([&] { return received.size() > seen || !door_; }) || received.size() == seen) return 0;
    frame = handshake.on_frame(received.back().payload).reply;
  }
  tags_ = handshake.tags();
  return handshake.data_port();
}

void RawClient::connect_data(uint16_t port) {
  SocketAddress address = address_;
  set_port(address, port);
  auto endpoint = worker_->connect(address.get(), address.bytes, link_);
  SHOAL_CHECK(endpoint.ok());
  endpoint_ = *endpoint;
}

bool RawClient::attach(uint16_t port) {
  connect_data(port);
  FrameHeader header;
  header.kind = FrameKind::attach;
  header.tag = tags_.connector;
  size_t seen = received.size();
  send(header, {});
  return drive([&] { return received.size() > seen || is_broken_; }) && !is_broken_;
}

Status RawClient::refusal() const {
  for (auto each = received.rbegin(); each != received.rend(); ++each) {
    bool may_refuse = each->header.kind == FrameKind::handshake || each->header.kind == FrameKind::closing;
    if (may_refuse) return decode_refusal(each->payload);
  }
  return ok_status();
}

}  // namespace shoal::testing
