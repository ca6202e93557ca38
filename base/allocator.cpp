#include "base/allocator.h"

#ifdef SHOAL_WITH_MIMALLOC
#include <mimalloc.h>

#include <new>

// std::get_new_handler, by the name under which mimalloc's operator new asks for it. Where memory is short,
// it calls the handler; its own answer, that there is none, makes it abort without a word. A program's
// definition takes the place of that one.
std::new_handler handler_that_mimalloc_calls() noexcept __asm__("_ZSt15get_new_handlerv");
__attribute__((visibility("default"))) std::new_handler handler_that_mimalloc_calls() noexcept {
  return [] { throw std::bad_alloc(); };
}
#endif

namespace shoal {

void prefer_large_pages() {
#ifdef SHOAL_WITH_MIMALLOC
  mi_option_enable(mi_option_large_os_pages);
#endif
}

}  // namespace shoal
