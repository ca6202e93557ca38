// PartWrites: writes of saves that are staged in parts, on simulated time (docs/reference/client-node.md, "In
// parts"). A node requests parts of the bytes from the trainer and stores each one, in the order in which
// write_shard_in_parts does (actors/executor/part_write.h). A slab serves one write at a time, and the wait
// for a part ends with the connection of the trainer, as in StagedParts
// (actors/node/clients/staged_parts.h).
//
// It decides what comes, and when. StoredPayload then carries the whole write out by that production code.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/executor/part_write.h"
#include "actors/operation.h"
#include "local/messages/messages.h"
#include "sim/basics/event_heap.h"

namespace shoal::sim {

// What became of the parts of one write.
struct PartsCopied {
  enum class End : uint8_t {
    all,        // the trainer has copied all of them
    refused,    // it answered with an error
    gone,       // its connection has ended
    no_answer,  // nothing came for kPartPatience
    stopped,    // the process of the node has ended
  };
  End end = End::all;
  uint64_t copied = 0;  // that many parts came
  Status why;           // OK: all came
};

class PartWrites {
 public:
  using Send = std::function<void(actors::ClientId, local::PartRequest)>;
  // Calls the action once the process of the node runs: at once, unless it is stalled.
  using WhenItRuns = std::function<void(size_t node, std::function<void()>)>;
  using Store = std::function<void(uint64_t bytes, std::function<void()> stored)>;
  using Done = std::function<void(const PartsCopied&)>;
  // `slab_bytes`: of each slab that parts pass through.
  PartWrites(EventHeap& events, uint64_t slab_bytes, Send send, WhenItRuns when_it_runs)
      : events_(events), slab_bytes_(slab_bytes), send_(std::move(send)), when_(std::move(when_it_runs)) {}

  uint64_t slab_bytes() const { return slab_bytes_; }
  // `store` stores the bytes of a part. `done` runs when all parts are stored, or none will come any more.
  // Precondition: the write has data.
  void begin(size_t node, const actors::operation::WriteShard& write, Store store, Done done);

  void client_attached(size_t node, actors::ClientId client) { here_.insert({node, client}); }
  void client_lost(size_t node, actors::ClientId client);
  void answered(size_t node, actors::ClientId client, const local::PartStaged& message);
  void process_ended(size_t node);

 private:
  static constexpr size_t kHalves = 2;
  struct Part {
    std::vector<local::PartRange> ranges;  // empty: there is no further part
    uint64_t number = 0;
    std::optional<Status> answer;
  };
  struct Write {
    size_t node = 0;
    actors::ClientId client = 0;
    uint32_t slab_id = 0;
    AttemptKey key;
    SharedVector<actors::SlabRange> data;
    std::optional<actors::PartCursor> cursor;  // none: another write has the slab
    std::array<Part, kHalves> parts;
    size_t which = 0;  // the part that is awaited or stored
    bool is_storing = false;
    bool has_ended = false;
    PartsCopied copied;
    Store store;
    Done done;
  };
  using WritePtr = std::shared_ptr<Write>;
  using Slab = std::pair<actors::ClientId, uint32_t>;

  bool is_here(const Write& write) const { return here_.contains({write.node, write.client}); }
  void open(const WritePtr& write);
  void ask(Write& write, size_t which);
  void go_on(const WritePtr& write);
  void end(const WritePtr& write, PartsCopied::End how, Status why);

  EventHeap& events_;
  const uint64_t slab_bytes_;
  const Send send_;
  const WhenItRuns when_;
  std::set<std::pair<size_t, actors::ClientId>> here_;  // attached
  std::map<Slab, WritePtr> in_use_;
  std::vector<WritePtr> writes_;  // in progress, in order
  uint64_t last_number_ = 0;
};

}  // namespace shoal::sim
