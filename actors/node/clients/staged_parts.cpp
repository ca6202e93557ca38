#include "actors/node/clients/staged_parts.h"

#include <fmt/format.h>

#include <vector>

namespace shoal::actors {

class StagedParts::Source final : public PartSource {
 public:
  Source(StagedParts& parts, ClientId client, uint32_t slab_id, const AttemptKey& key)
      : parts_(parts), client_(client), slab_id_(slab_id), key_(key) {}

  ~Source() override {
    {
      std::lock_guard lock(parts_.mutex_);
      for (uint64_t number : in_progress_) parts_.asked_.erase(number);
      parts_.in_use_.erase({client_, slab_id_});
    }
    parts_.changed_.notify_all();
  }

  uint64_t ask(std::vector<local::PartRange> ranges) override {
    local::PartRequest wanted{slab_id_, key_.step, key_.attempt, 0, std::move(ranges)};
    {
      std::lock_guard lock(parts_.mutex_);
      wanted.number = ++parts_.last_number_;
      parts_.asked_[wanted.number] = Asked{client_, slab_id_, false, ok_status()};
      in_progress_.insert(wanted.number);
    }
    const uint64_t number = wanted.number;
    parts_.send_(client_, std::make_shared<const local::LocalMessage>(std::move(wanted)));
    return number;
  }

  Status wait(uint64_t number) override {
    std::unique_lock lock(parts_.mutex_);
    SHOAL_CHECK(in_progress_.contains(number));
    const Asked& asked = parts_.asked_.at(number);
    const bool is_over = parts_.changed_.wait_for(
        lock, parts_.patience_, [&] { return asked.is_answered || !parts_.gone(client_).ok(); });
    Status outcome = asked.is_answered ? asked.outcome : parts_.gone(client_);
    if (!is_over) {
      outcome =
          Status(Code::deadline_exceeded,
                 fmt::format("its trainer has not copied the next part within {} s",
                             std::chrono::duration_cast<std::chrono::seconds>(parts_.patience_).count()));
    }
    parts_.asked_.erase(number);
    in_progress_.erase(number);
    return outcome;
  }

 private:
  StagedParts& parts_;
  const ClientId client_;
  const uint32_t slab_id_;
  const AttemptKey key_;
  std::set<uint64_t> in_progress_;
};

Status StagedParts::gone(ClientId client) const {
  if (is_closed_) return Status(Code::unavailable, "the node was stopped while the save was staged in parts");
  if (here_.contains(client)) return ok_status();
  return Status(Code::unavailable, "its trainer disconnected while it staged in parts");
}

Result<std::unique_ptr<PartSource>> StagedParts::open(ClientId client, uint32_t slab_id,
                                                      const AttemptKey& key) {
  std::unique_lock lock(mutex_);
  const std::pair slab(client, slab_id);
  changed_.wait(lock, [&] { return !in_use_.contains(slab) || !gone(client).ok(); });
  SHOAL_RETURN_IF_ERROR(gone(client));
  in_use_.insert(slab);
  return std::unique_ptr<PartSource>(std::make_unique<Source>(*this, client, slab_id, key));
}

void StagedParts::client_attached(ClientId client) {
  std::lock_guard lock(mutex_);
  here_.insert(client);
}

void StagedParts::answered(ClientId client, const local::PartStaged& message) {
  {
    std::lock_guard lock(mutex_);
    auto asked = asked_.find(message.number);
    if (asked == asked_.end() || asked->second.client != client || asked->second.slab_id != message.slab_id) {
      return;
    }
    asked->second.is_answered = true;
    asked->second.outcome = message.outcome;
  }
  changed_.notify_all();
}

void StagedParts::client_lost(ClientId client) {
  {
    std::lock_guard lock(mutex_);
    here_.erase(client);
  }
  changed_.notify_all();
}

void StagedParts::close() {
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace shoal::actors
