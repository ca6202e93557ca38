// CrossedAnswers: remembers to which nodes a role has just sent a large answer. Sending it to many nodes
// takes long, and meanwhile they repeat their requests. Such a request has crossed with the answer on its way
// and is ignored; otherwise each node would get the answer as often as it asked.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "actors/role.h"

namespace shoal::actors {

// Key: the node, and what was sent to it. Answers sent at one time count as on their way for as long as the
// sending took, once more that long, and resend_first_ms. A request after that is answered again: the answer
// may be lost.
template <class Key>
class CrossedAnswers {
 public:
  explicit CrossedAnswers(const RoleTimes& times) : patience_(times.resend_first_ms * kMillisecond) {}

  // Called with every event. The event after an answer shows how long the sending took.
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
  // Whether the answer that this request wants is on its way.
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
  std::vector<Key> telling_;  // sent at told_at_; no later event has come since
  std::map<Key, TimeNs> arrives_by_;
};

}  // namespace shoal::actors
