#include "base/allocator.h"

#ifdef SHOAL_WITH_MIMALLOC
#include <mimalloc.h>

#include <new>

namespace {

// As the standard requires: calls the new-handler until there is memory, the handler throws, or there is no
// handler.
template <class Take>
void* take_or_throw(Take take) {
  for (;;) {
    if (void* memory = take()) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

// mimalloc is built as C, where it cannot throw: its own operators abort without a message if memory is
// short. The definitions of a program replace them. mimalloc's operators that free, and those that do not
// throw, are correct for memory from these operators.
void* operator new(std::size_t bytes) {
  return take_or_throw([=] { return mi_malloc(bytes); });
}
void* operator new[](std::size_t bytes) {
  return take_or_throw([=] { return mi_malloc(bytes); });
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take_or_throw([=] { return mi_malloc_aligned(bytes, static_cast<std::size_t>(alignment)); });
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return take_or_throw([=] { return mi_malloc_aligned(bytes, static_cast<std::size_t>(alignment)); });
}
#endif

namespace shoal::base {

void prefer_large_pages() {
#ifdef SHOAL_WITH_MIMALLOC
  mi_option_enable(mi_option_large_os_pages);
#endif
}

}  // namespace shoal::base
