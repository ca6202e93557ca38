// The extension module shoal._client: the C++ client for Python, and no logic of its own. The package
// python/shoal/ describes the values of a trainer; this module passes them on and returns what the client
// returns.
//
// Every call that may wait or copy releases the interpreter's lock (GIL). A Status that is not OK becomes an
// exception of shoal._errors.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <exception>
#include <type_traits>
#include <utility>

#include "shoal/status.h"

namespace shoal::python {

namespace nb = nanobind;

// A Status on its way to Python.
class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

inline void check(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}

template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) throw StatusError(result.status());
  return std::move(result).value();
}

// Takes the interpreter's lock with `take`. While the interpreter exits, that ends any other thread than the
// main one by unwinding its stack (pthread_exit), and the first destructor or noexcept function on it would
// end the process. Such a thread waits here instead, until the process has ended.
template <class Take>
auto take_lock(Take&& take) noexcept {
  try {
    return take();
  } catch (...) {
    while (true) ::pause();
  }
}

// Releases the interpreter's lock for a scope.
class WithoutLock {
 public:
  WithoutLock() : thread_(PyEval_SaveThread()) {}
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;
  ~WithoutLock() {
    take_lock([this] { PyEval_RestoreThread(thread_); });
  }

 private:
  PyThreadState* thread_;
};

// Calls `call` without the interpreter's lock. If a signal has interrupted it (Options::keep_waiting), throws
// what its handler raised.
template <class Call>
auto unlocked(Call&& call) {
  const auto called = [&] {
    const WithoutLock without_lock;
    return call();
  };
  if constexpr (std::is_void_v<decltype(call())>) {
    called();
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  } else {
    auto result = called();
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return result;
  }
}

// Each adds the types and functions of one file to the module.
void bind_geometry(nb::module_& module);
void bind_state(nb::module_& module);
void bind_results(nb::module_& module);
void bind_options(nb::module_& module);
void bind_checkpointer(nb::module_& module);

}  // namespace shoal::python
