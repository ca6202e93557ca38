// OutgoingQueues: bounded queues, one per peer, from the sending threads to the transport's thread.
#pragma once

#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/status.h"
#include "transport/limits.h"
#include "transport/transport.h"

namespace shoal::transport {

// Any thread may call any method.
class OutgoingQueues {
 public:
  explicit OutgoingQueues(const TransportLimits& limits) : limits_(limits) {}

  void open(PeerId peer);
  // Drops the queued messages. Later pushes return Code::unavailable.
  void close(PeerId peer);
  void close_all();

  // Code::busy if the queue is full, Code::too_large, or Code::unavailable. On success `wake` is true if the
  // transport's thread must be woken, because it does not know yet that there is something to take.
  Status push(PeerId peer, Bytes message, bool& wake);

  bool has_room(PeerId peer, size_t bytes) const;  // false: push would return Code::busy

  struct Batch {
    PeerId peer;
    std::deque<Bytes> messages;
  };
  // Takes all messages pushed since the last call, in order for each peer. They count towards the bound until
  // sent().
  std::vector<Batch> take();
  void sent(PeerId peer, size_t bytes);

 private:
  struct Queue {
    std::deque<Bytes> messages;
    size_t count = 0, bytes = 0;  // including messages taken and not yet sent
  };

  bool is_full(const Queue& queue, size_t bytes) const;

  TransportLimits limits_;
  mutable std::mutex mutex_;
  std::unordered_map<PeerId, Queue> queues_;
  std::vector<PeerId> ready_;
};

}  // namespace shoal::transport
