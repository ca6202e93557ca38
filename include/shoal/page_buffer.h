// PageBuffer: memory for large, short-lived data, such as a message while it is encoded or received.
// PagedVector: a vector in such memory.
//
// Large buffers are pages mapped from the system. Untouched pages take no memory, and the system gets all
// pages back at once when the buffer ends; an allocator might keep freed memory.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "shoal/bytes.h"

namespace shoal {

inline constexpr size_t kPagesFromBytes = size_t{256} << 10;  // smaller buffers come from malloc

// Zeroed memory, aligned at least as by malloc. nullptr: `bytes` is 0, or there is no memory. The caller
// returns it with the same `bytes`.
std::byte* take_pages(size_t bytes);
void return_pages(std::byte* memory, size_t bytes) noexcept;

// Movable. Not thread-safe.
class PageBuffer {
 public:
  PageBuffer() = default;
  explicit PageBuffer(size_t bytes);  // zeroed; throws std::bad_alloc
  ~PageBuffer();
  PageBuffer(PageBuffer&& other) noexcept { swap(other); }
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    PageBuffer(std::move(other)).swap(*this);
    return *this;
  }

  std::byte* data() const { return data_; }  // aligned at least as by malloc
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

template <class T>
struct PageAllocator {
  static_assert(alignof(T) <= alignof(std::max_align_t));
  using value_type = T;
  PageAllocator() = default;
  template <class U>
  PageAllocator(const PageAllocator<U>&) noexcept {}  // NOLINT(google-explicit-constructor): it is one
  T* allocate(size_t count) {
    std::byte* memory = nullptr;
    if (count <= std::numeric_limits<size_t>::max() / sizeof(T)) memory = take_pages(count * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return reinterpret_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) noexcept {
    return_pages(reinterpret_cast<std::byte*>(memory), count * sizeof(T));
  }
  friend bool operator==(const PageAllocator&, const PageAllocator&) { return true; }
};
// A large vector's capacity beyond its size takes no memory.
template <class T>
using PagedVector = std::vector<T, PageAllocator<T>>;

}  // namespace shoal
