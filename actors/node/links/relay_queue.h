// RelayQueue: messages of a relay's children for which the coordinator's session has no room yet. Keeps the
// order of each child, takes children in turn, and is bounded. A state machine without I/O, used by one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "shoal/bytes.h"

namespace shoal::actors {

inline constexpr size_t kMaxHeldPerChild = 64;                      // messages
inline constexpr size_t kMaxHeldBytes = size_t{256} << 20;          // of all children
inline constexpr size_t kMaxHeldBytesPerChild = kMaxHeldBytes / 4;  // one message may be larger

class RelayQueue {
 public:
  // False: there is no room. A message that `must_go` (a child is up or lost) always has room.
  bool push(uint64_t child, Bytes message, bool must_go);
  bool empty() const { return waiting_.empty(); }
  // The next message, of the child whose turn it is. Precondition: not empty.
  const Bytes& front() const;
  void pop();
  void clear();
  size_t bytes() const { return bytes_; }

 private:
  struct HeldMessages {
    std::deque<Bytes> messages;
    size_t bytes = 0;
  };
  std::map<uint64_t, HeldMessages> held_;
  std::deque<uint64_t> waiting_;  // children with messages, in turn
  size_t bytes_ = 0;
};

}  // namespace shoal::actors
