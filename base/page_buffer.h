// PageBuffer: memory for what is large and soon over, such as a message while it is encoded or received.
//
// A large one is pages of the system's own: those that nobody has touched take no memory, and all of them go
// back when it ends, whatever the allocator keeps of what is freed.
#pragma once

#include <cstddef>
#include <utility>

#include "base/bytes.h"

namespace shoal {

inline constexpr size_t kPagesFromBytes = size_t{256} << 10;  // less comes from the allocator

// Movable. Not thread-safe.
class PageBuffer {
 public:
  PageBuffer() = default;
  explicit PageBuffer(size_t bytes);  // zeros. std::bad_alloc
  ~PageBuffer();
  PageBuffer(PageBuffer&& other) noexcept { swap(other); }
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    PageBuffer(std::move(other)).swap(*this);
    return *this;
  }

  std::byte* data() const { return data_; }  // aligned as malloc's at least
  size_t size() const { return size_; }
  MutableByteView bytes() const { return {data_, size_}; }

 private:
  void swap(PageBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace shoal
