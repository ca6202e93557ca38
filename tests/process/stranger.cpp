#include "tests/process/stranger.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/frame.h"
#include "transport/handshake.h"

namespace shoal::testing {

namespace {

constexpr int kPatienceSeconds = 30;

int connected_socket(int family, const sockaddr* address, socklen_t bytes) {
  int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  timeval patience{kPatienceSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  if (connect(fd, address, bytes) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

Stranger Stranger::at_address(const std::string& host_port) {
  size_t colon = host_port.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoul(host_port.substr(colon + 1))));
  inet_pton(AF_INET, host_port.substr(0, colon).c_str(), &address.sin_addr);
  return Stranger(connected_socket(AF_INET, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
}

Stranger Stranger::at_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return Stranger(connected_socket(AF_UNIX, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
}

Stranger::Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Stranger::~Stranger() {
  if (fd_ >= 0) close(fd_);
}

void Stranger::send(ByteView bytes) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

bool Stranger::wait_closed() {
  std::byte dropped[4096];
  while (true) {
    ssize_t got = recv(fd_, dropped, sizeof(dropped), 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    if (got < 0) return false;
  }
}

bool Stranger::read_exactly(MutableByteView out) {
  while (!out.empty()) {
    ssize_t got = recv(fd_, out.data(), out.size(), 0);
    if (got <= 0) return false;
    out = out.subspan(static_cast<size_t>(got));
  }
  return true;
}

Status Stranger::say_hello(const Identity& identity, uint32_t schema_version) {
  const ByteView token = as_view("secret");  // of tests/process/node_program.cpp
  Handshake handshake(HandshakeRole::connector, identity,
                      std::make_shared<const Bytes>(token.begin(), token.end()), random_handshake_nonce(),
                      schema_version);
  Bytes hello = handshake.hello();
  FrameHeader header;
  header.kind = FrameKind::handshake;
  header.payload_bytes = static_cast<uint32_t>(hello.size());
  send(encode_frame_header(header));
  send(hello);
  FrameHeaderBytes answer_header;
  if (!read_exactly(answer_header)) return Status(Code::unavailable, "no answer");
  auto decoded = decode_frame_header(answer_header);
  if (!decoded.ok()) return decoded.status();
  Bytes answer(decoded->payload_bytes);
  if (!read_exactly(answer)) return Status(Code::unavailable, "half an answer");
  return handshake.on_frame(answer).failure;
}

}  // namespace shoal::testing
