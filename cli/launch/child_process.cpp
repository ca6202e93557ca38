#include "cli/launch/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/owned_fd.h"
#include "local/socket/socket.h"

extern char** environ;

namespace shoal::cli {

namespace {

std::vector<char*> pointers_of(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Runs in the child, between fork and exec, and makes only calls that are safe there. Returns errno.
int become(const SpawnOptions& options, pid_t parent, char** argv, char** envp) {
  if (setpgid(0, 0) != 0) return errno;
  if (options.death_signal != 0 && prctl(PR_SET_PDEATHSIG, options.death_signal) != 0) return errno;
  if (getppid() != parent) _exit(1);  // the parent died before prctl
  int input = open("/dev/null", O_RDONLY);
  if (input < 0 || dup2(input, STDIN_FILENO) < 0) return errno;
  if (options.stdout_fd >= 0 && dup2(options.stdout_fd, STDOUT_FILENO) < 0) return errno;
  if (options.stderr_fd >= 0 && dup2(options.stderr_fd, STDERR_FILENO) < 0) return errno;
  for (int fd : options.keep_fds) fcntl(fd, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  environ = envp;
  execvp(argv[0], argv);
  return errno;
}

constexpr std::string_view kDefaultPath = "/bin:/usr/bin";  // as execvp uses without PATH

// 0, or the errno value with which running this file fails.
int program_error(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return errno;
  if (!S_ISREG(info.st_mode)) return EACCES;
  return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

Status cannot_run(const std::string& program, int number) {
  return Status(number == ENOENT || number == ENOTDIR ? Code::not_found : Code::refused,
                fmt::format("cannot run {}: {}", program, std::strerror(number)));
}

}  // namespace

Status check_program(const std::string& program) {
  int number = ENOENT;
  if (program.find('/') != std::string::npos) {
    number = program_error(program);
  } else if (!program.empty()) {
    const char* variable = std::getenv("PATH");
    std::string_view folders = variable == nullptr ? kDefaultPath : std::string_view(variable);
    for (bool more = true; more && number != 0;) {
      size_t colon = folders.find(':');
      std::string folder(folders.substr(0, colon));
      int here = program_error((folder.empty() ? "." : folder) + "/" + program);
      if (here == 0 || here == EACCES) number = here;  // as in execvp: a later entry of PATH may work
      more = colon != std::string_view::npos;
      if (more) folders.remove_prefix(colon + 1);
    }
  }
  return number == 0 ? ok_status() : cannot_run(program, number);
}

Environment own_environment() {
  Environment out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

Result<pid_t> spawn(const SpawnOptions& options) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
  std::vector<char*> argv = pointers_of(options.arguments), envp = pointers_of(variables);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status(Code::io, fmt::format("pipe: {}", std::strerror(errno)));
  base::OwnedFd from_child(ends[0]), to_parent(ends[1]);
  pid_t parent = getpid(), pid = fork();
  if (pid < 0) return Status(Code::io, fmt::format("fork: {}", std::strerror(errno)));
  if (pid == 0) {
    int number = become(options, parent, argv.data(), envp.data());
    if (write(to_parent.get(), &number, sizeof number) < 0) _exit(126);
    _exit(127);
  }
  to_parent = base::OwnedFd();
  int number = 0;
  ssize_t size;
  do {
    size = read(from_child.get(), &number, sizeof number);
  } while (size < 0 && errno == EINTR);
  if (size == 0) return pid;  // exec closed the pipe
  waitpid(pid, nullptr, 0);
  return cannot_run(options.arguments.front(), number);
}

int exit_status_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("exit status {}", WEXITSTATUS(wait_status));
  return fmt::format("signal {} ({})", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
}

}  // namespace shoal::cli
