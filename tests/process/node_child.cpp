#include "tests/process/node_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace shoal::testing {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kChildPatience{60};
constexpr std::chrono::milliseconds kTick{5};
// Opened before a test becomes another user, who may not reach the build folder by its path.
const int kProgram = open(SHOAL_TEST_NODE_PROGRAM, O_PATH | O_CLOEXEC);

}  // namespace

NodeChild::NodeChild(const std::string& runtime_dir, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SHOAL_TEST_NODE_PROGRAM);
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  pid_ = fork();
  if (pid_ == 0) {
    dup2(ends[1], 1);
    setenv("SHOAL_RUNTIME_DIR", runtime_dir.c_str(), 1);
    unsetenv("SHOAL_SOCKET");
    fexecve(kProgram, words.data(), environ);
    _exit(127);
  }
  close(ends[1]);
  out_ = ends[0];
}

NodeChild::~NodeChild() {
  if (!ended_ && pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_);
}

std::string NodeChild::first_line() {
  Clock::time_point deadline = Clock::now() + kChildPatience;
  while (line_.empty() || line_.back() != '\n') {
    pollfd readable{out_, POLLIN, 0};
    char letter = 0;
    if (Clock::now() >= deadline || poll(&readable, 1, 1000) < 0) return "";
    if ((readable.revents & (POLLIN | POLLHUP)) == 0) continue;
    if (read(out_, &letter, 1) != 1) return "";
    line_ += letter;
  }
  return line_.substr(0, line_.size() - 1);
}

std::string NodeChild::address() {
  std::string line = first_line();
  return line.rfind("ready ", 0) == 0 ? line.substr(6) : "";
}

void NodeChild::signal(int number) {
  kill(pid_, number);
  if (number != SIGSTOP) return;
  // The signal is only on its way when kill returns; its other threads may still work for a moment.
  siginfo_t stopped{};
  waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

std::optional<int> NodeChild::wait() {
  Clock::time_point deadline = Clock::now() + kChildPatience;
  while (!ended_ && Clock::now() < deadline) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else {
      std::this_thread::sleep_for(kTick);
    }
  }
  return ended_;
}

Scratch::Scratch() {
  char path[] = "/tmp/shoal-process-XXXXXX";
  folder_ = mkdtemp(path);
  std::filesystem::create_directory(root());
}

Scratch::~Scratch() {
  std::filesystem::remove_all(folder_);
}

std::string Scratch::host(const std::string& name) const {
  std::filesystem::create_directory(folder_ + "/" + name);
  std::filesystem::permissions(folder_ + "/" + name, std::filesystem::perms::owner_all);
  return folder_ + "/" + name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace shoal::testing
