#include "storage/decisions/decision.h"

#include <fmt/format.h>

#include <algorithm>

#include "storage/decisions/record.h"
#include "storage/decisions/tombstone_repair.h"
#include "storage/root/run_root.h"

namespace shoal::storage {

namespace {

// `decode(bytes, path)` decodes the decision from the file's bytes.
template <class Decode>
Result<Decision> read_by(Decode&& decode, Storage& storage, const AttemptKey& key) {
  std::string path = decision_path(key), full_path = storage.describe() + "/" + path;
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes,
                         storage.read(path, kRecordHeadBytes + kMaxDecisionBytes + kRecordTailBytes));
  if (auto tombstone = repaired_tombstone(bytes)) bytes = std::move(*tombstone);
  SHOAL_ASSIGN_OR_RETURN(Decision decision, decode(std::move(bytes), full_path));
  if (decision.key != key) {
    return Status(Code::corrupt,
                  fmt::format("{}: it holds the decision of {}", full_path, to_string(decision.key)));
  }
  SHOAL_RETURN_IF_ERROR(storage.sync_folder(attempt_folder(key)));
  return decision;
}

}  // namespace

Result<Decision> read_decision(Storage& storage, const AttemptKey& key) {
  return read_by([](const Bytes& bytes, const std::string& path) { return decode_decision(bytes, path); },
                 storage, key);
}

Result<Decision> read_decision_encoded(Storage& storage, const AttemptKey& key) {
  return read_by(open_decision, storage, key);
}

namespace {

Result<Decision> publish(Storage& storage, const Decision& decision,
                         Result<bool> (Storage::*create)(const std::string&, ByteView)) {
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode_decision(decision));
  SHOAL_ASSIGN_OR_RETURN(bool ours, (storage.*create)(decision_path(decision.key), bytes));
  if (ours) return decision;
  return read_decision(storage, decision.key);
}

}  // namespace

Result<Decision> publish_decision(Storage& storage, const Decision& decision) {
  return publish(storage, decision, &Storage::create_exclusive);
}

Result<Decision> publish_decision_in_folder(Storage& storage, const Decision& decision) {
  return publish(storage, decision, &Storage::create_in_folder);
}

Result<bool> mark_deleted(Storage& storage, const Decision& tombstone) {
  SHOAL_CHECK(!tombstone.committed() && tombstone.tombstone().reason == Tombstone::Reason::deleted);
  SHOAL_ASSIGN_OR_RETURN(Decision before, read_decision(storage, tombstone.key));
  if (!before.committed()) return false;
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode_decision(tombstone));
  SHOAL_RETURN_IF_ERROR(storage.replace(decision_path(tombstone.key), bytes));
  return true;
}

Hash128 contents_digest_of(const Manifest& manifest) {
  size_t size_bytes = 0;
  for (const FileEntry& file : manifest.files) {
    size_bytes += 2 * sizeof(uint64_t) + file.name.size() + sizeof file.header_digest;
  }
  Bytes bytes;
  bytes.reserve(size_bytes);
  const auto add = [&](const void* data, size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + size);
  };
  for (const FileEntry& file : manifest.files) {
    const uint64_t numbers[] = {file.name.size(), file.size};
    add(numbers, sizeof numbers);
    add(file.name.data(), file.name.size());
    add(&file.header_digest, sizeof file.header_digest);
  }
  return xxh3_128(bytes);
}

Metadata metadata_of(const Decision& decision, bool lists_values) {
  const Manifest& manifest = decision.manifest();
  Metadata metadata;
  metadata.key = decision.key;
  metadata.payload_bytes = manifest.payload_bytes;
  metadata.user = manifest.user;
  if (manifest.world == nullptr) {
    metadata.world_size = manifest.encoded->world_size;
    metadata.files = manifest.encoded->files;
    return metadata;
  }
  metadata.world_size = manifest.world->roster.world_size();
  metadata.files = static_cast<uint32_t>(manifest.files.size());
  metadata.contents_digest = contents_digest_of(manifest);
  if (lists_values) metadata.state_dict_metadata = list_values(*manifest.world);
  return metadata;
}

}  // namespace shoal::storage
