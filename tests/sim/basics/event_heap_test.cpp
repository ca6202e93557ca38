#include "sim/basics/event_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/basics/random.h"

namespace shoal::sim {
namespace {

// The heap runs actions in the order of a map by time and sequence, whatever they schedule: for now, for a
// time that has passed, for the same time again, and for very distant times.
TEST(EventHeap, RunsByTimeAndThenInTheOrderOfScheduling) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    EventHeap events;
    std::map<std::pair<actors::TimeNs, uint64_t>, uint64_t> expected;
    uint64_t scheduled = 0, ran = 0;
    std::function<void()> schedule_one = [&] {
      const uint64_t bits = random.below(62);
      const bool passed = random.below(20) == 0;
      const actors::TimeNs later = static_cast<actors::TimeNs>(random.below((uint64_t{1} << bits) + 1));
      const actors::TimeNs at =
          passed ? events.now() / 2
                 : events.now() + std::min(later, (actors::TimeNs{1} << 61) - events.now());
      const uint64_t number = scheduled++;
      expected[{std::max(at, events.now()), number}] = number;
      events.schedule(at, [&, number] {
        ASSERT_FALSE(expected.empty());
        const auto first = expected.begin();
        EXPECT_EQ(first->second, number);
        EXPECT_EQ(first->first.first, events.now());
        expected.erase(first);
        ++ran;
        if (scheduled < 3000) {
          for (uint64_t more = random.below(3); more > 0; --more) schedule_one();
        }
      });
    };
    const int first = seed % 5 == 0 ? 2000 : 100;  // several chunks of a bucket
    for (int i = 0; i < first; ++i) schedule_one();
    while (!events.empty()) events.run_next();
    EXPECT_EQ(ran, scheduled);
    EXPECT_EQ(events.executed(), scheduled);
    EXPECT_TRUE(expected.empty());
  }
}

TEST(EventHeap, DropsWhatItDoesNotRun) {
  auto held = std::make_shared<int>(1);
  {
    EventHeap events;
    for (actors::TimeNs at : {0, 0, 5, 5'000'000, 7}) events.schedule(at, [held] {});
    struct Large {
      std::shared_ptr<int> held;
      char much[200] = {};
      void operator()() const {}
    };
    events.schedule(6, Large{held});
    events.run_next();
    EXPECT_EQ(held.use_count(), 6);
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace shoal::sim
