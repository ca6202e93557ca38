#include "shoal/page_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace shoal {

std::byte* take_pages(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes < kPagesFromBytes) return static_cast<std::byte*>(std::calloc(1, bytes));
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void return_pages(std::byte* memory, size_t bytes) noexcept {
  if (bytes < kPagesFromBytes) {
    std::free(memory);
  } else {
    ::munmap(memory, bytes);
  }
}

PageBuffer::PageBuffer(size_t bytes) : data_(take_pages(bytes)), size_(bytes) {
  if (data_ == nullptr && bytes != 0) throw std::bad_alloc();
}

PageBuffer::~PageBuffer() {
  return_pages(data_, size_);
}

}  // namespace shoal
