// CountedRoot: simulates a root without storing bytes. It keeps decisions, rosters and rank manifests as
// values, and shards as sizes. It takes the place of LocalStorage over MemoryFileSystem.
//
// As in storage/, the first decision, roster or rank manifest under a name stays. VirtualCluster decides
// which operations fail.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/operation.h"
#include "base/paged_map.h"
#include "sim/basics/event_heap.h"
#include "sim/cluster/shared_plans.h"
#include "sim/failures/oracles.h"
#include "sim/models/storage_model.h"

namespace shoal::sim {

// The size of each object that a rank saves: a random state, as torch.get_rng_state() returns it.
inline constexpr uint64_t kSimulatedObjectBytes = 5056;

class CountedRoot final : public RootView {
 public:
  // `clock` outlives the root.
  CountedRoot(const EventHeap& clock, const StorageCosts& costs, uint64_t codec_bytes_per_s,
              const storage::EpochRecord& epoch, std::shared_ptr<SharedPlans> plans)
      : clock_(clock),
        costs_(costs),
        codec_bytes_per_s_(codec_bytes_per_s),
        epoch_(epoch),
        plans_(std::move(plans)),
        newest_generation_(epoch.generation) {}

  struct Work {
    StorageSteps steps;  // storage requests of the operation, given the state of the root now
    // Called after the steps: applies the operation and returns its result.
    std::function<Result<actors::OperationResult>()> finish;
    uint64_t prefix = 0;  // the folder that it uses: an attempt's folder, or the root
    // finish returns what existed at begin, whatever is published until then.
    bool is_seen = false;
  };
  // has_catalog: true for the coordinator's node. generation: of the run whose node asks.
  Work begin(const actors::Operation& operation, bool has_catalog, size_t node, uint32_t generation);

  // A load has made this pin under a name that the storage has chosen.
  void keep_pin(const storage::Mark& pin) { pinned_[pin.name] = pin.key; }
  // A bit of a file of this checkpoint has flipped on the disk: of its manifest, or of a shard.
  void damage(const AttemptKey& key, bool is_of_manifest);
  std::optional<actors::TimeNs> damaged_at(const AttemptKey& key) const override;
  bool has_damage() const { return !damaged_.empty(); }
  std::vector<AttemptKey> deleted() const;
  // Committed, not deleted, and no bit of it has flipped.
  bool is_sound(const AttemptKey& key) const;
  // An operator has pinned or tagged a checkpoint under this name, or has removed that mark.
  void keep_mark(const std::string& name, const AttemptKey& key) { marks_[name] = key; }
  void forget_mark(const std::string& name) { marks_.erase(name); }
  const std::map<std::string, AttemptKey>& marks() const { return marks_; }
  // The next deletions are those of an operator, who keeps so many checkpoints. 0: those of a role.
  void set_operator_keeps(uint32_t keep_last) { operator_keeps_ = keep_last; }
  // Checkpoints that the rule lets go, and that are still there.
  uint64_t to_delete(const storage::RetentionPolicy& policy) const;
  uint64_t leases() const { return pinned_.size(); }  // number of checkpoints that loads hold, each counted
  std::vector<AttemptKey> attempts() const;           // those of which the root holds a file
  // Every rank has published its manifest: readers take the attempt for a checkpoint before it is merged.
  bool is_complete_set(const AttemptKey& key) const;
  // Files that a sweep of the aborted attempts up to this generation would remove.
  uint64_t leftovers_of_aborted(uint32_t generation) const;

  // A shard that was just written is missing afterwards, or has this many bytes only.
  void lose_shard(const AttemptKey& key, Rank rank, uint32_t file, uint64_t payload_bytes,
                  std::optional<uint64_t> bytes_left);

  // StoredPayload carries out each operation too: its result counts.
  void is_stored_too() { is_stored_ = true; }
  // From now on the root keeps what it needs to open each shard, so that a load can read it.
  void will_be_loaded() { keeps_heads_ = true; }
  // Takes over the attempts of the root `before`, as a later generation finds them. `before` is of no use
  // afterwards.
  void continue_from(CountedRoot& before);

  // A coordinator of a run claims the next epoch, and returns its number. From now on it is the highest.
  uint32_t claim_epoch(uint32_t generation, std::string address);
  uint32_t highest_epoch() const { return epoch_.epoch; }
  const std::shared_ptr<SharedPlans>& plans() const { return plans_; }

  std::shared_ptr<const storage::Decision> decision(const AttemptKey& key) const override;
  std::optional<uint64_t> file_bytes(const AttemptKey& key, Rank rank, uint32_t file) const override;
  std::optional<AttemptKey> latest() const override;
  std::vector<AttemptKey> committed() const override;
  std::vector<AttemptKey> undecided() const override;
  std::optional<actors::TimeNs> complete_when_aborted(const AttemptKey& key) const override;
  bool was_deleted(const AttemptKey& key) const override { return deleted_.contains(key); }
  std::optional<actors::TimeNs> deleted_at(const AttemptKey& key) const override;
  std::optional<AttemptKey> wrongly_deleted() const override { return wrongly_deleted_; }

  // Whether no generation has another roster than this one.
  bool has_only_roster(const RosterId& id) const;
  // Appends number, size and bytes of the header of each file of this rank. Needs will_be_loaded().
  void add_header_bytes(const AttemptKey& key, Rank rank, std::vector<uint64_t>& out) const;

  bool has_roster() const override { return first_rosters_.contains(epoch_.generation); }
  // Bytes of all records (decisions, rosters, rank manifests) created so far.
  uint64_t record_bytes() const { return record_bytes_; }

 private:
  struct Attempt {
    std::shared_ptr<const storage::Decision> decision;
    uint64_t decision_bytes = 0;
    base::PagedMap<uint64_t, uint64_t> shards;  // sizes in bytes, by shard_of
    std::set<uint64_t> too_short;               // shards whose ends are missing
    std::map<uint64_t, uint64_t> contents;      // hashes of the tensors' boxes in each shard; if is_stored_
    bool has_lost_shards = false;               // some shard that was written is missing
    // Records of ranks that write no shard: layout, plan of the assignment.
    std::map<Rank, std::pair<LayoutId, PlanId>> records;
    std::vector<std::shared_ptr<const storage::RankManifest>> manifests;  // by rank; null: missing
    uint32_t published = 0;
    uint64_t payload_bytes = 0;     // of all shards
    uint64_t manifest_bytes = 0;    // of all rank manifests
    actors::TimeNs written_at = 0;  // when its newest file appeared
    // If it was aborted although the root proved it complete: for how long it had been so.
    std::optional<actors::TimeNs> complete_when_aborted;
    // Merged from a complete set of rank manifests; exists from the first look until the decision.
    std::optional<storage::Manifest> merged;
    uint64_t merged_bytes = 0;

    bool is_complete_set() const { return published != 0 && published == manifests.size(); }
    bool has_shards_of(Rank rank) const;
    uint64_t entries() const { return shards.size() + records.size() + published + (decision ? 1 : 0); }
  };
  static uint64_t shard_of(Rank rank, uint32_t file) { return uint64_t{file} << 32 | rank; }
  struct Roster {
    storage::RosterRecord record;
    uint64_t bytes = 0;
  };

  // A result that is known at the start, and that nothing changes until the end.
  static Work answer(StorageSteps steps, Result<actors::OperationResult> result);
  // What existed at the start, whatever is published since. The storage of a full run is asked then too. Any
  // other operation returns a function of its own, and both are asked at the end.
  bool has_damaged_manifest(const AttemptKey& key) const;
  static Work answer_seen(StorageSteps steps, Result<actors::OperationResult> result);
  Work work_of(const actors::Operation& operation, bool has_catalog, size_t node, uint32_t generation);
  Work write_shard(const actors::operation::WriteShard& write);
  Work record_staged(const actors::operation::RecordStaged& staged);
  Work publish_decision(const actors::operation::PublishDecision& publish, uint32_t generation);
  void note_abort(const AttemptKey& key, uint32_t generation);
  Work publish_rank_manifest(const actors::operation::PublishRankManifest& publish);
  Work complete_rank_local(const actors::operation::CompleteRankLocal& complete);
  Work list_missing_manifests(const actors::operation::ListMissingManifests& list);
  Work complete_attempt(const actors::operation::CompleteAttempt& complete);
  // OK if the attempt holds these files with their sizes. Code::not_found or Code::corrupt.
  Status check_listed(const AttemptKey& key, const std::vector<storage::FileEntry>& files) const;
  // Proves what storage/decisions/completion.cpp proves, but from names, counts and sums of bytes.
  Result<storage::Manifest> prove_complete(const AttemptKey& key);
  // False: the boxes in the shards of this rank are not those of the plan. Knows it if is_stored_.
  static bool has_contents_of(const Attempt& attempt, const Layout& layout, const SavePlan& plan);
  Result<storage::Manifest> prove_under(const AttemptKey& key, const Attempt& attempt,
                                        const storage::RosterRecord& roster);
  Work read_decision(const actors::operation::ReadDecision& read);
  Work check_files(const actors::operation::CheckFiles& check);
  storage::AttemptInfo info_of(const AttemptKey& key, const Attempt& attempt) const;
  Work list_attempts();
  Work inspect_attempt(const actors::operation::InspectAttempt& inspect);
  Work sweep_attempt(const actors::operation::SweepAttempt& sweep);
  // Retention as docs/explanation/retention.md describes it.
  storage::RetentionPlan plan_now(const storage::RetentionPolicy& policy) const;
  Work plan_retention(const actors::operation::PlanRetention& plan);
  Work delete_checkpoint(const actors::operation::DeleteCheckpoint& deletion);
  bool is_folder_gone(const AttemptKey& key) const;
  Work publish_roster(const actors::operation::PublishRoster& publish);
  Work read_roster(const actors::operation::ReadRoster& read);
  Work read_epoch();
  Work record_decision(bool has_catalog);
  // --- counted_root_loads.cpp ---
  Work read_choice(const actors::operation::ReadLoadChoice& read);
  Work publish_choice(const actors::operation::PublishLoadChoice& publish);
  Work list_newest_attempts();
  Work list_attempts_of_step(const actors::operation::ListAttemptsOfStep& list);
  Work list_checkpoints();
  Work locate_ranges(const actors::operation::LocateRanges& locate, size_t node);
  Work verify_checkpoint(const actors::operation::VerifyCheckpoint& verify);
  Work pin_attempt(const actors::operation::PinAttempt& pin);
  Work renew_pin(const actors::operation::RenewPin& renew);
  Work remove_pin(const actors::operation::RemovePin& remove);
  struct OpenShard {
    uint64_t id = 0;
    bool has_file = true;  // false: its header came from a peer, and a read of the file opens it
  };
  // Returns an open shard. A node keeps the newest kMaxOpenShards shards open. If this one is not open, adds
  // the steps that open it and read its header.
  OpenShard& open_shard(StorageSteps& steps, const actors::operation::PieceRef& piece, size_t node);
  Work read_batch(const actors::operation::ReadBatch& read, size_t node);
  Work read_chunk(const actors::operation::ReadChunk& read, size_t node);
  Work check_chunk(const actors::operation::CheckChunk& check, size_t node);
  Work read_header(const actors::operation::PieceRef& piece, size_t node);
  Work check_header(const actors::operation::PieceRef& piece, size_t node);
  OpenShard& keep_open(OpenShard shard, size_t node);  // keeps it as the newest
  uint64_t header_bytes(uint64_t shard_id) const;
  Work measure_objects(const actors::operation::MeasureObjects& measure, size_t node);
  StorageSteps read_ranges(const std::vector<actors::operation::ReadRange>& ranges, size_t node);
  void keep_head(const AttemptKey& key, Rank rank, uint32_t file, uint64_t bytes);
  Status work_out_merged(const AttemptKey& key);
  Result<actors::OperationResult> merge(const AttemptKey& key);
  // Publishes the decision of this attempt. If a decision exists already, returns that one.
  Result<actors::OperationResult> decide(std::shared_ptr<const storage::Decision> made, uint64_t bytes);
  Result<actors::OperationResult> decide_proven(const AttemptKey& key, storage::Manifest proven);
  uint64_t rank_manifest_bytes(const storage::RankManifest& manifest);
  void add_create(StorageSteps& steps, uint64_t bytes) const;  // steps that create a small object durably
  void add_read(StorageSteps& steps, uint64_t objects, uint64_t bytes, uint32_t at_once) const;

  const EventHeap& clock_;
  const StorageCosts costs_;
  const uint64_t codec_bytes_per_s_;
  storage::EpochRecord epoch_;
  const std::shared_ptr<SharedPlans> plans_;
  std::map<AttemptKey, Attempt> attempts_;
  std::map<std::pair<uint32_t, RosterId>, Roster> rosters_;  // by generation and id
  std::map<uint32_t, RosterId> first_rosters_;               // by generation
  // By generation: its first roster, then later ones by id.
  std::map<uint32_t, std::vector<storage::RosterRecord>> rosters_of_;
  std::map<uint32_t, actors::TimeNs> rostered_at_;  // by generation: when its newest roster appeared
  std::map<std::pair<LayoutId, size_t>, uint64_t> layout_manifest_bytes_;
  uint64_t record_bytes_ = 0;
  bool keeps_heads_ = false;
  // Bytes of each shard's header, by a hash of attempt key and file name.
  std::unordered_map<uint64_t, uint64_t> heads_;
  std::map<std::pair<uint32_t, uint32_t>, storage::LoadChoice> choices_;
  std::map<size_t, std::deque<OpenShard>> open_shards_;  // by node, the newest first
  bool is_stored_ = false;                               // the storage gives the names of pins
  uint64_t pins_ = 0;
  std::set<std::string> removed_pins_;
  std::map<std::string, AttemptKey> pinned_;  // by the name of the pin
  uint32_t newest_generation_;                // of the runs that have claimed an epoch
  std::map<std::string, AttemptKey> marks_;   // of operators, by name
  uint32_t most_kept_ = 0;                    // the largest keep_last that a role's plan was made for
  uint64_t keep_every_ = 0;                   // of the newest such plan that has one
  uint32_t operator_keeps_ = 0;
  std::map<AttemptKey, actors::TimeNs> deleted_;
  struct Damage {
    actors::TimeNs at = 0;
    bool is_of_manifest = false;
  };
  std::map<AttemptKey, Damage> damaged_;
  std::optional<AttemptKey> wrongly_deleted_;
};

}  // namespace shoal::sim
