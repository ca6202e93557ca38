#include "transport/message_check.h"

#include "schema/checked_reader_internal.h"
#include "transport/transport.h"

namespace shoal::transport {

Status check_segment_table(ByteView message) {
  return schema::CheckedMessage::open(message, schema::ReadLimits{.bytes_max = kMaxMessageBytes}).status();
}

Bytes message_of_zeros(size_t bytes) {
  Bytes message(bytes);
  store_le32(&message[4], static_cast<uint32_t>(bytes / 8 - 1));
  return message;
}

}  // namespace shoal::transport
