#include "actors/node/clients/staging_memory.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/visit.h"
#include "shoal/bytes.h"

namespace shoal::actors {

namespace {

constexpr TimeNs kLookEvery = 1000 * kMillisecond;
// A host that slabs fill completely has no memory left for the next step of the trainers.
constexpr uint64_t kReserveParts = 32;

}  // namespace

StagingMemory::StagingMemory(const StagingLimits& limits, Surroundings surroundings)
    : limits_(limits), surroundings_(std::move(surroundings)), budget_(limits) {}

void StagingMemory::from_client(TimeNs now, ClientId client, const local::LocalMessage& message) {
  std::lock_guard lock(mutex_);
  const bool may_free = std::visit(
      base::Overloaded{
          [&](const local::Attach& attach) { return budget_.attach(client, attach), true; },
          [&](const local::StagingRequest& wanted) { return budget_.want(now, client, wanted), true; },
          [&](const local::Slab& slab) { return budget_.add_slab(client, slab), true; },
          [&](const local::StagingKept& kept) { return budget_.keep(client, kept), true; },
          [&](const local::Staged&) { return budget_.use(now, client), false; },
          [](const base::OneOf<local::LayoutUpdate, local::Latest, local::List, local::Load, local::Placed,
                               local::Close, local::FilesRead, local::Written, local::NotStaged,
                               local::PlanRequest, local::PlanGathering, local::Ping, local::PartStaged,
                               local::Detach, local::StatusRequest, local::JobStatusRequest,
                               local::SaveReturned> auto&) { return false; },
          [](const local::OnlyFromNode auto&) { return false; }},
      message);
  if (may_free && budget_.has_waiting()) decide(now);
}

void StagingMemory::to_client(TimeNs now, ClientId client, const local::LocalMessage& message) {
  if (!std::holds_alternative<local::SlabFree>(message)) return;
  std::lock_guard lock(mutex_);
  budget_.use(now, client);
}

void StagingMemory::client_lost(TimeNs now, ClientId client) {
  std::lock_guard lock(mutex_);
  budget_.lose(client);
  if (budget_.has_waiting()) decide(now);
}

void StagingMemory::forget_client(ClientId client) {
  std::lock_guard lock(mutex_);
  budget_.forget(client);
}

void StagingMemory::tick(TimeNs now) {
  std::lock_guard lock(mutex_);
  const bool may_be_short = now - looked_ >= kLookEvery && budget_.holds_any();
  if (budget_.has_waiting() || may_be_short) decide(now);
}

void StagingMemory::decide(TimeNs now) {
  looked_ = now;
  for (StagingBudget::Decision& decision : budget_.decide(now, surroundings_.memory())) {
    if (!decision.news.empty()) surroundings_.log(decision.news);
    auto message = decision.granted
                       ? std::make_shared<const local::LocalMessage>(std::move(*decision.granted))
                       : std::make_shared<const local::LocalMessage>(local::GiveBack{});
    surroundings_.send(decision.client, std::move(message));
  }
}

HostMemory memory_of_this_host(uint64_t bytes_max, const base::MemoryFiles& files) {
  base::MemoryHeadroom headroom = base::memory_headroom(files);
  // The reserve leaves a host what it needs to save at all.
  if (headroom.bytes != UINT64_MAX) {
    headroom.bytes = std::max(headroom.bytes - headroom.bytes / kReserveParts,
                              std::min(headroom.bytes, kLeastStagingBytes));
  }
  if (bytes_max != 0 && bytes_max < headroom.bytes) {
    headroom.because = "--staging-memory is " + human_bytes(bytes_max);
  }
  return {headroom.bytes, std::move(headroom.because)};
}

}  // namespace shoal::actors
