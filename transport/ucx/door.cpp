#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/descriptors.h"
#include "transport/ucx/door_internal.h"

namespace shoal {

namespace {
constexpr int kBacklog = 4096;  // of those who wait to be let in; the system may allow fewer

Status system_error(const std::string& what) {
  return Status(Code::unavailable, what + ": " + std::strerror(errno));
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

// A handshake is a few small frames to and fro: each leaves at once.
void send_at_once(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::string to_string(const SocketAddress& address) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(address.get(), address.bytes, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  return to_string(HostPort{host, static_cast<uint16_t>(std::atoi(port))});
}

void set_port(SocketAddress& address, uint16_t port) {
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
  }
}

Result<DoorConnection> DoorConnection::connect(const SocketAddress& address) {
  FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return system_error("no socket");
  send_at_once(socket.get());
  if (::connect(socket.get(), address.get(), address.bytes) != 0 && errno != EINPROGRESS) {
    return system_error("cannot be connected to");
  }
  return DoorConnection(std::move(socket), false);
}

void DoorConnection::write(const OutgoingFrame& frame) {
  write_raw(frame.header);
  write_raw(frame.payload);
}

void DoorConnection::write_raw(ByteView bytes) {
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
}

Status DoorConnection::progress(std::vector<Frame>& frames) {
  if (!is_connected_) SHOAL_RETURN_IF_ERROR(finish_connecting());
  if (!is_connected_) return ok_status();
  Status flushed = flush();  // who cannot be written to any more may have said why
  while (true) {
    size_t before = incoming_.size();
    Status read = read_more();
    while (take_frame(frames)) {
    }
    if (!read.ok()) return flushed.ok() ? read : flushed;
    if (incoming_.size() == before) return flushed;
  }
}

Status DoorConnection::finish_connecting() {
  int error = 0;
  socklen_t bytes = sizeof error;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error == 0) {
    sockaddr_storage peer;
    socklen_t peer_bytes = sizeof peer;
    if (getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0)
      is_connected_ = true;
    return ok_status();
  }
  errno = error;
  return system_error("cannot be connected to");
}

Status DoorConnection::flush() {
  while (written_ < outgoing_.size()) {
    ssize_t moved =
        ::send(socket_.get(), outgoing_.data() + written_, outgoing_.size() - written_, MSG_NOSIGNAL);
    if (moved < 0 && would_block()) return ok_status();
    if (moved < 0) return system_error("the connection broke");
    written_ += static_cast<size_t>(moved);
  }
  outgoing_.clear();
  written_ = 0;
  if (ends_writing_ && !std::exchange(has_ended_writing_, true)) shutdown(socket_.get(), SHUT_WR);
  return ok_status();
}

Status DoorConnection::read_more() {
  std::byte buffer[kFrameHeaderBytes + kMaxHandshakeBytes];
  size_t room = sizeof buffer - (ignores_rest_ ? 0 : incoming_.size());
  ssize_t moved = ::recv(socket_.get(), buffer, room, 0);
  if (moved < 0 && would_block()) return ok_status();
  if (moved < 0) return system_error("the connection broke");
  if (moved == 0) return Status(Code::unavailable, "the connection was closed");
  if (!ignores_rest_) incoming_.insert(incoming_.end(), buffer, buffer + moved);
  return ok_status();
}

bool DoorConnection::take_frame(std::vector<Frame>& frames) {
  if (ignores_rest_ || incoming_.size() < kFrameHeaderBytes) return false;
  ByteView header = ByteView(incoming_).first(kFrameHeaderBytes);
  auto decoded = decode_frame_header(header);
  bool is_sane = decoded.ok() && decoded->payload_bytes <= kMaxHandshakeBytes;
  size_t payload_bytes = is_sane ? decoded->payload_bytes : 0;
  if (incoming_.size() < kFrameHeaderBytes + payload_bytes) return false;
  ByteView payload = ByteView(incoming_).subspan(kFrameHeaderBytes, payload_bytes);
  frames.push_back({Bytes(header.begin(), header.end()), Bytes(payload.begin(), payload.end())});
  incoming_.erase(incoming_.begin(),
                  incoming_.begin() + static_cast<ptrdiff_t>(kFrameHeaderBytes + payload_bytes));
  if (!is_sane) {
    ignores_rest_ = true;
    incoming_.clear();
  }
  return true;
}

Result<DoorListener> DoorListener::listen(const SocketAddress& address) {
  FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return system_error("no socket");
  int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), address.get(), address.bytes) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return system_error("cannot be listened on");
  }
  return DoorListener(std::move(socket));
}

uint16_t DoorListener::port() const {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
  if (bound.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

Result<DoorListener::Visitor> DoorListener::accept() {
  Visitor visitor;
  visitor.from.bytes = sizeof visitor.from.storage;
  visitor.socket = FileDescriptor(accept4(socket_.get(), reinterpret_cast<sockaddr*>(&visitor.from.storage),
                                          &visitor.from.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (visitor.socket.get() >= 0) {
    send_at_once(visitor.socket.get());
    return visitor;
  }
  bool is_full = is_out_of_descriptors(errno) || errno == ENOBUFS || errno == ENOMEM;
  return Status(is_full ? Code::busy : Code::not_found, std::strerror(errno));
}

}  // namespace shoal
