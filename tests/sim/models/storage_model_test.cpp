// StorageModel: queues of requests, compared with closed forms; the prefixes of an object store; shared
// bandwidth.
#include "sim/models/storage_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/lifetime/failure_times.h"
#include "tests/sim/models/run_all.h"

namespace shoal::sim {
namespace {

using StepKind = StorageStep::Kind;

TEST(StorageModel, QueuesRequestsAndSharesBandwidth) {
  EventHeap events;
  StorageCosts costs;
  costs.round_trip_ns = 200;
  costs.change_ns = 50;
  costs.client_bytes_per_s = 10'000'000'000;
  costs.total_bytes_per_s = 20'000'000'000;
  StorageModel storage(events, costs, 100, 1);
  actors::TimeNs last = 0;
  for (size_t node = 0; node < 100; ++node) {
    storage.run(node, node, {{StepKind::change, 1}}, [&] { last = events.now(); });
  }
  run_all(events);
  EXPECT_EQ(last, 200 + 100 * 50);
  EXPECT_EQ(storage.counts().changes, 100u);
  const actors::TimeNs began = last;
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  for (size_t node = 0; node < 100; ++node) {
    storage.run(node, 0, {{StepKind::write, kBytes}}, [&] { last = events.now(); });
  }
  run_all(events);
  const double wanted = 100.0 * static_cast<double>(kBytes) / 20;  // all bytes by the total, in nanoseconds
  EXPECT_NEAR(static_cast<double>(last - began), wanted, wanted / 100);
}

// A Poisson stream at a server of constant service: M/D/1, whose mean wait is rho S / (2 (1 - rho)).
TEST(StorageModel, MakesRequestsWaitAsInAnMD1Queue) {
  constexpr int kRequests = 1'500'000;
  StorageCosts costs;
  costs.round_trip_ns = 100'000;
  costs.change_ns = 50'000;
  for (double load : {0.3, 0.7}) {
    EventHeap events;
    StorageModel storage(events, costs, 1, 1);
    Random random(11);
    double waited = 0, at = 0;
    for (int i = 0; i < kRequests; ++i) {
      at += -std::log((static_cast<double>(random.below(1 << 30)) + 1) / (1 << 30)) * 50'000 / load;
      const auto asked = static_cast<actors::TimeNs>(at);
      events.schedule(asked, [&, asked] {
        storage.run(0, 0, {{StepKind::change, 1}},
                    [&, asked] { waited += static_cast<double>(events.now() - asked - 150'000); });
      });
    }
    run_all(events);
    const double wanted = load * 50'000 / (2 * (1 - load));
    EXPECT_NEAR(waited / kRequests, wanted, 0.01 * wanted) << load;
  }
}

StorageCosts objects() {
  StorageCosts costs;
  costs.is_objects = true;
  costs.change_ns = 285'714;  // 3,500 a second
  costs.look_ns = 181'818;    // 5,500 a second
  return costs;
}

// When `requests` of each of two folders are done.
actors::TimeNs two_folders_ns(const StorageCosts& costs, StepKind kind, uint64_t first, uint64_t second) {
  EventHeap events;
  StorageModel storage(events, costs, 2, 1);
  actors::TimeNs last = 0;
  for (int i = 0; i < 3500; ++i) {
    storage.run(0, first, {{kind, 1}}, [&] { last = std::max(last, events.now()); });
    storage.run(1, second, {{kind, 1}}, [&] { last = std::max(last, events.now()); });
  }
  run_all(events);
  return last;
}

TEST(StorageModel, LimitsEachPrefixOfAnObjectStoreByItself) {
  EXPECT_EQ(two_folders_ns(objects(), StepKind::change, 1, 2), actors::TimeNs{3500} * 285'714);  // one second
  EXPECT_EQ(two_folders_ns(objects(), StepKind::change, 1, 1),
            actors::TimeNs{2} * 3500 * 285'714);  // they share one
  EXPECT_EQ(two_folders_ns(objects(), StepKind::look, 1, 2), actors::TimeNs{3500} * 181'818);
  StorageCosts files = objects();
  files.is_objects = false;
  EXPECT_EQ(two_folders_ns(files, StepKind::change, 1, 2), actors::TimeNs{2} * 3500 * 285'714);
}

TEST(StorageModel, SplitsAPrefixThatIsAskedWithoutAPause) {
  StorageCosts costs = objects();
  costs.prefix_split_after_s = 1800;
  EventHeap events;
  StorageModel storage(events, costs, 1, 1);
  // 7,000 requests a second, twice what a prefix bears, for two hours.
  constexpr int kPeriods = 7200;
  uint64_t done = 0, done_at_half_hour = 0;
  for (int second = 0; second < kPeriods; ++second) {
    events.schedule(second * kSecond, [&] {
      for (int i = 0; i < 70; ++i) storage.run(0, 9, {{StepKind::change, 100}}, [&] { done += 100; });
    });
  }
  events.schedule(1800 * kSecond, [&] { done_at_half_hour = done; });
  run_all(events);
  EXPECT_NEAR(static_cast<double>(done_at_half_hour), 1800.0 * 3500, 1800.0 * 35);
  // What was left over then, half an hour's worth, is served by two halves: nothing is left by the end.
  EXPECT_EQ(done, uint64_t{kPeriods} * 7000);
  EXPECT_LT(events.now(), (kPeriods + 1800) * kSecond);

  costs.prefix_split_after_s = 0;
  EventHeap unsplit_events;
  StorageModel unsplit(unsplit_events, costs, 1, 1);
  for (int second = 0; second < kPeriods; ++second) {
    unsplit_events.schedule(second * kSecond, [&] {
      for (int i = 0; i < 70; ++i) unsplit.run(0, 9, {{StepKind::change, 100}}, [] {});
    });
  }
  run_all(unsplit_events);
  EXPECT_GT(unsplit_events.now(), (2 * kPeriods - 10) * kSecond);
}

}  // namespace
}  // namespace shoal::sim
