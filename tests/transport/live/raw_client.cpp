#include "tests/transport/live/raw_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <thread>

#include "base/host_port.h"
#include "base/owned_fd.h"
#include "tests/transport/live/recording_handler.h"
#include "transport/tcp/resolver.h"

namespace shoal::testing {

RawClient::RawClient(const std::string& address) {
  auto socket = transport::resolve(*base::parse_host_port(address), true);
  SHOAL_CHECK(socket.ok());
  address_ = *socket;
  auto connecting = transport::begin_connecting(address_);
  SHOAL_CHECK(connecting.ok());
  plain_ = std::move(*connecting);
  pollfd wait{plain_.get(), POLLOUT, 0};
  SHOAL_CHECK(::poll(&wait, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) == 1);
}

RawClient::~RawClient() {
  if (endpoint_ != nullptr) {
    ucs_status_ptr_t closing = worker_->close(endpoint_);
    drive([closing] { return transport::UcxWorker::is_closed(closing); });
  }
  worker_.reset();
}

bool RawClient::drive(const std::function<bool()>& condition) {
  auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    if (plain_.get() >= 0) drive_plain();
    if (stream_ && !drive_stream().ok()) {
      stream_.reset();
      is_stream_closed_ = true;
    }
    if (worker_ == nullptr || !worker_->progress()) std::this_thread::yield();
  }
  return true;
}

void RawClient::drive_plain() {
  std::byte buffer[4096];
  ssize_t got = ::recv(plain_.get(), buffer, sizeof buffer, 0);
  if (got > 0) plain_received.insert(plain_received.end(), buffer, buffer + got);
  const bool is_over = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  if (!is_over) return;
  plain_ = base::OwnedFd();
  is_stream_closed_ = true;
}

Status RawClient::drive_stream() {
  SHOAL_ASSIGN_OR_RETURN(bool is_proven, stream_->tls().prove());
  if (!is_proven) return ok_status();
  size_t budget = size_t{1} << 20;
  (void)stream_->flush(&budget);  // a peer that no longer accepts data may have sent its reason
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(transport::FrameStream::Event event,
                           stream_->read(transport::kMaxEagerBytes, &budget));
    if (event != transport::FrameStream::Event::frame) return ok_status();
    on_frame(nullptr, stream_->header(), stream_->payload());
  }
}

void RawClient::on_frame(ucp_ep_h, ByteView header, ByteView payload) noexcept {
  auto decoded = transport::decode_frame_header(header);
  if (decoded.ok()) received.push_back({*decoded, Bytes(payload.begin(), payload.end())});
}

void RawClient::send_plain(ByteView bytes) {
  while (!bytes.empty() && plain_.get() >= 0) {
    ssize_t moved = ::send(plain_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (moved > 0) bytes = bytes.subspan(static_cast<size_t>(moved));
    if (moved < 0 && errno != EAGAIN && errno != EINTR) return;
    drive_plain();
  }
}

bool RawClient::begin_tls(const transport::TransportOptions& options) {
  auto context = transport::TlsContext::create(options.token, options.identity.root_id);
  SHOAL_CHECK(context.ok());
  auto tls = transport::TlsStream::open(*context, std::move(plain_), transport::HandshakeRole::connector);
  SHOAL_CHECK(tls.ok());
  stream_.emplace(std::move(*tls));
  return drive([this] { return !stream_ || stream_->tls().is_proven(); }) && stream_.has_value();
}

void RawClient::send_to_listener(const transport::FrameHeader& header, ByteView payload) {
  if (stream_) stream_->push(transport::encode_frame_header(header), payload);
}

void RawClient::send(ByteView header, ByteView payload) {
  if (endpoint_ == nullptr) {
    if (!stream_) return;
    transport::FrameHeaderBytes bytes{};
    SHOAL_CHECK(header.size() == bytes.size());
    std::copy(header.begin(), header.end(), bytes.begin());
    return stream_->push(bytes, payload);
  }
  Sent& sent = sent_.emplace_back();
  sent.header.assign(header.begin(), header.end());
  sent.payload.assign(payload.begin(), payload.end());
  (void)worker_->send(endpoint_, sent.header, sent.payload, false, sent);
}

void RawClient::announce(const transport::FrameHeader& header, size_t claimed_bytes) {
  if (endpoint_ == nullptr) return send(header, {});
  Sent& sent = sent_.emplace_back();
  transport::FrameHeaderBytes bytes = transport::encode_frame_header(header);
  sent.header.assign(bytes.begin(), bytes.end());
  sent.payload.resize(4096);
  (void)worker_->send(endpoint_, sent.header, ByteView(sent.payload.data(), claimed_bytes), true, sent);
}

std::optional<uint16_t> RawClient::prove_itself(const transport::TransportOptions& options) {
  if (!begin_tls(options)) return std::nullopt;
  transport::Handshake handshake(transport::HandshakeRole::connector, options.identity,
                                 std::make_shared<const Bytes>(options.token),
                                 transport::random_handshake_nonce());
  transport::Handshake::Answer answer{.reply = handshake.hello()};
  while (!answer.proven) {
    if (answer.reply.empty()) return std::nullopt;
    transport::FrameHeader header;
    header.kind = transport::FrameKind::handshake;
    header.payload_bytes = static_cast<uint32_t>(answer.reply.size());
    size_t seen = received.size();
    send_to_listener(header, answer.reply);
    if (!drive([&] { return received.size() > seen || !stream_; }) || received.size() == seen)
      return std::nullopt;
    answer = handshake.on_frame(received.back().payload);
  }
  tags_ = handshake.tags();
  return handshake.data_port();
}

void RawClient::connect_data(uint16_t port) {
  auto worker = transport::UcxWorker::create(*this, {});
  SHOAL_CHECK(worker.ok());
  worker_ = std::move(*worker);
  transport::SocketAddress address = address_;
  transport::set_port(address, port);
  auto endpoint = worker_->connect(address.get(), address.bytes, link_);
  SHOAL_CHECK(endpoint.ok());
  endpoint_ = *endpoint;
}

bool RawClient::attach(std::optional<uint16_t> port) {
  if (!port) return false;
  if (*port != 0) connect_data(*port);
  transport::FrameHeader header;
  header.kind = transport::FrameKind::attach;
  header.tag = tags_.connector;
  size_t seen = received.size();
  send(header, {});
  return drive([&] { return received.size() > seen || is_closed(); }) && !is_closed();
}

Status RawClient::refusal() const {
  for (auto each = received.rbegin(); each != received.rend(); ++each) {
    bool may_refuse = each->header.kind == transport::FrameKind::handshake ||
                      each->header.kind == transport::FrameKind::closing;
    if (may_refuse) return transport::decode_refusal(each->payload);
  }
  return ok_status();
}

}  // namespace shoal::testing
