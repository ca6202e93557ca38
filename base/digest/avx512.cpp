#define SHOAL_DIGEST_KERNEL block_digest_avx512
#include "base/digest/kernel.inc"
