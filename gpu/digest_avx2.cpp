#define SHOAL_DIGEST_KERNEL block_digest_avx2
#include "gpu/digest_kernel.inc"
