// CoordinatorSeries: the state of the coordinator's node over time, in a bounded number of samples, whatever
// the length of the simulation. Times in which the node was idle take no samples. When all samples are used,
// neighbours are merged in pairs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/role.h"

namespace shoal::sim {

struct CoordinatorLoad {
  uint64_t queue = 0;  // events that wait for its processor
  // Bytes of the coordinator role (actors/coordinator/memory.h) and of waiting messages.
  uint64_t memory_bytes = 0;
  uint64_t descriptors = 0;  // file descriptors, by the rule of actors/node/descriptors.h
};
struct CoordinatorSample {
  actors::TimeNs begin = 0, end = 0;
  CoordinatorLoad most;  // queue: maximum between begin and end; others: value at begin
};

inline constexpr size_t kMaxCoordinatorSamples = 512;

class CoordinatorSeries {
 public:
  // `look` is called at most once per sample and once per phase, because it may be slow.
  explicit CoordinatorSeries(std::function<CoordinatorLoad()> look) : look_(std::move(look)) {}

  // Call it after each step of virtual time, with the current length of the queue.
  void take(actors::TimeNs now, uint64_t queue) {
    if (queue == 0) return;
    if (now >= open_.end) open(now);
    if (queue > open_.most.queue) open_.most.queue = queue;
    if (queue > peaks_.queue) peaks_.queue = queue;
  }
  // The maxima since the last call, including the current state.
  CoordinatorLoad take_peaks();
  std::vector<CoordinatorSample> samples() const;  // sorted; samples do not overlap

 private:
  void open(actors::TimeNs now);
  void close();
  void halve();

  std::function<CoordinatorLoad()> look_;
  actors::TimeNs width_ = actors::kMillisecond;
  CoordinatorSample open_;  // end 0: no sample is open
  std::vector<CoordinatorSample> closed_;
  CoordinatorLoad peaks_;
};

}  // namespace shoal::sim
