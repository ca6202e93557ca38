// Reading ahead: telling the kernel what will be read of a file soon.
#pragma once

#include <cstdint>

namespace shoal::base {

// The kernel fetches as much of it as it likes; returns at once. Not done on FUSE: where a mount's reads pass
// the page cache by (the option direct_io), what was fetched ahead is fetched once more. Any thread.
void read_ahead(int fd, uint64_t offset, uint64_t bytes);

bool is_read_ahead(int fd);  // whether it is done of this open file

}  // namespace shoal::base
