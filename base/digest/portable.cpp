#define SHOAL_DIGEST_KERNEL block_digest_portable
#include "base/digest/kernel.inc"
