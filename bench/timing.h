// Shared by the benchmarks: times of calls, and the exit on failure.
#pragma once

#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/status.h"

namespace shoal::bench {

inline double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

inline double timed(const std::function<void()>& work) {  // in seconds
  const auto begun = std::chrono::steady_clock::now();
  work();
  return seconds_since(begun);
}

// The upper median; 0 for an empty list.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Prints the error to stderr and ends the process.
[[noreturn]] inline void fail(const std::string& why) {
  fmt::print(stderr, "{}: {}\n", ::program_invocation_short_name, why);
  std::exit(1);
}

template <class T>
T need(Result<T> result) {
  if (!result.ok()) fail(result.status().to_string());
  return std::move(result).value();
}

}  // namespace shoal::bench
