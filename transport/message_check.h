// The Cap'n Proto framing of a message: the transport's only check of its contents.
#pragma once

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::transport {

// OK if the segment table is valid and the segments fill the bytes exactly; otherwise Code::corrupt. Does not
// check the contents of the segments. `message` needs no alignment.
Status check_segment_table(ByteView message);

// A message that passes the check: one segment of zeros, for measurements. `bytes`: a multiple of 8, at least
// 16.
Bytes message_of_zeros(size_t bytes);

}  // namespace shoal::transport
