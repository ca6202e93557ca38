// The live transport between two nodes on the loopback, over TCP with TLS and over UCX, compared with a plain
// TCP connection in the same run: round trips of a small message, and bulk transfers.
//
//   transport_bench [MIB_BULK [ROUND_TRIPS [tcp|ucx]]]          default: 256 20000, both
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <semaphore>
#include <thread>
#include <vector>

#include "bench/timing.h"
#include "shoal/check.h"
#include "transport/live/make_transport.h"
#include "transport/message_check.h"

namespace shoal::transport {
namespace {

using bench::seconds_since;
using Clock = std::chrono::steady_clock;

constexpr size_t kSmallBytes = 256;
constexpr size_t kBulkBytes = size_t{8} << 20;
constexpr size_t kBulkInProgress = 4;  // messages
static_assert(kBulkInProgress * kBulkBytes <= kMaxQueuedBytesPerPeer);

// Echoes small messages if `echoes` is set, and counts bytes.
class Endpoint : public TransportHandler {
 public:
  Endpoint(TransportKind kind, bool listens, bool echoes) : echoes_(echoes) {
    TransportOptions options;
    if (listens) options.listen = "127.0.0.1:0";
    options.network.transport = kind;
    options.identity.job_id = "bench";
    options.identity.incarnation = random_128();
    options.identity.name = listens ? "listener" : "connector";
    const char token[] = "transport-bench";
    options.token.assign(reinterpret_cast<const std::byte*>(token),
                         reinterpret_cast<const std::byte*>(token) + sizeof token);
    transport = make_transport(std::move(options));
    const Status started = transport->start(*this);
    if (!started.ok()) {
      fmt::print(stderr, "transport_bench: {}\n", started.to_string());
      std::exit(1);
    }
  }
  ~Endpoint() override { transport->stop(0); }

  void on_peer_up(PeerId, const Identity&) override { up.release(); }
  void on_message(PeerId peer, Bytes message) override {
    received_bytes += message.size();
    if (echoes_ && message.size() <= kSmallBytes) {
      SHOAL_CHECK(transport->send(peer, std::move(message)).ok());
    } else {
      received.release();
    }
  }
  void on_peer_lost(PeerId, const Status&) override {}

  std::unique_ptr<Transport> transport;
  std::counting_semaphore<> up{0}, received{0};
  std::atomic<uint64_t> received_bytes = 0;

 private:
  const bool echoes_;
};

struct Figures {
  double round_trip_seconds = 0, bytes_per_second = 0;
};

Figures measure_transport(TransportKind kind, size_t bulk_bytes, size_t round_trips) {
  Endpoint listener(kind, true, true), connector(kind, false, false);
  const PeerId peer = connector.transport->connect(listener.transport->listen_address());
  connector.up.acquire();
  Figures figures;
  const Bytes small = message_of_zeros(kSmallBytes), bulk = message_of_zeros(kBulkBytes);
  for (size_t i = 0; i < round_trips + 100; ++i) {
    static Clock::time_point begun;
    if (i == 100) begun = Clock::now();
    SHOAL_CHECK(connector.transport->send(peer, small).ok());
    connector.received.acquire();
    if (i + 1 == round_trips + 100) {
      figures.round_trip_seconds = seconds_since(begun) / static_cast<double>(round_trips);
    }
  }
  const size_t messages = std::max<size_t>(1, bulk_bytes / kBulkBytes);
  for (int round = 0; round < 2; ++round) {  // the first round faults memory in
    // Sending consumes a message; plain TCP always sends the same bytes.
    std::vector<Bytes> prepared(messages, bulk);
    const Clock::time_point begun = Clock::now();
    for (size_t i = 0; i < messages; ++i) {
      if (i >= kBulkInProgress) listener.received.acquire();
      SHOAL_CHECK(connector.transport->send(peer, std::move(prepared[i])).ok());
    }
    for (size_t i = 0; i < std::min(messages, kBulkInProgress); ++i) listener.received.acquire();
    figures.bytes_per_second = static_cast<double>(messages * kBulkBytes) / seconds_since(begun);
  }
  return figures;
}

void move_all(int fd, std::byte* data, size_t bytes, bool is_sender) {
  while (bytes > 0) {
    const ssize_t moved = is_sender ? ::send(fd, data, bytes, 0) : ::recv(fd, data, bytes, 0);
    SHOAL_CHECK(moved > 0);
    data += moved;
    bytes -= static_cast<size_t>(moved);
  }
}

Figures measure_tcp(size_t bulk_bytes, size_t round_trips) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  SHOAL_CHECK(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  SHOAL_CHECK(::listen(listener, 1) == 0);
  SHOAL_CHECK(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const size_t messages = std::max<size_t>(1, bulk_bytes / kBulkBytes);
  std::thread other([&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Bytes data(kBulkBytes);
    for (size_t i = 0; i < round_trips; ++i) {
      move_all(fd, data.data(), kSmallBytes, false);
      move_all(fd, data.data(), kSmallBytes, true);
    }
    for (size_t i = 0; i < messages; ++i) move_all(fd, data.data(), kBulkBytes, false);
    move_all(fd, data.data(), 1, true);
    ::close(fd);
  });
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  SHOAL_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  Bytes data(kBulkBytes);
  Figures figures;
  Clock::time_point begun = Clock::now();
  for (size_t i = 0; i < round_trips; ++i) {
    move_all(fd, data.data(), kSmallBytes, true);
    move_all(fd, data.data(), kSmallBytes, false);
  }
  figures.round_trip_seconds = seconds_since(begun) / static_cast<double>(round_trips);
  begun = Clock::now();
  for (size_t i = 0; i < messages; ++i) move_all(fd, data.data(), kBulkBytes, true);
  move_all(fd, data.data(), 1, false);
  figures.bytes_per_second = static_cast<double>(messages * kBulkBytes) / seconds_since(begun);
  other.join();
  ::close(fd);
  ::close(listener);
  return figures;
}

}  // namespace
}  // namespace shoal::transport

int main(int argc, char** argv) {
  const auto number = [&](int at, size_t otherwise) {
    return argc > at ? static_cast<size_t>(std::max(1L, std::atol(argv[at]))) : otherwise;
  };
  const size_t bulk_bytes = number(1, 256) << 20, round_trips = number(2, 20000);
  const shoal::transport::Figures tcp = shoal::transport::measure_tcp(bulk_bytes, round_trips);
  for (shoal::transport::TransportKind kind :
       {shoal::transport::TransportKind::tcp, shoal::transport::TransportKind::ucx}) {
    if (argc > 3 && argv[3] != std::string(to_string(kind))) continue;
    const shoal::transport::Figures ours = shoal::transport::measure_transport(kind, bulk_bytes, round_trips);
    fmt::print("{}: round trip of {} bytes {:>9.1f} us   plain TCP {:>9.1f} us   x{:.2f}\n", to_string(kind),
               shoal::transport::kSmallBytes, ours.round_trip_seconds * 1e6, tcp.round_trip_seconds * 1e6,
               ours.round_trip_seconds / tcp.round_trip_seconds);
    fmt::print("{}: bulk of {} MiB       {:>9.2f} GB/s plain TCP {:>9.2f} GB/s x{:.2f} of its time\n",
               to_string(kind), bulk_bytes >> 20, ours.bytes_per_second / 1e9, tcp.bytes_per_second / 1e9,
               tcp.bytes_per_second / ours.bytes_per_second);
  }
}
