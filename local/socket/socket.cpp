#include "local/socket/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <mutex>
#include <span>

#include "base/owned_fd.h"
#include "local/socket/frame_internal.h"
#include "local/socket/peer.h"
#include "shoal/page_buffer.h"

namespace shoal::local {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kHeaderBytes = 4;
constexpr size_t kMaxDescriptorsSeen = 16;  // room to receive and close unwanted ones

Status closed_by_peer() {
  return Status(Code::unavailable, "the other side closed the connection");
}

// The milliseconds until `end`, rounded up, for poll; -1: without limit.
int remaining_ms(int timeout_ms, Clock::time_point end) {
  if (timeout_ms < 0) return -1;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

// False on timeout.
bool wait_until_ready(int fd, short events, int timeout_ms) {
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
  while (true) {
    pollfd waiting{fd, events, 0};
    int ready = ::poll(&waiting, 1, remaining_ms(timeout_ms, end));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return true;  // the next call returns the error
  }
}

iovec iovec_of(ByteView bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

// Huge pages: a page fault takes as long as reading the bytes that fill the page. Small messages do not use
// them, because less may arrive than was announced.
void request_large_pages(MutableByteView memory) {
  constexpr size_t kFromBytes = size_t{4} << 20;
  constexpr uintptr_t kPageBytes = 4096;
  if (memory.size() < kFromBytes) return;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory.data()) / kPageBytes * kPageBytes;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory.data() + memory.size());
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin,
                  MADV_HUGEPAGE);  // NOLINT(performance-no-int-to-ptr)
}

// Removes `bytes` sent bytes from the vectors, and returns the first vector, from `first` on, with bytes
// left.
size_t skip(std::vector<iovec>& vectors, size_t first, size_t bytes) {
  for (; first < vectors.size(); ++first) {
    iovec& vector = vectors[first];
    const size_t gone = std::min(bytes, vector.iov_len);
    vector.iov_base = static_cast<std::byte*>(vector.iov_base) + gone;
    vector.iov_len -= gone;
    bytes -= gone;
    if (vector.iov_len != 0) break;
  }
  return first;
}

// Takes all descriptors from the result of recvmsg.
void take_descriptors(msghdr& received, std::vector<base::OwnedFd>& out) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&received); control; control = CMSG_NXTHDR(&received, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      out.emplace_back(fd);
    }
  }
}

}  // namespace

Status check_peer(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return Status(Code::io, fmt::format("SO_PEERCRED: {}", std::strerror(errno)));
  }
  if (peer.uid == ::geteuid() || peer.uid == 0) return ok_status();
  return Status(Code::refused, fmt::format("process {} belongs to user {}", peer.pid, peer.uid));
}

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Status(Code::invalid_argument, fmt::format("{}: the path of a socket must have 1 to {} bytes: "
                                                      "choose a shorter folder with SHOAL_RUNTIME_DIR",
                                                      path, sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

struct LocalSocket::State {
  std::mutex send_mutex;
  bool send_failed = false;  // a message was sent in part: nothing may follow it

  // The message that is being received.
  std::array<std::byte, kHeaderBytes> header;
  size_t header_bytes = 0;
  size_t expected_bytes = 0;
  PageBuffer body;  // expected_bytes long; a large one takes only the memory of the bytes that arrived
  size_t body_bytes = 0;
  uint64_t total_bytes = 0;
  std::vector<base::OwnedFd> fds;
  Status broken;

  // Reads at most the requested bytes into `into`. 0: there are none yet.
  Result<size_t> read_some(int fd, MutableByteView into);
  Result<std::optional<ReceivedLocal>> advance(int fd);
  Result<std::optional<ReceivedLocal>> finish();
};

Result<size_t> LocalSocket::State::read_some(int fd, MutableByteView into) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxDescriptorsSeen * sizeof(int))> control;
  iovec vector{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
    if (errno == ECONNRESET || errno == EPIPE) return closed_by_peer();
    return Status(Code::io, fmt::format("cannot receive on a local socket: {}", std::strerror(errno)));
  }
  take_descriptors(message, fds);
  if (fds.size() > 1 || (message.msg_flags & MSG_CTRUNC) != 0) {
    return Status(Code::corrupt,
                  "a local message came with more than one descriptor, or with one that this process could "
                  "not receive");
  }
  if (got == 0) {
    if (header_bytes == 0) return closed_by_peer();
    return Status(Code::unavailable, "the other side closed the connection in the middle of a message");
  }
  total_bytes += static_cast<uint64_t>(got);
  return static_cast<size_t>(got);
}

// Reads the available bytes. It reads the header separately, so that no read extends into the next message,
// whose descriptor comes with its first byte.
Result<std::optional<ReceivedLocal>> LocalSocket::State::advance(int fd) {
  while (header_bytes < kHeaderBytes) {
    SHOAL_ASSIGN_OR_RETURN(size_t got, read_some(fd, std::span(header).subspan(header_bytes)));
    if (got == 0) return std::optional<ReceivedLocal>();
    header_bytes += got;
    if (header_bytes < kHeaderBytes) continue;
    expected_bytes = load_le32(header.data());
    if (expected_bytes == 0 || expected_bytes > kMaxLocalMessageBytes) {
      return Status(expected_bytes == 0 ? Code::corrupt : Code::too_large,
                    fmt::format("a local message has {} bytes: from 1 to {} are allowed", expected_bytes,
                                kMaxLocalMessageBytes));
    }
    body = PageBuffer(expected_bytes);
    request_large_pages(body.bytes());
  }
  while (body_bytes < expected_bytes) {
    SHOAL_ASSIGN_OR_RETURN(size_t got, read_some(fd, body.bytes().subspan(body_bytes)));
    if (got == 0) return std::optional<ReceivedLocal>();
    body_bytes += got;
  }
  return finish();
}

Result<std::optional<ReceivedLocal>> LocalSocket::State::finish() {
  SHOAL_ASSIGN_OR_RETURN(LocalMessage message, decode_local(body.bytes()));
  const bool is_slab = std::holds_alternative<local::Slab>(message);
  if (is_slab != !fds.empty()) {
    return Status(Code::corrupt,
                  is_slab ? "a slab came without its descriptor" : "a descriptor came without a slab");
  }
  ReceivedLocal received{std::move(message), is_slab ? std::move(fds.front()) : base::OwnedFd()};
  fds.clear();
  header_bytes = body_bytes = 0;
  body = PageBuffer();
  return std::optional(std::move(received));
}

LocalSocket::LocalSocket(base::OwnedFd fd) : fd_(std::move(fd)), state_(std::make_shared<State>()) {}

Result<std::unique_ptr<LocalSocket>> LocalSocket::connect(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(sockaddr_un address, socket_address(path));
  base::OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid())
    return Status(Code::io, fmt::format("{}: cannot make a socket: {}", path, std::strerror(errno)));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Status(Code::unavailable, fmt::format("{}: {}", path, std::strerror(errno)));
  }
  if (Status peer = check_peer(fd.get()); !peer.ok()) return peer.with_context(path);
  auto socket = std::make_unique<LocalSocket>(std::move(fd));
  socket->parent_only_.emplace(socket->fd());
  return socket;
}

Status LocalSocket::send(const LocalMessage& message, int fd_to_pass) {
  const LocalFrame frame(message);
  const size_t bytes = frame.parts().bytes;
  if (bytes > kMaxLocalMessageBytes) {
    return Status(Code::too_large, fmt::format("a local message has {} bytes: at most {} are allowed", bytes,
                                               kMaxLocalMessageBytes));
  }
  std::lock_guard lock(state_->send_mutex);
  return send_frame(frame, fd_to_pass, true).status();
}

Result<bool> LocalSocket::try_send(const LocalMessage& message, int fd_to_pass) {
  const LocalFrame frame(message);
  std::unique_lock lock(state_->send_mutex, std::try_to_lock);
  if (!lock.owns_lock() || frame.parts().bytes > kTrySendBytesMax) return false;
  return send_frame(frame, fd_to_pass, false);
}

// Takes the mutex for sending. False, only without `may_wait`: nothing was sent.
Result<bool> LocalSocket::send_frame(const LocalFrame& frame, int fd_to_pass, bool may_wait) {
  std::array<std::byte, kHeaderBytes> header;
  store_le32(header.data(), static_cast<uint32_t>(frame.parts().bytes));
  std::vector<iovec> left{iovec_of(header), iovec_of(frame.parts().table)};
  for (const ByteView segment : frame.parts().segments) left.push_back(iovec_of(segment));
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};

  if (state_->send_failed) return closed_by_peer();
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(kLocalSendTimeoutMs);
  const size_t total = kHeaderBytes + frame.parts().bytes;
  size_t first = 0;  // of `left`
  for (size_t sent = 0; sent < total;) {
    msghdr out{};
    out.msg_iov = left.data() + first;
    out.msg_iovlen = std::min<size_t>(left.size() - first, IOV_MAX);
    if (sent == 0 && fd_to_pass >= 0) {
      out.msg_control = control.data();
      out.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&out);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &fd_to_pass, sizeof(int));
    }
    const ssize_t wrote = ::sendmsg(fd_.get(), &out, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (wrote >= 0) {
      sent += static_cast<size_t>(wrote);
      first = skip(left, first, static_cast<size_t>(wrote));
      continue;
    }
    Status failure;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!may_wait && sent == 0) return false;
      if (wait_until_ready(fd_.get(), POLLOUT, remaining_ms(kLocalSendTimeoutMs, end))) continue;
      failure = Status(Code::deadline_exceeded,
                       fmt::format("the other side read nothing for {} ms", kLocalSendTimeoutMs));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      failure = closed_by_peer();
    } else if (errno != EINTR) {
      failure = Status(Code::io, fmt::format("cannot send on a local socket: {}", std::strerror(errno)));
    }
    if (failure.ok()) continue;
    state_->send_failed = true;
    // After a broken pipe there may still be messages from the peer to receive. A message sent in part ends
    // both directions.
    if (failure.code() != Code::unavailable) shutdown();
    return failure;
  }
  return true;
}

int32_t LocalSocket::peer_pid() const {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

uint64_t LocalSocket::bytes_received() const {
  return state_->total_bytes;
}

Result<std::optional<ReceivedLocal>> LocalSocket::receive(int timeout_ms) {
  if (!state_->broken.ok()) return state_->broken;
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
  while (true) {
    Result<std::optional<ReceivedLocal>> received = state_->advance(fd_.get());
    if (!received.ok()) {
      state_->broken = received.status();
      state_->fds.clear();
      state_->body = PageBuffer();
      return received;
    }
    if (received->has_value()) return received;
    if (!wait_until_ready(fd_.get(), POLLIN, remaining_ms(timeout_ms, end))) return received;
  }
}

void LocalSocket::shutdown() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

Status check_slab(int fd, uint64_t bytes) {
  constexpr int kNeededSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kNeededSeals) != kNeededSeals) {
    return Status(Code::refused,
                  "a slab must be a memory file sealed against shrinking, growing and unsealing");
  }
  struct stat file {};
  if (::fstat(fd, &file) != 0)
    return Status(Code::io, fmt::format("cannot read the size of a slab: {}", std::strerror(errno)));
  if (static_cast<uint64_t>(file.st_size) != bytes) {
    return Status(Code::refused,
                  fmt::format("a slab was announced with {} bytes and has {}", bytes, file.st_size));
  }
  return ok_status();
}

}  // namespace shoal::local
