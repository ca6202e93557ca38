#include "sim/cluster/counted_root.h"

#include <algorithm>
#include <utility>

#include "actors/operation_traits.h"
#include "base/rank_names.h"
#include "base/visit.h"
#include "plan/layout/codec.h"
#include "sim/basics/integer_math.h"
#include "storage/decisions/rank_manifest_set.h"

namespace shoal::sim {

namespace {

constexpr uint64_t kSmallRecordBytes = 256;  // an epoch, a tombstone
constexpr int64_t kSomeTimeNs = 1;           // not 0, because the canonical encoding omits words of zeros
constexpr uint32_t kMergeThreads = 8;        // kMaxMergeThreads of storage/decisions/rank_manifest.cpp
constexpr uint32_t kPartsAtOnce = 64;
constexpr uint64_t kShardHeadBytes = 4096;  // bytes read to check a shard's header against its digest

using StepKind = StorageStep::Kind;

// A placeholder digest: nothing reads the bytes.
Hash128 header_digest_of(const AttemptKey& key, Rank rank, uint32_t file) {
  std::byte name[16];
  store_le64(name, rank);
  store_le64(name + 8, mix64(key.step) + file);
  return xxh3_128(name);
}

uint64_t hash_of_box(std::string_view fqn, const Box& box) {
  uint64_t hash = xxh3_64(fqn);
  for (size_t d = 0; d < box.dims(); ++d) hash = mix64(mix64(hash ^ box.offsets[d]) + box.sizes[d]);
  return hash;
}

// Does not depend on the order of the pieces.
uint64_t hash_of_contents(const actors::operation::WriteShard& write) {
  uint64_t sum = 0;
  for (const storage::ShardPiece& piece : write.pieces) {
    if (!piece.is_object) sum += hash_of_box(piece.fqn, piece.box);
  }
  return sum;
}

void add_roster(std::vector<storage::RosterRecord>* rosters, const storage::RosterRecord& record,
                bool is_first) {
  const RosterId& id = record.world->roster.id();
  auto is_it = [&](const storage::RosterRecord& other) { return other.world->roster.id() == id; };
  if (std::any_of(rosters->begin(), rosters->end(), is_it)) return;
  auto at = is_first ? rosters->begin()
                     : std::upper_bound(rosters->begin() + (rosters->empty() ? 0 : 1), rosters->end(), id,
                                        [](const RosterId& one, const storage::RosterRecord& other) {
                                          return one < other.world->roster.id();
                                        });
  rosters->insert(at, record);
}

}  // namespace

CountedRoot::Work CountedRoot::answer(StorageSteps steps, Result<actors::OperationResult> result) {
  return {std::move(steps), [result = std::move(result)] { return result; }};
}

CountedRoot::Work CountedRoot::answer_seen(StorageSteps steps, Result<actors::OperationResult> result) {
  Work work = answer(std::move(steps), std::move(result));
  work.is_seen = true;
  return work;
}

// Files: create, sync, link, remove the temporary name, sync the folder. Objects: one conditional PUT.
void CountedRoot::add_create(StorageSteps& steps, uint64_t bytes) const {
  if (costs_.is_objects) {
    steps.insert(steps.end(), {{StepKind::write, bytes}, {StepKind::change, 1}});
  } else {
    steps.insert(steps.end(), {{StepKind::change, 1},
                               {StepKind::write, bytes},
                               {StepKind::sync, 1},
                               {StepKind::change, 1},
                               {StepKind::change, 1},
                               {StepKind::change, 1}});
  }
}

void CountedRoot::add_read(StorageSteps& steps, uint64_t objects, uint64_t bytes, uint32_t at_once) const {
  steps.push_back({StepKind::look, objects, at_once});
  steps.push_back({StepKind::read, bytes});
}

namespace {

// The folder of the root that an operation uses: that of its attempt, or 0, the root.
uint64_t prefix_of(const actors::Operation& operation) {
  auto of_attempt = [](const AttemptKey& key) {
    return mix64(mix64(key.generation) ^ key.step) ^ key.attempt;
  };
  return std::visit(
      [&](const auto& each) -> uint64_t {
        if constexpr (requires { AttemptKey(each.key); }) {
          return of_attempt(each.key);
        } else if constexpr (requires { each.ranges.front().piece; }) {
          return each.ranges.empty() ? 0 : of_attempt(each.ranges.front().piece->key);
        } else if constexpr (requires { each.piece->key; }) {
          return of_attempt(each.piece->key);
        } else if constexpr (requires { each.pieces.front()->key; }) {
          return each.pieces.empty() ? 0 : of_attempt(each.pieces.front()->key);
        } else if constexpr (requires { each.manifest->key; }) {
          return of_attempt(each.manifest->key);
        } else {
          return 0;
        }
      },
      operation);
}

}  // namespace

CountedRoot::Work CountedRoot::begin(const actors::Operation& operation, bool has_catalog, size_t node,
                                     uint32_t generation) {
  Work work = work_of(operation, has_catalog, node, generation);
  work.prefix = prefix_of(operation);
  return work;
}

CountedRoot::Work CountedRoot::work_of(const actors::Operation& operation, bool has_catalog, size_t node,
                                       uint32_t generation) {
  using namespace actors::operation;
  return std::visit(
      base::Overloaded{[&](const WriteShard& write) { return write_shard(write); },
                       [&](const RecordStaged& staged) { return record_staged(staged); },
                       [&](const PublishDecision& publish) { return publish_decision(publish, generation); },
                       [&](const PublishRankManifest& publish) { return publish_rank_manifest(publish); },
                       [&](const CompleteRankLocal& complete) { return complete_rank_local(complete); },
                       [&](const ListMissingManifests& list) { return list_missing_manifests(list); },
                       [&](const CompleteAttempt& complete) { return complete_attempt(complete); },
                       [&](const ReadDecision& read) { return read_decision(read); },
                       [&](const CheckFiles& check) { return check_files(check); },
                       [&](const PublishRoster& publish) { return publish_roster(publish); },
                       [&](const ReadRoster& read) { return read_roster(read); },
                       [&](const ReadEpoch&) { return read_epoch(); },
                       [&](const RecordDecision&) { return record_decision(has_catalog); },
                       [&](const ListAttempts&) { return list_attempts(); },
                       [&](const InspectAttempt& inspect) { return inspect_attempt(inspect); },
                       [&](const SweepAttempt& sweep) { return sweep_attempt(sweep); },
                       [&](const PlanRetention& plan) { return plan_retention(plan); },
                       [&](const DeleteCheckpoint& deletion) { return delete_checkpoint(deletion); },
                       // The folder of an attempt all of whose files are lost. It counts as no attempt.
                       [&](const RemoveRemains&) {
                         return answer({{StepKind::change, 1}}, actors::OperationResult(Done{}));
                       },
                       // --- loads: counted_root_loads.cpp ---
                       [&](const ReadLoadChoice& read) { return read_choice(read); },
                       [&](const PublishLoadChoice& publish) { return publish_choice(publish); },
                       [&](const ListNewestAttempts&) { return list_newest_attempts(); },
                       [&](const ListAttemptsOfStep& list) { return list_attempts_of_step(list); },
                       [&](const ListCheckpoints&) { return list_checkpoints(); },
                       [&](const LocateRanges& locate) { return locate_ranges(locate, node); },
                       [&](const VerifyCheckpoint& verify) { return verify_checkpoint(verify); },
                       [&](const PinAttempt& pin) { return pin_attempt(pin); },
                       [&](const RenewPin& renew) { return renew_pin(renew); },
                       [&](const RemovePin& remove) { return remove_pin(remove); },
                       [&](const MeasureObjects& measure) { return measure_objects(measure, node); },
                       [&](const ReadBatch& read) { return read_batch(read, node); },
                       [&](const ReadChunk& read) { return read_chunk(read, node); },
                       [&](const CheckChunk& check) { return check_chunk(check, node); },
                       [&](const ReadHeader& read) { return read_header(*read.piece, node); },
                       [&](const CheckHeader& check) { return check_header(*check.piece, node); },
                       [&](const ListenToPeers&) {
                         return answer({}, actors::OperationResult("node" + std::to_string(node)));
                       },
                       // Only memory: takes no storage request.
                       [&](const base::OneOf<CopyChunk, ReleaseWindow> auto&) {
                         return answer({}, actors::OperationResult(Done{}));
                       },
                       // VirtualCluster answers it.
                       [&](const MeasureWrites&) {
                         return answer({}, Status(Code::unavailable, "MeasureWrites does not use the root"));
                       },
                       // Only a node that reads a large manifest starts this.
                       [&](const DecodeDecision&) {
                         return answer({}, Status(Code::unavailable, "DecodeDecision is not simulated"));
                       }},
      operation);
}

CountedRoot::Work CountedRoot::read_epoch() {
  StorageSteps steps{{StepKind::list, epoch_.epoch}};
  add_read(steps, 1, kSmallRecordBytes, 1);
  return {std::move(steps), [this]() -> Result<actors::OperationResult> {
            return actors::OperationResult(std::make_shared<const storage::EpochRecord>(epoch_));
          }};
}

CountedRoot::Work CountedRoot::record_decision(bool has_catalog) {
  if (!has_catalog) return answer({}, Status(Code::unavailable, "this node has no catalog"));
  return answer({{StepKind::wait, static_cast<uint64_t>(costs_.catalog_ns)}},
                actors::OperationResult(actors::operation::Done{}));
}

CountedRoot::Work CountedRoot::write_shard(const actors::operation::WriteShard& write) {
  auto bytes = plans_->shard_bytes(write);
  if (!bytes.ok()) return answer({}, bytes.status());
  storage::WrittenShard written;
  written.payload_bytes = bytes->payload;
  written.size = bytes->file;
  written.header_digest = header_digest_of(write.key, write.rank, write.file);
  StorageSteps steps;
  if (costs_.is_objects) {  // a multipart upload sends parts while the bytes arrive
    const uint64_t parts = costs_.part_bytes == 0 ? 1 : written.size / costs_.part_bytes + 1;
    steps = {{StepKind::change, 1},
             {StepKind::write, written.size},
             {StepKind::change, parts, kPartsAtOnce},
             {StepKind::change, 1}};
  } else {
    add_create(steps, written.size);
  }
  return {std::move(steps),
          [this, key = write.key, rank = write.rank, file = write.file, written,
           contents = is_stored_ ? hash_of_contents(write) : 0]() -> Result<actors::OperationResult> {
            Attempt& attempt = attempts_[key];
            if (attempt.too_short.contains(shard_of(rank, file))) {
              return Status(Code::already_exists, "another file has this name");
            }
            if (!attempt.shards.contains(shard_of(rank, file)))
              attempt.payload_bytes += written.payload_bytes;
            attempt.shards[shard_of(rank, file)] = written.size;
            if (is_stored_) attempt.contents.emplace(shard_of(rank, file), contents);
            attempt.written_at = clock_.now();
            if (keeps_heads_) keep_head(key, rank, file, written.size - written.payload_bytes);
            return actors::OperationResult(written);
          }};
}

void CountedRoot::lose_shard(const AttemptKey& key, Rank rank, uint32_t file, uint64_t payload_bytes,
                             std::optional<uint64_t> bytes_left) {
  Attempt& attempt = attempts_[key];
  if (bytes_left) {
    attempt.shards[shard_of(rank, file)] = *bytes_left;
    attempt.too_short.insert(shard_of(rank, file));
    return;
  }
  attempt.shards.erase(shard_of(rank, file));
  attempt.payload_bytes -= payload_bytes;
  attempt.has_lost_shards = true;
}

bool CountedRoot::Attempt::has_shards_of(Rank rank) const {
  if (!has_lost_shards) return shards.contains(shard_of(rank, 0));
  return std::any_of(shards.begin(), shards.end(),
                     [rank](const auto& shard) { return static_cast<Rank>(shard.first) == rank; });
}

Status CountedRoot::check_listed(const AttemptKey& key, const std::vector<storage::FileEntry>& files) const {
  const Attempt& attempt = attempts_.at(key);
  for (const storage::FileEntry& file : files) {
    auto found = attempt.shards.find(shard_of(file.rank, std::get<uint32_t>(file.contents)));
    if (found == attempt.shards.end()) return Status(Code::not_found, file.name + " does not exist");
    if (found->second != file.size) return Status(Code::corrupt, file.name + " has another size");
  }
  return ok_status();
}

CountedRoot::Work CountedRoot::record_staged(const actors::operation::RecordStaged& staged) {
  StorageSteps steps;
  add_create(steps, kSmallRecordBytes);
  return {std::move(steps), [this, staged]() -> Result<actors::OperationResult> {
            const std::pair record(staged.layout_id, staged.assignment_id);
            Attempt& attempt = attempts_[staged.key];
            auto [existing, is_new] = attempt.records.emplace(staged.rank, record);
            if (is_new) record_bytes_ += kSmallRecordBytes, attempt.written_at = clock_.now();
            if (existing->second == record) return actors::OperationResult(actors::operation::Done{});
            return Status(Code::already_exists, "another record of this rank exists already");
          }};
}

Result<actors::OperationResult> CountedRoot::decide(std::shared_ptr<const storage::Decision> made,
                                                    uint64_t bytes) {
  Attempt& attempt = attempts_[made->key];
  if (!attempt.decision) {
    attempt.decision = std::move(made);
    attempt.decision_bytes = bytes;
    record_bytes_ += bytes;
  }
  return actors::OperationResult(attempt.decision);
}

Result<actors::OperationResult> CountedRoot::decide_proven(const AttemptKey& key, storage::Manifest proven) {
  auto decision = std::make_shared<storage::Decision>(
      storage::Decision{key, Nonce{}, RootId{}, kSomeTimeNs, std::move(proven)});
  SHOAL_ASSIGN_OR_RETURN(const Bytes encoded, storage::encode_decision(*decision));
  decision->unix_time_ns = 0;
  return decide(std::move(decision), encoded.size());
}

// A run that was superseded may abort what is complete: a later run may have chosen an earlier checkpoint.
void CountedRoot::note_abort(const AttemptKey& key, uint32_t generation) {
  Attempt& attempt = attempts_[key];
  if (attempt.decision || generation < epoch_.generation || !prove_complete(key).ok()) return;
  attempt.complete_when_aborted = clock_.now() - std::max(attempt.written_at, rostered_at_[key.generation]);
}

namespace {

actors::OperationResult folder_gone(const AttemptKey& key) {
  return std::make_shared<const storage::Decision>(storage::folder_gone(key, RootId{}));
}

}  // namespace

CountedRoot::Work CountedRoot::publish_decision(const actors::operation::PublishDecision& publish,
                                                uint32_t generation) {
  StorageSteps steps;
  const Attempt& attempt = attempts_[publish.key];
  // A run that was superseded leaves it to the later one to look.
  const bool looks_first = publish.looks_first && publish.key.generation >= epoch_.generation;
  if (looks_first && !attempt.decision && attempt.published == 0 && prove_complete(publish.key).ok()) {
    Work work = complete_attempt({publish.key});
    work.is_seen = false;  // it publishes all the same
    return work;
  }
  // From here on, all share one copy of a manifest of many files.
  auto made = std::make_shared<storage::Decision>(
      storage::Decision{publish.key, Nonce{}, RootId{}, kSomeTimeNs, *publish.body});
  auto encoded = storage::encode_decision(*made);
  if (!encoded.ok()) return answer({}, encoded.status());
  const uint64_t bytes = encoded->size();
  if (!made->committed()) steps.push_back({StepKind::list, attempts_[publish.key].entries()});
  add_create(steps, bytes);
  made->unix_time_ns = 0;
  return {std::move(steps),
          [this, made = std::shared_ptr<const storage::Decision>(std::move(made)), bytes,
           looks = publish.looks_first, has_folder = publish.has_folder,
           generation]() -> Result<actors::OperationResult> {
            if (made->committed() && is_folder_gone(made->key)) {
              return Status(Code::not_found, to_string(made->key) + " was deleted");
            }
            if (has_folder && is_folder_gone(made->key)) return folder_gone(made->key);
            // A complete set of rank manifests is committed, even if this operation wants to abort it.
            if (!made->committed() && attempts_[made->key].is_complete_set()) {
              if (auto merged = merge(made->key); merged.ok()) return merged;
            }
            // What was not complete at the first look may be now.
            if (looks && made->key.generation >= epoch_.generation && !attempts_[made->key].decision &&
                attempts_[made->key].published == 0) {
              if (auto proven = prove_complete(made->key); proven.ok())
                return decide_proven(made->key, *proven);
            }
            if (!made->committed()) note_abort(made->key, generation);
            return decide(made, bytes);
          }};
}

uint64_t CountedRoot::rank_manifest_bytes(const storage::RankManifest& manifest) {
  // Rank manifests differ only in numbers of fixed width, in the lengths of file names, and in whether the
  // rank is 0: the canonical encoding omits words of zeros at the end of a struct.
  size_t names = manifest.rank == 0 ? 1u << 20 : 0;
  for (const storage::FileEntry& file : manifest.files) names += (file.name.size() + 1 + 7) / 8;
  uint64_t& bytes = layout_manifest_bytes_[{manifest.layout->id(), names}];
  if (bytes == 0) {
    auto encoded = storage::encode_rank_manifest(manifest);
    SHOAL_CHECK(encoded.ok());
    bytes = encoded->size();
  }
  return bytes;
}

CountedRoot::Work CountedRoot::publish_rank_manifest(const actors::operation::PublishRankManifest& publish) {
  const uint64_t bytes = rank_manifest_bytes(*publish.manifest);
  StorageSteps steps;
  add_create(steps, bytes);
  add_read(steps, 1, bytes, 1);  // reads the manifest back, and the header of each shard
  const uint64_t files = publish.manifest->files.size();
  if (files != 0) add_read(steps, files, files * kShardHeadBytes, 1);
  return {std::move(steps), [this, manifest = publish.manifest, bytes]() -> Result<actors::OperationResult> {
            if (is_folder_gone(manifest->key) && !manifest->files.empty()) {
              return Status(Code::not_found, to_string(manifest->key) + " was deleted");
            }
            Attempt& attempt = attempts_[manifest->key];
            attempt.manifests.resize(manifest->world_size);
            if (!attempt.manifests[manifest->rank]) {
              attempt.manifests[manifest->rank] = manifest;
              ++attempt.published;
              attempt.written_at = clock_.now();
              attempt.manifest_bytes += bytes;
              record_bytes_ += bytes;
            }
            // Its files may have been swept.
            SHOAL_RETURN_IF_ERROR(check_listed(manifest->key, manifest->files));
            return actors::OperationResult(actors::operation::Done{});
          }};
}

CountedRoot::Work CountedRoot::complete_rank_local(const actors::operation::CompleteRankLocal& complete) {
  if (is_folder_gone(complete.key)) return answer_seen({{StepKind::look, 2}}, folder_gone(complete.key));
  const Attempt& attempt = attempts_[complete.key];
  StorageSteps steps;
  if (attempt.decision) {
    add_read(steps, 1, attempt.decision_bytes, 1);
    return answer_seen(std::move(steps), actors::OperationResult(attempt.decision));
  }
  steps.push_back({StepKind::look, 1});
  steps.push_back({StepKind::list, attempt.entries()});
  if (!attempt.is_complete_set()) {
    std::vector<Rank> missing;
    for (Rank rank = 0; rank < attempt.manifests.size() && missing.size() <= base::kRanksNamed; ++rank) {
      if (!attempt.manifests[rank]) missing.push_back(rank);
    }
    return answer_seen(
        std::move(steps),
        Status(Code::not_found, "the manifests of " + base::name_ranks(missing) + " are missing"));
  }
  if (Status merged = work_out_merged(complete.key); !merged.ok())
    return answer_seen(std::move(steps), merged);
  add_read(steps, attempt.published, attempt.manifest_bytes, kMergeThreads);
  const actors::TimeNs decoding = transfer_ns(attempt.manifest_bytes, codec_bytes_per_s_ * kMergeThreads);
  steps.push_back({StepKind::wait, static_cast<uint64_t>(decoding)});
  add_create(steps, attempt.merged_bytes);
  return {std::move(steps), [this, key = complete.key] { return merge(key); }};
}

CountedRoot::Work CountedRoot::list_missing_manifests(const actors::operation::ListMissingManifests& list) {
  const Attempt& attempt = attempts_[list.key];
  if (attempt.entries() == 0) {
    return answer_seen({{StepKind::look, 1}}, Status(Code::not_found, to_string(list.key)));
  }
  std::vector<uint64_t> missing;
  for (Rank rank = 0; rank < list.world_size; ++rank) {
    if (rank >= attempt.manifests.size() || !attempt.manifests[rank]) missing.push_back(rank);
  }
  return answer_seen({{StepKind::list, attempt.entries()}}, actors::OperationResult(std::move(missing)));
}

// Computes the merged manifest once per set: all of its ranks may try to complete it.
Status CountedRoot::work_out_merged(const AttemptKey& key) {
  Attempt& attempt = attempts_[key];
  if (attempt.merged) return ok_status();
  std::vector<storage::RankManifest> set;
  for (const auto& manifest : attempt.manifests) set.push_back(*manifest);
  SHOAL_ASSIGN_OR_RETURN(storage::Manifest merged,
                         storage::merge_rank_manifests(std::move(set), to_string(key)));
  if (Status listed = check_listed(key, merged.files); !listed.ok()) {
    return Status(Code::not_found, listed.message());
  }
  SHOAL_ASSIGN_OR_RETURN(Bytes encoded,
                         storage::encode_decision({key, Nonce{}, RootId{}, kSomeTimeNs, merged}));
  attempt.merged = std::move(merged);
  attempt.merged_bytes = encoded.size();
  return ok_status();
}

Result<actors::OperationResult> CountedRoot::merge(const AttemptKey& key) {
  Attempt& attempt = attempts_[key];
  if (attempt.decision) return actors::OperationResult(attempt.decision);
  SHOAL_RETURN_IF_ERROR(work_out_merged(key));
  storage::Manifest merged = *std::exchange(attempt.merged, std::nullopt);
  return decide(std::make_shared<const storage::Decision>(
                    storage::Decision{key, Nonce{}, RootId{}, 0, std::move(merged)}),
                attempt.merged_bytes);
}

CountedRoot::Work CountedRoot::complete_attempt(const actors::operation::CompleteAttempt& complete) {
  const Attempt& attempt = attempts_[complete.key];
  const bool is_other = attempt.decision || attempt.published != 0 || is_folder_gone(complete.key);
  if (is_other) return complete_rank_local({complete.key});
  StorageSteps steps{{StepKind::look, 1}, {StepKind::list, attempt.entries()}};
  auto proven = prove_complete(complete.key);
  if (!proven.ok()) return answer_seen(std::move(steps), proven.status());
  add_read(steps, attempt.shards.size() + attempt.records.size(),
           attempt.shards.size() * kShardHeadBytes + attempt.records.size() * kSmallRecordBytes,
           kMergeThreads);
  auto decision = std::make_shared<storage::Decision>(
      storage::Decision{complete.key, Nonce{}, RootId{}, kSomeTimeNs, std::move(*proven)});
  auto encoded = storage::encode_decision(*decision);
  if (!encoded.ok()) return answer_seen(std::move(steps), encoded.status());
  add_create(steps, encoded->size());
  decision->unix_time_ns = 0;
  return {std::move(steps), [this, decision = std::shared_ptr<const storage::Decision>(std::move(decision)),
                             bytes = encoded->size()] { return decide(decision, bytes); }};
}

Result<storage::Manifest> CountedRoot::prove_complete(const AttemptKey& key) {
  const Attempt& attempt = attempts_[key];
  Status why(Code::not_found, to_string(key) + ": it has no roster of its generation, or no shard");
  auto rosters = rosters_of_.find(key.generation);
  if (attempt.shards.empty() || rosters == rosters_of_.end()) return why;
  bool is_first = true;
  for (const storage::RosterRecord& roster : rosters->second) {
    if (roster.options.mode == SaveMode::rank_local) continue;
    auto manifest = prove_under(key, attempt, roster);
    if (manifest.ok()) return manifest;
    if (std::exchange(is_first, false)) why = manifest.status();
  }
  return why;
}

bool CountedRoot::has_contents_of(const Attempt& attempt, const Layout& layout, const SavePlan& plan) {
  std::map<uint64_t, uint64_t> planned;
  for (const WriteItem& item : plan.items) {
    const LayoutEntry& entry = layout.entries()[item.entry];
    if (entry.kind == LayoutEntry::Kind::object) continue;
    planned[shard_of(plan.rank, item.file)] += hash_of_box(value_fqn(entry, plan.rank), item.box);
  }
  return std::ranges::all_of(planned, [&](const auto& file) {
    const auto known = attempt.contents.find(file.first);
    return known == attempt.contents.end() || known->second == file.second;
  });
}

Result<storage::Manifest> CountedRoot::prove_under(const AttemptKey& key, const Attempt& attempt,
                                                   const storage::RosterRecord& roster) {
  const World& world = *roster.world;
  const Status differs(Code::not_found, to_string(key) + ": its shards do not match a roster");
  for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
    if (attempt.has_shards_of(rank) == attempt.records.contains(rank)) return differs;
  }
  storage::Manifest manifest;
  manifest.world = roster.world;
  manifest.options = roster.options;
  uint64_t payload_bytes = 0;
  for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
    auto record = attempt.records.find(rank);
    SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, plans_->plan(world, rank, roster.options));
    if (record != attempt.records.end() &&
        (plan->files != 0 || record->second != std::pair(plan->layout_id, assignment_id_of(*plan)))) {
      return differs;
    }
    if (is_stored_ && !has_contents_of(attempt, world.layout_of(rank), *plan)) return differs;
    payload_bytes += plan->tensor_bytes;
    for (const WriteItem& item : plan->items.vector()) {
      const LayoutEntry& entry = world.layout_of(rank).entries()[item.entry];
      if (entry.kind == LayoutEntry::Kind::object) payload_bytes += kSimulatedObjectBytes;
    }
    bool is_damaged = false;
    for (uint32_t file = 0; file < plan->files; ++file) {
      auto shard = attempt.shards.find(shard_of(rank, file));
      if (shard == attempt.shards.end()) return differs;
      is_damaged = is_damaged || attempt.too_short.contains(shard->first);
      manifest.files.push_back(
          {shard_file_name(rank, file), shard->second, header_digest_of(key, rank, file), rank, file});
    }
    if (attempt.shards.contains(shard_of(rank, plan->files))) return differs;
    if (is_damaged) return Status(Code::corrupt, to_string(key) + ": a shard is too short");
  }
  if (!attempt.records.empty() && attempt.records.rbegin()->first >= world.roster.world_size())
    return differs;
  if (manifest.files.size() != attempt.shards.size() || payload_bytes != attempt.payload_bytes)
    return differs;
  manifest.payload_bytes = payload_bytes;
  return manifest;
}

CountedRoot::Work CountedRoot::read_decision(const actors::operation::ReadDecision& read) {
  const Attempt& attempt = attempts_[read.key];
  StorageSteps steps;
  add_read(steps, 1, attempt.decision_bytes, 1);
  if (has_damaged_manifest(read.key)) {
    return answer_seen(std::move(steps), Status(Code::corrupt, to_string(read.key) + ": a bit has flipped"));
  }
  if (attempt.decision) return answer_seen(std::move(steps), actors::OperationResult(attempt.decision));
  return answer_seen(std::move(steps), Status(Code::not_found, to_string(read.key) + " is undecided"));
}

CountedRoot::Work CountedRoot::check_files(const actors::operation::CheckFiles& check) {
  const Attempt& attempt = attempts_[check.key];
  if (Status listed = check_listed(check.key, *check.files); !listed.ok()) return answer({}, listed);
  return answer({{StepKind::list, attempt.entries()}}, actors::OperationResult(actors::operation::Done{}));
}

uint32_t CountedRoot::claim_epoch(uint32_t generation, std::string address) {
  ++epoch_.epoch;
  epoch_.generation = generation;
  newest_generation_ = std::max(newest_generation_, generation);
  epoch_.address = std::move(address);
  return epoch_.epoch;
}

std::shared_ptr<const storage::Decision> CountedRoot::decision(const AttemptKey& key) const {
  auto found = attempts_.find(key);
  return found == attempts_.end() ? nullptr : found->second.decision;
}

std::optional<uint64_t> CountedRoot::file_bytes(const AttemptKey& key, Rank rank, uint32_t file) const {
  auto attempt = attempts_.find(key);
  if (attempt == attempts_.end()) return std::nullopt;
  auto found = attempt->second.shards.find(shard_of(rank, file));
  if (found == attempt->second.shards.end()) return std::nullopt;
  return found->second;
}

void CountedRoot::damage(const AttemptKey& key, bool is_of_manifest) {
  damaged_.try_emplace(key, Damage{clock_.now(), is_of_manifest});
}

std::optional<actors::TimeNs> CountedRoot::damaged_at(const AttemptKey& key) const {
  const auto found = damaged_.find(key);
  return found == damaged_.end() ? std::nullopt : std::optional(found->second.at);
}

bool CountedRoot::has_damaged_manifest(const AttemptKey& key) const {
  const auto found = damaged_.find(key);
  return found != damaged_.end() && found->second.is_of_manifest && !deleted_.contains(key);
}

std::vector<AttemptKey> CountedRoot::deleted() const {
  std::vector<AttemptKey> keys;
  for (const auto& [key, at] : deleted_) keys.push_back(key);
  return keys;
}

bool CountedRoot::is_sound(const AttemptKey& key) const {
  const auto existing = decision(key);
  return existing && existing->committed() && !damaged_.contains(key);
}

std::optional<actors::TimeNs> CountedRoot::deleted_at(const AttemptKey& key) const {
  const auto found = deleted_.find(key);
  return found == deleted_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<AttemptKey> CountedRoot::committed() const {
  std::vector<AttemptKey> keys;
  for (const auto& [key, attempt] : attempts_) {
    if (attempt.decision && attempt.decision->committed()) keys.push_back(key);
  }
  return keys;
}

std::vector<AttemptKey> CountedRoot::undecided() const {
  std::vector<AttemptKey> keys;
  for (const auto& [key, attempt] : attempts_) {
    if (!attempt.decision && attempt.entries() != 0) keys.push_back(key);
  }
  return keys;
}

std::vector<AttemptKey> CountedRoot::attempts() const {
  std::vector<AttemptKey> keys;
  for (const auto& [key, attempt] : attempts_) {
    if (attempt.entries() != 0) keys.push_back(key);
  }
  return keys;
}

bool CountedRoot::is_complete_set(const AttemptKey& key) const {
  const auto found = attempts_.find(key);
  return found != attempts_.end() && !found->second.decision && found->second.is_complete_set();
}

uint64_t CountedRoot::leftovers_of_aborted(uint32_t generation) const {
  uint64_t files = 0;
  for (const auto& [key, attempt] : attempts_) {
    const bool is_aborted = attempt.decision && !attempt.decision->committed();
    if (is_aborted && key.generation <= generation) files += attempt.entries() - 1;
  }
  return files;
}

std::optional<actors::TimeNs> CountedRoot::complete_when_aborted(const AttemptKey& key) const {
  auto found = attempts_.find(key);
  return found == attempts_.end() ? std::nullopt : found->second.complete_when_aborted;
}

std::optional<AttemptKey> CountedRoot::latest() const {
  const std::vector<AttemptKey> keys = committed();
  if (keys.empty()) return std::nullopt;
  return keys.back();
}

storage::AttemptInfo CountedRoot::info_of(const AttemptKey& key, const Attempt& attempt) const {
  storage::AttemptInfo info;
  info.key = key;
  if (attempt.decision) {
    using State = storage::AttemptInfo::State;
    info.state = attempt.decision->committed()       ? State::committed
                 : attempt.decision->was_committed() ? State::deleted
                                                     : State::aborted;
  }
  for (const auto& [name, bytes] : attempt.shards) info.files_bytes += bytes;
  info.fingerprint = attempt.entries();  // names are only added, never changed
  info.leftover_files =
      static_cast<uint32_t>(attempt.shards.size() + attempt.records.size()) + attempt.published;
  info.rank_manifests = attempt.published;
  info.rank_world = static_cast<uint32_t>(attempt.manifests.size());
  return info;
}

CountedRoot::Work CountedRoot::list_attempts() {
  uint64_t entries = 1;
  for (const auto& [key, attempt] : attempts_) entries += 1 + attempt.entries();
  StorageSteps steps{{StepKind::list, entries}};
  return {std::move(steps), [this]() -> Result<actors::OperationResult> {
            storage::AttemptList list;
            for (const auto& [key, attempt] : attempts_) {
              if (attempt.entries() != 0) list.attempts.push_back(info_of(key, attempt));
            }
            return actors::OperationResult(std::move(list));
          }};
}

CountedRoot::Work CountedRoot::inspect_attempt(const actors::operation::InspectAttempt& inspect) {
  StorageSteps steps{{StepKind::list, attempts_[inspect.key].entries()}};
  return {std::move(steps), [this, key = inspect.key]() -> Result<actors::OperationResult> {
            if (is_folder_gone(key)) return Status(Code::not_found, to_string(key) + " was deleted");
            return actors::OperationResult(info_of(key, attempts_[key]));
          }};
}

// Once the tombstone of a deleted checkpoint is removed too, a process that comes later finds nothing.
bool CountedRoot::is_folder_gone(const AttemptKey& key) const {
  if (!deleted_.contains(key)) return false;
  const auto found = attempts_.find(key);
  return found == attempts_.end() || found->second.entries() == 0;
}

storage::RetentionPlan CountedRoot::plan_now(const storage::RetentionPolicy& policy) const {
  storage::RetentionPlan plan;
  std::set<AttemptKey> named;
  for (const auto& [name, key] : pinned_) named.insert(key);
  for (const auto& [name, key] : marks_) named.insert(key);
  for (const auto& [load, choice] : choices_) {
    if (load.first == newest_generation_ && choice.found) named.insert(choice.key);
  }
  uint32_t newer = 0, tombstones = 0;
  std::set<uint64_t> multiples;  // steps of which keep_every keeps the newest checkpoint
  for (auto found = attempts_.rbegin(); found != attempts_.rend(); ++found) {
    const auto& [key, attempt] = *found;
    const bool is_deleted =
        attempt.decision && !attempt.decision->committed() && attempt.decision->was_committed();
    if (is_deleted && tombstones++ >= policy.keep_tombstones) {
      (policy.keep_tombstones == 0 ? plan.finish : plan.forget).push_back(key);
    }
    if (!attempt.decision || !attempt.decision->committed()) continue;
    if (has_damaged_manifest(key)) continue;  // left alone
    const bool is_multiple =
        policy.keep_every != 0 && key.step % policy.keep_every == 0 && multiples.insert(key.step).second;
    const bool stays = newer < std::max<uint32_t>(policy.keep_last, 1) || is_multiple || !policy.any() ||
                       named.contains(key);
    (stays ? plan.keep : plan.remove).push_back({key, ""});
    ++newer;
  }
  std::ranges::reverse(plan.keep);
  std::ranges::reverse(plan.remove);
  return plan;
}

uint64_t CountedRoot::to_delete(const storage::RetentionPolicy& policy) const {
  return plan_now(policy).remove.size();
}

namespace {

std::shared_ptr<const storage::Decision> deleted_decision(const AttemptKey& key) {
  auto decision = std::make_shared<storage::Decision>();
  decision->key = key;
  decision->body = storage::Tombstone{storage::Tombstone::Reason::deleted, "no rule keeps it"};
  return decision;
}

}  // namespace

CountedRoot::Work CountedRoot::plan_retention(const actors::operation::PlanRetention& plan) {
  StorageSteps steps{{StepKind::list, attempts_.size() + 1}};
  if (plan.policy.any()) {
    for (const auto& [key, attempt] : attempts_) steps.push_back({StepKind::list, attempt.entries()});
  }
  if (operator_keeps_ == 0) {
    most_kept_ = std::max(most_kept_, plan.policy.keep_last);
    if (plan.policy.keep_every != 0) keep_every_ = plan.policy.keep_every;
  }
  return {std::move(steps), [this, policy = plan.policy]() -> Result<actors::OperationResult> {
            return actors::OperationResult(std::make_shared<const storage::RetentionPlan>(plan_now(policy)));
          }};
}

// A tombstone takes the place of the manifest, the files are removed, then the folder, unless the tombstone
// stays. All at one instant, so that no pin is made between.
CountedRoot::Work CountedRoot::delete_checkpoint(const actors::operation::DeleteCheckpoint& deletion) {
  StorageSteps steps{{StepKind::look, 2}, {StepKind::list, 2}};
  add_create(steps, kSmallRecordBytes);
  steps.push_back({StepKind::change, attempts_[deletion.key].entries() + 2});
  return {std::move(steps),
          [this, key = deletion.key,
           keeps_tombstone = deletion.keeps_tombstone]() -> Result<actors::OperationResult> {
            storage::DeletionResult result;
            const auto found = attempts_.find(key);
            if (found == attempts_.end() || found->second.entries() == 0) {
              return actors::OperationResult(result);
            }
            if (has_damaged_manifest(key)) {
              return Status(Code::corrupt, to_string(key) + ": a bit has flipped");
            }
            const auto& decision = found->second.decision;
            const auto is_it = [&](const auto& pin) { return pin.second == key; };
            const bool is_pinned = std::ranges::any_of(pinned_, is_it) || std::ranges::any_of(marks_, is_it);
            if (decision && !decision->committed() && decision->was_committed()) {
              if (is_pinned)
                result.outcome = storage::DeletionResult::Outcome::held;  // by a load that came late
              if (!is_pinned && !keeps_tombstone) attempts_.erase(found);
              return actors::OperationResult(result);
            }
            if (is_pinned || !decision || !decision->committed()) {
              result.outcome = storage::DeletionResult::Outcome::kept;
              return actors::OperationResult(result);
            }
            const auto is_newer = [&](const auto& other) {
              return other.first > key && other.second.decision && other.second.decision->committed();
            };
            const auto newer = std::ranges::count_if(attempts_, is_newer);
            const bool is_multiple = operator_keeps_ == 0 && keep_every_ != 0 &&
                                     key.step % keep_every_ == 0 &&
                                     std::ranges::none_of(attempts_, [&](const auto& other) {
                                       return other.first.step == key.step && is_newer(other);
                                     });
            const int64_t kept = operator_keeps_ != 0 ? operator_keeps_ : std::max<uint32_t>(most_kept_, 1);
            if ((newer < kept || is_multiple) && !wrongly_deleted_) wrongly_deleted_ = key;
            attempts_.erase(found);
            if (keeps_tombstone) attempts_[key].decision = deleted_decision(key);
            deleted_.emplace(key, clock_.now());
            return actors::OperationResult(result);
          }};
}

// As in storage/root/attempts.cpp, files are removed only under a tombstone.
CountedRoot::Work CountedRoot::sweep_attempt(const actors::operation::SweepAttempt& sweep) {
  const Attempt& attempt = attempts_[sweep.key];
  StorageSteps steps{{StepKind::list, attempt.entries()}};
  const uint64_t files = attempt.shards.size() + attempt.records.size() + attempt.published;
  if (attempt.decision && !attempt.decision->committed() && files != 0)
    steps.push_back({StepKind::change, files});
  return {std::move(steps), [this, key = sweep.key]() -> Result<actors::OperationResult> {
            Attempt& swept = attempts_[key];
            if (!swept.decision) {
              return Status(Code::refused,
                            to_string(key) + ": nothing may be removed, because it is undecided");
            }
            if (swept.decision->committed()) return actors::OperationResult(uint64_t{0});
            const uint64_t bytes = info_of(key, swept).files_bytes + swept.manifest_bytes;
            swept.shards.clear();
            swept.too_short.clear();
            swept.contents.clear();
            swept.records.clear();
            swept.payload_bytes = 0;
            swept.manifests.clear();
            swept.published = 0;
            swept.manifest_bytes = 0;
            return actors::OperationResult(bytes);
          }};
}

CountedRoot::Work CountedRoot::publish_roster(const actors::operation::PublishRoster& publish) {
  uint64_t bytes = plan::encode_roster(publish.record.world->roster).size() + kSmallRecordBytes;
  for (const LayoutPtr& layout : publish.record.world->layouts) bytes += plan::encode_layout(*layout).size();
  StorageSteps steps;
  add_create(steps, bytes);
  return {std::move(steps),
          [this, record = publish.record, is_first = publish.is_first, generation = publish.generation,
           bytes]() -> Result<actors::OperationResult> {
            const RosterId id = record.world->roster.id();
            if (auto first = first_rosters_.find(generation); is_first && first != first_rosters_.end()) {
              return actors::OperationResult(rosters_.at({generation, first->second}).record);
            }
            if (rosters_.try_emplace({generation, id}, Roster{record, bytes}).second) record_bytes_ += bytes;
            if (is_first) first_rosters_[generation] = id;
            add_roster(&rosters_of_[generation], record, is_first);
            rostered_at_[generation] = clock_.now();
            return actors::OperationResult(rosters_.at({generation, id}).record);
          }};
}

CountedRoot::Work CountedRoot::read_roster(const actors::operation::ReadRoster& read) {
  const auto first = first_rosters_.find(read.generation);
  const RosterId first_id = first == first_rosters_.end() ? RosterId() : first->second;
  auto found = rosters_.find({read.generation, read.id ? *read.id : first_id});
  StorageSteps steps;
  if (found == rosters_.end()) {
    return answer_seen({{StepKind::look, 1}}, Status(Code::not_found, "no such roster"));
  }
  add_read(steps, 1, found->second.bytes, 1);
  return answer_seen(std::move(steps), actors::OperationResult(found->second.record));
}

}  // namespace shoal::sim
