// Sweeps: removes from the root what aborted attempts have left there. Part of the Coordinator.
#pragma once

#include <cstddef>
#include <map>

#include "actors/continuations.h"

namespace shoal::actors {

inline constexpr size_t kMaxLateSweeps = 256;  // waiting for their time; the next coordinator sweeps the rest

class Sweeps {
 public:
  Sweeps(PendingOperations& operations, PendingTimers& timers, const NodeConfig& config)
      : operations_(operations), timers_(timers), config_(config) {}

  // Runs one sweep at a time for each attempt. If called during a sweep, sweeps once more afterwards.
  void sweep(const AttemptKey& key, EffectWriter& out);
  // Sweeps after node_deadline_ms: until then a node may still write.
  void sweep_later(TimeNs now, const AttemptKey& key, EffectWriter& out);

 private:
  PendingOperations& operations_;
  PendingTimers& timers_;
  const NodeConfig& config_;
  std::map<AttemptKey, bool> running_;  // true: sweep once more
  size_t late_ = 0;
};

}  // namespace shoal::actors
