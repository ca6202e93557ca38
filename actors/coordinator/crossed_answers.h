// CrossedAnswers: whom a role has told something large. To tell it to many takes long, and meanwhile they ask
// again; what they ask then has crossed with the answer on its way. Answered too, all of it would be sent
// once more to each as often as it asked.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "actors/role.h"

namespace shoal::actors {

// Key: whom, and of what. What is told at one time counts as on its way for as long as the telling took, once
// more, and resend_first_ms. Where it was lost, it is asked for again after that, and answered.
template <class Key>
class CrossedAnswers {
 public:
  explicit CrossedAnswers(const RoleTimes& times) : patience_(times.resend_first_ms * kMillisecond) {}

  // With every event: how long the telling took is seen when the next one comes.
  void observe(TimeNs now) {
    now_ = now;
    if (telling_.empty() || now <= told_at_) return;
    const TimeNs until = now + (now - told_at_) + patience_;
    for (const Key& key : telling_) {
      if (auto told = arrives_by_.find(key); told != arrives_by_.end()) told->second = until;
    }
    telling_.clear();
  }
  void tell(Key key) {
    told_at_ = now_;
    arrives_by_.insert_or_assign(key, kNotKnownYet);
    telling_.push_back(std::move(key));
  }
  // Whether what is asked for is on its way.
  bool has_crossed(const Key& key) const {
    auto told = arrives_by_.find(key);
    return told != arrives_by_.end() && now_ < told->second;
  }
  template <class Which>
  void forget_if(Which&& which) {
    std::erase_if(arrives_by_, [&](const auto& each) { return which(each.first); });
  }
  size_t size() const { return arrives_by_.size(); }

 private:
  static constexpr TimeNs kNotKnownYet = INT64_MAX;

  const TimeNs patience_;
  TimeNs now_ = 0;
  TimeNs told_at_ = 0;
  std::vector<Key> telling_;  // at told_at_, and no later event has come since
  std::map<Key, TimeNs> arrives_by_;
};

}  // namespace shoal::actors
