// Fuzzes a message between nodes, after the transport has assembled it.
#include "actors/messages/link_messages.h"
#include "actors/messages/messages.h"
#include "local/status/job_status.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/message_check.h"

using namespace shoal;

namespace {

// The status in a message of `shoal status`, which the link does not decode.
void check_status(const actors::LinkMessage& message) {
  if (const auto* host = std::get_if<actors::link::HostStatusReport>(&message)) {
    auto status = local::decode_host_status(host->status);
    if (!status.ok()) return;
    auto again = local::decode_host_status(local::encode_host_status(*status));
    SHOAL_CHECK(again.ok() && *again == *status);
  } else if (const auto* job = std::get_if<actors::link::JobStatusTable>(&message)) {
    auto status = local::decode_job_status(job->status);
    if (!status.ok()) return;
    SHOAL_CHECK(local::decode_job_status(local::encode_job_status(*status)).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteView bytes = view_of_input(data, size);
  const bool framed = transport::check_segment_table(bytes).ok();
  auto word = actors::decode_link(bytes);
  if (word.ok() && *word) {
    SHOAL_CHECK(actors::decode_link(actors::encode_link(**word)).ok());
    check_status(**word);
  }
  auto message = actors::decode_wire(bytes);
  if (!message.ok()) return 0;
  SHOAL_CHECK(framed);
  (void)actors::describe(*message->body);
  const Bytes encoded = actors::encode_wire(*message);
  auto again = actors::decode_wire(encoded);
  SHOAL_CHECK(again.ok());
  SHOAL_CHECK(again->from == message->from && again->to == message->to);
  SHOAL_CHECK(actors::encode_wire(*again) == encoded);
  return 0;
}
