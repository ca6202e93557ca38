#include "sim/models/storage_model.h"

#include <algorithm>
#include <utility>

#include "sim/basics/integer_math.h"

namespace shoal::sim {

namespace {

// Transfers share links in chunks of this size. It is small compared with a shard, so files that are written
// at the same time end at the same time.
constexpr uint64_t kTransferBytes = uint64_t{64} << 20;

// A client whose bytes are so far behind in the storage's total bandwidth sends no more until it has caught
// up. So small requests of other clients do not wait for everything that somebody will write.
constexpr actors::TimeNs kMostBacklogNs = 1000 * actors::kMillisecond;

constexpr uint32_t kMostSplits = 10;

uint64_t divided_up(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

void StorageModel::run(size_t node, uint64_t prefix, StorageSteps steps, std::function<void()> done) {
  JobPtr job = jobs_.take();
  job->next = 0;
  job->node = node;
  job->prefix = costs_.is_objects ? prefix : 0;
  job->steps = std::move(steps);
  job->done = std::move(done);
  advance(job);
}

void StorageModel::advance(JobPtr job) {
  if (job->next == job->steps.size()) {
    const std::function<void()> done = std::move(job->done);
    job->steps.clear();
    jobs_.give_back(job);
    return done();
  }
  const StorageStep step = job->steps[job->next++];
  const auto count = static_cast<actors::TimeNs>(step.count);
  switch (step.kind) {
    case StorageStep::Kind::change:
      counts_.changes += step.count;
      return request(job, count * costs_.change_ns, divided_up(step.count, step.at_once));
    case StorageStep::Kind::look:
      counts_.looks += step.count;
      return request(job, count * costs_.look_ns, divided_up(step.count, step.at_once));
    case StorageStep::Kind::list:
      counts_.listed += step.count;
      return request(job, costs_.look_ns + count * costs_.entry_ns,
                     std::max<uint64_t>(1, divided_up(step.count, costs_.entries_per_request)));
    case StorageStep::Kind::sync:
      counts_.syncs += step.count;
      return events_.schedule(
          events_.now() +
              slowed(*job, random_[job->node].lognormal(costs_.sync_ns, costs_.request_tail_permille)),
          [this, job] { advance(job); }, job);
    case StorageStep::Kind::wait:
      return events_.schedule(
          events_.now() + count, [this, job] { advance(job); }, job);
    case StorageStep::Kind::write:
    case StorageStep::Kind::read:
      (step.kind == StorageStep::Kind::write ? counts_.bytes_written : counts_.bytes_read) += step.count;
      if (step.count == 0) return advance(job);
      job->bytes_left = step.count;
      // Some files are on a slow server or path.
      job->link_bytes_per_s = std::max<uint64_t>(
          1, multiply_divide(costs_.client_bytes_per_s, 1 << 16,
                             static_cast<uint64_t>(std::max<int64_t>(
                                 1, random_[job->node].lognormal(1 << 16, costs_.stream_tail_permille)))));
      return transfer_chunk(job);
  }
}

// Half a round trip to the server, then its queue, then the way back and all further round trips.
void StorageModel::request(JobPtr job, actors::TimeNs service_ns, uint64_t round_trips) {
  const actors::TimeNs round_trip =
      slowed(*job, random_[job->node].lognormal(costs_.round_trip_ns, costs_.request_tail_permille));
  const actors::TimeNs there = round_trip / 2;
  const actors::TimeNs back = static_cast<actors::TimeNs>(round_trips) * round_trip - there;
  events_.schedule(
      events_.now() + there,
      [this, job, service_ns, back] {
        events_.schedule(
            serve(job->prefix, service_ns) + back, [this, job] { advance(job); }, job);
      },
      job);
}

actors::TimeNs StorageModel::serve(uint64_t prefix, actors::TimeNs service_ns) {
  Server& server = servers_[prefix];
  const actors::TimeNs now = events_.now();
  if (server.free <= now) server.free = server.busy_since = now;
  if (costs_.prefix_split_after_s != 0 && server.splits < kMostSplits &&
      now - server.busy_since >=
          actors::TimeNs{costs_.prefix_split_after_s} * static_cast<actors::TimeNs>(kNsPerSecond)) {
    server.busy_since = now;
    server.free = now + (server.free - now) / 2;  // both halves serve the waiting requests
    ++server.splits;
  }
  server.free += service_ns >> server.splits;
  return server.free;
}

void StorageModel::transfer_chunk(JobPtr job) {
  const uint64_t bytes = std::min(job->bytes_left, kTransferBytes);
  job->bytes_left -= bytes;
  actors::TimeNs& link_free = link_free_[job->node];
  link_free = std::max(events_.now(), link_free) + slowed(*job, transfer_ns(bytes, job->link_bytes_per_s));
  events_.schedule(
      link_free,
      [this, job, bytes] {
        total_free_ = std::max(events_.now(), total_free_) + transfer_ns(bytes, costs_.total_bytes_per_s);
        if (job->bytes_left == 0) {
          return events_.schedule(
              total_free_, [this, job] { advance(job); }, job);
        }
        if (total_free_ - events_.now() <= kMostBacklogNs) return transfer_chunk(job);
        events_.schedule(
            total_free_ - kMostBacklogNs, [this, job] { transfer_chunk(job); }, job);
      },
      job);
}

}  // namespace shoal::sim
