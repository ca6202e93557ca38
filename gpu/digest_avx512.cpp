#define SHOAL_DIGEST_KERNEL block_digest_avx512
#include "gpu/digest_kernel.inc"
