#include "client/session/session.h"

namespace shoal {

namespace {

// Programs print it without saying what it is about. Requires the mutex.
Status named_outcome(const SaveHandle::State& save) {
  return save.failures ? save.outcome.with_context(client::name_save(save.failures->rank(), save.key))
                       : save.outcome;
}

}  // namespace

SaveHandle::SaveHandle(std::shared_ptr<State> state) : state_(std::move(state)) {}

AttemptKey SaveHandle::key() const {
  return state_->key;
}

const SaveStats& SaveHandle::stats() const {
  return state_->stats;
}

bool SaveHandle::done() const {
  std::lock_guard lock(state_->mutex);
  return state_->is_done;
}

Result<Metadata> SaveHandle::wait_committed(std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(state_->mutex);
  auto is_done = [&] { return state_->is_done; };
  if (!timeout) {
    state_->changed.wait(lock, is_done);
  } else if (!state_->changed.wait_for(lock, *timeout, is_done)) {
    return Status(Code::deadline_exceeded, to_string(state_->key) + " is still undecided");
  }
  if (state_->outcome.ok()) return state_->metadata;
  if (state_->failures) state_->failures->on_notified(state_->key);
  return named_outcome(*state_);
}

Status SaveHandle::wait_staged() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->copies == nullptr; });
  return state_->copied;
}

Status SaveHandle::wait_staged(void* stream) {
  std::shared_ptr<gpu::DeviceWork> copies;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->copies == nullptr) return state_->copied;
    copies = state_->copies;
  }
  return copies->make_wait(stream);
}

Status SaveHandle::error() const {
  std::lock_guard lock(state_->mutex);
  if (!state_->outcome.ok() && state_->failures) state_->failures->on_notified(state_->key);
  return named_outcome(*state_);
}

std::optional<uint64_t> SaveHandle::unchanged_since() const {
  std::lock_guard lock(state_->mutex);
  return state_->unchanged_since;
}

std::string SaveHandle::warning() const {
  std::lock_guard lock(state_->mutex);
  return state_->warning;
}

double SaveHandle::seconds_to_decision() const {
  std::lock_guard lock(state_->mutex);
  return state_->seconds_to_decision;
}

}  // namespace shoal
