#include "actors/node/watch/metrics_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "base/host_port.h"
#include "base/owned_fd.h"
#include "transport/transport.h"

namespace shoal::actors {

namespace {

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
// Parses "GET /metrics?x=1 HTTP/1.1"; the path is without the query.
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

Result<base::OwnedFd> listen_on(const std::string& what, const std::string& text, std::string* real_address) {
  SHOAL_ASSIGN_OR_RETURN(base::HostPort wanted, base::parse_host_port(text));
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  int error = getaddrinfo(wanted.host.c_str(), std::to_string(wanted.port).c_str(), &hints, &found);
  if (error != 0) {
    return Status(Code::unavailable, fmt::format("{} address {}: {}", what, text, gai_strerror(error)));
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  base::OwnedFd listener(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int yes = 1;
  if (listener.valid()) setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!listener.valid() || bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return Status(Code::unavailable, fmt::format("{} address {}: {}", what, text, std::strerror(errno)));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  char port[NI_MAXSERV] = {};
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV) ==
          0) {
    wanted.port = static_cast<uint16_t>(std::stoul(port));
  }
  *real_address = base::to_string(wanted);
  return listener;
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address, std::string what,
                                                            std::vector<HttpRoute> routes,
                                                            int client_timeout_ms,
                                                            std::function<void()> turned_away) {
  std::string real_address;
  SHOAL_ASSIGN_OR_RETURN(base::OwnedFd listener, listen_on(what, address, &real_address));
  base::OwnedFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Status(Code::io, fmt::format("eventfd: {}", std::strerror(errno)));
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(listener), std::move(wake),
                                                          std::move(real_address), std::move(routes),
                                                          client_timeout_ms, std::move(turned_away)));
  try {
    server->thread_ = std::thread([self = server.get()] { self->server_.run(self->wake_.get()); });
  } catch (const std::exception& error) {
    return Status(Code::no_space, fmt::format("no thread to serve the {}: {}; raise the limit (ulimit -u, "
                                              "ulimit -v, or those of the container)",
                                              what, error.what()));
  }
  return server;
}

MetricsServer::MetricsServer(base::OwnedFd listener, base::OwnedFd wake, std::string address,
                             std::vector<HttpRoute> routes, int client_timeout_ms,
                             std::function<void()> turned_away)
    : wake_(std::move(wake)),
      address_(std::move(address)),
      routes_(std::move(routes)),
      server_(std::move(listener),
              {.connections_max = kMaxMetricsConnections,
               .question_bytes_max = kMaxMetricsRequestBytes,
               .life_max = std::chrono::milliseconds(client_timeout_ms)},
              {.answer = [this](std::string_view, std::string_view request) { return answer(request); },
               .too_long = refusal("431 Request Header Fields Too Large"),
               .turned_away = std::move(turned_away)}) {}

MetricsServer::~MetricsServer() {
  uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  if (thread_.joinable()) thread_.join();
}

std::optional<std::string> MetricsServer::answer(std::string_view request) const {
  if (request.find("\r\n\r\n") == std::string_view::npos) return std::nullopt;
  RequestLine line;
  if (!parse_request_line(request, &line)) return refusal("400 Bad Request");
  const auto route = std::find_if(routes_.begin(), routes_.end(),
                                  [&](const HttpRoute& each) { return each.path == line.path; });
  if (route == routes_.end()) return refusal("404 Not Found");
  if (line.method != "GET") return refusal("405 Method Not Allowed", "Allow: GET\r\n");
  return response("200 OK", route->content_type, route->text(), route->more_headers);
}

}  // namespace shoal::actors
