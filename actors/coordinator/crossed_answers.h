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
  explicit CrossedAnswers(const Timeouts& timeouts) : patience_(timeouts.resend_first_ms * kMillisecond) {}

  // Called with every event. The event after an answer shows how long the sending took.
  void observe(TimeNs now) {
    now_ = now;
    if (just_sent_.empty() || now <= sent_at_) return;
    const TimeNs until = now + (now - sent_at_) + patience_;
    for (const Key& key : just_sent_) {
      if (auto sent = arrives_by_.find(key); sent != arrives_by_.end()) sent->second = until;
    }
    just_sent_.clear();
  }
  void sent(Key key) {
    sent_at_ = now_;
    arrives_by_.insert_or_assign(key, kNotKnownYet);
    just_sent_.push_back(std::move(key));
  }
  // Whether the answer that this request wants is on its way.
  bool has_crossed(const Key& key) const {
    auto sent = arrives_by_.find(key);
    return sent != arrives_by_.end() && now_ < sent->second;
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
  TimeNs sent_at_ = 0;
  std::vector<Key> just_sent_;  // sent at sent_at_; no later event has come since
  std::map<Key, TimeNs> arrives_by_;
};

}  // namespace shoal::actors
