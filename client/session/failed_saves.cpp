#include <fmt/format.h>

#include <utility>
#include <vector>

#include "client/session/failed_saves.h"

namespace shoal::client {

FailedSaves::FailedSaves(Rank rank, Callback callback, uint32_t most_in_a_row)
    : rank_(rank), callback_(std::move(callback)), most_in_a_row_(most_in_a_row) {}

void FailedSaves::on_staged(const AttemptKey& key) {
  std::lock_guard lock(mutex_);
  report_.write({SaveEvent::Kind::staged, rank_, key, ""});
}

void FailedSaves::on_decided(const AttemptKey& key, const Status& outcome) {
  std::lock_guard lock(mutex_);
  if (!is_listening_) return;
  if (outcome.ok()) {
    in_a_row_ = 0;
    report_.write({SaveEvent::Kind::committed, rank_, key, ""});
    return;
  }
  unreported_.insert_or_assign(key, Failure{key, outcome});
  report_.write({SaveEvent::Kind::failed, rank_, key, outcome.to_string()});
  if (callback_) to_call_.push_back({key, outcome});
  count_failure(key, outcome);
}

void FailedSaves::on_notified(const AttemptKey& key) {
  std::lock_guard lock(mutex_);
  if (unreported_.erase(key) != 0) report_.write({SaveEvent::Kind::notified, rank_, key, ""});
}

void FailedSaves::on_failed_call(const AttemptKey& key, const Status& why) {
  std::lock_guard lock(mutex_);
  const bool is_counted = unreported_.erase(key) != 0;
  report_.write({SaveEvent::Kind::notified, rank_, key, ""});
  if (!is_counted) count_failure(key, why);
}

void FailedSaves::stop_listening() {
  std::lock_guard lock(mutex_);
  is_listening_ = false;
}

// Requires the mutex.
void FailedSaves::count_failure(const AttemptKey& key, const Status& why) {
  ++in_a_row_;
  if (most_in_a_row_ == 0 || in_a_row_ < most_in_a_row_ || too_many_) return;
  too_many_ = TooMany{in_a_row_, {key, why}};
  report_.write({SaveEvent::Kind::too_many, rank_, key, why.to_string()});
}

std::optional<FailedSaves::Unreported> FailedSaves::unreported() const {
  std::lock_guard lock(mutex_);
  if (unreported_.empty()) return std::nullopt;
  return Unreported{unreported_.begin()->second, unreported_.size() - 1};
}

std::optional<FailedSaves::Unreported> FailedSaves::take_unreported(const std::optional<AttemptKey>& but) {
  std::lock_guard lock(mutex_);
  std::optional<Unreported> out;
  for (auto at = unreported_.begin(); at != unreported_.end();) {
    if (at->first == but) {
      ++at;
      continue;
    }
    report_.write({SaveEvent::Kind::notified, rank_, at->first, ""});
    if (out) {
      ++out->others;
    } else {
      out = Unreported{std::move(at->second), 0};
    }
    at = unreported_.erase(at);
  }
  return out;
}

bool FailedSaves::has_own_unreported() const {
  std::lock_guard lock(mutex_);
  for (const auto& [key, failure] : unreported_) {
    if (failure.why.message().find(kRefusedAfterFailure) == std::string::npos) return true;
  }
  return false;
}

std::optional<FailedSaves::TooMany> FailedSaves::too_many() const {
  std::lock_guard lock(mutex_);
  return too_many_;
}

void FailedSaves::call_back() {
  if (!callback_) return;
  std::unique_lock lock(mutex_);
  while (!to_call_.empty()) {
    const Failure next = std::move(to_call_.front());
    to_call_.pop_front();
    lock.unlock();
    callback_(next.key, next.why);
    lock.lock();
  }
}

std::string name_save(Rank rank, const AttemptKey& key) {
  return fmt::format("rank {}, {}", rank, to_string(key));
}

std::string describe_unreported(const FailedSaves::Unreported& unreported) {
  const std::string others =
      unreported.others == 0 ? "" : fmt::format("; and {} more failed", unreported.others);
  return fmt::format("the save of {} failed: {}{}", to_string(unreported.first.key),
                     unreported.first.why.to_string(), others);
}

}  // namespace shoal::client
