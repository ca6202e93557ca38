// Reads and writes the small records of a root: one capnp struct in one sealed file.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "schema/checked_reader_internal.h"
#include "storage/decisions/record.h"
#include "storage/storage.h"

namespace shoal::storage {

inline Status validate_text(std::string_view text, size_t bytes_max, std::string_view what) {
  if (!text.empty() && text.size() <= bytes_max && is_clean_utf8(text)) return ok_status();
  return Status(
      Code::invalid_argument,
      fmt::format("{}: it must be 1 to {} bytes of text without control characters", what, bytes_max));
}

// Reads the bytes of a record file. If the kind repairs a flipped bit, returns the repaired bytes.
inline Result<Bytes> read_record_bytes(Storage& storage, const RecordKind& kind, const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, storage.read(path, kind.file_bytes_max()));
  if (!kind.repairs_a_bit || open_record(kind, bytes, path).ok()) return bytes;
  std::optional<Bytes> repaired = flip_back(kind, bytes);
  return repaired ? std::move(*repaired) : std::move(bytes);
}

// Reads a record and passes the struct in its body to `body`, which returns Result<Value>.
template <class Root, class Body>
auto read_record(Storage& storage, const RecordKind& kind, const std::string& path, Body&& body)
    -> decltype(body(std::declval<typename Root::Reader>())) {
  std::string full_path = storage.describe() + "/" + path;
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, read_record_bytes(storage, kind, path));
  SHOAL_ASSIGN_OR_RETURN(OpenedRecord record, open_record(kind, bytes, full_path));
  schema::ReadLimits limits;
  limits.bytes_max = kind.body_bytes_max;
  limits.segments_max = 1;
  auto value = schema::read_checked<Root>(record.body, limits, body);
  if (!value.ok()) return record_error(kind, value.status(), full_path);
  return value;
}

template <class Builder>
Result<bool> create_record(Storage& storage, const RecordKind& kind, const std::string& path, Builder root) {
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, seal_record(kind, 0, schema::canonical_framed_bytes(root)));
  return storage.create_exclusive(path, bytes);
}

}  // namespace shoal::storage
