// Where a program's memory comes from: whoever links shoal_allocator has malloc and operator new of mimalloc,
// but under a sanitizer, which brings its own. Where memory is short, operator new throws std::bad_alloc, as
// the standard has it. See docs/decisions/040-programs-allocate-with-mimalloc.md.
#pragma once

namespace shoal::base {

// For a process that fills gigabytes and ends: pages of 2 MiB wherever the kernel gives them. Before much is
// allocated; nothing where the memory is not mimalloc's.
void prefer_large_pages();

}  // namespace shoal::base
