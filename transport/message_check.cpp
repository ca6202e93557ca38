#include "transport/message_check.h"

#include "schema/checked_reader_internal.h"
#include "transport/transport.h"

namespace shoal::transport {

Status check_segment_table(ByteView message) {
  return schema::CheckedMessage::open(message, schema::ReadLimits{.bytes_max = kMaxMessageBytes}).status();
}

}  // namespace shoal::transport
