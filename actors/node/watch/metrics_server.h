// MetricsServer: answers GET of a few paths over HTTP/1.1 with the texts that functions return: the metrics,
// and the status page. It has its own thread, so that saves never wait for a scraper. Requests, connections
// and their time are bounded (local/socket/question_server.h), and a slow client affects no other. No TLS and
// no access control: use an address that only the scraper can reach.
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
  std::string path;  // "/metrics"
  std::string content_type;
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

 private:
  MetricsServer(base::OwnedFd listener, base::OwnedFd wake, std::string address,
                std::vector<HttpRoute> routes, int client_timeout_ms, std::function<void()> turned_away);
  std::optional<std::string> answer(std::string_view request) const;

  const base::OwnedFd wake_;  // an eventfd; readable when the server must end
  const std::string address_;
  const std::vector<HttpRoute> routes_;
  local::QuestionServer server_;  // used by the thread
  std::thread thread_;
};

}  // namespace shoal::actors
