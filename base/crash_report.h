// The line that a program prints before it ends because memory or threads are short, or because of an
// unhandled exception. Only programs install these handlers; libraries must not.
#pragma once

#include <string>
#include <thread>
#include <utility>

namespace shoal::base {

// Installs a handler of std::terminate. For std::bad_alloc, and for a std::system_error whose code means that
// memory or threads are short, it writes one line to stderr, which names `program` and the limits to raise.
// It then ends the process with `exit_status`. For any other cause it writes a line and aborts. `program`
// must be valid as long as the process lives.
//
// Also installs a handler of SIGABRT that does the same, because libraries such as glibc abort when they get
// no memory. It guesses whether memory is the cause: the process has a limit of address space (ulimit -v) or
// of data (ulimit -d), and has nearly reached it.
void install_crash_report(const char* program, int exit_status);
// Writes the same line for an exception that main has caught, but does not end the process. Call it in a
// catch clause. Returns the installed exit status; pass it to std::_Exit, because destructors that need
// memory could throw again.
int write_crash_report();

// While an object lives, a crash of this thread (an abort, a failed SHOAL_CHECK, a segmentation fault) first
// writes `line` to stderr, and `text` to `file` in the working folder, unless `file` is "". So a program that
// makes many runs can say which one crashed, and how to repeat it. At most one object a thread.
class CrashNote {
 public:
  CrashNote(std::string line, std::string file = "", std::string text = "");
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;

 private:
  friend void write_crash_note();
  const std::string line_, file_, text_;
};

// Starts a thread that the process cannot do without. If the system cannot start it, the process ends at once
// (std::terminate). A destructor could otherwise wait for threads that were never started.
template <class Run>
std::thread vital_thread(Run&& run) noexcept {
  return std::thread(std::forward<Run>(run));
}

}  // namespace shoal::base
