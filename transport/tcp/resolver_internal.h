// Host names to socket addresses. Numbers are answered at once; a name may keep the system's resolver busy
// for seconds, on a thread of its own that is started by the first name.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "shoal/status.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace shoal::transport {

// Blocks if the host is a name and `numeric_only` is false. Code::unavailable if there is no such host,
// Code::invalid_argument if it has no IPv4 address.
Result<SocketAddress> resolve(const HostPort& address, bool numeric_only);

class Resolver {
 public:
  // From the resolver's thread.
  using Answer = std::function<void(Result<SocketAddress>)>;

  ~Resolver();  // waits for the look-up that is under way; later ones are dropped unanswered
  void ask(HostPort address, Answer answer);

 private:
  struct Question {
    HostPort address;
    Answer answer;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> questions_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace shoal::transport
