// Fuzzes manifest.shoal. Input: a byte, then a body. Byte 0: the body is the whole file with its digests.
// Byte 255: the same for a rank manifest. Byte 254: the body of a rank manifest. Any other byte is the state
// in the head of a decision. For a body alone, the target adds the digests, so that the code behind their
// check runs.
#include <string>

#include "storage/decisions/decision.h"
#include "storage/decisions/rank_manifest.h"
#include "storage/decisions/record.h"
#include "tests/fuzz/fuzz_target.h"

using namespace shoal;

namespace {

const storage::RecordKind kDecisionRecord = {"SHOALDEC", "decision", storage::kDecisionFormatVersion,
                                             storage::kMaxDecisionBytes};
const storage::RecordKind kRankRecord = {"SHOALRNK", "rank manifest", 1, storage::kMaxDecisionBytes};

void decode_rank(ByteView file) {
  auto manifest = storage::decode_rank_manifest(file, "input");
  if (!manifest.ok()) return;
  auto encoded = storage::encode_rank_manifest(*manifest);
  SHOAL_CHECK(encoded.ok());
  auto again = storage::decode_rank_manifest(*encoded, "input");
  SHOAL_CHECK(again.ok());
  SHOAL_CHECK(*storage::encode_rank_manifest(*again) == *encoded);
}

void decode(ByteView file) {
  (void)storage::read_decision_state(file.first(std::min(file.size(), storage::kRecordHeadBytes)),
                                     file.size(), "input");
  auto decision = storage::decode_decision(file, "input");
  auto opened = storage::open_decision({file.begin(), file.end()}, "input");
  SHOAL_CHECK(opened.ok() || !decision.ok());
  if (opened.ok() && opened->committed()) {
    (void)storage::metadata_of(*opened);
    (void)plan::decode_world(opened->manifest().encoded->world);
    SHOAL_CHECK(storage::decode_rest(*opened).ok() == decision.ok());
  }
  if (!decision.ok()) return;
  auto encoded = storage::encode_decision(*decision);
  SHOAL_CHECK(encoded.ok());
  auto again = storage::decode_decision(*encoded, "input");
  SHOAL_CHECK(again.ok());
  SHOAL_CHECK(again->key == decision->key && again->committed() == decision->committed());
  auto twice = storage::encode_decision(*again);
  SHOAL_CHECK(twice.ok() && *twice == *encoded);
  if (decision->committed()) (void)storage::metadata_of(*decision);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const ByteView body = view_of_input(data + 1, size - 1);
  if (data[0] == 0) {
    decode(body);
    return 0;
  }
  if (data[0] == 255) {
    decode_rank(body);
    return 0;
  }
  if (data[0] == 254) {
    auto file = storage::seal_record(kRankRecord, 0, body);
    if (file.ok()) decode_rank(*file);
    return 0;
  }
  auto file = storage::seal_record(kDecisionRecord, data[0], body);
  if (file.ok()) decode(*file);
  return 0;
}
