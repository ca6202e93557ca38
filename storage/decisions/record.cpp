#include "storage/decisions/record.h"

#include <fmt/format.h>

#include <algorithm>

#include "shoal/hash.h"

namespace shoal::storage {

namespace {
constexpr size_t kMagicBytes = 8;
constexpr size_t kVersionAt = 8, kStateAt = 12, kLengthAt = 16, kHeadDigestAt = 24;
static_assert(kHeadDigestAt + 8 == kRecordHeadBytes);
}  // namespace

Result<Bytes> seal_record(const RecordKind& kind, uint32_t state, ByteView body) {
  SHOAL_CHECK(kind.magic.size() == kMagicBytes);
  if (body.size() > kind.body_bytes_max) {
    return Status(Code::too_large, fmt::format("a {} of {} bytes is too large: at most {} are allowed",
                                               kind.what, body.size(), kind.body_bytes_max));
  }
  Bytes out(kRecordHeadBytes + body.size() + kRecordTailBytes);
  std::memcpy(out.data(), kind.magic.data(), kMagicBytes);
  store_le32(out.data() + kVersionAt, kind.version);
  store_le32(out.data() + kStateAt, state);
  store_le64(out.data() + kLengthAt, body.size());
  store_le64(out.data() + kHeadDigestAt, xxh3_64(ByteView(out).first(kHeadDigestAt)));
  std::copy(body.begin(), body.end(), out.begin() + kRecordHeadBytes);
  Hash128 digest = xxh3_128(ByteView(out).first(kRecordHeadBytes + body.size()));
  std::copy(digest.bytes.begin(), digest.bytes.end(), out.end() - kRecordTailBytes);
  return out;
}

Result<RecordHead> read_record_head(const RecordKind& kind, ByteView first, uint64_t file_bytes,
                                    const std::string& path) {
  auto corrupt = [&](std::string_view what) {
    return Status(Code::corrupt, fmt::format("{}: damaged {}: {}", path, kind.what, what));
  };
  if (first.size() < kRecordHeadBytes) return corrupt(fmt::format("{} bytes are too few", file_bytes));
  if (as_text(first.first(kMagicBytes)) != kind.magic) return corrupt("it does not begin like one");
  if (load_le64(first.data() + kHeadDigestAt) != xxh3_64(first.first(kHeadDigestAt))) {
    return corrupt("its head differs from its digest");
  }
  RecordHead head;
  head.version = load_le32(first.data() + kVersionAt);
  head.state = load_le32(first.data() + kStateAt);
  head.body_bytes = load_le64(first.data() + kLengthAt);
  if (head.version > kind.version) {
    return Status(Code::version,
                  fmt::format("{}: this file has format {}, but this program reads only formats up to {}",
                              path, head.version, kind.version));
  }
  if (head.version == 0) return corrupt("its format is 0");
  if (head.body_bytes > kind.body_bytes_max ||
      file_bytes != kRecordHeadBytes + head.body_bytes + kRecordTailBytes) {
    return corrupt(fmt::format("its head announces a body of {} bytes, but the file has {}", head.body_bytes,
                               file_bytes));
  }
  return head;
}

Result<OpenedRecord> open_record(const RecordKind& kind, ByteView bytes, const std::string& path) {
  ByteView first = bytes.first(std::min(bytes.size(), kRecordHeadBytes));
  SHOAL_ASSIGN_OR_RETURN(RecordHead head, read_record_head(kind, first, bytes.size(), path));
  ByteView digested = bytes.first(bytes.size() - kRecordTailBytes);
  Hash128 digest = xxh3_128(digested);
  if (!std::equal(digest.bytes.begin(), digest.bytes.end(), bytes.end() - kRecordTailBytes)) {
    return Status(Code::corrupt, fmt::format("{}: damaged {}: it differs from its digest", path, kind.what));
  }
  return OpenedRecord{head, digested.subspan(kRecordHeadBytes)};
}

// Tries each bit. 128 bits of digest identify the original: a false match is as unlikely as a hash collision.
std::optional<Bytes> flip_back(const RecordKind& kind, ByteView damaged) {
  const size_t bytes = damaged.size();
  if (bytes < kRecordHeadBytes + kRecordTailBytes || bytes > kMaxRepairedBytes) return std::nullopt;
  Bytes tried(damaged.begin(), damaged.end());
  for (size_t bit = 0; bit < 8 * bytes; ++bit) {
    const std::byte mask = std::byte{1} << (bit % 8);
    tried[bit / 8] ^= mask;
    if (open_record(kind, tried, "").ok()) return tried;
    tried[bit / 8] ^= mask;
  }
  return std::nullopt;
}

Status record_error(const RecordKind& kind, const Status& status, const std::string& path) {
  if (status.code() == Code::version) return status.with_context(path);
  return Status(Code::corrupt, fmt::format("{}: damaged {}: {}", path, kind.what, status.message()));
}

}  // namespace shoal::storage
