// Records: the small files of a root that are written once and contain their own digests.
// docs/reference/format.md, "Records".
//
// Format: a head of 32 bytes (magic, version, state, body length, XXH3-64 of the preceding 24 bytes), the
// body, and the XXH3-128 of everything before it. The head's own digest lets a listing read the state of a
// decision without the whole manifest.
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
  uint32_t version = 1;    // the newest version that this program reads; also the one that it writes
  uint64_t body_bytes_max = 0;
  bool repairs_a_bit = false;  // one flipped bit counts as undamaged: flip_back restores the bytes

  uint64_t file_bytes_max() const { return kRecordHeadBytes + body_bytes_max + kRecordTailBytes; }
};

struct RecordHead {
  uint32_t version = 0;
  uint32_t state = 0;  // of a decision; 0 otherwise
  uint64_t body_bytes = 0;
};

// Code::too_large if the body exceeds body_bytes_max.
Result<Bytes> seal_record(const RecordKind& kind, uint32_t state, ByteView body);

// `first` holds the first kRecordHeadBytes of a file of file_bytes bytes, or the whole file if it is shorter.
// Code::corrupt if the head is damaged; Code::version names both versions. `path` is for errors.
Result<RecordHead> read_record_head(const RecordKind& kind, ByteView first, uint64_t file_bytes,
                                    const std::string& path);

struct OpenedRecord {
  RecordHead head;
  ByteView body;  // borrowed from `bytes`
};
// Checks the digests, then the other fields of the record.
Result<OpenedRecord> open_record(const RecordKind& kind, ByteView bytes, const std::string& path);

// Repairs a record in which one bit flipped: returns the bytes that differ from `damaged` in one bit and
// match both digests. nullopt if there are none, or if the record is larger than kMaxRepairedBytes.
inline constexpr size_t kMaxRepairedBytes = 8192;
std::optional<Bytes> flip_back(const RecordKind& kind, ByteView damaged);

// Turns an error inside a body whose digest matches into an error of the file: Code::corrupt. Code::version
// stays.
Status record_error(const RecordKind& kind, const Status& status, const std::string& path);

}  // namespace shoal::storage
