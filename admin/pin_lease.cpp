#include "admin/pin_lease.h"

#include <utility>

#include "admin/root_reader.h"
#include "shoal/hash.h"

namespace shoal::admin {

Result<std::unique_ptr<PinLease>> PinLease::take(storage::Storage& storage, const AttemptKey& key,
                                                 std::string holder, std::chrono::milliseconds renewal) {
  const Nonce id = random_128();
  storage::Mark mark{storage::pin_name(id), key, true, 0, std::move(holder), unix_time_now_ns(), id};
  SHOAL_ASSIGN_OR_RETURN(const bool created, storage::create_mark(storage, storage::MarkKind::pin, mark));
  if (!created) return Status(Code::already_exists, "pin " + mark.name + " exists already");
  return std::unique_ptr<PinLease>(new PinLease(storage, std::move(mark), renewal));
}

PinLease::PinLease(storage::Storage& storage, storage::Mark mark, std::chrono::milliseconds renewal)
    : storage_(storage), mark_(std::move(mark)), renewal_(renewal), thread_([this] { renew(); }) {}

// A renewal that fails is tried again: the pin lasts for several of them.
void PinLease::renew() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, renewal_, [this] { return stops_; })) {
    ++mark_.counter;
    (void)storage::replace_mark(storage_, storage::MarkKind::pin, mark_);
  }
}

PinLease::~PinLease() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  thread_.join();
  (void)storage::remove_mark(storage_, storage::MarkKind::pin, mark_.name);  // otherwise it ends by itself
}

}  // namespace shoal::admin
