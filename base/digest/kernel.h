// The kernels of block_digest: one function compiled for several instruction sets. They use C types only. The
// linker might keep an inline C++ function of such a unit for the whole program, which would crash on a
// processor without those instructions.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace shoal::base {

// `bytes` is at most kDigestBlockBytes.
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
