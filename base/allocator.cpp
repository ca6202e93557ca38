#include "base/allocator.h"

#ifdef SHOAL_WITH_MIMALLOC
#include <mimalloc.h>
#endif

namespace shoal {

void prefer_large_pages() {
#ifdef SHOAL_WITH_MIMALLOC
  mi_option_enable(mi_option_large_os_pages);
#endif
}

}  // namespace shoal
