#include <capnp/message.h>
#include <fmt/format.h>

#include <charconv>

#include "plan/layout/codec.h"
#include "plan/saving/options_codec.h"
#include "schema/checked_reader_internal.h"
#include "schema/manifest.capnp.h"
#include "storage/decisions/file_entry_internal.h"
#include "storage/decisions/rank_manifest.h"
#include "storage/decisions/record.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {

namespace {

constexpr uint32_t kRankManifestVersion = 1;
const RecordKind kRankRecord = {"SHOALRNK", "rank manifest", kRankManifestVersion,
                                plan::kMaxEncodedLayoutBytes + (size_t{1} << 20)};
constexpr std::string_view kPrefix = "rank-", kOf = "-of-", kSuffix = ".manifest.shoal";

Status invalid(std::string what) {
  return Status(Code::invalid_argument, std::move(what));
}

Status validate(const RankManifest& manifest) {
  if (manifest.world_size == 0 || manifest.world_size > kMaxWorldSize ||
      manifest.rank >= manifest.world_size) {
    return invalid(fmt::format("rank {} is outside a world of {} ranks", manifest.rank, manifest.world_size));
  }
  if (manifest.layout == nullptr) return invalid("it has no layout");
  if (manifest.rule_version == 0) return invalid("its planning rule is 0");
  if (manifest.rule_version > kRuleVersion) {
    return Status(
        Code::version,
        fmt::format("this file follows planning rule {}, but this program supports only rules up to {}",
                    manifest.rule_version, kRuleVersion));
  }
  SHOAL_RETURN_IF_ERROR(validate_options(manifest.options));
  SHOAL_RETURN_IF_ERROR(validate_user_metadata(manifest.user));
  if (manifest.options.mode != SaveMode::rank_local)
    return invalid("its options are not those of a rank-local save");
  if (manifest.files.size() > kMaxFilesPerRank) return invalid("it lists more files than a rank writes");
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < manifest.files.size(); ++i) {
    const FileEntry& file = manifest.files[i];
    const uint32_t* index = std::get_if<uint32_t>(&file.contents);
    if (file.rank != manifest.rank || index == nullptr || *index != i ||
        file.name != shard_file_name(manifest.rank, i)) {
      return invalid(fmt::format("file '{}' is not number {} of rank {}", file.name, i, manifest.rank));
    }
    if (file.size > kMaxObjectBytes - bytes) return invalid(fmt::format("file '{}' is too large", file.name));
    bytes += file.size;
  }
  if (manifest.payload_bytes > bytes) return invalid("its payload is larger than its files");
  return ok_status();
}

Result<RankManifest> read_manifest_body(schema::RankManifest::Reader in) {
  RankManifest out;
  out.key = {in.getGeneration(), in.getStep(), in.getAttempt()};
  out.rank = in.getRank();
  out.world_size = in.getWorldSize();
  SHOAL_ASSIGN_OR_RETURN(out.nonce, Hash128::from_bytes(schema::view_of(in.getNonce())));
  SHOAL_ASSIGN_OR_RETURN(out.root_id, Hash128::from_bytes(schema::view_of(in.getRootId())));
  out.unix_time_ns = in.getUnixTimeNs();
  SHOAL_ASSIGN_OR_RETURN(out.layout, plan::decode_layout(schema::view_of(in.getLayout())));
  out.rule_version = in.getRuleVersion();
  SHOAL_ASSIGN_OR_RETURN(out.options, plan::read_options(in.getOptions()));
  auto files = in.getFiles();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(files, kMaxFilesPerRank, "files of a rank").status());
  for (auto file : files) {
    SHOAL_ASSIGN_OR_RETURN(FileEntry entry, read_file_entry(file));
    out.files.push_back(std::move(entry));
  }
  out.payload_bytes = in.getPayloadBytes();
  SHOAL_ASSIGN_OR_RETURN(out.user, plan::read_user(in));
  SHOAL_RETURN_IF_ERROR(validate(out));
  return out;
}

std::optional<uint32_t> parse_number(std::string_view text) {
  uint32_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string rank_manifest_name(Rank rank, uint32_t world_size) {
  return fmt::format("{}{:05}{}{:05}{}", kPrefix, rank, kOf, world_size, kSuffix);
}

std::optional<RankManifestName> parse_rank_manifest_name(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  std::string_view middle = name.substr(kPrefix.size());
  middle.remove_suffix(kSuffix.size());
  const size_t of = middle.find(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  std::optional<uint32_t> rank = parse_number(middle.substr(0, of));
  std::optional<uint32_t> world_size = parse_number(middle.substr(of + kOf.size()));
  if (!rank || !world_size || *rank >= *world_size || *world_size > kMaxWorldSize) return std::nullopt;
  if (rank_manifest_name(*rank, *world_size) != name) return std::nullopt;
  return RankManifestName{*rank, *world_size};
}

Result<Bytes> encode_rank_manifest(const RankManifest& manifest) {
  SHOAL_RETURN_IF_ERROR(validate(manifest).with_context("rank manifest"));
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<schema::RankManifest>();
  out.setGeneration(manifest.key.generation);
  out.setStep(manifest.key.step);
  out.setAttempt(manifest.key.attempt);
  out.setRank(manifest.rank);
  out.setWorldSize(manifest.world_size);
  out.setNonce(schema::data_of(manifest.nonce));
  out.setRootId(schema::data_of(manifest.root_id));
  out.setUnixTimeNs(manifest.unix_time_ns);
  out.setLayout(schema::data_of(plan::encode_layout(*manifest.layout)));
  out.setRuleVersion(manifest.rule_version);
  plan::write_options(out.initOptions(), manifest.options);
  auto files = out.initFiles(static_cast<unsigned>(manifest.files.size()));
  for (unsigned i = 0; i < files.size(); ++i) write_file_entry(files[i], manifest.files[i]);
  out.setPayloadBytes(manifest.payload_bytes);
  plan::write_user(out, manifest.user);
  return seal_record(kRankRecord, 0, schema::canonical_framed_bytes(out));
}

Result<RankManifest> decode_rank_manifest(ByteView bytes, const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(OpenedRecord record, open_record(kRankRecord, bytes, path));
  schema::ReadLimits limits;
  limits.bytes_max = kRankRecord.body_bytes_max;
  limits.segments_max = 1;
  auto manifest = schema::read_checked<schema::RankManifest>(record.body, limits, read_manifest_body);
  if (!manifest.ok()) return record_error(kRankRecord, manifest.status(), path);
  return manifest;
}

Result<RankManifest> read_rank_manifest(Storage& storage, const AttemptKey& key,
                                        const RankManifestName& name) {
  const std::string path = rank_manifest_path(key, name);
  const std::string full_path = storage.describe() + "/" + path;
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, storage.read(path, kRankRecord.file_bytes_max()));
  SHOAL_ASSIGN_OR_RETURN(RankManifest manifest, decode_rank_manifest(bytes, full_path));
  if (manifest.key != key || manifest.rank != name.rank || manifest.world_size != name.world_size) {
    return Status(Code::corrupt, fmt::format("{}: it holds the manifest of rank {} of {} in {}", full_path,
                                             manifest.rank, manifest.world_size, to_string(manifest.key)));
  }
  return manifest;
}

}  // namespace shoal::storage
