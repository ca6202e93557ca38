// LoadTargets: what a load asks for, value by value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/layout.h"
#include "shoal/page_buffer.h"

namespace shoal::local {

struct LoadTarget {
  std::string fqn;
  LayoutEntry::Kind kind = LayoutEntry::Kind::tensor;
  DType dtype = DType::u8;
  Dims shape;
  std::vector<Box> boxes;  // what this rank wants of it; empty for an object
  friend bool operator==(const LoadTarget&, const LoadTarget&) = default;
};

// A sequence of targets: one buffer of names and one of numbers, for there may be hundreds of thousands.
// Copies share them until one of them changes; they may live in several threads.
class LoadTargets {
 public:
  LoadTargets() = default;
  LoadTargets(std::initializer_list<LoadTarget> targets) {
    for (const LoadTarget& target : targets) push_back(target);
  }

  size_t size() const { return table_ ? table_->entries.size() : 0; }
  bool empty() const { return size() == 0; }
  LoadTarget operator[](size_t at) const {  // a copy
    LoadTarget out;
    read(at, out);
    return out;
  }
  void read(size_t at, LoadTarget& out) const;  // the same, into memory that is there
  std::string_view fqn(size_t at) const;        // until something is added
  LayoutEntry::Kind kind(size_t at) const { return table_->entries[at].kind; }
  // The same for copies that share their memory.
  const void* identity() const { return table_.get(); }

  void reserve(size_t size);
  void push_back(const LoadTarget& target) {
    add(target.fqn, target.kind, target.dtype, target.shape, target.boxes);
  }
  void add(std::string_view fqn, LayoutEntry::Kind kind, DType dtype, const Dims& shape,
           const std::vector<Box>& boxes);

 private:
  struct Entry {
    uint64_t name_at = 0;
    uint64_t numbers_at = 0;  // the shape, then offsets and sizes of each box
    uint32_t boxes = 0;
    uint16_t fqn_bytes = 0;
    uint8_t dims = 0;
    LayoutEntry::Kind kind = LayoutEntry::Kind::tensor;
    DType dtype = DType::u8;
    bool is_whole = false;  // one box, which is the tensor: not among the numbers
  };
  struct Table {
    PagedVector<Entry> entries;
    PagedVector<char> names;
    PagedVector<uint64_t> numbers;
  };
  Table& own();

  std::shared_ptr<Table> table_;  // nullptr: none
};

}  // namespace shoal::local
