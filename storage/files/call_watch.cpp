#include "storage/files/call_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/crash_report.h"

namespace shoal::storage {

namespace {

constexpr std::chrono::seconds kLookEvery{1};

double seconds_of(int64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

}  // namespace

CallWatch::~CallWatch() {
  {
    std::lock_guard lock(stop_mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CallWatch::start() {
  thread_ = base::vital_thread([this] {
    std::unique_lock lock(stop_mutex_);
    while (!stopped_.wait_for(lock, kLookEvery, [this] { return is_stopping_; })) look();
  });
}

CallWatch::Call::Call(CallWatch& watch, const char* operation, std::string_view folder, std::string_view name)
    : watch_(watch), operation_(operation), folder_(folder), name_(name), began_ns_(watch.now_()) {
  std::lock_guard lock(watch_.mutex_);
  before_ = watch_.last_;
  (before_ != nullptr ? before_->after_ : watch_.first_) = this;
  watch_.last_ = this;
}

int CallWatch::Call::end(int error_number) {
  if (std::exchange(has_ended_, true)) return error_number;
  {
    std::lock_guard lock(watch_.mutex_);
    (before_ != nullptr ? before_->after_ : watch_.first_) = after_;
    (after_ != nullptr ? after_->before_ : watch_.last_) = before_;
  }
  const int64_t age_ns = watch_.now_() - began_ns_;
  if (age_ns < kSlowCallNs) return error_number;
  watch_.log_(error_number == 0 ? fmt::format("storage: {} took {:.0f} s", describe(), seconds_of(age_ns))
                                : fmt::format("storage: {} failed after {:.0f} s: {}", describe(),
                                              seconds_of(age_ns), std::strerror(error_number)));
  return error_number;
}

std::string CallWatch::Call::describe() const {
  return name_.empty() ? fmt::format("{} of {}", operation_, folder_)
                       : fmt::format("{} of {}/{}", operation_, folder_, name_);
}

void CallWatch::look() {
  std::vector<std::string> lines;
  {
    std::lock_guard lock(mutex_);
    const int64_t now_ns = now_();
    for (Call* call = first_; call != nullptr; call = call->after_) {
      const int64_t age_ns = now_ns - call->began_ns_;
      if (age_ns < call->next_line_ns_) continue;
      while (call->next_line_ns_ <= age_ns) call->next_line_ns_ *= 2;
      lines.push_back(fmt::format("storage: {} has taken {:.0f} s and has not returned", call->describe(),
                                  seconds_of(age_ns)));
    }
  }
  for (const std::string& line : lines) log_(line);
}

std::vector<SlowCall> CallWatch::slow(size_t most) const {
  std::vector<SlowCall> out;
  std::lock_guard lock(mutex_);
  const int64_t now_ns = now_();
  for (const Call* call = first_; call != nullptr && out.size() < most; call = call->after_) {
    const int64_t age_ns = now_ns - call->began_ns_;
    if (age_ns >= kSlowCallNs) out.push_back({call->describe(), static_cast<uint64_t>(age_ns / 1'000'000)});
  }
  return out;
}

int64_t CallWatch::oldest_ns() const {
  std::lock_guard lock(mutex_);
  return first_ == nullptr ? 0 : std::max<int64_t>(0, now_() - first_->began_ns_);
}

}  // namespace shoal::storage
