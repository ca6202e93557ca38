// manifest.shoal. Input: a byte, then a body. The byte 0: the body is the whole file, digests and all. Else
// it is the state in the record's head, and the digests are made here, so that what lies behind them is
// reached.
#include <string>

#include "storage/decision.h"
#include "storage/record.h"
#include "tests/fuzz/fuzz_target.h"

using namespace shoal;

namespace {

const RecordKind kDecisionRecord = {"SHOALDEC", "decision", kDecisionFormatVersion, kMaxDecisionBytes};

void decode(ByteView file) {
  (void)read_decision_state(file.first(std::min(file.size(), kRecordHeadBytes)), file.size(), "input");
  auto decision = decode_decision(file, "input");
  if (!decision.ok()) return;
  auto encoded = encode_decision(*decision);
  SHOAL_CHECK(encoded.ok());
  auto again = decode_decision(*encoded, "input");
  SHOAL_CHECK(again.ok());
  SHOAL_CHECK(again->key == decision->key && again->committed() == decision->committed());
  auto twice = encode_decision(*again);
  SHOAL_CHECK(twice.ok() && *twice == *encoded);
  if (decision->committed()) (void)metadata_of(*decision);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const ByteView body = view_of_input(data + 1, size - 1);
  if (data[0] == 0) {
    decode(body);
    return 0;
  }
  auto file = seal_record(kDecisionRecord, data[0], body);
  if (file.ok()) decode(*file);
  return 0;
}
