// StorageModel: the time of storage operations. For files there is one metadata server, which serves requests
// in the order of arrival. For objects there is one queue per prefix; a prefix is the folder of an attempt. A
// prefix whose queue is never empty for the time in the profile is split, and then serves twice as many
// requests. Bytes pass the link of their node and then the storage's total bandwidth; both are queues of
// chunks. A client that is a second ahead of the latter waits. Round trips and transfers have lognormal
// tails.
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

// One request of an operation. The steps of a list run one after the other. A stat, an open or a statfs is
// one look; a create, link, rename or unlink is one change.
struct StorageStep {
  enum class Kind : uint8_t { change, look, list, write, read, sync, wait } kind = Kind::look;
  uint64_t count = 1;    // change, look: requests; list: entries; write, read: bytes; wait: nanoseconds
  uint32_t at_once = 1;  // change, look: number of requests in parallel
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

  // `done` runs when all steps are done. The caller limits the number of concurrent operations of a node.
  // `prefix` distinguishes folders; it has no effect for files.
  void run(size_t node, uint64_t prefix, StorageSteps steps, std::function<void()> done);
  // Slows the requests of a node down: `permille` thousandths of the time of another node's requests.
  void slow_down(size_t node, uint32_t permille) { permille_[node] = permille; }
  // Sets a function that returns a further factor on a node's round trips, syncs and transfers at this
  // moment.
  void set_slowness(std::function<uint64_t(size_t node)> slowness) { slowness_ = std::move(slowness); }
  const StorageCounts& counts() const { return counts_; }

 private:
  struct Server {  // a server with a queue of requests
    actors::TimeNs free = 0;
    actors::TimeNs busy_since = 0;  // since when it has been busy without a pause
    uint32_t splits = 0;            // it serves 2^splits times as fast
  };
  struct Job {
    size_t node = 0;
    uint64_t prefix = 0;
    StorageSteps steps;
    size_t next = 0;
    uint64_t bytes_left = 0;  // bytes left of the current transfer
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
  actors::TimeNs serve(uint64_t prefix, actors::TimeNs service_ns);  // returns when the request is done
  void transfer_chunk(JobPtr job);

  Pool<Job> jobs_;
  EventHeap& events_;
  const StorageCosts costs_;
  std::vector<Random> random_;          // per node, so the draws of a node do not depend on other nodes
  std::map<uint64_t, Server> servers_;  // by prefix; files have one server, 0
  actors::TimeNs total_free_ = 0;
  std::vector<actors::TimeNs> link_free_;
  std::vector<uint32_t> permille_;  // by node: see slow_down
  std::function<uint64_t(size_t)> slowness_;
  StorageCounts counts_;
};

}  // namespace shoal::sim
