// What a program says before it ends because memory or threads are short, or because of an exception that
// nothing handles. For programs alone: a library leaves this to whoever links it.
#pragma once

#include <thread>
#include <utility>

namespace shoal::base {

// Installs a handler of std::terminate. For std::bad_alloc, and for a std::system_error that says that memory
// or threads are short, the handler writes one line to stderr, which names `program` and the limits to raise,
// and ends the process with `exit_status`. For anything else it writes a line and aborts. `program` lives as
// long as the process.
//
// A handler of SIGABRT does the same where nothing is thrown: libraries, glibc's among them, abort for want
// of memory. Whether memory is the cause is guessed: the process has a limit of address space (ulimit -v) and
// has nearly reached it.
void install_last_words(const char* program, int exit_status);
// The same for an exception that main has caught, with a line and no end. Called in a catch clause; returns
// the exit status that was installed, for std::_Exit: destructors that need memory would have their own
// words.
int say_last_words();

// A thread without which the process cannot go on: if the system gives none, the process ends
// (std::terminate), rather than by destructors that wait for threads that were never started.
template <class Run>
std::thread vital_thread(Run&& run) noexcept {
  return std::thread(std::forward<Run>(run));
}

}  // namespace shoal::base
