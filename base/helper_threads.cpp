#include "base/helper_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace shoal::base {

void for_each_by_threads(size_t count, size_t threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  auto work_on = [&]() noexcept {
    for (size_t i; (i = next.fetch_add(1)) < count;) work(i);
  };
  std::vector<std::thread> helpers;
  try {
    helpers.reserve(threads);
    for (size_t i = 1; i < std::min(threads, count); ++i) helpers.emplace_back(work_on);
  } catch (const std::exception&) {  // no thread, or no memory for one: the other threads do the work
  }
  work_on();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace shoal::base
