#include "tests/cli/process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fstream>
#include <string>
#include <thread>

#include <cstring>
#include <map>

#include "shoal/check.h"

extern char** environ;

namespace shoal::cli {

namespace {

constexpr std::chrono::seconds kPatience{180};  // against hanging alone: a loaded machine takes long
constexpr uid_t kNoHolder = 65534;

std::vector<std::string> environment_of(const ProcessOptions& options) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry, name = text.substr(0, text.find('='));
    if (name.starts_with("SHOAL_") || name.starts_with("SLURM_")) continue;
    variables[name] = text.substr(name.size() + 1);
  }
  for (const auto& [name, value] : options.environment) variables[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers_of(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  std::vector<std::string> environment = environment_of(options);
  std::vector<char*> argv = pointers_of(arguments), envp = pointers_of(environment);
  // Opened here, because the user `nobody` may not have access to its path.
  int program = open(argv[0], O_RDONLY | O_CLOEXEC);
  SHOAL_CHECK(program >= 0);
  int out[2], err[2];
  SHOAL_CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
  pid_ = fork();
  SHOAL_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    if (options.unprivileged && geteuid() == 0) {
      if (setgroups(0, nullptr) != 0 || setgid(kNoHolder) != 0 || setuid(kNoHolder) != 0) _exit(126);
    }
    fexecve(program, argv.data(), envp.data());
    _exit(127);
  }
  close(program);
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_fd_);
  close(err_fd_);
}

bool Process::read_some(std::chrono::steady_clock::time_point deadline) {
  auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0 || (out_fd_ < 0 && err_fd_ < 0)) return false;
  pollfd fds[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  if (poll(fds, 2, static_cast<int>(left.count())) <= 0) return false;
  char buffer[65536];
  for (auto [index, text, fd] : {std::tuple{0, &out_, &out_fd_}, std::tuple{1, &err_, &err_fd_}}) {
    if (fds[index].revents == 0) continue;
    ssize_t size = read(*fd, buffer, sizeof buffer);
    if (size > 0) {
      text->append(buffer, static_cast<size_t>(size));
    } else {
      close(*fd);
      *fd = -1;  // poll leaves it out
    }
  }
  return out_fd_ >= 0 || err_fd_ >= 0;
}

bool Process::wait_for(const std::string& written, const std::string& text, int times) {
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  auto holds = [&] {
    size_t at = 0;
    for (int i = 0; i < times; ++i, ++at) {
      at = written.find(text, at);
      if (at == std::string::npos) return false;
    }
    return true;
  };
  while (!holds()) {
    if (!read_some(deadline)) return holds();
  }
  return true;
}

bool Process::wait_for_output(const std::string& text) {
  return wait_for(out_, text, 1);
}

bool Process::wait_for_errors(const std::string& text, int times) {
  return wait_for(err_, text, times);
}

void Process::send_signal(int number) const {
  if (pid_ > 0) kill(pid_, number);  // once it has ended, pid_ is -1, and kill(-1) would signal every process
}

ProcessEnd Process::wait() {
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (read_some(deadline)) {
  }
  if (pid_ > 0 && std::chrono::steady_clock::now() >= deadline) kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), out_, err_};
}

pid_t wait_for_child(pid_t parent, const std::string& command, pid_t not_this) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const std::string name = std::to_string(parent);
  while (std::chrono::steady_clock::now() < deadline) {
    std::ifstream children("/proc/" + name + "/task/" + name + "/children");
    for (pid_t child = 0; children >> child;) {
      std::string program, second;
      std::ifstream line("/proc/" + std::to_string(child) + "/cmdline");
      std::getline(line, program, '\0');
      std::getline(line, second, '\0');
      if (second == command && child != not_this) return child;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return 0;
}

ProcessEnd run_process(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  return Process(arguments, options).wait();
}

ProcessEnd run_shoal(std::vector<std::string> arguments, const ProcessOptions& options) {
  arguments.insert(arguments.begin(), SHOAL_PROGRAM);
  return run_process(arguments, options);
}

}  // namespace shoal::cli
