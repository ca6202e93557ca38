// StorageModel: what storage operations take. One metadata server, a queue of requests in the order in which
// they arrive; the bytes of each node pass through its own link, then through the storage's total bandwidth,
// both queues of chunks; round trips and transfers have lognormal tails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sim/event_heap.h"
#include "sim/profile.h"
#include "sim/random.h"

namespace shoal {

// One thing that an operation asks for; a list of them is carried out one after the other.
struct StorageStep {
  enum class Kind : uint8_t { change, look, list, write, read, sync, wait } kind = Kind::look;
  uint64_t count = 1;    // change, look: requests; list: entries; write, read: bytes; wait: nanoseconds
  uint32_t at_once = 1;  // change, look: how many are on their way together
};
using StorageSteps = std::vector<StorageStep>;

struct StorageCounts {
  uint64_t changes = 0, looks = 0, listed = 0, syncs = 0;
  uint64_t bytes_written = 0, bytes_read = 0;
};

class StorageModel {
 public:
  StorageModel(EventHeap& events, const StorageCosts& costs, size_t nodes, uint64_t seed)
      : events_(events), costs_(costs), random_(seed), link_free_(nodes) {}

  // `done` runs when all steps are done. The caller bounds how many operations a node has under way.
  // `slowness`: how many times as long its round trips, syncs and transfers take.
  void run(size_t node, StorageSteps steps, std::function<void()> done, uint64_t slowness = 1);
  const StorageCounts& counts() const { return counts_; }

 private:
  struct Job {
    size_t node = 0;
    StorageSteps steps;
    size_t next = 0;
    uint64_t bytes_left = 0;  // of the transfer under way
    uint64_t link_bytes_per_s = 0;
    uint64_t slowness = 1;
    std::function<void()> done;
  };
  using JobPtr = std::shared_ptr<Job>;

  static TimeNs slowed(const Job& job, TimeNs takes) { return takes * static_cast<TimeNs>(job.slowness); }
  void advance(const JobPtr& job);
  void request(const JobPtr& job, TimeNs service_ns, uint64_t round_trips);
  void transfer_chunk(const JobPtr& job);

  EventHeap& events_;
  const StorageCosts costs_;
  Random random_;
  TimeNs metadata_free_ = 0;
  TimeNs total_free_ = 0;
  std::vector<TimeNs> link_free_;
  StorageCounts counts_;
};

}  // namespace shoal
