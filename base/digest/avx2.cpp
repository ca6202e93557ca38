#define SHOAL_DIGEST_KERNEL block_digest_avx2
#include "base/digest/kernel.inc"
