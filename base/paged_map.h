// PagedMap and PagedSet: like std::map and std::set, for keys that are integers close together, such as ranks
// or numbers of nodes. 64 adjacent keys share a page, so that a look-up touches one or two pages and an entry
// needs no separate allocation. A key far from all others takes a whole page.
//
// Not thread-safe. A reference stays valid until its entry is erased. An iterator stays valid until its entry
// is erased or any entry is added.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "shoal/check.h"

namespace shoal::base {

// Pages, ascending by number. A Page has a member `uint64_t used` with one bit for each slot.
template <class Page>
class PageTable {
 public:
  static constexpr uint64_t kSlots = 64;
  struct Entry {
    uint64_t number = 0;
    Page page;
  };

  // The index of the first page that is not before `number`. Keys are mostly dense, so that the first guess
  // is most often right.
  size_t lower_bound(uint64_t number) const {
    if (entries_.empty() || number <= entries_.front().number) return 0;
    const uint64_t guess = number - entries_.front().number;
    if (guess < entries_.size() && entries_[guess].number == number) return guess;
    if (number > entries_.back().number) return entries_.size();
    const auto place = std::lower_bound(entries_.begin(), entries_.end(), number,
                                        [](const Entry& entry, uint64_t n) { return entry.number < n; });
    return static_cast<size_t>(place - entries_.begin());
  }
  bool holds(size_t place, uint64_t number) const {
    return place < entries_.size() && entries_[place].number == number;
  }

  std::vector<Entry> entries_;
};

template <class Key>
class PagedSet {
 public:
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Key;
    using difference_type = std::ptrdiff_t;
    using pointer = const Key*;
    using reference = Key;
    Key operator*() const {
      return static_cast<Key>(set_->table_.entries_[place_].number * 64 +
                              static_cast<uint64_t>(std::countr_zero(left_)));
    }
    iterator& operator++() {
      left_ &= left_ - 1;
      if (left_ == 0) enter(place_ + 1);
      return *this;
    }
    friend bool operator==(const iterator& a, const iterator& b) {
      return a.place_ == b.place_ && a.left_ == b.left_;
    }

   private:
    friend class PagedSet;
    iterator(const PagedSet* set, size_t place) : set_(set) { enter(place); }
    void enter(size_t place) {
      place_ = place;
      left_ = place < set_->table_.entries_.size() ? set_->table_.entries_[place].page.used : 0;
    }
    const PagedSet* set_;
    size_t place_ = 0;
    uint64_t left_ = 0;  // used slots of this page that are still to be visited
  };

  bool insert(Key key) {  // false: the set has it already
    const uint64_t number = key / 64, bit = uint64_t{1} << key % 64;
    const size_t place = table_.lower_bound(number);
    auto& entries = table_.entries_;
    if (!table_.holds(place, number)) {
      entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(place), {number, {}});
    }
    const bool is_new = (entries[place].page.used & bit) == 0;
    entries[place].page.used |= bit;
    size_ += is_new;
    return is_new;
  }
  bool erase(Key key) {
    const size_t place = table_.lower_bound(key / 64);
    if (!contains(key)) return false;
    auto& entries = table_.entries_;
    entries[place].page.used &= ~(uint64_t{1} << key % 64);
    if (entries[place].page.used == 0) entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(place));
    --size_;
    return true;
  }
  bool contains(Key key) const {
    const size_t place = table_.lower_bound(key / 64);
    return table_.holds(place, key / 64) && (table_.entries_[place].page.used >> key % 64 & 1) != 0;
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  iterator begin() const { return iterator(this, 0); }
  iterator end() const { return iterator(this, table_.entries_.size()); }

 private:
  struct Page {
    uint64_t used = 0;
  };
  PageTable<Page> table_;
  size_t size_ = 0;
};

template <class Key, class Value>
class PagedMap {
 public:
  using value_type = std::pair<const Key, Value>;

  template <bool kIsConst>
  class Iterator {
   public:
    using Owner = std::conditional_t<kIsConst, const PagedMap, PagedMap>;
    using Entry =
        std::conditional_t<kIsConst, const std::pair<const Key, Value>, std::pair<const Key, Value>>;
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::pair<const Key, Value>;
    using difference_type = std::ptrdiff_t;
    using pointer = Entry*;
    using reference = Entry&;
    template <bool kOther>
    requires(kIsConst && !kOther)
        Iterator(const Iterator<kOther>& other)  // NOLINT(google-explicit-constructor)
        : map_(other.map_), place_(other.place_), slot_(other.slot_) {}
    Entry& operator*() const { return *map_->entry(place_, slot_); }
    Entry* operator->() const { return map_->entry(place_, slot_); }
    Iterator& operator++() {
      *this = map_->template at_or_after<Iterator>(place_, slot_ + 1);
      return *this;
    }
    Iterator operator++(int) { return std::exchange(*this, std::next(*this)); }
    friend bool operator==(const Iterator& a, const Iterator& b) {
      return a.place_ == b.place_ && a.slot_ == b.slot_;
    }

   private:
    friend class PagedMap;
    template <bool>
    friend class Iterator;
    Iterator(Owner* map, size_t place, size_t slot) : map_(map), place_(place), slot_(slot) {}
    Owner* map_;
    size_t place_, slot_;
  };
  using iterator = Iterator<false>;
  using const_iterator = Iterator<true>;

  PagedMap() = default;
  PagedMap(PagedMap&& other) noexcept
      : table_(std::exchange(other.table_, {})), size_(std::exchange(other.size_, 0)) {}
  PagedMap& operator=(PagedMap&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PagedMap() { clear(); }

  iterator begin() { return at_or_after<iterator>(0, 0); }
  const_iterator begin() const { return at_or_after<const_iterator>(0, 0); }
  iterator end() { return {this, table_.entries_.size(), 0}; }
  const_iterator end() const { return {this, table_.entries_.size(), 0}; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  iterator find(Key key) { return found<iterator>(this, key); }
  const_iterator find(Key key) const { return found<const_iterator>(this, key); }
  bool contains(Key key) const { return find(key) != end(); }
  // The first entry that is not before `key`.
  const_iterator lower_bound(Key key) const {
    const size_t place = table_.lower_bound(key / kSlots);
    return at_or_after<const_iterator>(place, table_.holds(place, key / kSlots) ? key % kSlots : 0);
  }
  Value& at(Key key) {
    const iterator there = find(key);
    SHOAL_CHECK(there != end());
    return there->second;
  }
  const Value& at(Key key) const { return const_cast<PagedMap*>(this)->at(key); }
  Value& operator[](Key key) { return try_emplace(key).first->second; }

  template <class... Args>
  std::pair<iterator, bool> try_emplace(Key key, Args&&... args) {
    const uint64_t number = key / kSlots;
    const size_t place = table_.lower_bound(number), slot = key % kSlots;
    auto& entries = table_.entries_;
    if (!table_.holds(place, number)) {
      entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(place),
                     {number, std::make_unique_for_overwrite<Page>()});
      entries[place].page->used = 0;
    }
    Page& page = *entries[place].page;
    if ((page.used >> slot & 1) != 0) return {iterator{this, place, slot}, false};
    ::new (static_cast<void*>(page.room + slot * sizeof(value_type)))
        value_type(std::piecewise_construct, std::forward_as_tuple(key),
                   std::forward_as_tuple(std::forward<Args>(args)...));
    page.used |= uint64_t{1} << slot;
    ++size_;
    return {iterator{this, place, slot}, true};
  }
  void insert_or_assign(Key key, Value value) {
    auto [there, is_new] = try_emplace(key, std::move(value));
    if (!is_new) there->second = std::move(value);  // NOLINT(bugprone-use-after-move): not taken
  }
  bool erase(Key key) {
    const iterator there = find(key);
    if (there == end()) return false;
    erase(there);
    return true;
  }
  // Returns the entry after the erased one.
  iterator erase(iterator at) {
    at->~value_type();
    Page& page = *table_.entries_[at.place_].page;
    page.used &= ~(uint64_t{1} << at.slot_);
    --size_;
    if (page.used != 0) return at_or_after<iterator>(at.place_, at.slot_ + 1);
    table_.entries_.erase(table_.entries_.begin() + static_cast<std::ptrdiff_t>(at.place_));
    return at_or_after<iterator>(at.place_, 0);
  }
  // Erases all entries that are not before `key`.
  void erase_from(Key key) {
    const_iterator place = lower_bound(key);
    for (iterator each{this, place.place_, place.slot_}; each != end();) each = erase(each);
  }
  void clear() {
    for (iterator each = begin(); each != end(); ++each) each->~value_type();
    table_.entries_.clear();
    size_ = 0;
  }

 private:
  static constexpr uint64_t kSlots = 64;
  struct Page {
    uint64_t used;
    alignas(value_type) std::byte room[kSlots * sizeof(value_type)];
  };

  value_type* entry(size_t place, size_t slot) const {
    std::byte* room = table_.entries_[place].page->room + slot * sizeof(value_type);
    return std::launder(reinterpret_cast<value_type*>(room));
  }
  template <class It, class Map>
  static It found(Map* map, Key key) {
    const size_t place = map->table_.lower_bound(key / kSlots);
    const bool is_there = map->table_.holds(place, key / kSlots) &&
                          (map->table_.entries_[place].page->used >> key % kSlots & 1) != 0;
    return is_there ? It{map, place, static_cast<size_t>(key % kSlots)} : map->end();
  }
  template <class It, class Map>
  static It next(Map* map, size_t place, size_t slot) {
    for (; place < map->table_.entries_.size(); ++place, slot = 0) {
      const uint64_t left = slot >= kSlots ? 0 : map->table_.entries_[place].page->used >> slot;
      if (left != 0) return It{map, place, slot + static_cast<size_t>(std::countr_zero(left))};
    }
    return It{map, map->table_.entries_.size(), 0};
  }
  template <class It>
  It at_or_after(size_t place, size_t slot) {
    return next<It>(this, place, slot);
  }
  template <class It>
  It at_or_after(size_t place, size_t slot) const {
    return next<It>(this, place, slot);
  }

  PageTable<std::unique_ptr<Page>> table_;
  size_t size_ = 0;
};

}  // namespace shoal::base
