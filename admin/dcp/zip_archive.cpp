#include "admin/dcp/zip_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

namespace shoal::admin {

namespace {

constexpr uint32_t kLocalSignature = 0x04034b50, kEntrySignature = 0x02014b50, kEndSignature = 0x06054b50;
constexpr uint32_t kLargeEndSignature = 0x06064b50, kLocatorSignature = 0x07064b50;
constexpr size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kLargeEndBytes = 56, kLocatorBytes = 20;
constexpr size_t kMaxCommentBytes = 0xffff;
constexpr uint64_t kMaxRecords = 10'000;  // one for each tensor in the archive, and some six more
constexpr uint16_t kLargeExtra = 0x0001;  // an extra field with the 64-bit sizes
constexpr uint16_t kIn64Bits16 = 0xffff;  // the value is in the 64-bit field
constexpr uint32_t kIn64Bits32 = 0xffffffff;

uint16_t le16(ByteView bytes, size_t at) {
  return static_cast<uint16_t>(static_cast<unsigned>(bytes[at]) | static_cast<unsigned>(bytes[at + 1]) << 8);
}
uint32_t le32(ByteView bytes, size_t at) {
  return load_le32(bytes.subspan(at, 4).data());
}
uint64_t le64(ByteView bytes, size_t at) {
  return load_le64(bytes.subspan(at, 8).data());
}

bool lies_in(uint64_t at, uint64_t count, uint64_t whole) {
  return at <= whole && count <= whole - at;
}

// The 64-bit value of a field whose 32 bits are all ones, from the extra field.
bool take_large(ByteView extra, size_t* at, uint64_t* value) {
  if (*value != kIn64Bits32) return true;
  if (!lies_in(*at, 8, extra.size())) return false;
  *value = le64(extra, *at);
  *at += 8;
  return true;
}

// Replaces the fields that have no room in 32 bits, in the order of the format.
bool take_large_fields(ByteView extra, uint64_t* size, uint64_t* stored_size, uint64_t* header_at) {
  for (size_t at = 0; lies_in(at, 4, extra.size());) {
    const size_t bytes = le16(extra, at + 2);
    if (!lies_in(at + 4, bytes, extra.size())) return false;
    if (le16(extra, at) == kLargeExtra) {
      const ByteView fields = extra.subspan(at + 4, bytes);
      size_t field = 0;
      return take_large(fields, &field, size) && take_large(fields, &field, stored_size) &&
             take_large(fields, &field, header_at);
    }
    at += 4 + bytes;
  }
  return *size != kIn64Bits32 && *stored_size != kIn64Bits32 && *header_at != kIn64Bits32;
}

std::string_view without_folder(std::string_view name) {
  const size_t slash = name.find('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

uint32_t crc_of(ByteView bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

Result<ZipArchive> ZipArchive::open(ByteView bytes, std::string where) {
  ZipArchive archive(bytes, std::move(where));
  SHOAL_ASSIGN_OR_RETURN(const Directory directory, archive.find_directory());
  if (!lies_in(directory.at, directory.bytes, bytes.size()) ||
      directory.entries > directory.bytes / kEntryBytes) {
    return archive.corrupt("the directory of the archive does not lie in it");
  }
  if (directory.entries > kMaxRecords) {
    return Status(Code::too_large, fmt::format("{} has {} records: {} is the most", archive.where_,
                                               directory.entries, kMaxRecords));
  }
  archive.records_.reserve(directory.entries);
  size_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    SHOAL_RETURN_IF_ERROR(archive.add_record(bytes.subspan(directory.at, directory.bytes), &at));
  }
  return archive;
}

Status ZipArchive::corrupt(std::string_view what) const {
  return Status(Code::corrupt, fmt::format("{} is not what torch.save writes: {}", where_, what));
}

Result<ZipArchive::Directory> ZipArchive::find_directory() const {
  const size_t first = bytes_.size() - std::min(bytes_.size(), kEndBytes + kMaxCommentBytes);
  for (size_t at = bytes_.size(); at >= first + kEndBytes;) {
    const size_t end_at = at-- - kEndBytes;
    if (le32(bytes_, end_at) != kEndSignature) continue;
    if (end_at + kEndBytes + le16(bytes_, end_at + 20) != bytes_.size())
      continue;  // not the comment's length
    const Directory directory{le32(bytes_, end_at + 16), le32(bytes_, end_at + 12),
                              le16(bytes_, end_at + 10)};
    const bool is_large =
        directory.at == kIn64Bits32 || directory.bytes == kIn64Bits32 || directory.entries == kIn64Bits16;
    return is_large ? find_large_directory(end_at) : Result<Directory>(directory);
  }
  return corrupt(
      "the end of a zip archive is missing. It is damaged, or the checkpoint was not saved in DCP's format "
      "'torch_save'");
}

Result<ZipArchive::Directory> ZipArchive::find_large_directory(size_t end_at) const {
  if (end_at < kLocatorBytes || le32(bytes_, end_at - kLocatorBytes) != kLocatorSignature) {
    return corrupt("the place of its 64-bit directory is missing");
  }
  const uint64_t at = le64(bytes_, end_at - kLocatorBytes + 8);
  if (!lies_in(at, kLargeEndBytes, bytes_.size()) || le32(bytes_, at) != kLargeEndSignature) {
    return corrupt("its 64-bit directory is missing");
  }
  return Directory{le64(bytes_, at + 48), le64(bytes_, at + 40), le64(bytes_, at + 32)};
}

Status ZipArchive::add_record(ByteView directory, size_t* at) {
  if (!lies_in(*at, kEntryBytes, directory.size()) || le32(directory, *at) != kEntrySignature) {
    return corrupt("an entry of its directory is damaged");
  }
  const size_t name_bytes = le16(directory, *at + 28), extra_bytes = le16(directory, *at + 30);
  const size_t comment_bytes = le16(directory, *at + 32);
  if (!lies_in(*at + kEntryBytes, name_bytes + extra_bytes + comment_bytes, directory.size())) {
    return corrupt("an entry of its directory is damaged");
  }
  constexpr uint16_t kEncrypted = 1, kStored = 0;
  Record record;
  record.name = without_folder(as_text(directory.subspan(*at + kEntryBytes, name_bytes)));
  record.crc = le32(directory, *at + 16);
  uint64_t stored_bytes = le32(directory, *at + 20);
  record.bytes = le32(directory, *at + 24);
  record.header_at = le32(directory, *at + 42);
  const ByteView extra = directory.subspan(*at + kEntryBytes + name_bytes, extra_bytes);
  if (!take_large_fields(extra, &record.bytes, &stored_bytes, &record.header_at)) {
    return corrupt("a 64-bit size in its directory is missing");
  }
  record.is_stored = le16(directory, *at + 10) == kStored && (le16(directory, *at + 8) & kEncrypted) == 0 &&
                     stored_bytes == record.bytes;
  records_bytes_ += std::min<uint64_t>(record.bytes, bytes_.size() + 1);
  if (records_bytes_ > bytes_.size()) return corrupt("its records overlap or do not lie in it");
  records_.push_back(record);
  *at += kEntryBytes + name_bytes + extra_bytes + comment_bytes;
  return ok_status();
}

const ZipArchive::Record* ZipArchive::find(std::string_view name) const {
  auto is_it = [&](const Record& record) { return record.name == name; };
  const auto found = std::find_if(records_.begin(), records_.end(), is_it);
  if (found == records_.end() || std::any_of(found + 1, records_.end(), is_it)) return nullptr;
  return &*found;
}

Result<ByteView> ZipArchive::read(std::string_view name) const {
  constexpr size_t kMaxNameBytes = 100;
  auto damaged = [&](std::string_view what) {
    return Status(Code::corrupt,
                  fmt::format("{}: record '{}' {}", where_, clean_line(name, kMaxNameBytes), what));
  };
  const Record* record = find(name);
  if (record == nullptr) return damaged("is missing");
  if (!record->is_stored) return damaged("is compressed, which torch.save does not do");
  if (!lies_in(record->header_at, kLocalBytes, bytes_.size()) ||
      le32(bytes_, record->header_at) != kLocalSignature) {
    return damaged("has a damaged header");
  }
  const uint64_t begin = record->header_at + kLocalBytes + le16(bytes_, record->header_at + 26) +
                         le16(bytes_, record->header_at + 28);
  if (!lies_in(begin, record->bytes, bytes_.size())) return damaged("is truncated");
  const ByteView bytes = bytes_.subspan(begin, record->bytes);
  // 0: torch.serialization.set_crc32_options(False)
  if (record->crc != 0 && record->crc != crc_of(bytes)) return damaged("is damaged, its CRC-32 differs");
  return bytes;
}

}  // namespace shoal::admin
