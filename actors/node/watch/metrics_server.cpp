#include "actors/node/watch/metrics_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
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

#include "actors/node/bootstrap.h"
#include "actors/node/watch/metrics_text.h"
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

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string_view::npos ? "" : text.substr(first, last - first + 1);
}

// The values of the Host headers of a request.
std::vector<std::string_view> hosts_in(std::string_view request) {
  std::vector<std::string_view> out;
  const std::string_view head = request.substr(0, request.find("\r\n\r\n"));
  for (size_t at = head.find("\r\n"); at != std::string_view::npos; at = head.find("\r\n", at)) {
    at += 2;
    const std::string_view line = head.substr(at, head.find("\r\n", at) - at);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || lower_case(trimmed(line.substr(0, colon))) != "host") continue;
    out.push_back(trimmed(line.substr(colon + 1)));
  }
  return out;
}

// "name:80" and "[::1]:80" without the port, in lower case. Empty: it is malformed.
std::string name_in(std::string_view host) {
  const size_t bracket = host.find(']');
  const bool is_v6 = host.starts_with('[') && bracket != std::string_view::npos;
  const size_t end = is_v6 ? bracket + 1 : std::min(host.find(':'), host.size());
  const std::string_view rest = host.substr(end);
  const bool has_port =
      rest.starts_with(':') && rest.find_first_not_of("0123456789", 1) == std::string_view::npos;
  if (!rest.empty() && !has_port) return "";
  std::string name = lower_case(host.substr(0, end));
  if (name.ends_with('.')) name.pop_back();  // the root of the DNS
  return name;
}

bool is_ip_address(const std::string& name) {
  in6_addr parsed{};  // has the room for either
  if (!name.starts_with('[')) return inet_pton(AF_INET, name.c_str(), &parsed) == 1;
  return name.ends_with(']') && inet_pton(AF_INET6, name.substr(1, name.size() - 2).c_str(), &parsed) == 1;
}

bool is_metrics(const HttpRoute& route) {
  return route.content_type == kMetricsContentType;
}

constexpr std::string_view kWrongHost = "421 Misdirected Request";

}  // namespace

Result<MetricsServer::Listener> MetricsServer::listen_on(const std::string& what, const std::string& text) {
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
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
    wanted.port = static_cast<uint16_t>(std::stoul(port));
  }
  const std::string_view at = host;
  return Listener{std::move(listener), base::to_string(wanted), wanted.host, at == "0.0.0.0" || at == "::"};
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address, std::string what,
                                                            std::vector<HttpRoute> routes,
                                                            int client_timeout_ms,
                                                            std::function<void()> turned_away) {
  SHOAL_ASSIGN_OR_RETURN(Listener listener, listen_on(what, address));
  base::OwnedFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Status(Code::io, fmt::format("eventfd: {}", std::strerror(errno)));
  std::unique_ptr<MetricsServer> server(new MetricsServer(
      std::move(listener), std::move(wake), std::move(routes), client_timeout_ms, std::move(turned_away)));
  try {
    server->thread_ = std::thread([self = server.get()] { self->server_.run(self->wake_.get()); });
  } catch (const std::exception& error) {
    return Status(Code::no_space, fmt::format("no thread to serve the {}: {}; raise the limit (ulimit -u, "
                                              "ulimit -v, or those of the container)",
                                              what, error.what()));
  }
  return server;
}

MetricsServer::MetricsServer(Listener listener, base::OwnedFd wake, std::vector<HttpRoute> routes,
                             int client_timeout_ms, std::function<void()> turned_away)
    : wake_(std::move(wake)),
      address_(std::move(listener.address)),
      names_{"localhost", lower_case(own_host_name()), lower_case(listener.host)},
      is_everywhere_(listener.is_everywhere),
      routes_(std::move(routes)),
      server_(std::move(listener.fd),
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

std::optional<std::string> MetricsServer::warning() const {
  if (!is_everywhere_ || std::all_of(routes_.begin(), routes_.end(), is_metrics)) return std::nullopt;
  return fmt::format(
      "the status page at {} is on all addresses of this host, and has no access control: use "
      "an address that only operators reach, such as 127.0.0.1",
      address_);
}

bool MetricsServer::is_own_name(std::string_view host) const {
  const std::string name = name_in(host);
  return is_ip_address(name) || std::find(names_.begin(), names_.end(), name) != names_.end();
}

std::optional<std::string> MetricsServer::answer(std::string_view request) const {
  if (request.find("\r\n\r\n") == std::string_view::npos) return std::nullopt;
  RequestLine line;
  if (!parse_request_line(request, &line)) return refusal("400 Bad Request");
  const auto route = std::find_if(routes_.begin(), routes_.end(),
                                  [&](const HttpRoute& each) { return each.path == line.path; });
  if (route == routes_.end()) return refusal("404 Not Found");
  if (line.method != "GET") return refusal("405 Method Not Allowed", "Allow: GET\r\n");
  const std::vector<std::string_view> hosts = hosts_in(request);
  const auto is_own = [&](std::string_view host) { return is_own_name(host); };
  if (!is_metrics(*route) && !std::all_of(hosts.begin(), hosts.end(), is_own)) {
    return response(
        kWrongHost, "text/plain; charset=utf-8",
        fmt::format("{}: this page is not served under the name in the Host header: use an IP "
                    "address, localhost, the name of the host, or the name given to --status-page\n",
                    kWrongHost));
  }
  return response("200 OK", route->content_type, route->text(), route->more_headers);
}

}  // namespace shoal::actors
