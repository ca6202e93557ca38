// Reading ahead: announces to the kernel which range of a file the process will soon read.
#pragma once

#include <cstdint>

namespace shoal::base {

// Asks the kernel to fetch the range and returns at once; the kernel may fetch less. Does nothing on FUSE:
// reads of a mount with direct_io bypass the page cache, so that the bytes would be fetched twice. Any
// thread.
void read_ahead(int fd, uint64_t offset, uint64_t bytes);

bool is_read_ahead(int fd);  // whether read_ahead has an effect for this open file

}  // namespace shoal::base
