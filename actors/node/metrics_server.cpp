#include "actors/node/metrics_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "actors/node/metrics_text.h"
#include "transport/transport.h"

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;

std::string response(std::string_view status, std::string_view type, std::string_view body,
                     std::string_view more_headers = "") {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
                     status, type, body.size(), more_headers, body);
}

std::string refusal(std::string_view status, std::string_view more_headers = "") {
  return response(status, "text/plain; charset=utf-8", fmt::format("{}\n", status), more_headers);
}

struct RequestLine {
  std::string_view method, path, version;
};
// "GET /metrics?x=1 HTTP/1.1"; the path without its query.
bool parse_request_line(std::string_view head, RequestLine* out) {
  std::string_view line = head.substr(0, head.find("\r\n"));
  size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || last == first) return false;
  out->method = line.substr(0, first);
  out->path = line.substr(first + 1, last - first - 1);
  out->path = out->path.substr(0, out->path.find('?'));
  out->version = line.substr(last + 1);
  return (out->version == "HTTP/1.1" || out->version == "HTTP/1.0") && out->path.starts_with('/');
}

Result<OwnedFd> listen_on(const std::string& text, std::string* real_address) {
  SHOAL_ASSIGN_OR_RETURN(HostPort wanted, parse_host_port(text));
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  int error = getaddrinfo(wanted.host.c_str(), std::to_string(wanted.port).c_str(), &hints, &found);
  if (error != 0) {
    return Status(Code::unavailable, fmt::format("metrics address {}: {}", text, gai_strerror(error)));
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  OwnedFd listener(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int yes = 1;
  if (listener.valid()) setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!listener.valid() || bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return Status(Code::unavailable, fmt::format("metrics address {}: {}", text, std::strerror(errno)));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  char port[NI_MAXSERV] = {};
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV) ==
          0) {
    wanted.port = static_cast<uint16_t>(std::stoul(port));
  }
  *real_address = to_string(wanted);
  return listener;
}

}  // namespace

struct MetricsServer::Connection {
  OwnedFd fd;
  Clock::time_point deadline;
  std::string request;
  std::string answer;  // not empty: the request is over
  size_t sent = 0;
  bool has_ended = false;
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            std::function<std::string()> text,
                                                            int client_timeout_ms) {
  std::string real_address;
  SHOAL_ASSIGN_OR_RETURN(OwnedFd listener, listen_on(address, &real_address));
  OwnedFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Status(Code::io, fmt::format("eventfd: {}", std::strerror(errno)));
  return std::unique_ptr<MetricsServer>(new MetricsServer(
      std::move(listener), std::move(wake), std::move(real_address), std::move(text), client_timeout_ms));
}

MetricsServer::MetricsServer(OwnedFd listener, OwnedFd wake, std::string address,
                             std::function<std::string()> text, int client_timeout_ms)
    : listener_(std::move(listener)),
      wake_(std::move(wake)),
      address_(std::move(address)),
      text_(std::move(text)),
      client_timeout_ms_(client_timeout_ms),
      thread_([this] { run(); }) {}

MetricsServer::~MetricsServer() {
  uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void MetricsServer::run() {
  for (;;) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    Clock::time_point now = Clock::now();
    int timeout_ms = -1;
    for (const auto& each : connections_) {
      polled.push_back({each->fd.get(), static_cast<short>(each->answer.empty() ? POLLIN : POLLOUT), 0});
      auto left = std::chrono::ceil<std::chrono::milliseconds>(each->deadline - now).count();
      int left_ms = static_cast<int>(std::max<int64_t>(0, left));
      timeout_ms = timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
    }
    if (poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    now = Clock::now();
    for (size_t i = 0; i < connections_.size(); ++i) {
      if (polled[i + 2].revents != 0) serve(*connections_[i]);
      if (now >= connections_[i]->deadline) connections_[i]->has_ended = true;
    }
    std::erase_if(connections_, [](const auto& each) { return each->has_ended; });
    if (polled[1].revents != 0) accept_all();
  }
}

void MetricsServer::accept_all() {
  for (;;) {
    OwnedFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid() && is_out_of_descriptors(errno) && close_in_place()) continue;
    if (!fd.valid()) return;
    if (connections_.size() >= kMaxMetricsConnections) continue;
    auto connection = std::make_unique<Connection>();
    connection->fd = std::move(fd);
    connection->deadline = Clock::now() + std::chrono::milliseconds(client_timeout_ms_);
    connections_.push_back(std::move(connection));
  }
}

// Whoever waits, for there is no descriptor to answer with. False: nobody could be closed.
bool MetricsServer::close_in_place() {
  OwnedFd fd(spare_descriptor_.accept_in_place(listener_.get()));
  bool is_closed = fd.valid();
  fd = OwnedFd();
  spare_descriptor_.refill();
  return is_closed;
}

void MetricsServer::serve(Connection& connection) {
  if (connection.answer.empty()) {
    char buffer[2048];
    ssize_t size = recv(connection.fd.get(), buffer, sizeof buffer, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) {
      connection.has_ended = true;
      return;
    }
    connection.request.append(buffer, static_cast<size_t>(size));
    bool is_whole = connection.request.find("\r\n\r\n") != std::string::npos;
    if (connection.request.size() > kMaxMetricsRequestBytes) {
      connection.answer = refusal("431 Request Header Fields Too Large");
    } else if (is_whole) {
      answer(connection);
    } else {
      return;
    }
  }
  while (connection.sent < connection.answer.size()) {
    ssize_t size = send(connection.fd.get(), connection.answer.data() + connection.sent,
                        connection.answer.size() - connection.sent, MSG_NOSIGNAL);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size < 0) break;
    connection.sent += static_cast<size_t>(size);
  }
  connection.has_ended = true;
}

void MetricsServer::answer(Connection& connection) {
  RequestLine line;
  if (!parse_request_line(connection.request, &line)) {
    connection.answer = refusal("400 Bad Request");
  } else if (line.path != "/metrics") {
    connection.answer = refusal("404 Not Found");
  } else if (line.method != "GET") {
    connection.answer = refusal("405 Method Not Allowed", "Allow: GET\r\n");
  } else {
    connection.answer = response("200 OK", kMetricsContentType, text_());
  }
}

}  // namespace shoal
