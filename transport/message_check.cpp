#include "transport/message_check.h"

#include "schema/checked_reader_internal.h"
#include "transport/transport.h"

namespace shoal {

Status check_segment_table(ByteView message) {
  return CheckedMessage::open(message, ReadLimits{.bytes_max = kMaxMessageBytes}).status();
}

}  // namespace shoal
