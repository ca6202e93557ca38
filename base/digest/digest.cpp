#include "base/digest/digest.h"

#include <algorithm>
#include <iterator>

#include "base/digest/kernel.h"
#include "shoal/check.h"

namespace shoal::base {

DigestKernels digest_kernels() {
  static const DigestKernelInfo kernels[] = {
    {"portable", block_digest_portable, true},
#if defined(__x86_64__)
    {"avx2", block_digest_avx2, __builtin_cpu_supports("avx2") != 0},
    {"avx512", block_digest_avx512, __builtin_cpu_supports("avx512f") != 0},
#endif
  };
  return {kernels, std::size(kernels)};
}

namespace {
DigestKernel widest_kernel() {
  DigestKernels kernels = digest_kernels();
  DigestKernel widest = kernels.first->kernel;
  for (size_t i = 0; i < kernels.count; ++i) {
    if (kernels.first[i].usable) widest = kernels.first[i].kernel;
  }
  return widest;
}
}  // namespace

uint64_t block_digest(ByteView block) {
  static const DigestKernel kernel = widest_kernel();
  SHOAL_CHECK(block.size() <= kDigestBlockBytes);
  return kernel(block.data(), block.size());
}

void digest_blocks(ByteView piece, std::vector<uint64_t>* out) {
  out->reserve(out->size() + digest_count(piece.size()));
  while (!piece.empty()) {
    ByteView block = piece.first(std::min(piece.size(), kDigestBlockBytes));
    out->push_back(block_digest(block));
    piece = piece.subspan(block.size());
  }
}

}  // namespace shoal::base
