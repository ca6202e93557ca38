// Records: the small files of a root that are written once and carry their own digests.
// docs/reference/format.md, "Records".
//
// A head of 32 bytes (magic, version, state, length of the body, XXH3-64 of these 24), the body, XXH3-128 of
// all before. The head's own digest lets a listing trust the state of a decision without reading a whole
// manifest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::storage {

inline constexpr size_t kRecordHeadBytes = 32;
inline constexpr size_t kRecordTailBytes = 16;

struct RecordKind {
  std::string_view magic;  // 8 bytes
  std::string_view what;   // "decision", for errors
  uint32_t version = 1;    // the newest that this program reads, and the one it writes
  uint64_t body_bytes_max = 0;
  bool repairs_a_bit = false;  // one flipped bit is no damage: flip_back says what stood there

  uint64_t file_bytes_max() const { return kRecordHeadBytes + body_bytes_max + kRecordTailBytes; }
};

struct RecordHead {
  uint32_t version = 0;
  uint32_t state = 0;  // of a decision; 0 otherwise
  uint64_t body_bytes = 0;
};

// Code::too_large where the body is beyond its bound.
Result<Bytes> seal_record(const RecordKind& kind, uint32_t state, ByteView body);

// `first` holds the first kRecordHeadBytes of a file of file_bytes (all of it, if it has fewer).
// Code::corrupt; Code::version names both versions. `path` is for errors.
Result<RecordHead> read_record_head(const RecordKind& kind, ByteView first, uint64_t file_bytes,
                                    const std::string& path);

struct OpenedRecord {
  RecordHead head;
  ByteView body;  // borrowed from `bytes`
};
// Checks everything that a record says of itself, its digests first.
Result<OpenedRecord> open_record(const RecordKind& kind, ByteView bytes, const std::string& path);

// The record as it was before one of its bits flipped: the bytes that differ from these in one bit and agree
// with both digests. Nothing where there are none, or where the record is larger than kMaxRepairedBytes.
inline constexpr size_t kMaxRepairedBytes = 8192;
std::optional<Bytes> flip_back(const RecordKind& kind, ByteView damaged);

// What was found wrong inside a body whose digest is right, as an error of the file: Code::corrupt, but
// Code::version stays.
Status record_error(const RecordKind& kind, const Status& status, const std::string& path);

}  // namespace shoal::storage
