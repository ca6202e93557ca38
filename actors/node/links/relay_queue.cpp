#include "actors/node/links/relay_queue.h"

#include "shoal/check.h"

namespace shoal::actors {

bool RelayQueue::push(uint64_t child, Bytes message, bool must_go) {
  HeldMessages& held = held_[child];
  bool is_first = held.messages.empty();
  bool fits = held.messages.size() < kMaxHeldPerChild && bytes_ + message.size() <= kMaxHeldBytes &&
              (is_first || held.bytes + message.size() <= kMaxHeldBytesPerChild);
  if (!fits && !must_go) {
    if (is_first) held_.erase(child);
    return false;
  }
  if (is_first) waiting_.push_back(child);
  held.bytes += message.size();
  bytes_ += message.size();
  held.messages.push_back(std::move(message));
  return true;
}

const Bytes& RelayQueue::front() const {
  SHOAL_CHECK(!waiting_.empty());
  return held_.at(waiting_.front()).messages.front();
}

void RelayQueue::pop() {
  SHOAL_CHECK(!waiting_.empty());
  const uint64_t child = waiting_.front();
  waiting_.pop_front();
  HeldMessages& held = held_.at(child);
  held.bytes -= held.messages.front().size();
  bytes_ -= held.messages.front().size();
  held.messages.pop_front();
  if (held.messages.empty()) {
    held_.erase(child);
  } else {
    waiting_.push_back(child);
  }
}

void RelayQueue::clear() {
  held_.clear();
  waiting_.clear();
  bytes_ = 0;
}

}  // namespace shoal::actors
