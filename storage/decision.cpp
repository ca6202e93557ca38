#include "storage/decision.h"

#include <fmt/format.h>

#include <algorithm>

#include "storage/record.h"
#include "storage/run_root.h"

namespace shoal {

Result<Decision> read_decision(Storage& storage, const AttemptKey& key, bool keeps_encoded) {
  std::string path = decision_path(key), full_path = storage.describe() + "/" + path;
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes,
                         storage.read(path, kRecordHeadBytes + kMaxDecisionBytes + kRecordTailBytes));
  SHOAL_ASSIGN_OR_RETURN(Decision decision, decode_decision(bytes, full_path));
  if (decision.key != key) {
    return Status(Code::corrupt,
                  fmt::format("{}: holds the decision of {}", full_path, to_string(decision.key)));
  }
  SHOAL_RETURN_IF_ERROR(storage.sync_folder(attempt_folder(key)));
  if (keeps_encoded && decision.committed()) {
    auto encoded = std::make_shared<EncodedLayouts>();
    encoded->file = std::move(bytes);
    encoded->layouts = encoded_layouts_in(encoded->file);
    std::get<Manifest>(decision.body).encoded = std::move(encoded);
  }
  return decision;
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

Metadata metadata_of(const Decision& decision, bool lists_values) {
  const Manifest& manifest = decision.manifest();
  Metadata metadata;
  metadata.key = decision.key;
  metadata.world_size = manifest.world->roster.world_size();
  metadata.payload_bytes = manifest.payload_bytes;
  metadata.files = static_cast<uint32_t>(manifest.files.size());
  if (lists_values) metadata.state_dict_metadata = list_values(*manifest.world);
  return metadata;
}

}  // namespace shoal
