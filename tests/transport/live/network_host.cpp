#include "tests/transport/live/network_host.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shoal/status.h"

namespace shoal::testing {

namespace {
// Beside the test program.
std::string host_program() {
  char self[4096];
  ssize_t bytes = readlink("/proc/self/exe", self, sizeof self);
  SHOAL_CHECK(bytes > 0);
  std::string path(self, static_cast<size_t>(bytes));
  return path.substr(0, path.rfind('/')) + "/transport_host";
}
}  // namespace

NetworkHost::NetworkHost() {
  std::string program = host_program();
  int in[2], out[2];
  SHOAL_CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = fdopen(in[1], "w");
  from_ = fdopen(out[0], "r");
  why_not_ = ask("enter");
  if (why_not_ == "ok") why_not_.clear();
}

NetworkHost::~NetworkHost() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  std::fclose(to_);
  std::fclose(from_);
}

std::string NetworkHost::ask(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
  char answer[4096];
  if (std::fgets(answer, sizeof answer, from_) == nullptr) return "";
  std::string text = answer;
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace shoal::testing
