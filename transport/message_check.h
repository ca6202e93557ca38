// The transport's only check of a message's contents: it has Cap'n Proto framing.
#pragma once

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::transport {

// OK if the segment table is valid and the segments fill the bytes exactly; otherwise Code::corrupt. Does not
// check the contents of the segments. `message` needs no alignment.
Status check_segment_table(ByteView message);

}  // namespace shoal::transport
