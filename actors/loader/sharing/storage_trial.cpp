#include "actors/loader/sharing/storage_trial.h"

#include <algorithm>

#include "actors/loader/sharing/load_tree.h"
#include "actors/messages/chunk.h"

namespace shoal::actors {

namespace {

constexpr uint64_t kMostTried = 8, kLeastTried = 2;  // chunks
constexpr uint64_t kPartOfOwn = 4;     // of its own part, for a trial in a group all of whose members read
constexpr uint64_t kPartOfAll = 8;     // of what a member needs, for the trials of a larger group
constexpr uint64_t kPartOfBuffer = 4;  // of the buffer, for chunks of the trial that wait for their turn
constexpr uint64_t kSampleBytes = uint64_t{64} << 20;
constexpr uint64_t kPartOfLoad = 8;  // of the load, for a sample
constexpr uint64_t kFasterPermille = 1250;

uint64_t kib_per_s(uint64_t bytes, TimeNs time) {
  return bytes / 1024 * 1'000'000 / (static_cast<uint64_t>(time) / 1000 + 1);
}

}  // namespace

std::vector<uint32_t> trial_chunks(const ChunkPlan& plan, uint64_t buffer_bytes,
                                   const std::function<bool(uint32_t chunk)>& is_own_part) {
  uint64_t members = 1;
  for (const HostGroup& hosts : plan.groups) members = std::max<uint64_t>(members, hosts ? hosts->size() : 1);
  if (members == 1) return {};
  const bool all_read = members <= kReadersMost;
  std::vector<uint32_t> candidates;
  for (uint32_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    if (plan.chunks[chunk].header_of) continue;
    if (!all_read || is_own_part(chunk)) candidates.push_back(chunk);
  }
  const uint64_t affordable = candidates.size() / (all_read ? kPartOfOwn : kPartOfAll * members);
  // The buffer must also have room for the chunks whose turn it is.
  const uint64_t spare = buffer_bytes - std::min(buffer_bytes, least_buffer_bytes(plan.groups.size()));
  const uint64_t count =
      std::min({kMostTried, affordable, buffer_bytes / kPartOfBuffer / kChunkBytes, spare / kChunkBytes});
  candidates.resize(count < kLeastTried ? 0 : count);
  return candidates;
}

StorageTrial::StorageTrial(size_t chunks, uint64_t needed_bytes, TrialMachine::Counts& counts)
    : state_(chunks == 0 ? TrialState::over : TrialState::trying),
      counts_(counts),
      chunks_left_(chunks),
      sample_bytes_(std::min(kSampleBytes, needed_bytes / kPartOfLoad)),
      look_at_bytes_(sample_bytes_) {}

void StorageTrial::begin_sample(TimeNs now, TrialTrigger trigger) {
  on(trigger);
  since_ = now;
  bytes_ = 0;
  look_at_bytes_ = sample_bytes_;
}

void StorageTrial::came(TimeNs now, const Arrival& arrival) {
  bytes_ += arrival.bytes;
  const bool is_sample = bytes_ >= look_at_bytes_;
  switch (state_.state()) {
    case TrialState::trying:
      if (--chunks_left_ != 0) return;
      storage_kib_per_s_ = kib_per_s(bytes_, now - since_);
      return begin_sample(now, TrialTrigger::tried);
    case TrialState::warming:
      if (arrival.all_send) begin_sample(now, TrialTrigger::all_send);
      return;
    case TrialState::sharing:
      if (!is_sample) return;
      shared_kib_per_s_ = kib_per_s(bytes_, now - since_);
      if (storage_kib_per_s_ * 1000 > shared_kib_per_s_ * kFasterPermille) on(TrialTrigger::storage_faster);
      look_at_bytes_ *= 2;  // the first chunks come faster than later ones: peers had them already
      return;
    case TrialState::leaving:  // chunks that were requested from peers still arrive
      if (arrival.none_requested) begin_sample(now, TrialTrigger::nothing_requested);
      return;
    case TrialState::reading:
      if (!is_sample) return;
      if (kib_per_s(bytes_, now - since_) < shared_kib_per_s_) return give_up();
      return begin_sample(now, TrialTrigger::still_as_fast);
    case TrialState::over:
      return;
  }
}

}  // namespace shoal::actors
