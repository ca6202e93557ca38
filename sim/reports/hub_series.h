// HubSeries: what the coordinator's node held over time, in a bounded number of samples: whatever the length
// of a simulation, times in which it did nothing take none. When all are used, two neighbours become one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/role.h"

namespace shoal::sim {

struct HubState {
  uint64_t queue = 0;         // events that wait for its processor
  uint64_t memory_bytes = 0;  // of the coordinator role (actors/coordinator/memory.h) and of waiting messages
  uint64_t descriptors = 0;   // by the rule of actors/node/descriptors.h
};
struct HubSample {
  actors::TimeNs begin = 0, end = 0;
  HubState most;  // of the queue at any time between the two; of the others at its begin
};

inline constexpr size_t kMaxHubSamples = 512;

class HubSeries {
 public:
  // `look` is asked once a sample at most, and once a phase; it may take a while.
  explicit HubSeries(std::function<HubState()> look) : look_(std::move(look)) {}

  // After each step of virtual time, with the queue as it is.
  void take(actors::TimeNs now, uint64_t queue) {
    if (queue == 0) return;
    if (now >= open_.end) open(now);
    if (queue > open_.most.queue) open_.most.queue = queue;
    if (queue > peaks_.queue) peaks_.queue = queue;
  }
  // The most of each since the last call, with the state as it is now.
  HubState take_peaks();
  std::vector<HubSample> samples() const;  // ascending; not overlapping

 private:
  void open(actors::TimeNs now);
  void close();
  void halve();

  std::function<HubState()> look_;
  actors::TimeNs width_ = actors::kMillisecond;
  HubSample open_;  // end 0: none is
  std::vector<HubSample> closed_;
  HubState peaks_;
};

}  // namespace shoal::sim
