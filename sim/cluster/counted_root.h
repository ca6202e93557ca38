// CountedRoot: what a root holds and answers, without its bytes: the counted sibling of LocalStorage over
// MemoryFileSystem. Decisions, rosters and rank manifests are kept as values, shards as sizes.
//
// The first decision, roster and rank manifest of a name stands, as in storage/. Which operations fail,
// VirtualCluster decides.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "actors/operation.h"
#include "base/paged_map.h"
#include "sim/cluster/shared_plans.h"
#include "sim/failures/oracles.h"
#include "sim/models/storage_model.h"

namespace shoal::sim {

// Of each object that a rank saves: a random state, as torch.get_rng_state() has it.
inline constexpr uint64_t kSimulatedObjectBytes = 5056;

class CountedRoot final : public RootView {
 public:
  CountedRoot(const StorageCosts& costs, uint64_t codec_bytes_per_s, const storage::EpochRecord& epoch,
              std::shared_ptr<SharedPlans> plans)
      : costs_(costs), codec_bytes_per_s_(codec_bytes_per_s), epoch_(epoch), plans_(std::move(plans)) {}

  struct Work {
    StorageSteps steps;  // what it asks of the storage, as things stand now
    std::function<Result<actors::OperationResult>()> finish;  // after these: makes it so, and answers
    uint64_t prefix = 0;   // the folder that it is about: an attempt's, or the root
    bool is_seen = false;  // it only looks, and finish answers what stands now, whatever happens until then
  };
  Work begin(const actors::Operation& operation, bool has_catalog,
             size_t node);  // coordinator's node: has_catalog

  // What it takes to open each shard is kept from now on, so that it can be loaded.
  void will_be_loaded() { keeps_heads_ = true; }
  // The attempts of another one, which is of no more use; as a later generation finds them.
  void continue_from(CountedRoot& before);

  // A coordinator of that epoch, which is the highest from now on.
  void claim_epoch(uint32_t epoch, std::string address);

  std::shared_ptr<const storage::Decision> decision(const AttemptKey& key) const override;
  std::optional<uint64_t> file_bytes(const AttemptKey& key, Rank rank, uint32_t file) const override;
  std::optional<AttemptKey> latest() const override;
  std::vector<AttemptKey> committed() const override;

  // Bytes of records (decisions, rosters, rank manifests) that were made so far.
  uint64_t record_bytes() const { return record_bytes_; }

 private:
  struct Attempt {
    std::shared_ptr<const storage::Decision> decision;
    uint64_t decision_bytes = 0;
    base::PagedMap<uint64_t, uint64_t> shards;            // sizes, by shard_of
    std::map<Rank, std::pair<LayoutId, PlanId>> records;  // of ranks that write nothing: layout, share
    std::vector<std::shared_ptr<const storage::RankManifest>> manifests;  // by rank; null: missing
    uint32_t published = 0;
    uint64_t payload_bytes = 0;   // of all shards
    uint64_t manifest_bytes = 0;  // of all rank manifests
    std::optional<storage::Manifest>
        merged;  // of a complete set, from when somebody looks at it until it is decided
    uint64_t merged_bytes = 0;

    bool is_complete_set() const { return published != 0 && published == manifests.size(); }
    uint64_t entries() const { return shards.size() + records.size() + published + (decision ? 1 : 0); }
  };
  static uint64_t shard_of(Rank rank, uint32_t file) { return uint64_t{file} << 32 | rank; }
  struct Roster {
    storage::RosterRecord record;
    uint64_t bytes = 0;
  };

  Work work_of(const actors::Operation& operation, bool has_catalog, size_t node);
  Work write_shard(const actors::operation::WriteShard& write);
  Work record_staged(const actors::operation::RecordStaged& staged);
  Work publish_decision(const actors::operation::PublishDecision& publish);
  Work publish_rank_manifest(const actors::operation::PublishRankManifest& publish);
  Work complete_rank_local(const actors::operation::CompleteRankLocal& complete);
  Work list_missing_manifests(const actors::operation::ListMissingManifests& list);
  Work complete_attempt(const actors::operation::CompleteAttempt& complete);
  // What storage/decisions/completion.cpp proves, from names, counts and sums of bytes.
  Result<storage::Manifest> prove_complete(const AttemptKey& key);
  Result<storage::Manifest> prove_under(const AttemptKey& key, const Attempt& attempt,
                                        const storage::RosterRecord& roster);
  Work read_decision(const actors::operation::ReadDecision& read);
  Work check_files(const actors::operation::CheckFiles& check);
  storage::AttemptInfo info_of(const AttemptKey& key, const Attempt& attempt) const;
  Work list_attempts();
  Work inspect_attempt(const actors::operation::InspectAttempt& inspect);
  Work sweep_attempt(const actors::operation::SweepAttempt& sweep);
  Work publish_roster(const actors::operation::PublishRoster& publish);
  Work read_roster(const actors::operation::ReadRoster& read);
  // --- counted_root_loads.cpp ---
  std::optional<Work> begin_of_load(const actors::Operation& operation, size_t node);
  Work read_choice(const actors::operation::ReadLoadChoice& read);
  Work publish_choice(const actors::operation::PublishLoadChoice& publish);
  Work list_newest_attempts();
  Work verify_checkpoint(const actors::operation::VerifyCheckpoint& verify);
  Work pin_attempt(const actors::operation::PinAttempt& pin);
  struct OpenShard {
    uint64_t id = 0;
    bool has_file = true;  // else its header came from a peer: who reads the file opens it
  };
  // The newest kMaxOpenShards of a node stay open; another one is opened and its header read.
  OpenShard& open_shard(StorageSteps& steps, const actors::operation::PieceRef& piece, size_t node);
  Work read_header(const actors::operation::PieceRef& piece, size_t node);
  OpenShard& keep_open(OpenShard shard, size_t node);  // as the newest
  uint64_t header_bytes(uint64_t shard_id) const;
  Work measure_objects(const actors::operation::MeasureObjects& measure, size_t node);
  StorageSteps read_ranges(const std::vector<actors::operation::ReadRange>& ranges, size_t node);
  void keep_head(const AttemptKey& key, Rank rank, uint32_t file, uint64_t bytes);
  Status work_out_merged(const AttemptKey& key);
  Result<actors::OperationResult> merge(const AttemptKey& key);
  // Makes the decision of this attempt, unless one stands.
  Result<actors::OperationResult> decide(std::shared_ptr<const storage::Decision> made, uint64_t bytes);
  uint64_t rank_manifest_bytes(const storage::RankManifest& manifest);
  void add_create(StorageSteps& steps, uint64_t bytes) const;  // a small object, durably
  void add_read(StorageSteps& steps, uint64_t objects, uint64_t bytes, uint32_t at_once) const;

  const StorageCosts costs_;
  const uint64_t codec_bytes_per_s_;
  storage::EpochRecord epoch_;
  const std::shared_ptr<SharedPlans> plans_;
  std::map<AttemptKey, Attempt> attempts_;
  std::map<RosterId, Roster> rosters_;
  RosterId first_roster_;
  // Of each generation: the first, then the later ones by id.
  std::map<uint32_t, std::vector<storage::RosterRecord>> rosters_of_;
  std::map<std::pair<LayoutId, size_t>, uint64_t> layout_manifest_bytes_;
  uint64_t record_bytes_ = 0;
  bool keeps_heads_ = false;
  std::unordered_map<uint64_t, uint64_t> heads_;  // bytes of each shard's header, by a hash of key and name
  std::map<std::pair<uint32_t, uint32_t>, storage::LoadChoice> choices_;
  std::map<size_t, std::deque<OpenShard>> open_shards_;  // of each node, the newest first
  uint64_t pins_ = 0;
};

}  // namespace shoal::sim
