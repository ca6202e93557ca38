// A message between nodes, after the transport has put it together.
#include "actors/messages/link_messages.h"
#include "actors/messages/messages.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/message_check.h"

using namespace shoal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteView bytes = view_of_input(data, size);
  const bool framed = check_segment_table(bytes).ok();
  auto word = decode_link(bytes);
  if (word.ok() && *word) SHOAL_CHECK(decode_link(encode_link(**word)).ok());
  auto message = decode_wire(bytes);
  if (!message.ok()) return 0;
  SHOAL_CHECK(framed);
  (void)describe(*message->body);
  const Bytes encoded = encode_wire(*message);
  auto again = decode_wire(encoded);
  SHOAL_CHECK(again.ok());
  SHOAL_CHECK(again->from == message->from && again->to == message->to);
  SHOAL_CHECK(encode_wire(*again) == encoded);
  return 0;
}
