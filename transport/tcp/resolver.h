// Resolves host names to socket addresses. Numeric addresses are resolved at once. The system's resolver may
// block for seconds on a name, so a separate thread calls it; the first name starts the thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/host_port.h"
#include "shoal/status.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace shoal::transport {

// Blocks if the host is a name and `numeric_only` is false. Code::unavailable if there is no such host,
// Code::invalid_argument if it has no IPv4 address.
Result<SocketAddress> resolve(const base::HostPort& address, bool numeric_only);

class Resolver {
 public:
  // Called on the resolver's thread.
  using Answer = std::function<void(Result<SocketAddress>)>;

  // `find_host`: as in TransportOptions.
  explicit Resolver(std::function<Result<std::string>(const std::string& name)> find_host)
      : find_host_(std::move(find_host)) {}
  ~Resolver();  // waits for the running look-up; drops later ones without an answer
  void ask(base::HostPort address, Answer answer);

 private:
  struct Question {
    base::HostPort address;
    Answer answer;
  };
  void run();
  Result<SocketAddress> look_up(base::HostPort address) const;

  const std::function<Result<std::string>(const std::string& name)> find_host_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> questions_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace shoal::transport
