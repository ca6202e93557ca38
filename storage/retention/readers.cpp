#include "storage/retention/readers.h"

#include <capnp/message.h>
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

#include "schema/root.capnp.h"
#include "storage/decisions/record_io_internal.h"

namespace shoal::storage {

namespace {

constexpr uint64_t kMaxReaderClaimBytes = 4096;
constexpr uint32_t kMaxReaderNumber = 0x7fff'ffff;
constexpr int kMaxReaderTries = 64;  // drawn numbers that were taken
constexpr const char* kReadersFolder = "readers";

const RecordKind kReaderRecord = {"SHOALRDR", "reader claim", 1, kMaxReaderClaimBytes};

std::string reader_path(uint32_t number) {
  return fmt::format("{}/{}", kReadersFolder, number);
}

uint32_t number_from(const Hash128& hash) {
  return 1 + load_le32(hash.bytes.data()) % kMaxReaderNumber;
}

Result<ReaderRecord> read_reader(Storage& storage, uint32_t number) {
  return read_record<schema::ReaderClaim>(
      storage, kReaderRecord, reader_path(number),
      [&](schema::ReaderClaim::Reader reader) -> Result<ReaderRecord> {
        ReaderRecord record;
        record.number = reader.getNumber();
        if (record.number != number) {
          return Status(Code::corrupt, fmt::format("it holds number {}, which is not the number in its name",
                                                   record.number));
        }
        record.job_id = schema::view_of(reader.getJobId());
        SHOAL_RETURN_IF_ERROR(validate_text(record.job_id, base::kMaxJobIdBytes, "job id"));
        SHOAL_ASSIGN_OR_RETURN(record.nonce, Hash128::from_bytes(schema::view_of(reader.getNonce())));
        record.unix_time_ns = reader.getUnixTimeNs();
        return record;
      });
}

// Returns the final record of this number: this one, or the one that came first.
Result<ReaderRecord> create_reader(Storage& storage, const ReaderRecord& record) {
  SHOAL_RETURN_IF_ERROR(validate_text(record.job_id, base::kMaxJobIdBytes, "job id"));
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::ReaderClaim>();
  root.setNumber(record.number);
  root.setJobId(schema::text_of(record.job_id));
  root.setNonce(schema::data_of(record.nonce));
  root.setUnixTimeNs(record.unix_time_ns);
  SHOAL_ASSIGN_OR_RETURN(bool created,
                         create_record(storage, kReaderRecord, reader_path(record.number), root));
  if (created) return record;
  return read_reader(storage, record.number);
}

// N of "N" or of "N.ANYTHING".
std::optional<uint32_t> number_of(const std::string& name) {
  uint32_t number = 0;
  const std::string digits = name.substr(0, name.find('.'));
  const char* last = digits.data() + digits.size();
  auto [end, error] = std::from_chars(digits.data(), last, number);
  if (error != std::errc() || end != last || digits != std::to_string(number)) return std::nullopt;
  return number;
}

// By number in readers/: whether the claim exists.
Result<std::map<uint32_t, bool>> list_readers(Storage& storage) {
  std::map<uint32_t, bool> has_claim;
  auto listed = storage.list(kReadersFolder);
  if (listed.status().code() == Code::not_found) return has_claim;
  SHOAL_RETURN_IF_ERROR(listed.status());
  for (const ObjectInfo& object : *listed) {
    const auto number = number_of(object.name);
    if (!number || object.is_folder) continue;
    bool& has = has_claim[*number];
    has = has || object.name == std::to_string(*number);
  }
  return has_claim;
}

}  // namespace

Result<ReaderRecord> claim_reader(Storage& storage, const std::string& job_id, const Nonce& nonce,
                                  int64_t unix_time_ns) {
  Hash128 drawn = nonce;
  for (int tries = 0; tries < kMaxReaderTries; ++tries) {
    ReaderRecord record{number_from(drawn), job_id, nonce, unix_time_ns};
    SHOAL_ASSIGN_OR_RETURN(ReaderRecord existing, create_reader(storage, record));
    if (existing.nonce == nonce)
      return existing;  // also if an earlier try created it and its answer was lost
    drawn = xxh3_128(drawn.bytes);
  }
  return Status(Code::unavailable, fmt::format("{}: all {} numbers drawn for a reader were taken",
                                               storage.describe(), kMaxReaderTries));
}

Result<ReaderRecord> rejoin_reader(Storage& storage, uint32_t number, const std::string& job_id,
                                   const Nonce& nonce, int64_t unix_time_ns) {
  if (number == kGenerationOfJob) number = number_from(xxh3_128(as_view(job_id)));
  SHOAL_ASSIGN_OR_RETURN(ReaderRecord existing,
                         create_reader(storage, ReaderRecord{number, job_id, nonce, unix_time_ns}));
  if (existing.job_id == job_id) return existing;
  return Status(Code::refused, fmt::format("{}/{} is of job '{}', not of job '{}'", storage.describe(),
                                           reader_path(number), existing.job_id, job_id));
}

Status remove_reader(Storage& storage, uint32_t number) {
  auto listed = storage.list(kReadersFolder);
  if (listed.status().code() == Code::not_found) return ok_status();
  SHOAL_RETURN_IF_ERROR(listed.status());
  for (const ObjectInfo& object : *listed) {
    if (object.is_folder || number_of(object.name) != number) continue;
    SHOAL_RETURN_IF_ERROR(storage.remove(fmt::format("{}/{}", kReadersFolder, object.name)));
  }
  return ok_status();
}

Result<std::vector<uint32_t>> list_old_readers(Storage& storage, int64_t before_unix_time_ns) {
  std::vector<uint32_t> old;
  SHOAL_ASSIGN_OR_RETURN(auto readers, list_readers(storage));
  for (const auto& [number, has_claim] : readers) {
    if (!has_claim) {
      old.push_back(number);
      continue;
    }
    auto record = read_reader(storage, number);
    const Code code = record.status().code();
    const bool is_damaged = code == Code::corrupt || code == Code::too_large;
    if (!record.ok() && !is_damaged) continue;
    if (is_damaged || record->unix_time_ns < before_unix_time_ns) old.push_back(number);
  }
  return old;
}

}  // namespace shoal::storage
