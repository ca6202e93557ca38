// The kernels behind block_digest: the same function compiled for several instruction sets. C types only: an
// inline C++ function compiled in such a unit could be the one the linker keeps for all, and crash a lesser
// processor.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace shoal::base {

// `bytes` at most kDigestBlockBytes.
using DigestKernel = uint64_t (*)(const void* data, size_t bytes);

struct DigestKernelInfo {
  const char* name;
  DigestKernel kernel;
  bool usable;  // on this processor
};

struct DigestKernels {
  const DigestKernelInfo* first;
  size_t count;
};
DigestKernels digest_kernels();  // narrowest first; the first is always usable

uint64_t block_digest_portable(const void* data, size_t bytes);  // SSE2 on x86-64, NEON on arm64
#if defined(__x86_64__)
uint64_t block_digest_avx2(const void* data, size_t bytes);
uint64_t block_digest_avx512(const void* data, size_t bytes);
#endif

}  // namespace shoal::base
