#include "base/crash_report.h"

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

namespace shoal::base {

namespace {

constexpr size_t kLineBytes = 1024;  // longer causes are cut
// Address space is short if there is less than this: a new thread needs more for its stack and first memory.
constexpr size_t kShortBytes = size_t{80} << 20;
constexpr const char* kOutOfMemory =
    "%s: out of memory: raise the limit (ulimit -v, or the container's), or reduce the work\n";

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

// Whether the process has a limit of address space, and has nearly reached it.
bool is_short_of_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  void* probe = ::mmap(nullptr, kShortBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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

// abort() raises SIGABRT first. If this handler returns, abort() ends the process.
void on_abort(int) {
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

int write_crash_report() {
  if (is_first_to_report()) write_cause();
  return exit_status.load();
}

}  // namespace shoal::base
