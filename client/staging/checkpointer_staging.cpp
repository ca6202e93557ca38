// Checkpointer: the slabs of its saves. docs/reference/client-node.md, "Slabs".
#include <algorithm>
#include <optional>
#include <utility>

#include "client/checkpointer.h"
#include "client/staging/memory_budget.h"
#include "client/staging/source_digests.h"
#include "shoal/bytes.h"

namespace shoal {

uint64_t Checkpointer::Impl::held_bytes() const {
  uint64_t held = 0;
  for (const client::MemorySlab& slab : slabs) held += slab.bytes();
  return held;
}

// Replaces the slot's slab by a new one under the same number. Frees the memory of the old one first.
Status Checkpointer::Impl::replace_slab(uint32_t slot, uint64_t bytes) {
  drop_slab(slot);
  Result<client::MemorySlab> made = client::MemorySlab::make(bytes);
  Status offered = made.ok() ? session->offer_slab(slot, bytes, made->fd()) : made.status();
  if (!offered.ok()) {
    session->drop_slab(slot);
    session->send_kept();
    return offered;
  }
  slabs[slot] = std::move(*made);
  return ok_status();
}

void Checkpointer::Impl::drop_slab(uint32_t slot) {
  session->drop_slab(slot);
  slabs[slot] = client::MemorySlab();
}

// A load needs their memory. The next save makes new ones.
void Checkpointer::Impl::drop_free_slabs() {
  const Result<std::vector<uint32_t>> free = session->free_slots(false);
  if (!free.ok()) return;  // all are in use
  for (uint32_t slot : *free) {
    if (slabs[slot].bytes() != 0) drop_slab(slot);
  }
  session->send_kept();
}

// Unmaps slabs that the session gave back, or that a node may still read.
void Checkpointer::Impl::forget_dropped_slabs(const std::vector<uint32_t>& free) {
  for (uint32_t slot : free) {
    if (!session->keeps_slab(slot)) slabs[slot] = client::MemorySlab();
  }
}

// Whether a slab of `bytes` may be made without a grant.
Status Checkpointer::Impl::check_ungranted(uint64_t bytes) const {
  return client::check_budget(bytes, held_bytes() + window.bytes(), options.staging_bytes_max);
}

Result<std::optional<client::Session::StagingGrant>> Checkpointer::Impl::request_staging(uint64_t slab_bytes,
                                                                                         bool needs_answer) {
  local::StagingRequest wanted{slab_bytes, options.max_in_flight};
  if (options.staging_bytes_max != 0) {
    wanted.bytes_max = options.staging_bytes_max - std::min(options.staging_bytes_max, window.bytes());
    wanted.because = "staging_bytes_max is " + human_bytes(options.staging_bytes_max);
  } else {
    base::MemoryHeadroom headroom = base::memory_headroom();
    wanted.bytes_max =
        headroom.bytes > UINT64_MAX - held_bytes() ? UINT64_MAX : headroom.bytes + held_bytes();
    wanted.because = std::move(headroom.because);
  }
  return session->request_staging(wanted, needs_answer);
}

// Requests a grant for slabs that each hold a save of `bytes` bytes. nullopt: the slab in `slot` may be made
// without a grant.
//
// It does not wait for a silent node if the memory of this host can hold such a slab of every rank. If it
// cannot, it must wait, because several ranks would otherwise use the same memory.
Result<std::optional<client::Session::StagingGrant>> Checkpointer::Impl::grant_for(uint64_t bytes,
                                                                                   uint32_t slot) {
  const uint64_t ranks = options.staging_bytes_max != 0 ? 1 : std::max(options.ranks_on_host, 1u);
  const uint64_t of_all = bytes > UINT64_MAX / ranks ? UINT64_MAX : bytes * ranks;
  for (bool needs_answer = false;; needs_answer = true) {
    const uint64_t more = of_all - std::min(of_all, slabs[slot].bytes());
    needs_answer = needs_answer || !check_ungranted(more).ok();
    SHOAL_ASSIGN_OR_RETURN(const std::optional<client::Session::StagingGrant> grant,
                           request_staging(bytes, needs_answer));
    if (grant) return grant;
    drop_slab(slot);
    const Status fits = check_ungranted(bytes);
    if (fits.ok()) return grant;
    if (needs_answer) return fits;
  }
}

// Drops as many of the other free slabs as necessary, so that all slabs take at most `most` bytes with one of
// `bytes` bytes in `slot`. False: that is not possible.
bool Checkpointer::Impl::make_room(uint32_t slot, uint64_t bytes, uint64_t most,
                                   const std::vector<uint32_t>& free) {
  auto others = [&] { return held_bytes() - slabs[slot].bytes(); };
  while (others() > most || bytes > most - others()) {
    uint32_t largest = slot;
    for (uint32_t other : free) {
      if (other == slot || slabs[other].bytes() == 0) continue;
      if (largest == slot || slabs[other].bytes() > slabs[largest].bytes()) largest = other;
    }
    if (largest == slot) return false;
    drop_slab(largest);
  }
  return true;
}

// The free slot with the smallest slab that is large enough; else a slot without a slab; else the slot with
// the smallest slab.
uint32_t Checkpointer::Impl::best_slot(uint64_t bytes, const std::vector<uint32_t>& free) const {
  auto rank_of = [&](uint32_t slot) {
    const uint64_t has = slabs[slot].bytes();
    const int group = has >= std::max<uint64_t>(bytes, 1) ? 0 : has == 0 ? 1 : 2;
    return std::pair(group, has);
  };
  return *std::min_element(free.begin(), free.end(),
                           [&](uint32_t a, uint32_t b) { return rank_of(a) < rank_of(b); });
}

// The slot that an earlier save in parts used, else any free one.
uint32_t Checkpointer::Impl::slot_of_parts(uint64_t bytes, const std::vector<uint32_t>& free) const {
  const auto used =
      std::find_if(free.begin(), free.end(), [&](uint32_t slot) { return slabs[slot].bytes() == bytes; });
  return used != free.end() ? *used : free.front();
}

// A slot whose slab is large enough, or the slot of a save in parts. The caller must call end_filling.
Result<Checkpointer::Impl::Place> Checkpointer::Impl::place_for(uint64_t bytes, SaveStats* stats) {
  const uint64_t whole = client::slab_bytes_for(bytes);
  bool has_asked = false;
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> free, session->free_slots(true));
    forget_dropped_slabs(free);
    const uint32_t best = best_slot(bytes, free);
    if (slabs[best].bytes() >= std::max<uint64_t>(bytes, 1)) {
      if (!session->begin_filling(best)) continue;  // the session has given it back meanwhile
      return Place{best, false};
    }
    std::optional<client::Session::StagingGrant> grant = session->staging_grant();
    if (!grant || grant->in_parts || grant->slab_bytes < whole) {
      SHOAL_ASSIGN_OR_RETURN(grant, grant_for(whole, best));
      has_asked = true;
    }
    if (!grant) {
      SHOAL_RETURN_IF_ERROR(replace_slab(best, whole));
      if (session->begin_filling(best)) return Place{best, false};
      continue;
    }
    const uint64_t slab_bytes = grant->in_parts ? grant->slab_bytes : whole;
    const uint32_t slot = grant->in_parts ? slot_of_parts(slab_bytes, free) : best;
    if (make_room(slot, slab_bytes, grant->bytes(), free)) {
      if (slabs[slot].bytes() != slab_bytes) SHOAL_RETURN_IF_ERROR(replace_slab(slot, slab_bytes));
      if (session->begin_filling(slot)) return Place{slot, grant->in_parts};
    } else if (!has_asked) {  // there may be more memory now
      SHOAL_RETURN_IF_ERROR(grant_for(whole, best).status());
      has_asked = true;
    } else if (free.size() == slabs.size()) {  // no save is in flight whose end would free memory
      return Status(Code::internal,
                    "the node of this host granted " + human_bytes(grant->bytes()) +
                        " of staging memory and does not allow saves in parts; a save needs " +
                        human_bytes(whole));
    } else {
      const Clock::time_point begun = Clock::now();
      SHOAL_RETURN_IF_ERROR(session->wait_for_free(free.size() + 1, options.on_busy == OnBusy::wait));
      stats->seconds_waited += seconds_since(begun);
    }
  }
}

// Makes slabs for saves of `bytes` bytes, as many as the grant allows. If saves are staged in parts, makes
// the slab for parts.
Status Checkpointer::Impl::prepare_slabs(uint64_t bytes) {
  const uint64_t whole = client::slab_bytes_for(bytes);
  SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> free, session->free_slots(true));
  forget_dropped_slabs(free);
  std::optional<client::Session::StagingGrant> grant = session->staging_grant();
  if (!grant || grant->in_parts || grant->slab_bytes < whole) {
    SHOAL_ASSIGN_OR_RETURN(grant, grant_for(whole, free.front()));
  }
  if (grant && grant->in_parts) {
    const uint32_t slot = slot_of_parts(grant->slab_bytes, free);
    if (slabs[slot].bytes() == grant->slab_bytes ||
        !make_room(slot, grant->slab_bytes, grant->bytes(), free)) {
      return ok_status();
    }
    return replace_slab(slot, grant->slab_bytes);
  }
  for (uint32_t slot : free) {
    if (slabs[slot].bytes() >= std::max<uint64_t>(bytes, 1)) continue;
    if (grant && !make_room(slot, whole, grant->bytes(), {})) continue;
    if (!grant) {
      drop_slab(slot);
      SHOAL_RETURN_IF_ERROR(check_ungranted(whole));
    }
    SHOAL_RETURN_IF_ERROR(replace_slab(slot, whole));
  }
  return ok_status();
}

// Starts the copies from devices first, so that they run while this thread copies host memory.
Result<std::shared_ptr<gpu::DeviceWork>> Checkpointer::Impl::begin_copies() {
  std::shared_ptr<gpu::DeviceWork> copies;
  gpu::NameOfTag name_of;  // empty: a change of the state is not looked for
  std::optional<client::SourceDigests> sources;
  if (options.save.verify_unchanged) {
    name_of = [layout = bound->layout()](uint32_t entry) { return "'" + layout->entries()[entry].fqn + "'"; };
  }
  if (!device_tasks.empty()) {
    SHOAL_ASSIGN_OR_RETURN(copies, devices.to_host(device_tasks, name_of));
  }
  if (options.save.verify_unchanged) sources.emplace(tasks);
  SHOAL_RETURN_IF_ERROR(stager->wait(stager->submit(tasks)));
  if (const auto entry = sources ? sources->changed() : std::nullopt) {
    return Status(Code::invalid_argument,
                  name_of(*entry) + " changed while it was copied: another thread wrote to it during save");
  }
  return copies;
}

Result<std::shared_ptr<gpu::DeviceWork>> Checkpointer::Impl::copy_whole(
    uint32_t slot, const client::StageRecipe::Staging& staging) {
  device_tasks.clear();
  recipe->make_tasks(*bound, staging, slabs[slot].data(), tasks, &device_tasks);
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<gpu::DeviceWork> copies, begin_copies());
  if (copies == nullptr) return copies;
  if (options.save.staging == StagingMode::wait) {
    SHOAL_RETURN_IF_ERROR(copies->wait());
    return std::shared_ptr<gpu::DeviceWork>();
  }
  if (options.save.staging == StagingMode::stream) {
    for (const gpu::DeviceBatch& batch : device_tasks) {
      SHOAL_RETURN_IF_ERROR(copies->make_wait(batch.queue.stream, batch.queue.device));
    }
  }
  return copies;
}

// The node hears of the save when the copies have ended.
void Checkpointer::Impl::stage_when_copied(const std::shared_ptr<SaveHandle::State>& save,
                                           local::Staged staged, std::shared_ptr<gpu::DeviceWork> copies) {
  {
    std::lock_guard lock(save->mutex);
    save->copies = copies;
  }
  devices.when_copied(std::move(copies), [save, staged, to = session.get()](const Status& copied) {
    save->end_copies(copied);
    const Status outcome = copied.ok() ? to->stage(save, staged) : copied;
    if (!outcome.ok()) to->give_up_copying(*save, outcome);
  });
}

// Copies the parts that the node requests, until all are durable.
Status Checkpointer::Impl::stage_in_parts(const std::shared_ptr<SaveHandle::State>& save,
                                          const client::StageRecipe::Staging& staging, local::Staged staged) {
  staged.in_parts = true;
  SHOAL_RETURN_IF_ERROR(session->stage(save, std::move(staged)));
  client::MemorySlab& slab = slabs[save->slot];
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(std::optional<client::Session::Part> part, session->next_part(save));
    if (!part) return ok_status();
    const Clock::time_point begun = Clock::now();
    device_tasks.clear();
    Status copied = recipe->make_part_tasks(*bound, staging, part->wanted.ranges,
                                            MutableByteView(slab.data(), slab.bytes()), tasks, &device_tasks);
    if (copied.ok()) {
      Result<std::shared_ptr<gpu::DeviceWork>> copies = begin_copies();
      copied = copies.ok() && *copies ? (*copies)->wait() : copies.status();
    }
    session->answer_part(*part, copied);
    SHOAL_RETURN_IF_ERROR(copied);
    save->stats.seconds_copying += seconds_since(begun);
    ++save->stats.parts;
  }
}

}  // namespace shoal
