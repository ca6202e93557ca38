// MetricsServer: answers GET /metrics over HTTP/1.1 with what a function says. One thread of its own, so that
// nothing of a save waits for a scraper. Requests, connections and their time are bounded
// (local/socket/question_server.h); a slow client is cut off and harms nobody else. No TLS, no access
// control: bind it to an address that only the scraper reaches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "local/socket/question_server.h"
#include "local/socket/socket.h"
#include "shoal/status.h"

namespace shoal::actors {

inline constexpr size_t kMaxMetricsConnections = 16;
inline constexpr size_t kMaxMetricsRequestBytes = 8192;
inline constexpr int kMetricsClientTimeoutMs = 5'000;  // from the connection to the last byte of its answer

class MetricsServer {
 public:
  // Listens on HOST:PORT, port 0 for any, and serves. `text` is called on the server's thread; what it uses
  // outlives the server. Code::invalid_argument, Code::unavailable: the address cannot be listened on.
  // Code::no_space: there is no thread to serve it with. `turned_away`: as in QuestionServer::Words.
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address,
                                                      std::function<std::string()> text,
                                                      int client_timeout_ms = kMetricsClientTimeoutMs,
                                                      std::function<void()> turned_away = nullptr);
  ~MetricsServer();                                        // closes every connection
  const std::string& address() const { return address_; }  // HOST:PORT with the real port

 private:
  MetricsServer(local::OwnedFd listener, local::OwnedFd wake, std::string address,
                std::function<std::string()> text, int client_timeout_ms, std::function<void()> turned_away);
  std::optional<std::string> answer(std::string_view request) const;

  const local::OwnedFd wake_;  // an eventfd, readable once the server ends
  const std::string address_;
  const std::function<std::string()> text_;
  local::QuestionServer server_;  // of the thread
  std::thread thread_;
};

}  // namespace shoal::actors
