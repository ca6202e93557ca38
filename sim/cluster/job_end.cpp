#include "sim/cluster/job_end.h"

namespace shoal::sim {

namespace {

constexpr actors::TimeNs kIdleExitNs = 5'000 * actors::kMillisecond;  // NodeOptions::idle_exit_after_ms
constexpr actors::TimeNs kLookNs = 100 * actors::kMillisecond;
constexpr const char* kExited = "exit status 0";  // as `shoal launch` reports it

}  // namespace

void JobEnd::closed(Rank rank) {
  const size_t node = rank / ranks_per_host_;
  cluster_.end_trainer(node, rank, kExited);
  if (!trainers_.has_living(node)) begin(node);
}

void JobEnd::end_empty() {
  for (size_t node = 0; node * ranks_per_host_ < trainers_.ranks(); ++node) {
    if (!trainers_.has_living(node)) begin(node);
  }
}

void JobEnd::begin(size_t node) {
  if (!cluster_.serves(node) || !ending_.insert(node).second) return;
  if (!cluster_.has_launcher()) return end_when_idle(node);
  events_.schedule(events_.now() + kLookNs, [this, node] { end(node); });
}

void JobEnd::end(size_t node) {
  if (!cluster_.serves(node)) {
    ending_.erase(node);
    return;
  }
  const auto has_ended = [this, node] { ending_.erase(node); };
  cluster_.has_launcher() ? cluster_.stop(node, false, has_ended) : cluster_.end_idle(node, has_ended);
}

void JobEnd::end_when_idle(size_t node) {
  events_.schedule(events_.now() + kIdleExitNs, [this, node] {
    if (cluster_.has_followers(node)) return end_when_idle(node);
    end(node);
  });
}

}  // namespace shoal::sim
