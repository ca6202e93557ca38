// LoadTargets: the values that a load requests.
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
  std::vector<Box> boxes;  // the boxes that this rank needs; empty for an object
  friend bool operator==(const LoadTarget&, const LoadTarget&) = default;
};

// A sequence of targets in one buffer of names and one of numbers, because there may be hundreds of
// thousands. Copies share the buffers until one copy changes; several threads may have copies.
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
  void read(size_t at, LoadTarget& out) const;  // the same, but reuses the memory of `out`
  std::string_view fqn(size_t at) const;        // valid until a target is added
  LayoutEntry::Kind kind(size_t at) const { return table_->entries[at].kind; }
  // Equal for copies that share their memory.
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
    bool is_whole = false;  // the only box is the whole tensor; `numbers` does not have it
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
