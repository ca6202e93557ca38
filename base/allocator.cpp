#include "base/allocator.h"

#ifdef SHOAL_WITH_MIMALLOC
#include <mimalloc.h>

#include <new>

namespace {

// As the standard has it: the handler is called until there is memory, or it throws, or there is none.
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

// mimalloc is built as C, where nothing can be thrown: its own operators abort without a word where memory is
// short. A program's definitions take the place of those. Its operators that free, and those that do not
// throw, are right for memory that comes from here.
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
