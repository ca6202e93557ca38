#include "storage/decisions/staged_record.h"

#include <capnp/message.h>
#include <fmt/format.h>

#include <charconv>

#include "plan/saving/options_codec.h"
#include "schema/manifest.capnp.h"
#include "storage/decisions/record_io_internal.h"
#include "storage/root/run_root.h"

namespace shoal::storage {

namespace {

constexpr uint64_t kMaxStagedRecordBytes = uint64_t{64} << 10;
static_assert(kMaxStagedRecordBytes > 2 * kMaxUserMetadataBytes);
const RecordKind kStagedRecord = {"SHOALSTG", "staged record", 1, kMaxStagedRecordBytes, true};
constexpr std::string_view kRecordPrefix = "rank-", kRecordSuffix = ".staged";

Result<StagedRecord> read_staged_body(schema::StagedRecord::Reader in) {
  StagedRecord out;
  out.key = {in.getGeneration(), in.getStep(), in.getAttempt()};
  out.rank = in.getRank();
  SHOAL_ASSIGN_OR_RETURN(out.layout_id, Hash128::from_bytes(schema::view_of(in.getLayoutId())));
  SHOAL_ASSIGN_OR_RETURN(out.assignment_id, Hash128::from_bytes(schema::view_of(in.getAssignmentId())));
  SHOAL_ASSIGN_OR_RETURN(out.user, plan::read_user(in));
  SHOAL_RETURN_IF_ERROR(validate_user_metadata(out.user));
  return out;
}

}  // namespace

std::string staged_record_name(Rank rank) {
  return fmt::format("{}{:05}{}", kRecordPrefix, rank, kRecordSuffix);
}

std::optional<Rank> parse_staged_record_name(std::string_view name) {
  if (!name.starts_with(kRecordPrefix) || !name.ends_with(kRecordSuffix)) return std::nullopt;
  Rank rank = 0;
  const char* const last = name.data() + name.size() - kRecordSuffix.size();
  auto [end, error] = std::from_chars(name.data() + kRecordPrefix.size(), last, rank);
  if (error != std::errc() || end != last || staged_record_name(rank) != name) return std::nullopt;
  return rank;
}

std::string staged_record_path(const AttemptKey& key, Rank rank) {
  return attempt_folder(key) + "/" + staged_record_name(rank);
}

Status write_staged_record(Storage& storage, const StagedRecord& record) {
  SHOAL_RETURN_IF_ERROR(validate_user_metadata(record.user));
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<schema::StagedRecord>();
  out.setGeneration(record.key.generation);
  out.setStep(record.key.step);
  out.setAttempt(record.key.attempt);
  out.setRank(record.rank);
  out.setLayoutId(schema::data_of(record.layout_id));
  out.setAssignmentId(schema::data_of(record.assignment_id));
  plan::write_user(out, record.user);
  const std::string path = staged_record_path(record.key, record.rank);
  const Result<bool> created = create_record(storage, kStagedRecord, path, out);
  if (created.ok() && *created) return ok_status();
  // A rank that is offered again has its record already, also if the disk is full by now.
  const Result<StagedRecord> existing = read_staged_record(storage, record.key, record.rank);
  if (existing.ok() && *existing == record) return ok_status();
  SHOAL_RETURN_IF_ERROR(created.status());
  SHOAL_RETURN_IF_ERROR(existing.status());
  return Status(Code::already_exists, fmt::format("{}/{}: another record of this rank exists already: "
                                                  "another process of this rank has staged this attempt",
                                                  storage.describe(), path));
}

Result<StagedRecord> read_staged_record(Storage& storage, const AttemptKey& key, Rank rank) {
  const std::string path = staged_record_path(key, rank);
  SHOAL_ASSIGN_OR_RETURN(StagedRecord record,
                         read_record<schema::StagedRecord>(storage, kStagedRecord, path, read_staged_body));
  if (record.key != key || record.rank != rank) {
    return Status(Code::corrupt, fmt::format("{}/{}: it holds the record of rank {} in {}",
                                             storage.describe(), path, record.rank, to_string(record.key)));
  }
  return record;
}

}  // namespace shoal::storage
