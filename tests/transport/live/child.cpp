#include "tests/transport/live/child.h"

#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>

#include "shoal/check.h"

extern char** environ;

namespace shoal::testing {

Child::Child(const std::string& address, uint32_t peer_lost_after_ms) {
  std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "transport_peer";
  std::string lost_after = std::to_string(peer_lost_after_ms);
  char* arguments[] = {program.data(), const_cast<char*>(address.c_str()), lost_after.data(), nullptr};
  SHOAL_CHECK(posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
}

Child::~Child() {
  signal(SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
}

void Child::signal(int number) const {
  kill(pid_, number);
}

void Child::stop() {
  signal(SIGSTOP);
  int status = 0;
  waitpid(pid_, &status, WUNTRACED);
}

int Child::status() const {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return -1;
  return info.si_status;
}

}  // namespace shoal::testing
