#include "base/page_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace shoal {

PageBuffer::PageBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  if (bytes < kPagesFromBytes) {
    memory = std::calloc(1, bytes);
  } else {
    memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) memory = nullptr;
  }
  if (memory == nullptr) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(memory);
}

PageBuffer::~PageBuffer() {
  if (size_ < kPagesFromBytes) {
    std::free(data_);
  } else {
    ::munmap(data_, size_);
  }
}

}  // namespace shoal
