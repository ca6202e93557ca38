// A peer in a child process (peer_main.cpp).
#pragma once

#include <sys/types.h>

#include <string>

#include "transport/transport.h"

namespace shoal::testing {

class Child {
 public:
  explicit Child(const std::string& address, uint32_t peer_lost_after_ms = transport::kPeerLostAfterMs);
  ~Child();  // kills it
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void signal(int number) const;
  void stop();  // stops it, and returns when it is stopped
  // Its exit status, or -1 while it runs.
  int status() const;

 private:
  pid_t pid_ = -1;
};

}  // namespace shoal::testing
