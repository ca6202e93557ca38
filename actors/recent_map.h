// RecentMap: remembers the newest `most` values put into it. The one put first is forgotten first, whatever
// its key. Iterators stay valid until the next put.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <utility>

namespace shoal {

template <class Key, class Value>
class RecentMap {
 public:
  explicit RecentMap(size_t most) : most_(most) {}

  auto find(const Key& key) const { return values_.find(key); }
  auto end() const { return values_.end(); }
  bool contains(const Key& key) const { return values_.contains(key); }
  size_t size() const { return values_.size(); }

  // A key that is there keeps its value and its place.
  void put(const Key& key, Value value) {
    if (!values_.emplace(key, std::move(value)).second) return;
    by_age_.push_back(key);
    if (values_.size() <= most_) return;
    values_.erase(by_age_.front());
    by_age_.pop_front();
  }

 private:
  size_t most_;
  std::map<Key, Value> values_;
  std::deque<Key> by_age_;
};

}  // namespace shoal
