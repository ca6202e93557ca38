// An HTTP server for a test: answers each request by a function, one connection at a time, on a free port.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shoal/check.h"

namespace shoal::testing {

class SmallHttpServer {
 public:
  struct Answer {
    int status = 200;
    std::string body;
  };
  // `request`: its line, headers and body, as they came.
  using Handler = std::function<Answer(const std::string& request)>;

  explicit SmallHttpServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    SHOAL_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    SHOAL_CHECK(::listen(listener_, 16) == 0);
    SHOAL_CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~SmallHttpServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  SmallHttpServer(const SmallHttpServer&) = delete;

  const std::string& url() const { return url_; }
  std::vector<std::string> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    for (int client = ::accept(listener_, nullptr, nullptr); client >= 0;
         client = ::accept(listener_, nullptr, nullptr)) {
      const std::string request = read_request(client);
      {
        std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const Answer answer = handler_(request);
      const std::string text =
          "HTTP/1.1 " + std::to_string(answer.status) +
          " Status\r\nConnection: close\r\nContent-Length: " + std::to_string(answer.body.size()) +
          "\r\n\r\n" + answer.body;
      (void)!::write(client, text.data(), text.size());
      ::close(client);
    }
  }
  static std::string read_request(int client) {
    std::string request;
    size_t wanted = std::string::npos;
    char buffer[4096];
    while (request.size() < wanted) {
      const ssize_t got = ::read(client, buffer, sizeof buffer);
      if (got <= 0) break;
      request.append(buffer, static_cast<size_t>(got));
      const size_t head = request.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const size_t length = request.find("Content-Length: ");
      const bool has_body = length != std::string::npos && length < head;
      wanted = head + 4 + (has_body ? std::strtoul(request.c_str() + length + 16, nullptr, 10) : 0);
    }
    return request;
  }

  const Handler handler_;
  int listener_ = -1;
  std::string url_;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace shoal::testing
