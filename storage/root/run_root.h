// The root of a run: its id, claims of epochs and generations, attempts, and the choice of `latest`.
// docs/reference/format.md, "Root".
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

// Names under the root.
std::string attempt_folder(const AttemptKey& key);  // "step-00001000/g3a1"
std::string decision_path(const AttemptKey& key);   // attempt_folder + "/manifest.shoal"
std::string shard_path(const AttemptKey& key, Rank rank, uint32_t file);
std::optional<uint64_t> parse_step_folder(std::string_view name);                      // "step-00001000"
std::optional<AttemptKey> parse_attempt_folder(uint64_t step, std::string_view name);  // "g3a1"

// Reads ROOT_ID, or makes it (exclusively) with `fresh` when `create` is set. Code::not_found otherwise. A
// root that holds attempts and no ROOT_ID has lost it: Code::refused, with the way out.
Result<RootId> open_root(Storage& storage, bool create, const RootId& fresh);
// Puts a lost ROOT_ID back from the decisions of the root, which name it. Code::already_exists where it is
// there; Code::refused where decisions of two runs lie there; Code::not_found where none can be read.
Result<RootId> restore_root_id(Storage& storage);
// Proves exclusive create and list-after-create on this storage: creates a scratch name twice, the second
// must fail.
Status probe_storage(Storage& storage, const Nonce& nonce);

inline constexpr size_t kMaxAddressBytes = 512;

struct EpochRecord {
  uint32_t epoch = 0;
  std::string address;  // where this coordinator listens
  std::string job_id;
  Nonce nonce;              // of the process
  uint32_t generation = 0;  // of the run that it coordinates; 0: an older program did not say
};
// Whether it is a coordinator of this run. A job id alone does not say so: it may have been used again.
bool is_of_run(const EpochRecord& record, const std::string& job_id, uint32_t generation);
// Whose another run's coordinator is, for people: "job 'x'", or "a later run of job 'x'" where that id is our
// own.
std::string run_of(const EpochRecord& record, const std::string& own_job_id);
Result<std::optional<EpochRecord>> highest_epoch(Storage& storage);
// Creates epochs/N exclusively; false: somebody else has that number.
Result<bool> claim_epoch(Storage& storage, const EpochRecord& record);

struct GenerationRecord {
  uint32_t generation = 0;
  std::string job_id;
  Nonce nonce;
};
// A new generation, for a run that starts: never that of an earlier run, also where a job id is used again.
// `nonce` is drawn for this start. A number of which anything stands (N.roster, N.damaged) is not claimed
// again.
Result<GenerationRecord> claim_generation(Storage& storage, const std::string& job_id, const Nonce& nonce);
inline constexpr uint32_t kGenerationOfJob = 0;
// The generation of a run that goes on, of which a node was started again. kGenerationOfJob: the highest one,
// if it has this job id, which then must never have been used before; a new one where none has it.
// Code::refused when it is another job's, or below the highest (a later run has begun), naming that one.
Result<GenerationRecord> rejoin_generation(Storage& storage, uint32_t generation, const std::string& job_id,
                                           const Nonce& nonce);
// Ascending. The highest one that is damaged is an error; damaged ones below it are left out: they are over.
Result<std::vector<GenerationRecord>> list_generations(Storage& storage);
// The highest number of which anything stands under generations/, a damaged claim too; 0: none.
Result<uint32_t> highest_generation_used(Storage& storage);

// The first roster of a generation: generations/N.roster holds world and options. Returns what stands (ours
// or the first).
struct RosterRecord {
  std::shared_ptr<const World> world;
  SaveOptions options;
  uint32_t rule_version = kRuleVersion;
};
Result<RosterRecord> publish_roster(Storage& storage, uint32_t generation, const RosterRecord& record,
                                    const Nonce& nonce);
Result<RosterRecord> read_roster(Storage& storage, uint32_t generation);  // Code::not_found
// A later roster of a generation: generations/N.roster-ID, created exclusively. What stands there already is
// the same. Returns it as it stands, durably.
Result<RosterRecord> publish_later_roster(Storage& storage, uint32_t generation, const RosterRecord& record,
                                          const Nonce& nonce);
// Any roster of a generation by its id, the first or a later one. Code::not_found.
Result<RosterRecord> read_roster_of_id(Storage& storage, uint32_t generation, const RosterId& id);
// All rosters of a generation that can be read, the first one first, the later ones by their ids.
Result<std::vector<RosterRecord>> list_rosters(Storage& storage, uint32_t generation);

struct AttemptInfo {
  AttemptKey key;
  enum class State : uint8_t { undecided, committed, aborted, deleted } state = State::undecided;
  uint64_t files_bytes = 0;     // what lies in the folder now, partial files included
  uint64_t fingerprint = 0;     // hash of the folder's listing: changes while somebody writes
  uint32_t leftover_files = 0;  // files other than the decision
  uint32_t partial_files = 0;   // of these, shards that were never finished
  uint32_t rank_manifests = 0;  // storage/decisions/rank_manifest.h
  uint32_t rank_world = 0;      // the world size in their names; 0: there are none, or they say several
  // Undecided, and only to be merged.
  bool is_complete_set() const {
    return state == State::undecided && rank_world != 0 && rank_manifests == rank_world;
  }
  // Whether sweep_attempt has anything to remove there.
  bool to_sweep() const {
    return state == State::aborted ? leftover_files != 0 : state == State::committed && partial_files != 0;
  }
};
// Every attempt that has a folder with anything in it, ascending. Reads each decision's head only (state),
// not whole manifests. A state that is to be told to anybody is read with read_decision first, which makes
// sure that it lasts. A folder or decision that cannot be read, for whatever reason, makes that attempt an
// error entry: listed in `damaged` with its status, and not in the result.
struct AttemptList {
  std::vector<AttemptInfo> attempts;
  std::vector<std::pair<AttemptKey, Status>> damaged;
};
Result<AttemptList> list_attempts(Storage& storage);
// The same, but that of an attempt that is decided only key and state are told: its folder is not listed.
Result<AttemptList> list_attempt_states(Storage& storage);
// Of these, the newest checkpoint and all that stands above it, damaged ones too; opens no decision below.
Result<AttemptList> list_newest_attempts(Storage& storage);
Result<AttemptList> list_attempts_of_step(Storage& storage, uint64_t step);
// Every attempt that has a folder, by names alone: no file is opened.
struct AttemptNames {
  std::vector<AttemptKey> keys;      // ascending
  std::vector<std::string> remains;  // folders of no meaning: empty ones of steps, and what deletions left
  // Names of steps and attempts that are no folders, such as symbolic links, and steps that cannot be listed:
  // they may hold the newest checkpoint. A step has generation kUnknownGeneration, above all others.
  std::vector<std::pair<AttemptKey, Status>> unreadable;
};
inline constexpr uint32_t kUnknownGeneration = ~uint32_t{0};
Result<AttemptNames> list_attempt_names(Storage& storage);
Result<AttemptInfo> inspect_attempt(Storage& storage, const AttemptKey& key);

// The load(latest) choice of a generation: generations/N.load-K, created exclusively; every rank reads it.
struct LoadChoice {
  bool found = false;  // false: there was no checkpoint at all
  AttemptKey key;
  Nonce nonce;
  PassedOverPtr passed_over = nullptr;  // newer attempts than `key`
};
// Of a job that only reads: readers/N.load-K, N being its number. Of these the newest kReaderChoicesKept
// stay, so that a rank that is so many loads behind the others chooses for itself.
enum class ChoiceOf : uint8_t { generation, reader };
inline constexpr uint32_t kReaderChoicesKept = 64;
Result<LoadChoice> publish_load_choice(Storage& storage, uint32_t generation, uint32_t ordinal,
                                       const LoadChoice& choice, ChoiceOf of = ChoiceOf::generation);
Result<LoadChoice> read_load_choice(Storage& storage, uint32_t generation, uint32_t ordinal,
                                    ChoiceOf of = ChoiceOf::generation);  // Code::not_found
// What the highest generation has loaded as `latest`, and its number (0: there is none yet).
struct LiveGeneration {
  uint32_t generation = 0;
  std::vector<AttemptKey> loaded;
};
Result<LiveGeneration> read_live_generation(Storage& storage);

// Removes what a decision has left without meaning; the decision stays. Under a tombstone: shards and partial
// files. Under a manifest: shards that were never finished, since every one that counts was reported first.
// Without a decision: Code::refused. Returns the bytes removed.
Result<uint64_t> sweep_attempt(Storage& storage, const AttemptKey& key);

// Compares the folder of an attempt with what was reported: each file there, with its size. Names the first
// that is not.
Status check_files_present(Storage& storage, const AttemptKey& key, const std::vector<FileEntry>& files);

}  // namespace shoal::storage
