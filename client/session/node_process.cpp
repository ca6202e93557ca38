#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "base/owned_fd.h"
#include "client/launch/settings.h"
#include "client/session/node_process.h"
#include "local/socket/socket_file.h"
#include "local/status/node_query.h"

namespace shoal::client {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstRetry{5}, kLastRetry{100};
// The pause between candidates. The first one may fail to get the lock from a node that is just ending.
constexpr std::chrono::milliseconds kFirstCandidatePause{2'000}, kLastCandidatePause{60'000};
constexpr std::streamoff kLogTailBytes = 4096;
constexpr size_t kLogLineBytesMax = 400;
constexpr int kLastClosedFd = 1 << 16;  // on systems without close_range

bool is_program(const std::string& path) {
  return ::access(path.c_str(), X_OK) == 0;
}

// The `shoal` that was installed with this library, relative to the library's path; "" if there is none.
std::string program_of_library() {
  Dl_info library{};
  char path[PATH_MAX];
  const auto* here = reinterpret_cast<const void*>(&program_of_library);
  if (::dladdr(here, &library) == 0 || ::realpath(library.dli_fname, path) == nullptr) return "";
  std::string file = path;
  std::string program = file.substr(0, file.rfind('/') + 1) + SHOAL_PROGRAM_FROM_LIBRARY;
  return is_program(program) ? program : "";
}

bool is_full(const std::string& folder) {
  struct statvfs found {};
  return ::statvfs(folder.c_str(), &found) == 0 &&
         (found.f_bavail == 0 || (found.f_files != 0 && found.f_favail == 0));
}

// Closes the trainer's descriptors, which must not stay open in the node.
void close_others(int keep) {
  for (int fd = 3; fd < kLastClosedFd; ++fd) {
    if (fd != keep) ::close(fd);
  }
}

// Runs in the grandchild. It must only use calls that are safe after fork in a program with threads.
[[noreturn]] void become_node(char* const* arguments, int log_fd, int null_fd, int error_fd) {
  ::dup2(null_fd, 0);
  ::dup2(log_fd, 1);
  ::dup2(log_fd, 2);
  close_others(error_fd);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGPIPE, SIG_DFL);
  ::execv(arguments[0], arguments);
  const int error = errno;
  if (::write(error_fd, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

// The pid in the lock file, if that process is alive.
std::optional<long> living_lock_holder(const std::string& lock_file) {
  std::ifstream file(lock_file);
  long pid = 0;
  if (!(file >> pid) || pid <= 0 || pid > INT_MAX) return std::nullopt;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno != EPERM) return std::nullopt;
  return pid;
}

std::streamoff size_of(const std::string& file) {
  return std::max<std::streamoff>(0, std::ifstream(file, std::ios::ate).tellg());
}

// The last line of a log from `begin` on; "" if there is none that can be shown.
std::string last_line_of(const std::string& log_file, std::streamoff begin) {
  std::ifstream file(log_file);
  file.seekg(std::max(begin, size_of(log_file) - kLogTailBytes));
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = std::move(line);
  }
  last.resize(std::min(last.size(), kLogLineBytesMax));
  return is_clean_utf8(last) ? last : "";
}

int milliseconds_until(Clock::time_point end) {
  auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX));
}

// The node's answer to Attach on a new connection. Sets *is_refused if the node refused the client.
// Code::busy: CheckpointerOptions::keep_waiting has ended the wait.
Result<local::Attached> attach(local::LocalSocket& socket, const CheckpointerOptions& options,
                               Clock::time_point deadline, bool* is_refused) {
  SHOAL_RETURN_IF_ERROR(socket.send(attach_message(options)));
  std::optional<local::ReceivedLocal> answer;
  while (!answer) {
    const Clock::time_point next_check = Clock::now() + kInterruptionCheck;
    SHOAL_ASSIGN_OR_RETURN(answer, socket.receive(milliseconds_until(std::min(deadline, next_check))));
    if (answer) break;
    if (Clock::now() >= deadline) return silent_at_attach(socket, options);
    if (options.keep_waiting && !options.keep_waiting()) {
      return Status(Code::busy, "the wait was interrupted");
    }
  }
  if (const auto* attached = std::get_if<local::Attached>(&answer->message)) return *attached;
  if (const auto* failed = std::get_if<local::Failed>(&answer->message)) {
    *is_refused = true;
    return failed->why;
  }
  return Status(Code::corrupt, "the node answered a request with another type of message");
}

}  // namespace

Result<std::string> socket_of(const CheckpointerOptions& options, const local::NodePaths& paths) {
  std::string socket_file = local::node_socket_file("", paths);
  if (socket_file.empty())
    return Status(Code::invalid_argument, options.root + ": the node's socket has no path");
  return socket_file;
}

Result<std::vector<std::string>> node_command(const CheckpointerOptions& options, uint32_t generation) {
  std::string program = options.node_program;
  if (program.empty()) {
    if (const char* given = std::getenv("SHOAL_NODE_PROGRAM"); given && *given) program = given;
  }
  if (program.empty()) {
    std::array<char, PATH_MAX> self{};
    const ssize_t size = ::readlink("/proc/self/exe", self.data(), self.size() - 1);
    std::string beside(self.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
    beside = beside.substr(0, beside.rfind('/') + 1) + "shoal";
    if (is_program(beside)) program = beside;
  }
  if (program.empty()) program = program_of_library();
  if (program.empty()) {
    const char* path = std::getenv("PATH");
    std::string_view folders = path ? path : "";
    while (!folders.empty() && program.empty()) {
      const size_t colon = std::min(folders.find(':'), folders.size());
      const std::string candidate = std::string(folders.substr(0, colon)) + "/shoal";
      if (colon > 0 && is_program(candidate)) program = candidate;
      folders.remove_prefix(std::min(colon + 1, folders.size()));
    }
  }
  if (program.empty()) {
    return Status(Code::not_found,
                  "cannot find the program `shoal` to start a node: it is not in SHOAL_NODE_PROGRAM, beside "
                  "this program, beside the client library, or in PATH");
  }
  std::vector<std::string> command{
      program,    "node",         "--root",       options.root,
      "--job-id", options.job_id, "--world-size", std::to_string(options.world_size)};
  if (!options.coordinate_at.empty()) {
    command.insert(command.end(), {"--coordinate", "--listen", options.coordinate_at});
  } else if (!options.coordinator.empty()) {
    command.insert(command.end(), {"--coordinator", options.coordinator});
  }
  if (!options.node_name.empty()) command.insert(command.end(), {"--name", options.node_name});
  if (options.read_only) command.push_back("--read-only");
  if (generation != 0) command.insert(command.end(), {"--rejoin", std::to_string(generation)});
  for (std::string& argument : node_arguments(options.node)) command.push_back(std::move(argument));
  command.push_back("--idle-exit");
  return command;
}

Status start_node(const CheckpointerOptions& options, const std::string& log_file, uint32_t generation) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<std::string> command, node_command(options, generation));
  command.insert(command.end(), {"--started-by", std::to_string(::getpid())});
  base::OwnedFd log(::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid())
    return Status(Code::io, fmt::format("cannot open the node's log {}: {}", log_file, std::strerror(errno)));
  base::OwnedFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2];
  if (!null.valid() || ::pipe2(ends, O_CLOEXEC) != 0) {
    return Status(Code::io, fmt::format("cannot start a node: {}", std::strerror(errno)));
  }
  base::OwnedFd read_end(ends[0]), write_end(ends[1]);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);

  const pid_t child = ::fork();
  if (child < 0) return Status(Code::io, fmt::format("cannot start a node: fork: {}", std::strerror(errno)));
  if (child == 0) {
    ::setsid();
    const pid_t grandchild = ::fork();
    if (grandchild == 0) become_node(arguments.data(), log.get(), null.get(), write_end.get());
    ::_exit(grandchild < 0 ? 1 : 0);
  }
  int child_status = 0;
  while (::waitpid(child, &child_status, 0) < 0 && errno == EINTR) {
  }
  write_end = base::OwnedFd();
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(read_end.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == static_cast<ssize_t>(sizeof error)) {
    return Status(Code::not_found,
                  fmt::format("cannot start a node with {}: {}", command[0], std::strerror(error)));
  }
  return ok_status();
}

Result<NodeFinder> NodeFinder::make(const CheckpointerOptions& options) {
  NodeFinder finder;
  finder.options_ = options;
  SHOAL_ASSIGN_OR_RETURN(finder.paths_,
                         local::node_paths(options.root, options.read_only ? options.job_id : ""));
  SHOAL_ASSIGN_OR_RETURN(finder.socket_file_, socket_of(options, finder.paths_));
  finder.log_begin_ = size_of(finder.paths_.log_file);
  return finder;
}

Result<std::unique_ptr<local::LocalSocket>> NodeFinder::try_once(bool may_start) {
  Result<std::unique_ptr<local::LocalSocket>> socket = local::LocalSocket::connect(socket_file_);
  if (socket.ok() || socket.status().code() != Code::unavailable) return socket;
  if (may_start && options_.start_node && Clock::now() >= next_candidate_) {
    SHOAL_RETURN_IF_ERROR(local::make_runtime_folder());  // it may have been cleaned up, as /tmp is
    SHOAL_RETURN_IF_ERROR(start_node(options_, paths_.log_file, generation_));
    candidate_pause_ = std::clamp(2 * candidate_pause_, kFirstCandidatePause, kLastCandidatePause);
    next_candidate_ = Clock::now() + candidate_pause_;
  }
  std::string who = "no process holds the lock file " + paths_.lock_file;
  if (auto pid = living_lock_holder(paths_.lock_file)) {
    who = fmt::format("process {} holds the lock file {} and does not answer", *pid, paths_.lock_file);
  }
  const std::string last = last_line_of(paths_.log_file, log_begin_);
  std::string log = last.empty() ? "has no new line" : fmt::format("ends with \"{}\"", last);
  if (last.empty() && is_full(std::filesystem::path(paths_.log_file).parent_path())) {
    log = fmt::format("cannot be written: no space left on device{}", local::kFreeRuntimeFolder);
  }
  return Status(Code::unavailable, fmt::format("found no node on this host: {}; {}; the node's log {} {}",
                                               socket.status().message(), who, paths_.log_file, log));
}

bool NodeFinder::has_died() const {
  struct stat found {};
  return ::lstat(socket_file_.c_str(), &found) == 0 && S_ISSOCK(found.st_mode);
}

Nonce process_nonce() {
  static std::mutex mutex;
  static pid_t drawn_by = 0;
  static Nonce nonce;
  std::lock_guard lock(mutex);
  if (std::exchange(drawn_by, ::getpid()) != ::getpid()) nonce = random_128();
  return nonce;
}

local::Attach attach_message(const CheckpointerOptions& options) {
  local::Attach attach;
  attach.rank = options.rank;
  attach.world_size = options.world_size;
  attach.job_id = options.job_id;
  attach.pid = ::getpid();
  attach.process = process_nonce();
  // No launcher knows how many ranks of a process group are on this host.
  if (options.process_group.empty()) {
    attach.ranks_on_host = std::min(options.ranks_on_host, options.world_size);
  }
  attach.read_only = options.read_only;
  return attach;
}

Status silent_at_attach(const local::LocalSocket& socket, const CheckpointerOptions& options) {
  return Status(
      Code::deadline_exceeded,
      fmt::format("the node of this host (pid {}) did not answer within {} ms: it is stopped or hangs",
                  socket.peer_pid(), options.attach_timeout.count()));
}

namespace {

// A node that serves another run refuses this client, and later answers nothing, until its own trainers have
// detached. That node is neither stopped nor does it hang.
Status in_use(const CheckpointerOptions& options, const Status& refusal) {
  return Status(
      Code::busy,
      fmt::format("root {} is in use on this host, and was for {}: {}. Wait until the trainers of that "
                  "job have ended, or end them. A job that only loads can open the root with read_only",
                  options.root, human_seconds(static_cast<double>(options.attach_timeout.count()) / 1e3),
                  refusal.message()));
}

}  // namespace

Result<NodeLink> attach_to_node(NodeFinder& finder, const CheckpointerOptions& options) {
  const Clock::time_point deadline = Clock::now() + options.attach_timeout;
  Status served_another;  // why a live node of another run has refused this client
  for (std::chrono::milliseconds pause = kFirstRetry;; pause = std::min(2 * pause, kLastRetry)) {
    Result<std::unique_ptr<local::LocalSocket>> socket = finder.try_once(true);
    bool is_refused = false;
    Status failed = socket.status();
    if (!socket.ok()) served_another = ok_status();  // that node has ended, and no next one serves yet
    if (socket.ok()) {
      Result<local::Attached> attached = attach(**socket, options, deadline, &is_refused);
      if (attached.ok()) return NodeLink{std::move(*socket), *attached};
      failed = attached.status().with_context("cannot attach to the node of this host");
    } else if (!options.start_node && !finder.has_died()) {
      return failed;
    }
    if (is_refused && failed.code() == Code::unavailable) served_another = failed;
    const bool is_silent = failed.code() == Code::unavailable || failed.code() == Code::deadline_exceeded;
    if (!served_another.ok() && is_silent && Clock::now() >= deadline) {
      return in_use(options, served_another);
    }
    // A node that is stopping reports that, or closes the connection. After its end the next node can serve.
    const bool is_ending = failed.code() == Code::unavailable && (options.start_node || !is_refused);
    // A node gives up a client that was suspended before it sent Attach.
    const bool was_late = failed.code() == Code::deadline_exceeded && is_refused;
    const bool may_follow = is_ending || was_late;
    if (!may_follow || Clock::now() >= deadline) return failed;
    if (options.keep_waiting && !options.keep_waiting()) return failed.with_context("interrupted");
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - Clock::now()));
  }
}

}  // namespace shoal::client
