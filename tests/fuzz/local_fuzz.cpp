// Fuzzes a message between client and node.
#include "local/messages/messages.h"
#include "tests/fuzz/fuzz_target.h"

using namespace shoal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto message = local::decode_local(view_of_input(data, size));
  if (!message.ok()) return 0;
  const Bytes encoded = local::encode_local(*message);
  auto again = local::decode_local(encoded);
  SHOAL_CHECK(again.ok());
  SHOAL_CHECK(again->index() == message->index());
  SHOAL_CHECK(local::encode_local(*again) == encoded);
  return 0;
}
