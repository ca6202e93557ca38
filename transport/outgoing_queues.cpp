#include "transport/outgoing_queues.h"

#include <fmt/format.h>

namespace shoal::transport {

void OutgoingQueues::open(PeerId peer) {
  std::lock_guard lock(mutex_);
  queues_.try_emplace(peer);
}

void OutgoingQueues::close(PeerId peer) {
  std::lock_guard lock(mutex_);
  queues_.erase(peer);
}

void OutgoingQueues::close_all() {
  std::lock_guard lock(mutex_);
  queues_.clear();
  ready_.clear();
}

Status OutgoingQueues::push(PeerId peer, Bytes message, bool& wake) {
  if (message.size() > kMaxMessageBytes) {
    return Status(Code::too_large, fmt::format("a message of {} bytes is too large: at most {} are allowed",
                                               message.size(), kMaxMessageBytes));
  }
  std::lock_guard lock(mutex_);
  auto found = queues_.find(peer);
  if (found == queues_.end()) return Status(Code::unavailable, fmt::format("peer {} is lost", peer));
  Queue& queue = found->second;
  if (is_full(queue, message.size())) {
    return Status(Code::busy, fmt::format("the queue to peer {} is full: it holds {} messages of {} bytes",
                                          peer, queue.count, queue.bytes));
  }
  queue.count += 1;
  queue.bytes += message.size();
  if (queue.messages.empty()) {
    wake = ready_.empty();
    ready_.push_back(peer);
  }
  queue.messages.push_back(std::move(message));
  return ok_status();
}

// An empty queue accepts any message, so that a small bound delays messages but never blocks one for ever.
bool OutgoingQueues::is_full(const Queue& queue, size_t bytes) const {
  return queue.count >= limits_.queued_messages_per_peer ||
         (queue.count != 0 && queue.bytes + bytes > limits_.queued_bytes_per_peer);
}

bool OutgoingQueues::has_room(PeerId peer, size_t bytes) const {
  std::lock_guard lock(mutex_);
  auto found = queues_.find(peer);
  return found == queues_.end() || !is_full(found->second, bytes);
}

std::vector<OutgoingQueues::Batch> OutgoingQueues::take() {
  std::lock_guard lock(mutex_);
  std::vector<Batch> batches;
  for (PeerId peer : std::exchange(ready_, {})) {
    auto found = queues_.find(peer);
    if (found != queues_.end()) batches.push_back({peer, std::exchange(found->second.messages, {})});
  }
  return batches;
}

void OutgoingQueues::sent(PeerId peer, size_t bytes) {
  std::lock_guard lock(mutex_);
  auto found = queues_.find(peer);
  if (found == queues_.end()) return;
  found->second.count -= 1;
  found->second.bytes -= bytes;
}

}  // namespace shoal::transport
