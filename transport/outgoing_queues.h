// OutgoingQueues: messages between those who send, on any thread, and the transport's thread, with a bound
// for each peer.
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

// Any thread may call anything.
class OutgoingQueues {
 public:
  explicit OutgoingQueues(const TransportLimits& limits) : limits_(limits) {}

  void open(PeerId peer);
  // Drops what is queued; later pushes answer Code::unavailable.
  void close(PeerId peer);
  void close_all();

  // Code::busy when full, Code::too_large, Code::unavailable. On success `wake` is true if the transport's
  // thread has to be told: it does not know yet that there is something to take.
  Status push(PeerId peer, Bytes message, bool& wake);

  bool has_room(PeerId peer, size_t bytes) const;  // push would not answer Code::busy

  struct Batch {
    PeerId peer;
    std::deque<Bytes> messages;
  };
  // All that was pushed since, in order for each peer. It counts towards the bound until sent() says so.
  std::vector<Batch> take();
  void sent(PeerId peer, size_t bytes);

 private:
  struct Queue {
    std::deque<Bytes> messages;
    size_t count = 0, bytes = 0;  // with those taken and not yet sent
  };

  bool is_full(const Queue& queue, size_t bytes) const;

  TransportLimits limits_;
  mutable std::mutex mutex_;
  std::unordered_map<PeerId, Queue> queues_;
  std::vector<PeerId> ready_;
};

}  // namespace shoal::transport
