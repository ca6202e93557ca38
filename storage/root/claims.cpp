// Root id, epochs, generations, first rosters and load choices: each an exclusively created record.
#include <capnp/message.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "plan/reading/passed_over_codec.h"
#include "schema/root.capnp.h"
#include "storage/decisions/record_io_internal.h"
#include "storage/root/run_claims.h"
#include "storage/root/run_root.h"
#include "storage/root/world_record_internal.h"

namespace shoal::storage {

namespace {

constexpr uint64_t kMaxClaimBytes = 4096;
static_assert(kMaxPassedOverNamed * (kMaxPassedOverCauseBytes + 64) + 256 <= kMaxClaimBytes);
constexpr uint64_t kMaxRosterRecordBytes = uint64_t{1} << 30;
constexpr int kMaxClaimTries = 64;  // lost races for a generation
constexpr const char* kRootIdPath = "ROOT_ID";
constexpr const char* kEpochsFolder = "epochs";
constexpr const char* kGenerationsFolder = "generations";

const RecordKind kRootIdRecord = {"SHOALRID", "root id", 1, kMaxClaimBytes, true};
const RecordKind kEpochRecord = {"SHOALEPO", "epoch", 1, kMaxClaimBytes, true};
const RecordKind kGenerationRecord = {"SHOALGEN", "generation", 1, kMaxClaimBytes, true};
const RecordKind kRosterRecord = {"SHOALROS", "first roster", 1, kMaxRosterRecordBytes, true};
const RecordKind kLoadChoiceRecord = {"SHOALLOD", "load choice", 1, kMaxClaimBytes, true};

std::string epoch_path(uint32_t epoch) {
  return fmt::format("{}/{}", kEpochsFolder, epoch);
}
std::string generation_path(uint32_t generation) {
  return fmt::format("{}/{}", kGenerationsFolder, generation);
}
std::string roster_path(uint32_t generation) {
  return generation_path(generation) + ".roster";
}
std::string later_roster_path(uint32_t generation, const RosterId& id) {
  return fmt::format("{}-{}", roster_path(generation), id.to_hex());
}
const char* folder_of(ChoiceOf of) {
  return of == ChoiceOf::reader ? "readers" : kGenerationsFolder;
}
std::string load_choice_path(uint32_t generation, uint32_t ordinal, ChoiceOf of) {
  return fmt::format("{}/{}.load-{}", folder_of(of), generation, ordinal);
}

// The numbers that occur in a folder of claims; none if the folder does not exist.
struct ClaimedNumbers {
  std::vector<uint32_t> numbers;  // N of each entry "N", even if it is a folder; ascending
  uint32_t highest_used = 0;      // also counts "N.ANYTHING"; must not be claimed again
  std::string highest_name;       // the entry with that number
};
Result<ClaimedNumbers> list_numbers(Storage& storage, const std::string& folder) {
  ClaimedNumbers out;
  auto listed = storage.list(folder);
  if (!listed.ok() && listed.status().code() == Code::not_found) return out;
  if (!listed.ok()) return listed.status();
  for (const ObjectInfo& object : *listed) {
    if (is_partial(object.name)) continue;
    uint32_t number = 0;
    std::string digits = object.name.substr(0, object.name.find('.'));
    const char* last = digits.data() + digits.size();
    auto [end, error] = std::from_chars(digits.data(), last, number);
    if (error != std::errc() || end != last || digits != std::to_string(number)) continue;
    if (digits == object.name) out.numbers.push_back(number);
    if (number >= out.highest_used) out.highest_name = object.name;
    out.highest_used = std::max(out.highest_used, number);
  }
  std::sort(out.numbers.begin(), out.numbers.end());
  return out;
}

Status wrong_number(uint32_t number) {
  return Status(Code::corrupt,
                fmt::format("it holds number {}, which is not the number in its name", number));
}

Result<EpochRecord> read_epoch(Storage& storage, uint32_t epoch) {
  return read_record<schema::EpochClaim>(
      storage, kEpochRecord, epoch_path(epoch),
      [&](schema::EpochClaim::Reader reader) -> Result<EpochRecord> {
        EpochRecord record;
        record.epoch = reader.getEpoch();
        if (record.epoch != epoch) return wrong_number(record.epoch);
        record.address = schema::view_of(reader.getAddress());
        record.job_id = schema::view_of(reader.getJobId());
        SHOAL_RETURN_IF_ERROR(validate_text(record.address, kMaxAddressBytes, "address"));
        SHOAL_RETURN_IF_ERROR(validate_text(record.job_id, base::kMaxJobIdBytes, "job id"));
        SHOAL_ASSIGN_OR_RETURN(record.nonce, Hash128::from_bytes(schema::view_of(reader.getNonce())));
        record.generation = reader.getGeneration();
        return record;
      });
}

Result<GenerationRecord> read_generation(Storage& storage, uint32_t generation) {
  return read_record<schema::GenerationClaim>(
      storage, kGenerationRecord, generation_path(generation),
      [&](schema::GenerationClaim::Reader reader) -> Result<GenerationRecord> {
        GenerationRecord record;
        record.generation = reader.getGeneration();
        if (record.generation != generation) return wrong_number(record.generation);
        record.job_id = schema::view_of(reader.getJobId());
        SHOAL_RETURN_IF_ERROR(validate_text(record.job_id, base::kMaxJobIdBytes, "job id"));
        SHOAL_ASSIGN_OR_RETURN(record.nonce, Hash128::from_bytes(schema::view_of(reader.getNonce())));
        return record;
      });
}

Result<RootId> read_root_id(Storage& storage) {
  return read_record<schema::RootIdentity>(storage, kRootIdRecord, kRootIdPath,
                                           [](schema::RootIdentity::Reader reader) {
                                             return Hash128::from_bytes(schema::view_of(reader.getId()));
                                           });
}

Result<Bytes> encode_epoch(const EpochRecord& record) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::EpochClaim>();
  root.setEpoch(record.epoch);
  root.setAddress(schema::text_of(record.address));
  root.setJobId(schema::text_of(record.job_id));
  root.setNonce(schema::data_of(record.nonce));
  root.setGeneration(record.generation);
  return seal_record(kEpochRecord, 0, schema::canonical_framed_bytes(root));
}

Result<Bytes> encode_generation(const GenerationRecord& record) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::GenerationClaim>();
  root.setGeneration(record.generation);
  root.setJobId(schema::text_of(record.job_id));
  root.setNonce(schema::data_of(record.nonce));
  return seal_record(kGenerationRecord, 0, schema::canonical_framed_bytes(root));
}

Result<Bytes> encode_root_id(const RootId& id) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::RootIdentity>();
  root.setId(schema::data_of(id));
  return seal_record(kRootIdRecord, 0, schema::canonical_framed_bytes(root));
}

// Returns the final id: this one, or the one that came first.
Result<RootId> create_root_id(Storage& storage, const RootId& id) {
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode_root_id(id));
  SHOAL_RETURN_IF_ERROR(storage.create_exclusive(kRootIdPath, bytes).status());
  return read_root_id(storage);
}

// Refuses to create a new id in a root that holds checkpoints, because they would not match it.
Status refuse_lost_id(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(""));
  bool has_id = false;  // another process created it meanwhile
  const ObjectInfo* step = nullptr;
  for (const ObjectInfo& object : listed) {
    has_id = has_id || object.name == kRootIdPath;
    if (object.is_folder && parse_step_folder(object.name)) step = &object;
  }
  if (has_id || step == nullptr) return ok_status();
  return Status(Code::refused, fmt::format("root {} has no {}, but {} exists: `shoal restore-id "
                                           "{}` restores it from the checkpoints",
                                           storage.describe(), kRootIdPath, step->name, storage.describe()));
}

// Adds to a damaged ROOT_ID's error how to repair it. OK and other errors stay.
Status damaged_root_id(const Status& status, Storage& storage) {
  if (status.code() != Code::corrupt) return status;
  return Status(status.code(), fmt::format("{}; restore it from a copy, or move it away: then `shoal "
                                           "restore-id {}` makes it again from the checkpoints",
                                           status.message(), storage.describe()));
}

// Adds to an error about the highest claim of a folder how to repair it.
Status highest_is_damaged(const Status& status, Storage& storage, const std::string& path) {
  if (status.code() == Code::version) return status;
  return Status(
      status.code(),
      fmt::format(
          "{}; if it cannot be restored from a copy, rename it to {}/{}.damaged while no job uses this root",
          status.message(), storage.describe(), path));
}

}  // namespace

Result<RootId> open_root(Storage& storage, bool create, const RootId& fresh) {
  auto id = read_root_id(storage);
  if (!id.ok() && id.status().code() == Code::not_found) {
    SHOAL_RETURN_IF_ERROR(refuse_lost_id(storage));
    if (!create) {
      return Status(Code::not_found,
                    fmt::format("root {} holds no run: {} does not exist", storage.describe(), kRootIdPath));
    }
    id = create_root_id(storage, fresh);
  }
  if (!id.ok()) return damaged_root_id(id.status(), storage);
  if (create) SHOAL_RETURN_IF_ERROR(storage.sync_folder(""));
  return id;
}

bool shows_a_run(std::string_view name) {
  return name == kRootIdPath || name == kEpochsFolder || name == kGenerationsFolder ||
         parse_step_folder(name).has_value();
}

Result<RootId> restore_root_id(Storage& storage) {
  auto existing = read_root_id(storage);
  if (existing.ok()) {
    return Status(Code::already_exists, fmt::format("root {} already has its {}: {}", storage.describe(),
                                                    kRootIdPath, existing->to_hex()));
  }
  if (existing.status().code() != Code::not_found) return damaged_root_id(existing.status(), storage);
  SHOAL_ASSIGN_OR_RETURN(AttemptList list, list_attempts(storage));
  std::optional<Decision> first;
  for (const AttemptInfo& info : list.attempts) {
    if (info.state == AttemptInfo::State::undecided) continue;
    auto decision = read_decision(storage, info.key);
    if (!decision.ok()) continue;  // any other decision contains the same id
    if (!first)
      first = std::move(*decision);
    else if (decision->root_id != first->root_id) {
      return Status(Code::refused,
                    fmt::format("root {} holds checkpoints of two runs: {} of {} and {} of {}",
                                storage.describe(), attempt_folder(first->key), first->root_id.to_hex(),
                                attempt_folder(decision->key), decision->root_id.to_hex()));
    }
  }
  if (!first) {
    return Status(Code::not_found,
                  fmt::format("root {} has no readable decision that names the run", storage.describe()));
  }
  return create_root_id(storage, first->root_id);
}

namespace {

// The object `folder`/`name` is left.
Status probe_rules(Storage& storage, const Nonce& nonce, const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  auto refuse = [&](std::string_view what) {
    return Status(Code::refused,
                  fmt::format("root {} cannot hold checkpoints: {}", storage.describe(), what));
  };
  Bytes content(nonce.bytes.begin(), nonce.bytes.end());
  SHOAL_ASSIGN_OR_RETURN(bool first, storage.create_exclusive(path, content));
  SHOAL_ASSIGN_OR_RETURN(Bytes read, storage.read(path, content.size()));
  if (!first || read != content) return refuse("a new name is taken");
  SHOAL_ASSIGN_OR_RETURN(bool second, storage.create_exclusive(path, content));
  if (second) {
    return refuse(storage.has_files()
                      ? "it allows creating the same name twice"
                      : "the object store ignores the condition If-None-Match of a PUT, so two "
                        "writers could both commit");
  }
  SHOAL_ASSIGN_OR_RETURN(auto listed, storage.list(folder));
  bool found = std::any_of(listed.begin(), listed.end(),
                           [&](const ObjectInfo& object) { return object.name == name; });
  if (!found) return refuse("a listing lacks a file that was just created");
  return storage.check_rules(path);
}

}  // namespace

Status probe_storage(Storage& storage, const Nonce& nonce) {
  // A folder of its own: nodes that start together would list each other's files, as many as their square.
  const std::string name = "probe", folder = std::string(kProbesFolder) + "/" + nonce.to_hex();
  const Status rules = probe_rules(storage, nonce, folder, name);
  const Status removed = storage.remove(folder + "/" + name);
  (void)storage.remove_folder(folder);  // what is left of it has no meaning
  return rules.ok() ? removed : rules;
}

bool is_of_run(const EpochRecord& record, const std::string& job_id, uint32_t generation) {
  const bool is_known = record.generation != 0 && generation != 0;
  return record.job_id == job_id && (!is_known || record.generation == generation);
}

std::string run_of(const EpochRecord& record, const std::string& own_job_id) {
  return fmt::format("{}job '{}'", record.job_id == own_job_id ? "a later run of " : "", record.job_id);
}

Result<std::optional<EpochRecord>> highest_epoch(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(ClaimedNumbers epochs, list_numbers(storage, kEpochsFolder));
  if (epochs.numbers.empty()) return std::optional<EpochRecord>();
  auto record = read_epoch(storage, epochs.numbers.back());
  if (!record.ok()) return highest_is_damaged(record.status(), storage, epoch_path(epochs.numbers.back()));
  return std::optional<EpochRecord>(std::move(*record));
}

Result<bool> claim_epoch(Storage& storage, const EpochRecord& record) {
  if (record.epoch == 0) {  // also the number after the highest one, which wraps to 0
    return Status(
        Code::invalid_argument,
        fmt::format("{}: no number is left for an epoch: they begin with 1; if {} exists, move it out of "
                    "the root, and start again",
                    storage.describe(), epoch_path(~uint32_t{0})));
  }
  SHOAL_RETURN_IF_ERROR(validate_text(record.address, kMaxAddressBytes, "address"));
  SHOAL_RETURN_IF_ERROR(validate_text(record.job_id, base::kMaxJobIdBytes, "job id"));
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode_epoch(record));
  SHOAL_ASSIGN_OR_RETURN(bool ours, storage.create_exclusive(epoch_path(record.epoch), bytes));
  if (ours) return true;
  SHOAL_ASSIGN_OR_RETURN(EpochRecord winner, read_epoch(storage, record.epoch));
  return winner.nonce == record.nonce;
}

namespace {

Result<std::vector<GenerationRecord>> read_generations(Storage& storage,
                                                       const std::vector<uint32_t>& numbers) {
  std::vector<GenerationRecord> records;
  for (uint32_t number : numbers) {
    auto record = read_generation(storage, number);
    if (record.ok()) {
      records.push_back(std::move(*record));
    } else if (number == numbers.back() || record.status().code() == Code::version) {
      return highest_is_damaged(record.status(), storage, generation_path(number));
    }
  }
  return records;
}

// Whether the listed claims are durable. A number may be claimed only above durable ones. Otherwise a crash
// of the storage could lose one, and another process of this job would claim the gap.
Result<bool> generations_last(Storage& storage, const ClaimedNumbers& claimed,
                              const std::vector<GenerationRecord>& records) {
  if (claimed.highest_used == 0) return true;
  SHOAL_RETURN_IF_ERROR(storage.sync_folder(kGenerationsFolder));
  SHOAL_ASSIGN_OR_RETURN(ClaimedNumbers again, list_numbers(storage, kGenerationsFolder));
  if (again.numbers != claimed.numbers || again.highest_used != claimed.highest_used) return false;
  SHOAL_ASSIGN_OR_RETURN(std::vector<GenerationRecord> existing_claims,
                         read_generations(storage, again.numbers));
  return std::equal(existing_claims.begin(), existing_claims.end(), records.begin(), records.end(),
                    [](const auto& a, const auto& b) { return a.nonce == b.nonce; });
}

}  // namespace

Result<std::vector<GenerationRecord>> list_generations(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(ClaimedNumbers claimed, list_numbers(storage, kGenerationsFolder));
  return read_generations(storage, claimed.numbers);
}

namespace {

Status superseded(Storage& storage, uint32_t generation, const GenerationRecord& by) {
  return Status(Code::superseded,
                fmt::format("{}: generation {} of this job was superseded by generation {} of job {}",
                            storage.describe(), generation, by.generation, by.job_id));
}

// If several processes find no claim of their job at once, one creates it and the others find it.
Result<GenerationRecord> find_or_claim(Storage& storage, const std::string& job_id, const Nonce& nonce,
                                       bool joins_job) {
  SHOAL_RETURN_IF_ERROR(validate_text(job_id, base::kMaxJobIdBytes, "job id"));
  for (int tries = 0; tries < kMaxClaimTries; ++tries) {
    SHOAL_ASSIGN_OR_RETURN(ClaimedNumbers claimed, list_numbers(storage, kGenerationsFolder));
    SHOAL_ASSIGN_OR_RETURN(std::vector<GenerationRecord> records, read_generations(storage, claimed.numbers));
    // A match of the nonce means an earlier try whose answer was lost.
    auto ours = std::find_if(records.rbegin(), records.rend(), [&](const auto& record) {
      return record.job_id == job_id && (joins_job || record.nonce == nonce);
    });
    if (ours == records.rbegin() && ours != records.rend()) {
      SHOAL_RETURN_IF_ERROR(storage.sync_folder(kGenerationsFolder));
      return *ours;
    }
    if (ours != records.rend()) return superseded(storage, ours->generation, records.back());
    SHOAL_ASSIGN_OR_RETURN(bool lasts, generations_last(storage, claimed, records));
    if (!lasts) continue;
    // Claims may be lost while checkpoints remain. A save under a generation below theirs would never be the
    // latest.
    SHOAL_ASSIGN_OR_RETURN(AttemptNames attempts, list_attempt_names(storage));
    uint32_t highest = claimed.highest_used;
    std::string path = fmt::format("{}/{}", kGenerationsFolder, claimed.highest_name);
    for (const AttemptKey& key : attempts.keys) {
      if (key.generation > highest) path = attempt_folder(key);
      highest = std::max(highest, key.generation);
    }
    if (highest == ~uint32_t{0}) {
      return Status(Code::refused,
                    fmt::format("{}: no number is left for a generation: {} has the highest one, {}; "
                                "move it out of the root, and start again",
                                storage.describe(), path, highest));
    }
    GenerationRecord next{highest + 1, job_id, nonce};
    SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode_generation(next));
    SHOAL_ASSIGN_OR_RETURN(bool created, storage.create_exclusive(generation_path(next.generation), bytes));
    if (created) return next;
  }
  return Status(Code::unavailable,
                fmt::format("{}: lost {} races for a generation", storage.describe(), kMaxClaimTries));
}

}  // namespace

Result<GenerationRecord> claim_generation(Storage& storage, const std::string& job_id, const Nonce& nonce) {
  return find_or_claim(storage, job_id, nonce, false);
}

Status check_for_copies(Storage& storage, const std::vector<GenerationRecord>& records, uint32_t generation) {
  const auto run = std::find_if(records.rbegin(), records.rend(),
                                [](const GenerationRecord& record) { return record.job_id != kCopyJobId; });
  if (run == records.rend() || run->generation > generation) return ok_status();
  return Status(Code::refused,
                fmt::format("run {} of job {} has begun in {}, and its saves would be older than those of "
                            "generation {}; copy to another root",
                            run->generation, run->job_id, storage.describe(), generation));
}

Status claim_for_copies(Storage& storage, uint32_t generation, const Nonce& nonce) {
  std::string claimed;  // by this call
  for (int tries = 0; tries < kMaxClaimTries; ++tries) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<GenerationRecord> records, list_generations(storage));
    if (Status allowed = check_for_copies(storage, records, generation); !allowed.ok()) {
      // A run that has begun between the look and the claim must not be superseded by it.
      if (!claimed.empty()) SHOAL_RETURN_IF_ERROR(storage.remove(claimed));
      return allowed;
    }
    if (!records.empty() && records.back().generation >= generation) return ok_status();
    SHOAL_ASSIGN_OR_RETURN(const Bytes bytes,
                           encode_generation({generation, std::string(kCopyJobId), nonce}));
    SHOAL_ASSIGN_OR_RETURN(const bool created, storage.create_exclusive(generation_path(generation), bytes));
    if (created) claimed = generation_path(generation);
  }
  return Status(Code::unavailable,
                fmt::format("{}: lost {} races for a generation", storage.describe(), kMaxClaimTries));
}

Result<GenerationRecord> rejoin_generation(Storage& storage, uint32_t generation, const std::string& job_id,
                                           const Nonce& nonce) {
  if (generation == kGenerationOfJob) return find_or_claim(storage, job_id, nonce, true);
  SHOAL_ASSIGN_OR_RETURN(std::vector<GenerationRecord> records, list_generations(storage));
  auto ours = std::find_if(records.begin(), records.end(), [&](const auto& record) {
    return record.job_id == job_id && record.generation == generation;
  });
  if (ours == records.end()) {
    return Status(Code::refused, fmt::format("{}: generation {} does not belong to job {}",
                                             storage.describe(), generation, job_id));
  }
  if (generation != records.back().generation) return superseded(storage, generation, records.back());
  SHOAL_RETURN_IF_ERROR(storage.sync_folder(kGenerationsFolder));
  return *ours;
}

Result<GenerationRecord> read_generation_record(Storage& storage, uint32_t generation) {
  return read_generation(storage, generation);
}

namespace {

// Restores one record. `judge` returns an error if the existing record belongs to another run. Adds the path
// to `restored` if the record was restored.
template <class Read, class Judge>
Status restore_record(Storage& storage, const RecordKind& kind, const std::string& path, const Bytes& ours,
                      Read&& read, Judge&& judge, std::vector<std::string>* restored) {
  auto bytes = storage.read(path, kind.file_bytes_max());
  const bool is_gone = bytes.status().code() == Code::not_found;
  if (!bytes.ok() && !is_gone && bytes.status().code() != Code::too_large) return bytes.status();
  if (bytes.ok() && *bytes == ours) return ok_status();
  if (is_gone) {
    SHOAL_ASSIGN_OR_RETURN(bool created, storage.create_exclusive(path, ours));
    if (created) {
      restored->push_back(path);
      return ok_status();
    }
  }
  auto existing = read();
  if (existing.ok()) SHOAL_RETURN_IF_ERROR(judge(*existing));
  const bool is_sound = bytes.ok() && open_record(kind, *bytes, path).ok();
  if (existing.ok() && (is_gone || is_sound)) return ok_status();
  const Code code = existing.status().code();
  if (!existing.ok() && code != Code::corrupt && code != Code::too_large) return existing.status();
  SHOAL_RETURN_IF_ERROR(storage.replace(path, ours));
  restored->push_back(path);
  return ok_status();
}

// A later run that found no epoch claimed one below ours. Restoring our epoch would end that run's
// coordinator.
Status refuse_epoch_of_past_run(Storage& storage, const RunClaims& claims) {
  if (!claims.generation) return ok_status();
  const std::string path = epoch_path(claims.epoch->epoch);
  if (storage.open(path).status().code() != Code::not_found) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(ClaimedNumbers claimed, list_numbers(storage, kGenerationsFolder));
  if (claimed.numbers.empty() || claimed.numbers.back() <= claims.generation->generation) return ok_status();
  return Status(Code::refused,
                fmt::format("{}/{} is missing, and a later run has claimed generation {}: this run, of "
                            "generation {}, commits nothing more",
                            storage.describe(), path, claimed.numbers.back(), claims.generation->generation));
}

Status not_ours(Storage& storage, const std::string& path, std::string_view whose) {
  return Status(
      Code::refused,
      fmt::format("{}/{} {}: this run commits nothing there; give each run its own root, or restore the file",
                  storage.describe(), path, whose));
}

}  // namespace

Result<std::vector<std::string>> restore_claims(Storage& storage, const RunClaims& claims) {
  std::vector<std::string> restored;
  SHOAL_ASSIGN_OR_RETURN(Bytes id, encode_root_id(claims.root_id));
  SHOAL_RETURN_IF_ERROR(restore_record(
      storage, kRootIdRecord, kRootIdPath, id, [&] { return read_root_id(storage); },
      [&](const RootId& existing) {
        return existing == claims.root_id
                   ? ok_status()
                   : not_ours(storage, kRootIdPath, "now names the root of another run");
      },
      &restored));
  if (claims.generation) {
    const uint32_t number = claims.generation->generation;
    SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode_generation(*claims.generation));
    SHOAL_RETURN_IF_ERROR(restore_record(
        storage, kGenerationRecord, generation_path(number), bytes,
        [&] { return read_generation(storage, number); },
        [&](const GenerationRecord& existing) {
          return existing.nonce == claims.generation->nonce
                     ? ok_status()
                     : not_ours(
                           storage, generation_path(number),
                           fmt::format("was claimed by job '{}' after it had been removed", existing.job_id));
        },
        &restored));
  }
  if (claims.epoch) {
    SHOAL_RETURN_IF_ERROR(refuse_epoch_of_past_run(storage, claims));
    const uint32_t number = claims.epoch->epoch;
    SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode_epoch(*claims.epoch));
    SHOAL_RETURN_IF_ERROR(restore_record(
        storage, kEpochRecord, epoch_path(number), bytes, [&] { return read_epoch(storage, number); },
        [&](const EpochRecord& existing) {
          return existing.nonce == claims.epoch->nonce
                     ? ok_status()
                     : not_ours(storage, epoch_path(number),
                                fmt::format("was claimed by {} at {} after it had been removed",
                                            run_of(existing, claims.epoch->job_id), existing.address));
        },
        &restored));
  }
  return restored;
}

namespace {

// false: the file exists already.
Result<bool> create_roster(Storage& storage, uint32_t generation, const std::string& path,
                           const RosterRecord& record, const Nonce& nonce) {
  if (record.world == nullptr) return Status(Code::invalid_argument, "the roster record has no world");
  SHOAL_RETURN_IF_ERROR(validate_world_record({record.world, record.rule_version, record.options}));
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::FirstRoster>();
  root.setGeneration(generation);
  write_world_record(root, *record.world, record.rule_version, record.options);
  root.setNonce(schema::data_of(nonce));
  return create_record(storage, kRosterRecord, path, root);
}

Result<RosterRecord> read_roster_at(Storage& storage, uint32_t generation, const std::string& path,
                                    const RosterId* id) {
  auto record = read_record<schema::FirstRoster>(
      storage, kRosterRecord, path, [&](schema::FirstRoster::Reader reader) -> Result<RosterRecord> {
        if (reader.getGeneration() != generation) return wrong_number(reader.getGeneration());
        SHOAL_RETURN_IF_ERROR(Hash128::from_bytes(schema::view_of(reader.getNonce())).status());
        SHOAL_ASSIGN_OR_RETURN(WorldRecord world, read_world_record(reader));
        if (id != nullptr && world.world->roster.id() != *id) {
          return Status(Code::corrupt, "its roster differs from the one in its name");
        }
        return RosterRecord{world.world, world.options, world.rule_version};
      });
  if (record.ok()) SHOAL_RETURN_IF_ERROR(storage.sync_folder(kGenerationsFolder));
  return record;
}

}  // namespace

Result<RosterRecord> publish_roster(Storage& storage, uint32_t generation, const RosterRecord& record,
                                    const Nonce& nonce) {
  SHOAL_ASSIGN_OR_RETURN(bool ours,
                         create_roster(storage, generation, roster_path(generation), record, nonce));
  if (ours) return record;
  return read_roster(storage, generation);
}

Result<RosterRecord> read_roster(Storage& storage, uint32_t generation) {
  return read_roster_at(storage, generation, roster_path(generation), nullptr);
}

Result<RosterRecord> publish_later_roster(Storage& storage, uint32_t generation, const RosterRecord& record,
                                          const Nonce& nonce) {
  if (record.world == nullptr) return Status(Code::invalid_argument, "the roster record has no world");
  const RosterId id = record.world->roster.id();
  const std::string path = later_roster_path(generation, id);
  SHOAL_ASSIGN_OR_RETURN(bool ours, create_roster(storage, generation, path, record, nonce));
  if (ours) return record;
  return read_roster_at(storage, generation, path, &id);
}

Result<RosterRecord> read_roster_of_id(Storage& storage, uint32_t generation, const RosterId& id) {
  auto later = read_roster_at(storage, generation, later_roster_path(generation, id), &id);
  if (later.ok() || later.status().code() != Code::not_found) return later;
  auto first = read_roster(storage, generation);
  if (first.ok() && first->world->roster.id() == id) return first;
  if (!first.ok() && first.status().code() != Code::not_found) return first.status();
  return later.status();
}

Status keep_roster(Storage& storage, uint32_t generation, const RosterRecord& record, const Nonce& nonce,
                   std::string* seen_at) {
  if (!seen_at->empty()) {
    const Code code = storage.open(*seen_at).status().code();
    if (code != Code::not_found) return ok_status();
    seen_at->clear();
  }
  const RosterId id = record.world->roster.id();
  auto first = read_roster(storage, generation);
  if (first.ok() && first->world->roster.id() == id) {
    *seen_at = roster_path(generation);
    return ok_status();
  }
  SHOAL_RETURN_IF_ERROR(publish_later_roster(storage, generation, record, nonce).status());
  *seen_at = later_roster_path(generation, id);
  return ok_status();
}

Result<std::vector<RosterRecord>> list_rosters(Storage& storage, uint32_t generation) {
  std::vector<RosterRecord> rosters;
  auto add = [&](Result<RosterRecord> record) {
    if (record.ok()) rosters.push_back(std::move(*record));
    const Code code = record.status().code();  // a damaged roster counts as missing
    const bool is_none = code == Code::not_found || code == Code::corrupt;
    return record.ok() || is_none ? ok_status() : record.status();
  };
  SHOAL_RETURN_IF_ERROR(add(read_roster(storage, generation)));
  auto listed = storage.list(kGenerationsFolder);
  if (listed.status().code() == Code::not_found) return rosters;
  SHOAL_RETURN_IF_ERROR(listed.status());
  const std::string prefix = fmt::format("{}.roster-", generation);
  for (const ObjectInfo& object : *listed) {
    if (!object.name.starts_with(prefix) || is_partial(object.name)) continue;
    auto id = Hash128::from_hex(object.name.substr(prefix.size()));
    if (!id.ok()) continue;
    SHOAL_RETURN_IF_ERROR(add(read_roster_at(storage, generation, later_roster_path(generation, *id), &*id)));
  }
  return rosters;
}

Result<LoadChoice> publish_load_choice(Storage& storage, uint32_t generation, uint32_t ordinal,
                                       const LoadChoice& choice, ChoiceOf of) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::LoadChoice>();
  root.setGeneration(generation);
  root.setOrdinal(ordinal);
  root.setFound(choice.found);
  if (choice.found) {
    root.setChosenGeneration(choice.key.generation);
    root.setChosenStep(choice.key.step);
    root.setChosenAttempt(choice.key.attempt);
  }
  root.setNonce(schema::data_of(choice.nonce));
  plan::write_passed_over(root, choice.passed_over);
  SHOAL_RETURN_IF_ERROR(
      create_record(storage, kLoadChoiceRecord, load_choice_path(generation, ordinal, of), root).status());
  if (of == ChoiceOf::reader && (ordinal & ~kFallbackOrdinal) > kReaderChoicesKept) {
    // Gc removes what this leaves.
    (void)storage.remove(load_choice_path(generation, ordinal - kReaderChoicesKept, of));
  }
  return read_load_choice(storage, generation, ordinal, of);
}

Result<LoadChoice> read_load_choice(Storage& storage, uint32_t generation, uint32_t ordinal, ChoiceOf of) {
  auto choice = read_record<schema::LoadChoice>(
      storage, kLoadChoiceRecord, load_choice_path(generation, ordinal, of),
      [&](schema::LoadChoice::Reader reader) -> Result<LoadChoice> {
        if (reader.getGeneration() != generation) return wrong_number(reader.getGeneration());
        if (reader.getOrdinal() != ordinal) return wrong_number(reader.getOrdinal());
        LoadChoice read;
        read.found = reader.getFound();
        read.key = {reader.getChosenGeneration(), reader.getChosenStep(), reader.getChosenAttempt()};
        if (!read.found && read.key != AttemptKey{})
          return Status(Code::corrupt, "it names an attempt although no checkpoint was found");
        SHOAL_ASSIGN_OR_RETURN(read.nonce, Hash128::from_bytes(schema::view_of(reader.getNonce())));
        SHOAL_ASSIGN_OR_RETURN(read.passed_over, plan::read_passed_over(reader));
        return read;
      });
  if (choice.ok()) SHOAL_RETURN_IF_ERROR(storage.sync_folder(folder_of(of)));
  return choice;
}

Result<LiveGeneration> read_live_generation(Storage& storage) {
  LiveGeneration live;
  SHOAL_ASSIGN_OR_RETURN(ClaimedNumbers claimed, list_numbers(storage, kGenerationsFolder));
  if (claimed.numbers.empty()) return live;
  live.generation = claimed.numbers.back();
  const std::string prefix = fmt::format("{}.load-", live.generation);
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(kGenerationsFolder));
  for (const ObjectInfo& object : listed) {
    if (!object.name.starts_with(prefix) || is_partial(object.name)) continue;
    uint32_t ordinal = 0;
    const char* last = object.name.data() + object.name.size();
    auto [end, error] = std::from_chars(object.name.data() + prefix.size(), last, ordinal);
    if (error != std::errc() || end != last) continue;
    SHOAL_ASSIGN_OR_RETURN(LoadChoice choice, read_load_choice(storage, live.generation, ordinal));
    if (choice.found) live.loaded.push_back(choice.key);
  }
  return live;
}

}  // namespace shoal::storage
