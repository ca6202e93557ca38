#include "sim/cluster/part_writes.h"

#include <algorithm>

#include "actors/node/clients/staged_parts.h"
#include "base/digest/digest.h"

namespace shoal::sim {

namespace {

constexpr actors::TimeNs kPatienceNs = actors::TimeNs{actors::kPartPatience.count()} * actors::kMillisecond;

Status disconnected() {
  return Status(Code::unavailable, "its trainer disconnected while it staged in parts");
}

}  // namespace

void PartWrites::begin(size_t node, const actors::operation::WriteShard& write, Store store, Done done) {
  auto begun = std::make_shared<Write>();
  begun->node = node;
  begun->client = write.data.begin()->client;
  begun->slab_id = write.data.begin()->slab_id;
  begun->key = write.key;
  begun->data = write.data;
  begun->store = std::move(store);
  begun->done = std::move(done);
  writes_.push_back(begun);
  if (!is_here(*begun)) return end(begun, PartsCopied::End::gone, disconnected());
  if (!in_use_.contains({begun->client, begun->slab_id})) open(begun);
}

void PartWrites::open(const WritePtr& write) {
  in_use_[{write->client, write->slab_id}] = write;
  const uint64_t half = slab_bytes_ / kHalves / base::kDigestBlockBytes * base::kDigestBlockBytes;
  write->cursor.emplace(write->data.vector(), half);
  for (size_t which = 0; which < kHalves; ++which) ask(*write, which);
  go_on(write);
}

void PartWrites::ask(Write& write, size_t which) {
  const uint64_t half = slab_bytes_ / kHalves / base::kDigestBlockBytes * base::kDigestBlockBytes;
  Part& part = write.parts[which];
  part = {write.cursor->next(which * half), 0, std::nullopt};
  if (part.ranges.empty()) return;
  part.number = ++last_number_;
  send_(write.client,
        local::PartRequest{write.slab_id, write.key.step, write.key.attempt, part.number, part.ranges});
}

void PartWrites::go_on(const WritePtr& write) {
  const Part& part = write->parts[write->which];
  if (part.ranges.empty()) return end(write, PartsCopied::End::all, ok_status());
  if (part.answer && !part.answer->ok()) return end(write, PartsCopied::End::refused, *part.answer);
  if (!part.answer && !is_here(*write)) return end(write, PartsCopied::End::gone, disconnected());
  if (!part.answer) {
    return events_.schedule(events_.now() + kPatienceNs, [this, write, number = part.number] {
      const Part& awaited = write->parts[write->which];
      if (write->has_ended || awaited.number != number || awaited.answer) return;
      end(write, PartsCopied::End::no_answer,
          Status(Code::deadline_exceeded, "its trainer has not copied the next part"));
    });
  }
  ++write->copied.copied;
  write->is_storing = true;
  uint64_t bytes = 0;
  for (const local::PartRange& range : part.ranges) bytes += range.bytes;
  write->store(bytes, [this, write] {
    when_(write->node, [this, write] {
      write->is_storing = false;
      if (write->copied.end == PartsCopied::End::stopped) {
        return end(write, PartsCopied::End::stopped, write->copied.why);
      }
      ask(*write, write->which);
      write->which = (write->which + 1) % kHalves;
      go_on(write);
    });
  });
}

void PartWrites::end(const WritePtr& write, PartsCopied::End how, Status why) {
  write->has_ended = true;
  write->copied.end = how;
  write->copied.why = std::move(why);
  std::erase(writes_, write);
  const auto slab = in_use_.find({write->client, write->slab_id});
  if (slab != in_use_.end() && slab->second == write) {
    in_use_.erase(slab);
    const auto next = std::ranges::find_if(writes_, [&](const WritePtr& other) {
      return !other->cursor && other->client == write->client && other->slab_id == write->slab_id;
    });
    if (next != writes_.end()) open(WritePtr(*next));
  }
  write->done(write->copied);
}

void PartWrites::answered(size_t node, actors::ClientId client, const local::PartStaged& message) {
  when_(node, [this, client, message] {
    for (const WritePtr& write : writes_) {
      for (Part& part : write->parts) {
        const bool is_it = part.number == message.number && !part.ranges.empty() && !part.answer;
        if (!is_it || write->client != client || write->slab_id != message.slab_id) continue;
        part.answer = message.outcome;
        if (&part == &write->parts[write->which] && !write->is_storing) go_on(WritePtr(write));
        return;
      }
    }
  });
}

void PartWrites::client_lost(size_t node, actors::ClientId client) {
  here_.erase({node, client});
  const std::vector<WritePtr> writes = writes_;
  for (const WritePtr& write : writes) {
    if (write->has_ended || write->node != node || write->client != client || write->is_storing) continue;
    end(write, PartsCopied::End::gone, disconnected());
  }
}

void PartWrites::process_ended(size_t node) {
  std::erase_if(here_, [node](const auto& each) { return each.first == node; });
  const Status why(Code::unavailable, "the process of the node has ended");
  std::erase_if(in_use_, [node](const auto& each) { return each.second->node == node; });
  std::vector<WritePtr> writes = writes_;
  std::erase_if(writes, [node](const WritePtr& write) { return write->node != node; });
  for (const WritePtr& write : writes) {
    write->copied.end = PartsCopied::End::stopped;
    write->copied.why = why;
    if (!write->is_storing) end(write, PartsCopied::End::stopped, why);
  }
}

}  // namespace shoal::sim
