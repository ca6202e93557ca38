#include "base/helper_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace shoal::base {
namespace {

TEST(HelperThreads, DoEverythingOnce) {
  for (size_t count : {0, 1, 2, 100}) {
    for (size_t threads : {0, 1, 2, 8}) {
      std::vector<std::atomic<int>> done(count);
      for_each_by_threads(count, threads, [&](size_t i) { ++done[i]; });
      for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1);
    }
  }
}

}  // namespace
}  // namespace shoal::base
