// MetricsServer: answers GET of a few paths over HTTP/1.1 with the texts that functions return: the metrics,
// and the status page. It has its own thread, so that saves never wait for a scraper. Requests, connections
// and their time are bounded (local/socket/question_server.h), and a slow client affects no other. No TLS and
// no access control: use an address that only the scraper can reach.
//
// A site can have its own name resolved to an address of this host (DNS rebinding), and then read through the
// browser of an operator what a page there shows. So only metrics are answered under any name, because
// scrapers use names that this host does not know. All else needs a Host header that such a site cannot have:
// an IP address, `localhost`, the name of this host, or the host that the server was started with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/owned_fd.h"
#include "local/socket/question_server.h"
#include "local/socket/socket.h"
#include "shoal/status.h"

namespace shoal::actors {

inline constexpr size_t kMaxMetricsConnections = 16;
inline constexpr size_t kMaxMetricsRequestBytes = 8192;
inline constexpr int kMetricsClientTimeoutMs = 5'000;  // from the connection to the last byte of the answer

struct HttpRoute {
  std::string path;          // "/metrics"
  std::string content_type;  // kMetricsContentType: answered under any name
  std::string more_headers;  // each ends with "\r\n"
  std::function<std::string()> text;
};

class MetricsServer {
 public:
  // Listens on HOST:PORT (port 0: any) and serves. Calls the functions of the routes on the server's thread;
  // what they use outlives the server. Code::invalid_argument, Code::unavailable: it cannot listen on the
  // address. Code::no_space: no thread can be created. `turned_away`: as in QuestionServer::Words. `what` is
  // served there, for messages: "metrics".
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address, std::string what,
                                                      std::vector<HttpRoute> routes,
                                                      int client_timeout_ms = kMetricsClientTimeoutMs,
                                                      std::function<void()> turned_away = nullptr);
  ~MetricsServer();                                        // closes every connection
  const std::string& address() const { return address_; }  // HOST:PORT with the actual port
  // For the log: more than metrics is served, on all addresses of this host. nullopt: it is not.
  std::optional<std::string> warning() const;

 private:
  struct Listener {
    base::OwnedFd fd;
    std::string address;         // HOST:PORT with the actual port
    std::string host;            // as it was wanted
    bool is_everywhere = false;  // on all addresses of this host
  };
  static Result<Listener> listen_on(const std::string& what, const std::string& text);
  MetricsServer(Listener listener, base::OwnedFd wake, std::vector<HttpRoute> routes, int client_timeout_ms,
                std::function<void()> turned_away);
  std::optional<std::string> answer(std::string_view request) const;
  bool is_own_name(std::string_view host) const;

  const base::OwnedFd wake_;  // an eventfd; readable when the server must end
  const std::string address_;
  const std::vector<std::string> names_;  // of this host, in lower case
  const bool is_everywhere_;
  const std::vector<HttpRoute> routes_;
  local::QuestionServer server_;  // used by the thread
  std::thread thread_;
};

}  // namespace shoal::actors
