// Root id, epochs, generations, first rosters and load choices: each an exclusively created record.
#include <capnp/message.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "schema/root.capnp.h"
#include "storage/record.h"
#include "storage/run_root.h"
#include "storage/world_record_internal.h"

namespace shoal {

namespace {

constexpr uint64_t kMaxClaimBytes = 4096;
constexpr uint64_t kMaxRosterRecordBytes = uint64_t{1} << 30;
constexpr int kMaxClaimTries = 64;  // lost races for the next generation
constexpr const char* kRootIdPath = "ROOT_ID";
constexpr const char* kEpochsFolder = "epochs";
constexpr const char* kGenerationsFolder = "generations";
constexpr const char* kProbesFolder = "probes";

const RecordKind kRootIdRecord = {"SHOALRID", "root id", 1, kMaxClaimBytes};
const RecordKind kEpochRecord = {"SHOALEPO", "epoch", 1, kMaxClaimBytes};
const RecordKind kGenerationRecord = {"SHOALGEN", "generation", 1, kMaxClaimBytes};
const RecordKind kRosterRecord = {"SHOALROS", "first roster", 1, kMaxRosterRecordBytes};
const RecordKind kLoadChoiceRecord = {"SHOALLOD", "load choice", 1, kMaxClaimBytes};

std::string epoch_path(uint32_t epoch) {
  return fmt::format("{}/{}", kEpochsFolder, epoch);
}
std::string generation_path(uint32_t generation) {
  return fmt::format("{}/{}", kGenerationsFolder, generation);
}
std::string roster_path(uint32_t generation) {
  return generation_path(generation) + ".roster";
}
std::string load_choice_path(uint32_t generation, uint32_t ordinal) {
  return fmt::format("{}.load-{}", generation_path(generation), ordinal);
}

Status validate_text(std::string_view text, size_t bytes_max, std::string_view what) {
  if (!text.empty() && text.size() <= bytes_max && is_clean_utf8(text)) return ok_status();
  return Status(Code::invalid_argument,
                fmt::format("{}: 1 to {} bytes of text without control characters", what, bytes_max));
}

// Reads a record and hands the body's struct to `body`, which returns Result<Value>.
template <class Root, class Body>
auto read_record(Storage& storage, const RecordKind& kind, const std::string& path, Body&& body)
    -> decltype(body(std::declval<typename Root::Reader>())) {
  std::string full_path = storage.describe() + "/" + path;
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, storage.read(path, kind.file_bytes_max()));
  SHOAL_ASSIGN_OR_RETURN(OpenedRecord record, open_record(kind, bytes, full_path));
  ReadLimits limits;
  limits.bytes_max = kind.body_bytes_max;
  limits.segments_max = 1;
  auto value = read_checked<Root>(record.body, limits, body);
  if (!value.ok()) return record_error(kind, value.status(), full_path);
  return value;
}

template <class Builder>
Result<bool> create_record(Storage& storage, const RecordKind& kind, const std::string& path, Builder root) {
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, seal_record(kind, 0, canonical_framed_bytes(root)));
  return storage.create_exclusive(path, bytes);
}

// The numbers N of the objects "N" in a folder, ascending; none where the folder is not there.
Result<std::vector<uint32_t>> numbered(Storage& storage, const std::string& folder) {
  auto listed = storage.list(folder);
  if (!listed.ok() && listed.status().code() == Code::not_found) return std::vector<uint32_t>();
  if (!listed.ok()) return listed.status();
  std::vector<uint32_t> numbers;
  for (const ObjectInfo& object : *listed) {
    uint32_t number = 0;
    const char* last = object.name.data() + object.name.size();
    auto [end, error] = std::from_chars(object.name.data(), last, number);
    bool canonical = error == std::errc() && end == last && object.name == std::to_string(number);
    if (canonical && !object.is_folder) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Status wrong_number(uint32_t number) {
  return Status(Code::corrupt, fmt::format("it holds number {}, not that of its name", number));
}

Result<EpochRecord> read_epoch(Storage& storage, uint32_t epoch) {
  return read_record<schema::EpochClaim>(
      storage, kEpochRecord, epoch_path(epoch),
      [&](schema::EpochClaim::Reader reader) -> Result<EpochRecord> {
        EpochRecord record;
        record.epoch = reader.getEpoch();
        if (record.epoch != epoch) return wrong_number(record.epoch);
        record.address = view_of(reader.getAddress());
        record.job_id = view_of(reader.getJobId());
        SHOAL_RETURN_IF_ERROR(validate_text(record.address, kMaxAddressBytes, "address"));
        SHOAL_RETURN_IF_ERROR(validate_text(record.job_id, kMaxJobIdBytes, "job id"));
        SHOAL_ASSIGN_OR_RETURN(record.nonce, Hash128::from_bytes(view_of(reader.getNonce())));
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
        record.job_id = view_of(reader.getJobId());
        SHOAL_RETURN_IF_ERROR(validate_text(record.job_id, kMaxJobIdBytes, "job id"));
        SHOAL_ASSIGN_OR_RETURN(record.nonce, Hash128::from_bytes(view_of(reader.getNonce())));
        return record;
      });
}

Result<RootId> read_root_id(Storage& storage) {
  return read_record<schema::RootIdentity>(
      storage, kRootIdRecord, kRootIdPath,
      [](schema::RootIdentity::Reader reader) { return Hash128::from_bytes(view_of(reader.getId())); });
}

}  // namespace

Result<RootId> open_root(Storage& storage, bool create, const RootId& fresh) {
  auto id = read_root_id(storage);
  if (!id.ok() && id.status().code() == Code::not_found) {
    if (!create) {
      return Status(Code::not_found,
                    fmt::format("root {} holds no run: {} is not there", storage.describe(), kRootIdPath));
    }
    capnp::MallocMessageBuilder message;
    auto root = message.initRoot<schema::RootIdentity>();
    root.setId(data_of(fresh));
    SHOAL_RETURN_IF_ERROR(create_record(storage, kRootIdRecord, kRootIdPath, root).status());
    id = read_root_id(storage);
  }
  if (id.ok() && create) SHOAL_RETURN_IF_ERROR(storage.sync_folder(""));
  return id;
}

Status probe_storage(Storage& storage, const Nonce& nonce) {
  std::string name = nonce.to_hex(), path = std::string(kProbesFolder) + "/" + name;
  auto refuse = [&](std::string_view what) {
    return Status(Code::refused,
                  fmt::format("root {} cannot hold checkpoints: {}", storage.describe(), what));
  };
  Bytes content(nonce.bytes.begin(), nonce.bytes.end());
  SHOAL_ASSIGN_OR_RETURN(bool first, storage.create_exclusive(path, content));
  SHOAL_ASSIGN_OR_RETURN(Bytes read, storage.read(path, content.size()));
  if (!first || read != content) return refuse("a new name is taken");
  SHOAL_ASSIGN_OR_RETURN(bool second, storage.create_exclusive(path, content));
  if (second) return refuse("it creates the same name twice");
  SHOAL_ASSIGN_OR_RETURN(auto listed, storage.list(kProbesFolder));
  bool found = std::any_of(listed.begin(), listed.end(),
                           [&](const ObjectInfo& object) { return object.name == name; });
  if (!found) return refuse("a listing lacks what was just created");
  SHOAL_RETURN_IF_ERROR(storage.remove(path));
  return ok_status();
}

Result<std::optional<EpochRecord>> highest_epoch(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<uint32_t> epochs, numbered(storage, kEpochsFolder));
  if (epochs.empty()) return std::optional<EpochRecord>();
  SHOAL_ASSIGN_OR_RETURN(EpochRecord record, read_epoch(storage, epochs.back()));
  return std::optional<EpochRecord>(std::move(record));
}

Result<bool> claim_epoch(Storage& storage, const EpochRecord& record) {
  if (record.epoch == 0) return Status(Code::invalid_argument, "epochs begin with 1");
  SHOAL_RETURN_IF_ERROR(validate_text(record.address, kMaxAddressBytes, "address"));
  SHOAL_RETURN_IF_ERROR(validate_text(record.job_id, kMaxJobIdBytes, "job id"));
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::EpochClaim>();
  root.setEpoch(record.epoch);
  root.setAddress(text_of(record.address));
  root.setJobId(text_of(record.job_id));
  root.setNonce(data_of(record.nonce));
  SHOAL_ASSIGN_OR_RETURN(bool ours, create_record(storage, kEpochRecord, epoch_path(record.epoch), root));
  if (ours) return true;
  SHOAL_ASSIGN_OR_RETURN(EpochRecord winner, read_epoch(storage, record.epoch));
  return winner.nonce == record.nonce;
}

Result<std::vector<GenerationRecord>> list_generations(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<uint32_t> numbers, numbered(storage, kGenerationsFolder));
  std::vector<GenerationRecord> records;
  for (uint32_t number : numbers) {
    SHOAL_ASSIGN_OR_RETURN(records.emplace_back(), read_generation(storage, number));
  }
  return records;
}

Result<GenerationRecord> claim_generation(Storage& storage, const std::string& job_id, const Nonce& nonce) {
  SHOAL_RETURN_IF_ERROR(validate_text(job_id, kMaxJobIdBytes, "job id"));
  for (int tries = 0; tries < kMaxClaimTries; ++tries) {
    SHOAL_ASSIGN_OR_RETURN(std::vector<GenerationRecord> records, list_generations(storage));
    auto ours = std::find_if(records.rbegin(), records.rend(),
                             [&](const auto& record) { return record.job_id == job_id; });
    if (ours == records.rbegin() && ours != records.rend()) {
      SHOAL_RETURN_IF_ERROR(storage.sync_folder(kGenerationsFolder));
      return *ours;
    }
    if (ours != records.rend()) {
      return Status(Code::refused,
                    fmt::format("{}: generation {} of this job was superseded by generation {} of job {}",
                                storage.describe(), ours->generation, records.back().generation,
                                records.back().job_id));
    }
    GenerationRecord next{records.empty() ? 1 : records.back().generation + 1, job_id, nonce};
    capnp::MallocMessageBuilder message;
    auto root = message.initRoot<schema::GenerationClaim>();
    root.setGeneration(next.generation);
    root.setJobId(text_of(job_id));
    root.setNonce(data_of(nonce));
    SHOAL_ASSIGN_OR_RETURN(bool created,
                           create_record(storage, kGenerationRecord, generation_path(next.generation), root));
    if (created) return next;
  }
  return Status(Code::unavailable,
                fmt::format("{}: lost {} races for a generation", storage.describe(), kMaxClaimTries));
}

Result<RosterRecord> publish_roster(Storage& storage, uint32_t generation, const RosterRecord& record,
                                    const Nonce& nonce) {
  if (record.world == nullptr) return Status(Code::invalid_argument, "a roster record without a world");
  SHOAL_RETURN_IF_ERROR(validate_world_record({record.world, record.rule_version, record.options}));
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::FirstRoster>();
  root.setGeneration(generation);
  write_world_record(root, *record.world, record.rule_version, record.options);
  root.setNonce(data_of(nonce));
  SHOAL_ASSIGN_OR_RETURN(bool ours, create_record(storage, kRosterRecord, roster_path(generation), root));
  if (ours) return record;
  return read_roster(storage, generation);
}

Result<RosterRecord> read_roster(Storage& storage, uint32_t generation) {
  auto record = read_record<schema::FirstRoster>(
      storage, kRosterRecord, roster_path(generation),
      [&](schema::FirstRoster::Reader reader) -> Result<RosterRecord> {
        if (reader.getGeneration() != generation) return wrong_number(reader.getGeneration());
        SHOAL_RETURN_IF_ERROR(Hash128::from_bytes(view_of(reader.getNonce())).status());
        SHOAL_ASSIGN_OR_RETURN(WorldRecord world, read_world_record(reader));
        return RosterRecord{world.world, world.options, world.rule_version};
      });
  if (record.ok()) SHOAL_RETURN_IF_ERROR(storage.sync_folder(kGenerationsFolder));
  return record;
}

Result<LoadChoice> publish_load_choice(Storage& storage, uint32_t generation, uint32_t ordinal,
                                       const LoadChoice& choice) {
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
  root.setNonce(data_of(choice.nonce));
  SHOAL_RETURN_IF_ERROR(
      create_record(storage, kLoadChoiceRecord, load_choice_path(generation, ordinal), root).status());
  return read_load_choice(storage, generation, ordinal);
}

Result<LoadChoice> read_load_choice(Storage& storage, uint32_t generation, uint32_t ordinal) {
  auto choice = read_record<schema::LoadChoice>(
      storage, kLoadChoiceRecord, load_choice_path(generation, ordinal),
      [&](schema::LoadChoice::Reader reader) -> Result<LoadChoice> {
        if (reader.getGeneration() != generation) return wrong_number(reader.getGeneration());
        if (reader.getOrdinal() != ordinal) return wrong_number(reader.getOrdinal());
        LoadChoice read;
        read.found = reader.getFound();
        read.key = {reader.getChosenGeneration(), reader.getChosenStep(), reader.getChosenAttempt()};
        if (!read.found && read.key != AttemptKey{})
          return Status(Code::corrupt, "nothing found, yet an attempt named");
        SHOAL_ASSIGN_OR_RETURN(read.nonce, Hash128::from_bytes(view_of(reader.getNonce())));
        return read;
      });
  if (choice.ok()) SHOAL_RETURN_IF_ERROR(storage.sync_folder(kGenerationsFolder));
  return choice;
}

}  // namespace shoal
