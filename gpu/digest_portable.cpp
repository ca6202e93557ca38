#define SHOAL_DIGEST_KERNEL block_digest_portable
#include "gpu/digest_kernel.inc"
