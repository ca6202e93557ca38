// InboundTurns: who may receive a large message now. Memory for those under way is bounded over all peers;
// whoever does not fit waits, first come first served.
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
  // The next that fits: its bytes count until they are given back. A message larger than the bound goes
  // alone.
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
