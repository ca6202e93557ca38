// InboundTurns: decides which peer may send a large message now. The memory for messages in transfer is
// bounded over all peers. A peer whose message does not fit waits; peers are served in order of request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>

#include "shoal/check.h"
#include "transport/transport.h"

namespace shoal::transport {

class InboundTurns {
 public:
  explicit InboundTurns(size_t bytes_max) : bytes_max_(bytes_max) {}

  void ask(PeerId peer, size_t bytes) { waiting_.push_back({peer, bytes}); }
  void forget(PeerId peer) {
    std::erase_if(waiting_, [&](const Wish& wish) { return wish.peer == peer; });
  }
  // The first waiting peer, if its message fits. Its bytes count until give_back. A message larger than the
  // bound fits if no other is in transfer.
  std::optional<PeerId> next() {
    if (waiting_.empty()) return std::nullopt;
    Wish wish = waiting_.front();
    if (used_bytes_ != 0 && (wish.bytes > bytes_max_ || used_bytes_ > bytes_max_ - wish.bytes))
      return std::nullopt;
    waiting_.pop_front();
    used_bytes_ += wish.bytes;
    return wish.peer;
  }
  void give_back(size_t bytes) {
    SHOAL_CHECK(bytes <= used_bytes_);
    used_bytes_ -= bytes;
  }

 private:
  struct Wish {
    PeerId peer;
    size_t bytes;
  };
  size_t bytes_max_, used_bytes_ = 0;
  std::deque<Wish> waiting_;
};

}  // namespace shoal::transport
