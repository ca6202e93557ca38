// What the transport knows of a message's contents: that it is framed as Cap'n Proto frames it.
#pragma once

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::transport {

// OK if the segment table is sane and its segments fill the bytes exactly; else Code::corrupt. What the
// segments say is for whoever reads them. `message` needs no alignment.
Status check_segment_table(ByteView message);

}  // namespace shoal::transport
