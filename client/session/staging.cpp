// Session: the memory of slabs, and saves that are staged in parts. docs/reference/client-node.md, "Slabs".
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>

#include <algorithm>
#include <utility>

#include "client/session/session.h"

namespace shoal::client {

namespace {

// Returns the file's pages to the system, even if other processes have it mapped.
void release_pages(int fd, uint64_t bytes) {
  (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
}

}  // namespace

// --- grants ---

std::optional<Session::StagingGrant> Session::staging_grant() const {
  std::lock_guard lock(mutex_);
  return grant_;
}

Result<std::optional<Session::StagingGrant>> Session::request_staging(const local::StagingRequest& wanted,
                                                                      bool needs_answer) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!lost_.ok()) return lost_;
    if (needs_answer) SHOAL_RETURN_IF_ERROR(wait_for_node(lock));
    if (!link_ || !link_->attached.grants_staging) return std::optional<StagingGrant>();
    const std::shared_ptr<NodeLink> link = link_;
    asked_ = wanted;
    asked_->number = ++staging_requests_;
    granted_.reset();
    send_message(*asked_);
    const Status waited = wait_for_grant(lock, link, needs_answer);
    asked_.reset();
    if (!lost_.ok()) return lost_;
    SHOAL_RETURN_IF_ERROR(waited);
    if (granted_) break;
    if (!needs_answer) return std::optional<StagingGrant>();  // the node ended, or is stopped
  }
  if (!granted_->outcome.ok()) {
    grant_.reset();
    return granted_->outcome;
  }
  grant_ = StagingGrant{granted_->slab_bytes, granted_->slabs, granted_->in_parts};
  return grant_;
}

Status Session::wait_for_node(std::unique_lock<std::mutex>& lock) {
  ++requests_waiting_;
  changed_.notify_all();
  const Status waited = wait_until(lock, [&] { return link_ != nullptr; });
  --requests_waiting_;
  return waited;
}

// A stopped node must not delay a save that can do without a grant: such a save does not wait for a node that
// does not answer a ping. Other saves wait until the receiving thread gives up the node.
Status Session::wait_for_grant(std::unique_lock<std::mutex>& lock, const std::shared_ptr<NodeLink>& link,
                               bool needs_answer) {
  const Clock::time_point until = Clock::now() + kLongestAnswer;
  while (Clock::now() < until) {
    const uint64_t received = messages_received_;
    send_message(local::Ping{});
    changed_.notify_all();
    bool is_over = false;
    SHOAL_RETURN_IF_ERROR(wait_while_allowed(lock, Clock::now() + kLongestPong, [&] {
      return is_over = granted_ || !lost_.ok() || link_ != link;
    }));
    if (is_over || (!needs_answer && messages_received_ == received)) return ok_status();
  }
  return Status(
      Code::deadline_exceeded,
      fmt::format(
          "the node of this host (pid {}) has not answered a request for staging memory for {} minutes",
          link->attached.node_pid, kLongestAnswer.count()));
}

void Session::on_granted(local::StagingGranted message) {
  std::lock_guard lock(mutex_);
  if (!asked_) return;
  // This is a late answer to an earlier request, for another amount of memory. The node counts its last
  // grant.
  if (message.number != 0 && message.number != asked_->number) return;
  granted_ = std::move(message);
  changed_.notify_all();
}

void Session::on_give_back() {
  std::lock_guard lock(mutex_);
  grant_.reset();
  for (Slot& slot : slots_) slot.gives_back = slot.fd != nullptr;
  give_back_free_slabs();
  send_message(kept());
  changed_.notify_all();
}

void Session::free_slab_of(const SaveKey& key) {
  for (Slot& slot : slots_) {
    if (slot.taken_by == key) slot.taken_by.reset();
  }
}

void Session::give_back_free_slabs() {
  bool is_less = false;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].gives_back || !slots_[i].is_free()) continue;
    forget_slab(i);
    is_less = true;
  }
  if (is_less) send_message(kept());
}

void Session::forget_slab(uint32_t slot) {
  if (slots_[slot].fd) release_pages(slots_[slot].fd->get(), slots_[slot].bytes);
  slots_[slot].lose_slab();
}

local::StagingKept Session::kept() const {
  local::StagingKept has;
  has.slabs = static_cast<uint32_t>(slots_.size());
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].fd) continue;
    has.bytes += slots_[i].bytes;
    has.slab_ids.push_back(i);
  }
  if (grant_) has.bytes = std::max(has.bytes, grant_->bytes());
  return has;
}

// --- slots ---

Status Session::wait_for_free(size_t count, bool wait) {
  std::unique_lock lock(mutex_);
  auto free = [&] {
    return static_cast<size_t>(
        std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.is_taken(); }));
  };
  if (free() >= count) return ok_status();
  if (!wait) {
    return Status(Code::busy, fmt::format("{} save(s) are in flight, as many as the staging memory holds",
                                          slots_.size() - free()));
  }
  return wait_until(lock, [&] { return free() >= count; });
}

bool Session::begin_filling(uint32_t slot) {
  std::lock_guard lock(mutex_);
  if (!slots_[slot].fd) return false;
  slots_[slot].is_filling = true;
  return true;
}

void Session::end_filling(uint32_t slot) {
  std::lock_guard lock(mutex_);
  slots_[slot].is_filling = false;
  give_back_free_slabs();
  changed_.notify_all();
}

void Session::drop_slab(uint32_t slot) {
  std::lock_guard lock(mutex_);
  if (!slots_[slot].fd) return;
  forget_slab(slot);
  if (link_ && link_->attached.grants_staging) send_message(kept());
  changed_.notify_all();
}

void Session::send_kept() {
  std::lock_guard lock(mutex_);
  grant_.reset();
  if (link_ && link_->attached.grants_staging) send_message(kept());
  changed_.notify_all();
}

// --- parts ---

const Session::Record* Session::in_parts(const SaveKey& key) const {
  auto found = undecided_.find(key);
  if (found == undecided_.end() || !found->second.save) return nullptr;
  const auto* staged = std::get_if<local::Staged>(&found->second.offer);
  return staged != nullptr && staged->in_parts ? &found->second : nullptr;
}

Result<std::optional<Session::Part>> Session::next_part(const std::shared_ptr<SaveHandle::State>& save) {
  const SaveKey key{save->key.step, save->key.attempt};
  std::unique_lock lock(mutex_);
  bool has_ended = false;
  const Status waited = wait_until(lock, [&] {
    const Record* record = in_parts(key);
    has_ended = record == nullptr || record->save != save;
    if (!has_ended) {
      std::lock_guard save_lock(save->mutex);
      has_ended = save->is_done;
    }
    return has_ended || !parts_.empty();
  });
  if (!waited.ok() || has_ended) {
    end_parts(key);
    if (!waited.ok()) return waited;
    return std::optional<Part>();
  }
  Part part = std::move(parts_.front());
  parts_.pop_front();
  return std::optional<Part>(std::move(part));
}

void Session::answer_part(const Part& part, Status outcome) {
  // Only for the node that requested it: another node requested other bytes of the slab.
  send_to_node(part.link, local::PartStaged{part.wanted.slab_id, part.wanted.number, std::move(outcome)});
}

Status Session::on_part_request(local::PartRequest wanted) {
  std::lock_guard lock(mutex_);
  if (parts_.size() >= kMaxPartsQueued)
    return Status(Code::corrupt, "it requests too many parts of a save at once");
  const SaveKey key{wanted.step, wanted.attempt};
  const Record* record = parts_of_ == key ? in_parts(key) : nullptr;
  if (record == nullptr || record->save->slot != wanted.slab_id) {
    send_message(local::PartStaged{wanted.slab_id, wanted.number,
                                   Status(Code::aborted, "the trainer has given up this save")});
  } else {
    parts_.push_back({std::move(wanted), links_});
  }
  changed_.notify_all();
  return ok_status();
}

// The trainer copies no further parts.
void Session::end_parts(const SaveKey& key) {
  if (parts_of_ != key) return;
  parts_of_.reset();
  for (const Part& part : parts_) {
    send_message(local::PartStaged{part.wanted.slab_id, part.wanted.number,
                                   Status(Code::aborted, "the trainer has given up this save")});
  }
  parts_.clear();
  changed_.notify_all();
}

}  // namespace shoal::client
