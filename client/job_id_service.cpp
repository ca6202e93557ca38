#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/bytes.h"
#include "base/hash.h"
#include "client/job_id_service_internal.h"
#include "client/node_process_internal.h"

// A question is "SHJ1", world size, length of the run's id, that id; an answer "SHJ1", 0 or 1 for refused, a
// length, the job's id or why not. Numbers are 32 bits, little-endian. One of each a connection.

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kMagic = "SHJ1";
constexpr size_t kHeadBytes = 12;
constexpr int kBacklog = 4096;  // ranks that ask at once
constexpr int kAnswerTimeoutMs = 2000;
constexpr std::chrono::milliseconds kPause{100};

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  std::string shown;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Status failed(const std::string& shown, int error) {
  return Status(Code::unavailable, fmt::format("{}: {}", shown, std::strerror(error)));
}

// Of a socket beside the node's.
Result<Address> local_address(const CheckpointerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(NodePaths paths, node_paths(options.root));
  SHOAL_ASSIGN_OR_RETURN(std::string node_socket, socket_of(options, paths));
  Address out;
  out.shown = node_socket + ".job";
  auto* address = reinterpret_cast<sockaddr_un*>(&out.storage);
  address->sun_family = AF_UNIX;
  if (out.shown.size() >= sizeof address->sun_path) {
    return Status(Code::invalid_argument, out.shown + ": too long for a socket");
  }
  std::memcpy(address->sun_path, out.shown.c_str(), out.shown.size() + 1);
  out.bytes = sizeof(sockaddr_un);
  return out;
}

Result<Address> address_of(const CheckpointerOptions& options, bool to_listen) {
  const std::string& text = options.job_id_exchange->address;
  if (text.empty()) return local_address(options);
  const size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon), port = text.substr(std::min(colon, text.size() - 1) + 1);
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = to_listen ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(to_listen ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return Status(Code::unavailable, fmt::format("{}: {}", text, ::gai_strerror(error)));
  Address out;
  std::memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  out.bytes = found->ai_addrlen;
  out.shown = text;
  ::freeaddrinfo(found);
  return out;
}

OwnedFd new_socket(const Address& address) {
  return OwnedFd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

void limit_waits(int fd) {
  const timeval limit{kAnswerTimeoutMs / 1000, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool send_all(int fd, uint32_t number, std::string_view text) {
  std::string bytes(kMagic);
  bytes.resize(kHeadBytes);
  store_le32(reinterpret_cast<std::byte*>(&bytes[4]), number);
  store_le32(reinterpret_cast<std::byte*>(&bytes[8]), static_cast<uint32_t>(text.size()));
  bytes += text;
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

struct Packet {
  uint32_t number = 0;
  std::string text;
};
std::optional<Packet> receive_all(int fd, size_t text_most) {
  std::array<char, kHeadBytes> head{};
  if (::recv(fd, head.data(), head.size(), MSG_WAITALL) != static_cast<ssize_t>(head.size())) {
    return std::nullopt;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(head.data());
  const uint32_t length = load_le32(bytes + 8);
  if (std::string_view(head.data(), 4) != kMagic || length > text_most) return std::nullopt;
  Packet out{load_le32(bytes + 4), std::string(length, '\0')};
  if (::recv(fd, out.text.data(), length, MSG_WAITALL) != static_cast<ssize_t>(length)) return std::nullopt;
  return out;
}

// Of rank 0's process: one id, and one place where it is told.
class Service {
 public:
  // The process's, made by its first call. Lives as long as the process, as the id does: never destroyed, so
  // that its thread outlives every other part.
  static Result<std::string> job_id(const CheckpointerOptions& options, Clock::time_point deadline) {
    static std::mutex mutex;
    static Service* service = nullptr;
    std::lock_guard lock(mutex);
    if (service != nullptr) return service->job_id_;
    OwnedFd listener;
    Status listening;
    do {  // a child of the last rank 0 may still hold the port
      listening = listen(options, &listener);
      if (!listening.ok()) std::this_thread::sleep_for(kPause);
    } while (!listening.ok() && Clock::now() < deadline);
    SHOAL_RETURN_IF_ERROR(listening.with_context("where rank 0 tells the job's id"));
    service = new Service(std::move(listener), options.world_size, options.job_id_exchange->run);
    std::thread([] { service->serve(); }).detach();
    return service->job_id_;
  }

 private:
  Service(OwnedFd listener, uint32_t world_size, std::string run)
      : listener_(std::move(listener)),
        world_size_(world_size),
        run_(std::move(run)),
        job_id_("rendezvous-" + random_128().to_hex()) {}

  static Status listen(const CheckpointerOptions& options, OwnedFd* listener) {
    SHOAL_ASSIGN_OR_RETURN(Address address, address_of(options, true));
    *listener = new_socket(address);
    const int on = 1;
    ::setsockopt(listener->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    // The folder is ours alone, and there is one rank 0: what lies there is of one that has ended.
    if (address.storage.ss_family == AF_UNIX) ::unlink(address.shown.c_str());
    if (!listener->valid() || ::bind(listener->get(), address.get(), address.bytes) != 0 ||
        ::listen(listener->get(), kBacklog) != 0) {
      return failed(address.shown, errno);
    }
    return ok_status();
  }

  void serve() {
    while (true) {
      OwnedFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (peer.valid()) {
        answer(peer.get());
      } else if (errno != EINTR && errno != ECONNABORTED) {
        std::this_thread::sleep_for(kPause);  // no descriptor is left
      }
    }
  }

  void answer(int fd) const {
    limit_waits(fd);
    const std::optional<Packet> asked = receive_all(fd, kMaxRunBytes);
    if (!asked) return;
    if (asked->text != run_ || asked->number != world_size_) {
      send_all(fd, 1, fmt::format("rank 0 there is of run '{}' with {} ranks", run_, world_size_));
      return;
    }
    send_all(fd, 0, job_id_);
  }

  const OwnedFd listener_;
  const uint32_t world_size_;
  const std::string run_, job_id_;
};

Result<std::string> ask(const CheckpointerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(Address address, address_of(options, false));
  OwnedFd socket = new_socket(address);
  limit_waits(socket.get());
  if (::connect(socket.get(), address.get(), address.bytes) != 0) return failed(address.shown, errno);
  const bool is_asked = send_all(socket.get(), options.world_size, options.job_id_exchange->run);
  const std::optional<Packet> answer =
      is_asked ? receive_all(socket.get(), kMaxJobIdTextBytes) : std::nullopt;
  if (!answer) return Status(Code::unavailable, address.shown + ": no answer");
  if (answer->number != 0 || answer->text.empty()) {
    return Status(Code::refused, fmt::format("{}: {}", address.shown, answer->text));
  }
  return answer->text;
}

}  // namespace

Result<std::string> agree_on_job_id(const CheckpointerOptions& options, Clock::time_point deadline) {
  if (options.job_id_exchange->run.size() > kMaxRunBytes) {
    return Status(Code::invalid_argument, fmt::format("a run's id has at most {} bytes", kMaxRunBytes));
  }
  if (options.rank == 0) return Service::job_id(options, deadline);
  while (true) {
    Result<std::string> told = ask(options);
    if (told.ok() || Clock::now() >= deadline) {
      return told.ok() ? told : told.status().with_context("the job's id, of rank 0");
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace shoal
