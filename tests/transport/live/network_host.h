// A host for tests: a process in its own network namespace that can run one node
// (tests/transport/live/network_host_main.cpp).
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

namespace shoal::testing {

class NetworkHost {
 public:
  NetworkHost();
  ~NetworkHost();  // SIGKILL; the namespace goes with the process
  NetworkHost(const NetworkHost&) = delete;

  // Empty: there is a namespace, its loopback is up. Else why there is none.
  const std::string& why_not() const { return why_not_; }
  // Sends one command of network_host_main.cpp and returns the answer; "" if the process has ended.
  std::string ask(const std::string& line);
  bool ip(const std::string& arguments) { return ask("ip " + arguments) == "ok"; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  std::string why_not_;
};

}  // namespace shoal::testing
