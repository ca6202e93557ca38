// The allocator of Shoal's programs. A program that links shoal_allocator uses malloc and operator new of
// mimalloc; in a build with a sanitizer it uses those of the sanitizer. If memory is short, operator new
// throws std::bad_alloc, as the standard requires. docs/decisions/040-programs-allocate-with-mimalloc.md.
#pragma once

namespace shoal::base {

// For a short process that uses gigabytes: makes mimalloc use pages of 2 MiB where the kernel provides them.
// Call it before the process allocates much. It does nothing in a program without mimalloc.
void prefer_large_pages();

}  // namespace shoal::base
