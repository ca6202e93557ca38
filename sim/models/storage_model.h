// StorageModel: what storage operations take. Files: one metadata server, a queue of requests in the order in
// which they arrive. Objects: a queue a prefix, which is an attempt's folder; one that is never empty for as
// long as the profile says is split, and serves twice as many. The bytes of each node pass through its own
// link, then through the storage's total bandwidth, both queues of chunks; round trips and transfers have
// lognormal tails.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "sim/basics/event_heap.h"
#include "sim/basics/pool.h"
#include "sim/basics/random.h"
#include "sim/models/profile.h"

namespace shoal::sim {

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
      : events_(events), costs_(costs), link_free_(nodes), permille_(nodes, 1000) {
    for (size_t node = 0; node < nodes; ++node) random_.emplace_back(mix64(seed + node));
  }

  // `done` runs when all steps are done. The caller bounds how many operations a node has under way.
  // `prefix`: whatever tells folders apart; of files it says nothing.
  void run(size_t node, uint64_t prefix, StorageSteps steps, std::function<void()> done);
  // What a node asks for takes so many thousandths of the time that another's takes.
  void slow_down(size_t node, uint32_t permille) { permille_[node] = permille; }
  // How many times as long a node's round trips, syncs and transfers take now, beside that.
  void set_slowness(std::function<uint64_t(size_t node)> slowness) { slowness_ = std::move(slowness); }
  const StorageCounts& counts() const { return counts_; }

 private:
  struct Server {  // a queue of requests
    actors::TimeNs free = 0;
    actors::TimeNs busy_since = 0;  // without a pause
    uint32_t splits = 0;            // it serves 2^splits times as fast
  };
  struct Job {
    size_t node = 0;
    uint64_t prefix = 0;
    StorageSteps steps;
    size_t next = 0;
    uint64_t bytes_left = 0;  // of the transfer under way
    uint64_t link_bytes_per_s = 0;
    std::function<void()> done;
  };
  using JobPtr = Job*;

  actors::TimeNs slowed(const Job& job, actors::TimeNs takes) const {
    const uint64_t slowness = slowness_ ? slowness_(job.node) : 1;
    return takes * static_cast<actors::TimeNs>(slowness) * permille_[job.node] / 1000;
  }
  void advance(JobPtr job);
  void request(JobPtr job, actors::TimeNs service_ns, uint64_t round_trips);
  actors::TimeNs serve(uint64_t prefix, actors::TimeNs service_ns);  // when it is done
  void transfer_chunk(JobPtr job);

  Pool<Job> jobs_;
  EventHeap& events_;
  const StorageCosts costs_;
  std::vector<Random> random_;          // of each node: what another does changes nothing of its draws
  std::map<uint64_t, Server> servers_;  // by prefix; of files one, 0
  actors::TimeNs total_free_ = 0;
  std::vector<actors::TimeNs> link_free_;
  std::vector<uint32_t> permille_;  // by node: see slow_down
  std::function<uint64_t(size_t)> slowness_;
  StorageCounts counts_;
};

}  // namespace shoal::sim
