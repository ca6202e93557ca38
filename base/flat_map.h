// FlatMap: an ordered map for few entries, in one contiguous array of pairs. It has the part of C++23's
// std::flat_map that Shoal uses. If the keys are consecutive integers, such as the ranks of a host, a look-up
// touches the first entry and the one it finds.
//
// Not thread-safe. References and iterators stay valid until an entry is added or erased.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "shoal/check.h"

namespace shoal::base {

template <class Key, class Value>
class FlatMap {
 public:
  using value_type = std::pair<Key, Value>;  // callers must not change `first`
  using iterator = typename std::vector<value_type>::iterator;
  using const_iterator = typename std::vector<value_type>::const_iterator;

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  iterator begin() { return entries_.begin(); }
  iterator end() { return entries_.end(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }

  iterator find(const Key& key) { return found(*this, key); }
  const_iterator find(const Key& key) const { return found(*this, key); }
  bool contains(const Key& key) const { return find(key) != end(); }
  Value& at(const Key& key) { return at_of(*this, key); }
  const Value& at(const Key& key) const { return at_of(*this, key); }
  Value& operator[](const Key& key) { return try_emplace(key).first->second; }

  // Adds an entry unless the map has one with this key. The bool is true if it added one.
  template <class... Args>
  std::pair<iterator, bool> try_emplace(const Key& key, Args&&... args) {
    const iterator place = lower_bound(*this, key);
    if (place != end() && !(key < place->first)) return {place, false};
    return {entries_.emplace(place, std::piecewise_construct, std::forward_as_tuple(key),
                             std::forward_as_tuple(std::forward<Args>(args)...)),
            true};
  }
  size_t erase(const Key& key) {
    const iterator place = find(key);
    if (place == end()) return 0;
    entries_.erase(place);
    return 1;
  }
  iterator erase(iterator place) { return entries_.erase(place); }
  void clear() { entries_.clear(); }

 private:
  template <class Self>
  static auto lower_bound(Self& self, const Key& key) {
    auto& entries = self.entries_;
    if constexpr (std::unsigned_integral<Key>) {  // keys are often consecutive
      if (entries.empty() || key <= entries.front().first) return entries.begin();
      const auto guess = static_cast<size_t>(key - entries.front().first);
      if (guess < entries.size() && entries[guess].first == key) {
        return entries.begin() + static_cast<std::ptrdiff_t>(guess);
      }
    }
    return std::lower_bound(entries.begin(), entries.end(), key,
                            [](const value_type& entry, const Key& wanted) { return entry.first < wanted; });
  }
  template <class Self>
  static auto found(Self& self, const Key& key) {
    const auto place = lower_bound(self, key);
    return place != self.end() && !(key < place->first) ? place : self.end();
  }
  template <class Self>
  static auto& at_of(Self& self, const Key& key) {
    const auto place = self.find(key);
    SHOAL_CHECK(place != self.end());
    return place->second;
  }

  std::vector<value_type> entries_;  // by key
};

}  // namespace shoal::base
