// MetricsServer: answers GET /metrics over HTTP/1.1 with what a function says. One thread of its own, so that
// nothing of a save waits for a scraper. Requests, connections and their time are bounded; a slow client is
// cut off and harms nobody else. No TLS, no access control: bind it to an address that only the scraper
// reaches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptors.h"
#include "base/status.h"
#include "local/socket.h"

namespace shoal {

inline constexpr size_t kMaxMetricsConnections = 16;  // further ones are closed at once
inline constexpr size_t kMaxMetricsRequestBytes = 8192;
inline constexpr int kMetricsClientTimeoutMs = 5'000;  // from the connection to the last byte of its answer

class MetricsServer {
 public:
  // Listens on HOST:PORT, port 0 for any, and serves. `text` is called on the server's thread; what it uses
  // outlives the server. Code::invalid_argument, Code::unavailable: the address cannot be listened on.
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address,
                                                      std::function<std::string()> text,
                                                      int client_timeout_ms = kMetricsClientTimeoutMs);
  ~MetricsServer();                                        // closes every connection
  const std::string& address() const { return address_; }  // HOST:PORT with the real port

 private:
  struct Connection;
  MetricsServer(OwnedFd listener, OwnedFd wake, std::string address, std::function<std::string()> text,
                int client_timeout_ms);
  void run();
  void accept_all();
  bool close_in_place();
  void serve(Connection& connection);
  void answer(Connection& connection);

  const OwnedFd listener_, wake_;  // an eventfd, readable once the server ends
  const std::string address_;
  const std::function<std::string()> text_;
  const int client_timeout_ms_;
  std::vector<std::unique_ptr<Connection>> connections_;  // of the thread, as is the next
  SpareDescriptor spare_descriptor_;
  std::thread thread_;
};

}  // namespace shoal
