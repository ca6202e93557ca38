#include <capnp/message.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "schema/manifest.capnp.h"
#include "storage/decisions/decision.h"
#include "storage/decisions/file_entry_internal.h"
#include "storage/decisions/record.h"
#include "storage/decisions/tombstone_repair.h"
#include "storage/root/world_record_internal.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {

namespace {

const RecordKind kDecisionRecord = {"SHOALDEC", "decision", kDecisionFormatVersion, kMaxDecisionBytes};
// The minimum size of an entry in a message. Bounds the memory that an untrusted count may reserve.
constexpr size_t kLeastFileEntryBytes = 64;

DecisionState state_of(const Decision& decision) {
  if (decision.committed()) return DecisionState::committed;
  return decision.tombstone().reason == Tombstone::Reason::aborted ? DecisionState::aborted
                                                                   : DecisionState::deleted;
}

Status invalid(const FileEntry& file, std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("file '{}': {}", file.name, what));
}

Status validate_listed(const World& world, const FileEntry& file, const std::vector<FilePiece>& pieces) {
  for (const FilePiece& piece : pieces) {
    SHOAL_RETURN_IF_ERROR(validate_shard_key(piece.key).with_context(file.name));
    const LayoutEntry* entry = find_value(world, piece.fqn);
    if (entry == nullptr) return invalid(file, "it has a piece of a value that is in no layout");
    if (entry->kind == LayoutEntry::Kind::object) {
      if (piece.box.dims() != 0 || !piece.box.offsets.empty())
        return invalid(file, "it has an object with a box");
    } else {
      SHOAL_RETURN_IF_ERROR(
          validate_box(piece.box, entry->shape).with_context(piece.fqn).with_context(file.name));
    }
  }
  return ok_status();
}

// Whether `after` may follow `before`: by rank; within a rank, derived files by index before listed files by
// name.
bool ascends(const FileEntry& before, const FileEntry& after) {
  if (before.rank != after.rank) return before.rank < after.rank;
  if (before.contents.index() != after.contents.index())
    return before.contents.index() < after.contents.index();
  if (const uint32_t* index = std::get_if<uint32_t>(&before.contents))
    return *index < std::get<uint32_t>(after.contents);
  return before.name < after.name;
}

// Derived names are distinct, because ranks and indices are. Listed names may repeat.
Status validate_distinct_names(const std::vector<FileEntry>& files) {
  const bool are_given = std::ranges::all_of(
      files, [](const FileEntry& file) { return std::holds_alternative<uint32_t>(file.contents); });
  if (are_given) return ok_status();
  std::vector<std::string_view> names;
  names.reserve(files.size());
  for (const FileEntry& file : files) names.push_back(file.name);
  std::sort(names.begin(), names.end());
  auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return ok_status();
  return Status(Code::invalid_argument, fmt::format("file '{}' is listed twice", *twice));
}

Status validate_files(const Manifest& manifest) {
  const World& world = *manifest.world;
  const FileEntry* before = nullptr;
  uint64_t bytes = 0;
  for (const FileEntry& file : manifest.files) {
    SHOAL_RETURN_IF_ERROR(validate_component(file.name));
    if (file.name == kDecisionName || is_partial(file.name))
      return invalid(file, "this is not a name for a shard");
    if (file.rank >= world.roster.world_size())
      return invalid(file, fmt::format("rank {} is not in the world", file.rank));
    if (before != nullptr && !ascends(*before, file)) return invalid(file, "it is out of order");
    if (const uint32_t* index = std::get_if<uint32_t>(&file.contents)) {
      if (*index >= kMaxFilesPerRank) return invalid(file, fmt::format("file index {}", *index));
      if (file.name != shard_file_name(file.rank, *index))
        return invalid(file, "this is not the name of that rank's file");
    } else {
      SHOAL_RETURN_IF_ERROR(validate_listed(world, file, std::get<std::vector<FilePiece>>(file.contents)));
    }
    if (file.size > kMaxObjectBytes - bytes) return invalid(file, "it is larger than any file can be");
    bytes += file.size;
    before = &file;
  }
  SHOAL_RETURN_IF_ERROR(validate_distinct_names(manifest.files));
  if (manifest.payload_bytes > bytes)
    return Status(Code::invalid_argument, "its payload is larger than its files");
  return ok_status();
}

Status validate_manifest(const Manifest& manifest) {
  if (manifest.world == nullptr) return Status(Code::invalid_argument, "the manifest has no world");
  SHOAL_RETURN_IF_ERROR(validate_world_record({manifest.world, manifest.rule_version, manifest.options}));
  SHOAL_RETURN_IF_ERROR(validate_user_metadata(manifest.user));
  return validate_files(manifest);
}

Result<Manifest> read_manifest(schema::Manifest::Reader reader, size_t message_bytes) {
  Manifest manifest;
  SHOAL_ASSIGN_OR_RETURN(WorldRecord world, read_world_record(reader));
  manifest.world = world.world;
  manifest.rule_version = world.rule_version;
  manifest.options = world.options;
  manifest.payload_bytes = reader.getPayloadBytes();
  SHOAL_ASSIGN_OR_RETURN(manifest.user, plan::read_user(reader));
  if (size_t size = reader.getNextRoster().size(); size != 0 && size != sizeof(Hash128::bytes)) {
    return Status(Code::invalid_argument, "its next roster is not an id");
  }
  auto files = reader.getFiles();
  manifest.files.reserve(std::min<size_t>(files.size(), message_bytes / kLeastFileEntryBytes));
  for (auto file : files) {
    SHOAL_ASSIGN_OR_RETURN(FileEntry entry, read_file_entry(file));
    manifest.files.push_back(std::move(entry));
  }
  SHOAL_RETURN_IF_ERROR(validate_manifest(manifest));
  return manifest;
}

// Everything except its layouts and files.
Result<Manifest> open_manifest(schema::Manifest::Reader reader, EncodedManifest& encoded) {
  Manifest manifest;
  manifest.rule_version = reader.getRuleVersion();
  SHOAL_ASSIGN_OR_RETURN(manifest.options, plan::read_options(reader.getOptions()));
  SHOAL_RETURN_IF_ERROR(validate_rule(manifest.rule_version, manifest.options));
  manifest.payload_bytes = reader.getPayloadBytes();
  SHOAL_ASSIGN_OR_RETURN(manifest.user, plan::read_user(reader));
  SHOAL_ASSIGN_OR_RETURN(encoded.world, encoded_world_in(reader));
  SHOAL_ASSIGN_OR_RETURN(const Roster roster, plan::decode_roster(encoded.world.roster));
  encoded.world_size = roster.world_size();
  encoded.files = reader.getFiles().size();
  return manifest;
}

Result<Tombstone> read_tombstone(schema::Tombstone::Reader reader) {
  Tombstone tombstone;
  auto reason = static_cast<uint16_t>(reader.getReason());
  if (reason > static_cast<uint16_t>(Tombstone::Reason::deleted)) {
    return Status(Code::invalid_argument, fmt::format("reason {} is not known", reason));
  }
  tombstone.reason = static_cast<Tombstone::Reason>(reason);
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(reader.getCause(), kMaxCauseBytes, "cause").status());
  tombstone.cause = schema::view_of(reader.getCause());
  if (!is_clean_utf8(tombstone.cause)) return Status(Code::invalid_argument, "its cause is not clean text");
  return tombstone;
}

// `read_manifest(reader)` reads the Manifest.
template <class ReadManifest>
Result<Decision> read_decision_body(schema::Decision::Reader reader, ReadManifest&& read_manifest) {
  Decision decision;
  decision.key = {reader.getGeneration(), reader.getStep(), reader.getAttempt()};
  SHOAL_ASSIGN_OR_RETURN(decision.nonce, Hash128::from_bytes(schema::view_of(reader.getNonce())));
  SHOAL_ASSIGN_OR_RETURN(decision.root_id, Hash128::from_bytes(schema::view_of(reader.getRootId())));
  decision.unix_time_ns = reader.getUnixTimeNs();
  auto body = reader.getBody();
  if (body.isManifest()) {
    SHOAL_ASSIGN_OR_RETURN(decision.body, read_manifest(body.getManifest()));
  } else if (body.isTombstone()) {
    SHOAL_ASSIGN_OR_RETURN(decision.body, read_tombstone(body.getTombstone()));
  } else {
    return Status(Code::invalid_argument, "it is neither a manifest nor a tombstone");
  }
  return decision;
}

Bytes encode_body(const Decision& decision) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::Decision>();
  root.setGeneration(decision.key.generation);
  root.setStep(decision.key.step);
  root.setAttempt(decision.key.attempt);
  root.setNonce(schema::data_of(decision.nonce));
  root.setRootId(schema::data_of(decision.root_id));
  root.setUnixTimeNs(decision.unix_time_ns);
  if (decision.committed()) {
    const Manifest& manifest = decision.manifest();
    auto builder = root.getBody().initManifest();
    write_world_record(builder, *manifest.world, manifest.rule_version, manifest.options);
    auto files = builder.initFiles(static_cast<unsigned>(manifest.files.size()));
    for (unsigned i = 0; i < files.size(); ++i) write_file_entry(files[i], manifest.files[i]);
    builder.setPayloadBytes(manifest.payload_bytes);
    plan::write_user(builder, manifest.user);
  } else {
    auto builder = root.getBody().initTombstone();
    builder.setReason(static_cast<schema::Tombstone::Reason>(decision.tombstone().reason));
    builder.setCause(schema::text_of(clean_line(decision.tombstone().cause, kMaxCauseBytes)));
  }
  return schema::canonical_framed_bytes(root);
}

template <class ReadManifest>
Result<Decision> decode_by(ByteView bytes, const std::string& path, ReadManifest&& read_manifest) {
  SHOAL_ASSIGN_OR_RETURN(OpenedRecord record, open_record(kDecisionRecord, bytes, path));
  schema::ReadLimits limits;
  limits.bytes_max = kMaxDecisionBytes;
  limits.segments_max = 1;
  auto decision = schema::read_checked<schema::Decision>(
      record.body, limits,
      [&](schema::Decision::Reader reader) { return read_decision_body(reader, read_manifest); });
  if (!decision.ok()) return record_error(kDecisionRecord, decision.status(), path);
  if (record.head.state != static_cast<uint32_t>(state_of(*decision))) {
    return record_error(kDecisionRecord, Status(Code::corrupt, "its head and body disagree"), path);
  }
  return decision;
}

}  // namespace

Result<Bytes> encode_decision(const Decision& decision) {
  if (decision.committed()) {
    SHOAL_RETURN_IF_ERROR(validate_manifest(decision.manifest()).with_context("manifest"));
  }
  return seal_record(kDecisionRecord, static_cast<uint32_t>(state_of(decision)), encode_body(decision));
}

Result<Decision> decode_decision(ByteView bytes, const std::string& path) {
  return decode_by(bytes, path,
                   [bytes](schema::Manifest::Reader reader) { return read_manifest(reader, bytes.size()); });
}

Result<Decision> open_decision(Bytes bytes, std::string path) {
  auto encoded = std::make_shared<EncodedManifest>();
  encoded->file = std::move(bytes);
  encoded->path = std::move(path);
  // The reader reads it in place.
  SHOAL_CHECK(reinterpret_cast<uintptr_t>(encoded->file.data()) % alignof(uint64_t) == 0);
  Result<Decision> decision = decode_by(encoded->file, encoded->path, [&](schema::Manifest::Reader reader) {
    return open_manifest(reader, *encoded);
  });
  if (decision.ok() && decision->committed()) {
    std::get<Manifest>(decision->body).encoded = std::move(encoded);
  }
  return decision;
}

Result<Decision> decode_rest(const Decision& opened) {
  const std::shared_ptr<const EncodedManifest>& encoded = opened.manifest().encoded;
  Result<Decision> decision = decode_decision(encoded->file, encoded->path);
  if (decision.ok()) std::get<Manifest>(decision->body).encoded = encoded;
  return decision;
}

Result<DecisionState> read_decision_state(ByteView first, uint64_t file_bytes, const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(RecordHead head, read_record_head(kDecisionRecord, first, file_bytes, path));
  if (head.state < static_cast<uint32_t>(DecisionState::committed) ||
      head.state > static_cast<uint32_t>(DecisionState::deleted)) {
    return record_error(kDecisionRecord, Status(Code::corrupt, fmt::format("state {}", head.state)), path);
  }
  return static_cast<DecisionState>(head.state);
}

std::optional<Bytes> repaired_tombstone(ByteView bytes) {
  if (bytes.size() > kMaxRepairedBytes || open_record(kDecisionRecord, bytes, "").ok()) return std::nullopt;
  std::optional<Bytes> repaired = flip_back(kDecisionRecord, bytes);
  if (!repaired) return std::nullopt;
  auto state = read_decision_state(ByteView(*repaired).first(kRecordHeadBytes), repaired->size(), "");
  if (!state.ok() || *state == DecisionState::committed) return std::nullopt;
  return repaired;
}

}  // namespace shoal::storage
