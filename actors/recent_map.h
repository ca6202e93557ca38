// RecentMap: remembers the newest `most` values put into it. It forgets the value that was put first,
// whatever its key. Iterators stay valid until the next put.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace shoal::actors {

template <class Key, class Value>
class RecentMap {
 public:
  // Precondition: most is not 0.
  explicit RecentMap(size_t most) : most_(most) {}

  auto find(const Key& key) const { return values_.find(key); }
  // Null if the key is not there.
  Value* get(const Key& key) {
    auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  bool contains(const Key& key) const { return values_.contains(key); }
  size_t size() const { return values_.size(); }

  // A key that exists keeps its value and its place.
  void put(const Key& key, Value value) {
    if (!values_.emplace(key, std::move(value)).second) return;
    if (values_.size() <= most_) return by_age_.push_back(key);
    values_.erase(by_age_[oldest_]);
    by_age_[oldest_] = key;
    oldest_ = (oldest_ + 1) % most_;
  }

 private:
  size_t most_;
  std::map<Key, Value> values_;
  std::vector<Key> by_age_;  // a ring, once it holds `most` keys
  size_t oldest_ = 0;
};

}  // namespace shoal::actors
