#include "tests/process/stranger.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/host_port.h"
#include "base/owned_fd.h"
#include "transport/frame.h"
#include "transport/handshake.h"

namespace shoal::testing {

namespace {

constexpr int kPatienceSeconds = 30;

base::OwnedFd connected_socket(int family, const sockaddr* address, socklen_t bytes) {
  base::OwnedFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  timeval patience{kPatienceSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  if (connect(fd.get(), address, bytes) != 0) fd.reset();
  return fd;
}

}  // namespace

Stranger Stranger::at_address(const std::string& host_port) {
  const base::HostPort at = base::parse_host_port(host_port).value();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(at.port);
  inet_pton(AF_INET, at.host.c_str(), &address.sin_addr);
  return Stranger(connected_socket(AF_INET, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
}

Stranger Stranger::at_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return Stranger(connected_socket(AF_UNIX, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
}

void Stranger::send(ByteView bytes) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

bool Stranger::wait_closed() {
  std::byte dropped[4096];
  while (true) {
    ssize_t got = recv(fd_.get(), dropped, sizeof(dropped), 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    if (got < 0) return false;
  }
}

Result<Stranger::Frame> Stranger::read_frame(transport::FrameStream& stream) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (std::chrono::steady_clock::now() < give_up) {
    SHOAL_ASSIGN_OR_RETURN(bool is_proven, stream.tls().prove());
    size_t budget = transport::kMaxHandshakeBytes * 2;
    if (is_proven) SHOAL_RETURN_IF_ERROR(stream.flush(&budget));
    if (is_proven) {
      SHOAL_ASSIGN_OR_RETURN(transport::FrameStream::Event event,
                             stream.read(transport::kMaxHandshakeBytes, &budget));
      if (event == transport::FrameStream::Event::frame)
        return Frame(stream.payload().begin(), stream.payload().end());
    }
    std::this_thread::yield();
  }
  return Status(Code::deadline_exceeded, "no answer");
}

Status Stranger::say_hello(const transport::Identity& identity, uint32_t schema_version,
                           std::string_view token) {
  SHOAL_ASSIGN_OR_RETURN(auto context, transport::TlsContext::create(as_view(token), identity.root_id));
  fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
  SHOAL_ASSIGN_OR_RETURN(
      transport::TlsStream tls,
      transport::TlsStream::open(context, std::move(fd_), transport::HandshakeRole::connector));
  transport::FrameStream stream(std::move(tls));
  transport::Handshake handshake(transport::HandshakeRole::connector, identity,
                                 std::make_shared<const Bytes>(as_view(token).begin(), as_view(token).end()),
                                 transport::random_handshake_nonce(), schema_version);
  Bytes hello = handshake.hello();
  transport::FrameHeader header;
  header.kind = transport::FrameKind::handshake;
  header.payload_bytes = static_cast<uint32_t>(hello.size());
  stream.push(transport::encode_frame_header(header), hello);
  SHOAL_ASSIGN_OR_RETURN(Frame answer, read_frame(stream));
  return handshake.on_frame(answer).failure;
}

}  // namespace shoal::testing
