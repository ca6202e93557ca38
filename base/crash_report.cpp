#include "base/crash_report.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

namespace shoal::base {

void write_crash_note();  // that of this thread, if it has one

namespace {

constexpr size_t kLineBytes = 1024;  // longer causes are cut
// Address space is short if there is less than this: a new thread needs more for its stack and first memory.
constexpr size_t kShortBytes = size_t{80} << 20;
constexpr const char* kOutOfMemory =
    "%s: out of memory: raise the limit (ulimit -v, ulimit -d, or the container's), or reduce the work\n";

std::atomic<const char*> program_name{"shoal"};
std::atomic<int> exit_status{1};
std::atomic<long> who_ends{0};  // the thread that writes the line and ends the process

// Writes a line without using the heap, which may be exhausted.
template <class... Parts>
void write_line(const char* format, Parts... parts) {
  char line[kLineBytes];
  const int wanted = std::snprintf(line, sizeof line, format, program_name.load(), parts...);
  size_t size = std::min<size_t>(wanted < 0 ? 0 : static_cast<size_t>(wanted), sizeof line - 1);
  if (size == sizeof line - 1) line[size - 1] = '\n';
  for (const char* rest = line; size > 0;) {
    const ssize_t written = ::write(STDERR_FILENO, rest, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    rest += written;
    size -= static_cast<size_t>(written);
  }
}

bool is_short_of_resources(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again ||
         error.code() == std::errc::not_enough_memory;
}

bool has_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Whether the process has a limit of address space or of data, and has nearly reached it.
bool is_short_of_address_space() {
  const bool limits_data = has_limit(RLIMIT_DATA);  // which counts private memory that may be written
  if (!limits_data && !has_limit(RLIMIT_AS)) return false;
  void* probe = ::mmap(nullptr, kShortBytes, limits_data ? PROT_READ | PROT_WRITE : PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) return true;
  ::munmap(probe, kShortBytes);
  return false;
}

// Writes a line about the exception that is being handled. true: memory or threads are short.
bool write_cause() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    write_line(kOutOfMemory);
    return true;
  } catch (const std::system_error& error) {
    const bool is_short = is_short_of_resources(error);
    if (is_short) {
      write_line(
          "%s: out of memory or threads (%s): raise the limit (ulimit -v, ulimit -u, or the container's)\n",
          error.what());
    } else {
      write_line("%s: unhandled error, the process ends: %s\n", error.what());
    }
    return is_short;
  } catch (const std::exception& error) {
    write_line("%s: unhandled error, the process ends: %s\n", error.what());
  } catch (...) {
    write_line("%s: unhandled error of unknown type, the process ends\n");
  }
  return false;
}

// True in the first thread that calls it. Other threads wait here until that thread ends the process. False:
// this thread has called it before.
bool is_first_to_report() {
  const long self = ::syscall(SYS_gettid);
  long unused = 0;
  if (who_ends.compare_exchange_strong(unused, self)) return true;
  if (unused == self) return false;
  for (;;) ::pause();
}

[[noreturn]] void end() {
  if (!is_first_to_report()) std::abort();  // writing the line failed
  if (std::current_exception() != nullptr) {
    if (write_cause()) ::_exit(exit_status.load());
  } else if (is_short_of_address_space()) {
    write_line(kOutOfMemory);
    ::_exit(exit_status.load());
  } else if (std::uncaught_exceptions() > 0) {
    // The exception reached the destructor of a thread that was not joined. It cannot be examined here.
    write_line(
        "%s: unhandled error, the process ends; memory or threads may be short (ulimit -v, ulimit -u)\n");
  } else {
    write_line("%s: std::terminate was called, the process ends\n");
  }
  std::abort();
}

thread_local const CrashNote* note = nullptr;

// For signals other than SIGABRT. The signal ends the process when this returns, by its default action.
void on_fault(int number) {
  write_crash_note();
  ::raise(number);
}

// abort() raises SIGABRT first. If this handler returns, abort() ends the process.
void on_abort(int) {
  write_crash_note();
  if (!is_short_of_address_space() || !is_first_to_report()) return;
  write_line(kOutOfMemory);
  ::_exit(exit_status.load());
}

}  // namespace

void install_crash_report(const char* program, int status) {
  program_name = program;
  exit_status = status;
  std::set_terminate(end);
  struct sigaction action {};
  action.sa_handler = on_abort;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGABRT, &action, nullptr);
}

// Calls only functions that a signal handler may call.
void write_crash_note() {
  const CrashNote* written = std::exchange(note, nullptr);
  if (written == nullptr) return;
  const auto write_all = [](int to, const std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t wrote = ::write(to, text.data() + done, text.size() - done);
      if (wrote <= 0) return;
      done += static_cast<size_t>(wrote);
    }
  };
  if (!written->file_.empty()) {
    const int file = ::open(written->file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file >= 0) {
      write_all(file, written->text_);
      ::close(file);
    }
  }
  write_all(STDERR_FILENO, written->line_);
  write_all(STDERR_FILENO, "\n");
}

CrashNote::CrashNote(std::string line, std::string file, std::string text)
    : line_(std::move(line)), file_(std::move(file)), text_(std::move(text)) {
  static const bool installed [[maybe_unused]] = [] {
    struct sigaction action {};
    action.sa_handler = on_fault;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::sigaction(number, &action, nullptr);
    return true;
  }();
  note = this;
}

CrashNote::~CrashNote() {
  note = nullptr;
}

int write_crash_report() {
  if (is_first_to_report()) write_cause();
  return exit_status.load();
}

}  // namespace shoal::base
