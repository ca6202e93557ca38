// The root of a run: its id, the claims of epochs and generations, the attempts, and the load choice of
// `latest`. docs/reference/format.md, "Root".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "shoal/hash.h"
#include "shoal/metadata.h"
#include "shoal/passed_over.h"
#include "shoal/roster.h"
#include "shoal/save_plan.h"
#include "shoal/status.h"
#include "storage/decisions/decision.h"
#include "storage/storage.h"

namespace shoal::storage {

inline constexpr const char* kProbesFolder = "probes";  // of probe_storage

// Names under the root.
std::string attempt_folder(const AttemptKey& key);  // "step-00001000/g3a1"
std::string decision_path(const AttemptKey& key);   // attempt_folder + "/manifest.shoal"
std::string shard_path(const AttemptKey& key, Rank rank, uint32_t file);
std::optional<uint64_t> parse_step_folder(std::string_view name);                      // "step-00001000"
std::optional<AttemptKey> parse_attempt_folder(uint64_t step, std::string_view name);  // "g3a1"

// Reads ROOT_ID. If it is missing and `create` is set, creates it exclusively with `fresh`; without `create`,
// Code::not_found. A root that holds attempts but no ROOT_ID has lost it: Code::refused, with a message that
// says how to restore it.
Result<RootId> open_root(Storage& storage, bool create, const RootId& fresh);
// Restores a lost ROOT_ID from the root's decisions, which contain it. Code::already_exists if it exists,
// Code::refused if the decisions name two ids, Code::not_found if no decision can be read.
Result<RootId> restore_root_id(Storage& storage);
// Checks that this storage has exclusive creation and lists a name after it was created: creates a scratch
// name twice, and expects the second call to fail.
Status probe_storage(Storage& storage, const Nonce& nonce);

inline constexpr size_t kMaxAddressBytes = 512;

struct EpochRecord {
  uint32_t epoch = 0;
  std::string address;  // where this coordinator listens
  std::string job_id;
  Nonce nonce;              // of the process
  uint32_t generation = 0;  // of the run that it coordinates; 0: written by an older program
};
// Whether the record belongs to a coordinator of this run. The job id alone is not enough, because a later
// run may reuse it.
bool is_of_run(const EpochRecord& record, const std::string& job_id, uint32_t generation);
// Describes the run of another run's coordinator for a message: "job 'x'", or "a later run of job 'x'" if
// `own_job_id` is the same.
std::string run_of(const EpochRecord& record, const std::string& own_job_id);
Result<std::optional<EpochRecord>> highest_epoch(Storage& storage);
// Creates epochs/N exclusively. false: another process has claimed that epoch.
Result<bool> claim_epoch(Storage& storage, const EpochRecord& record);

struct GenerationRecord {
  uint32_t generation = 0;
  std::string job_id;
  Nonce nonce;
};
// Claims a new generation for a run that starts. It differs from that of every earlier run, even if the job
// id is used again. `nonce` is drawn for this start. A number of which any file remains (N.roster, N.damaged)
// is not claimed again.
Result<GenerationRecord> claim_generation(Storage& storage, const std::string& job_id, const Nonce& nonce);
inline constexpr uint32_t kGenerationOfJob = 0;
// Returns the generation of a run that continues after one of its nodes was restarted. With kGenerationOfJob:
// the highest generation if its claim has this job id, which no earlier run may have used; a new generation
// if no claim has it. Code::refused if another job has claimed the generation, or if a higher one exists
// because a later run has begun. The error names that claim.
Result<GenerationRecord> rejoin_generation(Storage& storage, uint32_t generation, const std::string& job_id,
                                           const Nonce& nonce);
// The "job" that claims the generation of checkpoints that were copied to a root in which no run of that
// generation or of a later one has begun (shoal copy). A run that starts later gets a higher one.
inline constexpr std::string_view kCopyJobId = "shoal copy";
// Code::refused: a run of that generation or of an earlier one has begun there, so that its saves would be
// older than the copies. OK: no run that starts from now on saves under `generation`.
Status claim_for_copies(Storage& storage, uint32_t generation, const Nonce& nonce);
// Whether that would be refused. `records`: those of list_generations.
Status check_for_copies(Storage& storage, const std::vector<GenerationRecord>& records, uint32_t generation);
// Ascending. A damaged record is an error if it is the highest; lower ones are left out, because their runs
// have ended.
Result<std::vector<GenerationRecord>> list_generations(Storage& storage);

// Publishes the first roster of a generation: generations/N.roster holds world and options. Returns the final
// one: this one, or the one that came first.
struct RosterRecord {
  std::shared_ptr<const World> world;
  SaveOptions options;
  uint32_t rule_version = kRuleVersion;
};
Result<RosterRecord> publish_roster(Storage& storage, uint32_t generation, const RosterRecord& record,
                                    const Nonce& nonce);
Result<RosterRecord> read_roster(Storage& storage, uint32_t generation);  // Code::not_found
// Publishes a later roster of a generation: generations/N.roster-ID, created exclusively. An existing file
// has the same contents. Returns the roster from the file, durable.
Result<RosterRecord> publish_later_roster(Storage& storage, uint32_t generation, const RosterRecord& record,
                                          const Nonce& nonce);
// Reads the first or a later roster of a generation by its id. Code::not_found.
Result<RosterRecord> read_roster_of_id(Storage& storage, uint32_t generation, const RosterId& id);
// All readable rosters of a generation: the first one, then the later ones by id.
Result<std::vector<RosterRecord>> list_rosters(Storage& storage, uint32_t generation);

struct AttemptInfo {
  AttemptKey key;
  enum class State : uint8_t { undecided, committed, aborted, deleted } state = State::undecided;
  uint64_t files_bytes = 0;     // of all files in the folder now, including partial files
  uint64_t fingerprint = 0;     // hash of the folder's listing; changes while a process writes
  uint32_t leftover_files = 0;  // files other than the decision
  uint32_t partial_files = 0;   // of these, unfinished shards
  uint32_t rank_manifests = 0;  // storage/decisions/rank_manifest.h
  uint32_t rank_world = 0;      // the world size in their names; 0: no rank manifests, or several world sizes
  // Undecided, with rank manifests of all ranks: the next reader only has to merge them.
  bool is_complete_set() const {
    return state == State::undecided && rank_world != 0 && rank_manifests == rank_world;
  }
  // Whether sweep_attempt has anything to remove there.
  bool to_sweep() const {
    return state == State::aborted ? leftover_files != 0 : state == State::committed && partial_files != 0;
  }
};
// Every attempt whose folder contains anything, ascending. Reads the head of each decision (its state), not
// the whole manifest. Before you report a state to another process, read it with read_decision, which makes
// it durable. An attempt whose folder or decision cannot be read is listed in `damaged` with the error, and
// not in `attempts`.
struct AttemptList {
  std::vector<AttemptInfo> attempts;
  std::vector<std::pair<AttemptKey, Status>> damaged;
};
Result<AttemptList> list_attempts(Storage& storage);
// Like list_attempts, but fills only key and state of a decided attempt: its folder is not listed.
Result<AttemptList> list_attempt_states(Storage& storage);
// Of these, the newest checkpoint and every attempt above it, including damaged ones. Opens no older
// decision.
Result<AttemptList> list_newest_attempts(Storage& storage);
Result<AttemptList> list_attempts_of_step(Storage& storage, uint64_t step);
// Every attempt that has a folder. Reads only names and opens no file.
struct AttemptNames {
  std::vector<AttemptKey> keys;      // ascending
  std::vector<std::string> remains;  // folders without meaning: empty step folders, and what deletions left
  // Names of steps and attempts that are not folders, such as symbolic links, and step folders that cannot be
  // listed. They may hold the newest checkpoint. A step has generation kUnknownGeneration, above all others.
  std::vector<std::pair<AttemptKey, Status>> unreadable;
};
inline constexpr uint32_t kUnknownGeneration = ~uint32_t{0};
Result<AttemptNames> list_attempt_names(Storage& storage);
Result<AttemptInfo> inspect_attempt(Storage& storage, const AttemptKey& key);

// The load choice of a generation for load(latest): generations/N.load-K, created exclusively. Every rank
// reads it.
struct LoadChoice {
  bool found = false;  // false: there was no checkpoint
  AttemptKey key;
  Nonce nonce;
  PassedOverPtr passed_over = nullptr;  // newer attempts than `key`
};
// A reader's choices are files readers/N.load-K, where N is the number of the job that only reads. The newest
// kReaderChoicesKept of them stay. A rank that is that many loads behind the others makes its own choice.
enum class ChoiceOf : uint8_t { generation, reader };
inline constexpr uint32_t kReaderChoicesKept = 64;
Result<LoadChoice> publish_load_choice(Storage& storage, uint32_t generation, uint32_t ordinal,
                                       const LoadChoice& choice, ChoiceOf of = ChoiceOf::generation);
Result<LoadChoice> read_load_choice(Storage& storage, uint32_t generation, uint32_t ordinal,
                                    ChoiceOf of = ChoiceOf::generation);  // Code::not_found
// What the highest generation has loaded as `latest`, and its number (0: no generation exists yet).
struct LiveGeneration {
  uint32_t generation = 0;
  std::vector<AttemptKey> loaded;
};
Result<LiveGeneration> read_live_generation(Storage& storage);

// Removes files that a decision has made useless, and keeps the decision. Of an aborted or deleted attempt:
// shards and partial files. Of a committed one: unfinished shards, because every shard of the checkpoint was
// finished before it was reported. Code::refused if the attempt is undecided. Returns the number of bytes
// removed.
Result<uint64_t> sweep_attempt(Storage& storage, const AttemptKey& key);

// Checks that each reported file is in the attempt's folder with its size. The error names the first file
// that is not: Code::not_found, or Code::corrupt for another size.
Status check_files_present(Storage& storage, const AttemptKey& key, const std::vector<FileEntry>& files);
// The same for a folder that was listed by Storage::list. `full_folder` is for errors.
Status check_files_listed(const std::vector<ObjectInfo>& listed, const std::vector<FileEntry>& files,
                          const std::string& full_folder);

}  // namespace shoal::storage
