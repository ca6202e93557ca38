#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "actors/executor/operation_runner.h"
#include "actors/executor/part_write.h"
#include "actors/executor/piece_reader.h"
#include "actors/executor/write_counts.h"
#include "actors/operation.h"
#include "storage/decisions/completion.h"
#include "storage/decisions/staged_record.h"
#include "storage/root/attempt_views.h"
#include "storage/root/run_claims.h"
#include "storage/root/verifier.h"

namespace shoal::actors {

namespace {

constexpr unsigned kDeletionThreads = 4;   // for one checkpoint
constexpr unsigned kVerifyingThreads = 4;  // for one checkpoint

template <class T>
Result<OperationResult> as_result(Result<T> result) {
  if (!result.ok()) return result.status();
  return OperationResult(std::move(result).value());
}
Result<OperationResult> as_result(Result<storage::Decision> result) {
  if (!result.ok()) return result.status();
  return OperationResult(std::make_shared<const storage::Decision>(std::move(result).value()));
}
Result<OperationResult> as_result(const Status& status) {
  if (!status.ok()) return status;
  return OperationResult(operation::Done{});
}

bool lies_within(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

}  // namespace

struct OperationRunner::Impl {
  storage::Storage& storage;
  storage::Catalog* catalog;
  Slabs& slabs;
  RootId root_id;
  Surroundings surroundings;
  PieceReader pieces;
  std::mutex retention_mutex;
  storage::KnownAttempts known_attempts;  // under retention_mutex
  std::mutex roster_mutex;
  RosterId roster_seen;        // of the last commit; under roster_mutex
  std::string roster_seen_at;  // likewise; "": not yet
  WriteCounts writes;

  storage::DecisionStamp stamp() { return {surroundings.nonce(), root_id, surroundings.unix_time_ns()}; }

  Result<OperationResult> operator()(const operation::WriteShard& write) {
    std::string name = shard_file_name(write.rank, write.file);
    auto named = [&](const Status& status) {
      return status.with_context(
          fmt::format("rank {} writing {} of {}", write.rank, name, to_string(write.key)));
    };
    const WriteCounts::Count count = writes.begin(write.key);
    if (write.in_parts) {
      Result<storage::WrittenShard> written = write_in_parts(write, count.get());
      if (!written.ok()) return named(written.status());
      return OperationResult(*written);
    }
    std::vector<Slabs::View> views;
    Result<std::vector<ByteView>> data = resolve(write, &views);
    if (!data.ok()) return named(data.status());
    Result<storage::WrittenShard> written =
        storage::write_shard(storage, storage::shard_path(write.key, write.rank, write.file),
                             surroundings.nonce(), write.pieces.vector(), *data, write.user, count.get());
    if (!written.ok()) return named(written.status());
    return OperationResult(*written);
  }
  Result<OperationResult> operator()(const operation::MeasureWrites& measure) {
    return OperationResult(writes.bytes_of(measure.keys));
  }

  Result<OperationResult> operator()(const operation::RecordStaged& staged) {
    return as_result(storage::write_staged_record(storage, {staged.key, staged.rank, staged.layout_id,
                                                            staged.assignment_id, or_none(staged.user)})
                         .with_context(fmt::format("rank {} recording that it has staged {}", staged.rank,
                                                   to_string(staged.key))));
  }
  Result<OperationResult> operator()(const operation::PublishDecision& publish) {
    const auto* tombstone = std::get_if<storage::Tombstone>(publish.body.get());
    if (tombstone != nullptr && tombstone->reason == storage::Tombstone::Reason::aborted) {
      return as_result(abort(publish.key, tombstone->cause, publish.looks_first));
    }
    storage::Decision decision{publish.key, surroundings.nonce(), root_id, surroundings.unix_time_ns(),
                               *publish.body};
    if (decision.committed()) {
      SHOAL_RETURN_IF_ERROR(storage::allow_commit(surroundings.before_commit));
      SHOAL_RETURN_IF_ERROR(keep_roster_of(decision));
    }
    return as_result(decision.committed() ? storage::publish_decision_in_folder(storage, decision)
                                          : storage::publish_decision(storage, decision));
  }
  Result<OperationResult> operator()(const operation::PublishRankManifest& publish) {
    SHOAL_RETURN_IF_ERROR(storage::allow_commit(surroundings.before_commit));
    storage::RankManifest manifest = *publish.manifest;
    const storage::DecisionStamp mark = stamp();
    manifest.nonce = mark.nonce;
    manifest.root_id = mark.root_id;
    manifest.unix_time_ns = mark.unix_time_ns;
    return as_result(storage::publish_rank_manifest(storage, manifest));
  }
  Result<OperationResult> operator()(const operation::CompleteRankLocal& complete) {
    return as_result(
        storage::complete_rank_local(storage, complete.key, stamp(), surroundings.before_commit));
  }
  Result<OperationResult> operator()(const operation::ListMissingManifests& list) {
    auto missing = storage::list_missing_manifests(storage, list.key, list.world_size);
    if (!missing.ok()) return missing.status();
    return OperationResult(std::vector<uint64_t>(missing->begin(), missing->end()));
  }
  Result<OperationResult> operator()(const operation::CompleteAttempt& complete) {
    const storage::DecisionStamp mark = stamp();
    auto decision = storage::complete_attempt(storage, complete.key, mark, surroundings.before_commit);
    const bool is_new = decision.ok() && decision->committed() && decision->nonce == mark.nonce;
    // The catalog is an index: a failure does not matter.
    if (is_new && catalog != nullptr) (void)catalog->record(*decision);
    return as_result(std::move(decision));
  }
  Result<OperationResult> operator()(const operation::ReadDecision& read) {
    return as_result(read.leaves_encoded ? storage::read_decision_encoded(storage, read.key)
                                         : storage::read_decision(storage, read.key));
  }
  Result<OperationResult> operator()(const operation::VerifyCheckpoint& verify) {
    SHOAL_ASSIGN_OR_RETURN(const storage::Decision decision, storage::read_decision(storage, verify.key));
    if (!decision.committed()) return Status(Code::not_found, to_string(verify.key) + " is not committed");
    storage::RateLimit unlimited(0);
    std::atomic<uint64_t> bytes_done{0};
    const Status sound = storage::as_status(
        storage::verify_checkpoint(storage, decision, kVerifyingThreads, unlimited, &bytes_done));
    if (sound.ok()) return OperationResult(operation::Done{});
    // Files that disappear during the verification may have been deleted by retention. Then a tombstone
    // exists.
    SHOAL_ASSIGN_OR_RETURN(const storage::Decision now, storage::read_decision(storage, verify.key));
    if (!now.committed()) return Status(Code::not_found, to_string(verify.key) + " was deleted");
    return sound;
  }
  Result<OperationResult> operator()(const operation::DecodeDecision& decode) {
    return as_result(storage::decode_rest(*decode.encoded));
  }
  Result<OperationResult> operator()(const operation::CheckFiles& check) {
    return as_result(storage::check_files_present(storage, check.key, *check.files));
  }
  Result<OperationResult> operator()(const operation::RecordDecision& record) {
    if (catalog == nullptr) return Status(Code::unavailable, "this node has no catalog");
    return as_result(catalog->record(*record.decision));
  }
  Result<OperationResult> operator()(const operation::PublishRoster& publish) {
    const Nonce nonce = surroundings.nonce();
    return as_result(publish.is_first
                         ? storage::publish_roster(storage, publish.generation, publish.record, nonce)
                         : storage::publish_later_roster(storage, publish.generation, publish.record, nonce));
  }
  Result<OperationResult> operator()(const operation::ReadRoster& read) {
    return as_result(read.id ? storage::read_roster_of_id(storage, read.generation, *read.id)
                             : storage::read_roster(storage, read.generation));
  }
  Result<OperationResult> operator()(const operation::ReadEpoch&) {
    SHOAL_ASSIGN_OR_RETURN(std::optional<storage::EpochRecord> highest, storage::highest_epoch(storage));
    if (!highest) return Status(Code::not_found, storage.describe() + " has no epoch");
    return OperationResult(std::make_shared<const storage::EpochRecord>(std::move(*highest)));
  }
  Result<OperationResult> operator()(const operation::ListAttempts&) {
    return as_result(storage::list_attempts(storage));
  }
  Result<OperationResult> operator()(const operation::ListNewestAttempts&) {
    return as_result(storage::list_newest_attempts(storage));
  }
  Result<OperationResult> operator()(const operation::ListAttemptsOfStep& list) {
    auto listed = storage::list_attempts_of_step(storage, list.step);
    return as_result(std::move(listed));
  }
  Result<OperationResult> operator()(const operation::ListCheckpoints& list) {
    SHOAL_ASSIGN_OR_RETURN(CheckpointList found, storage::list_newest_checkpoints(storage, list.newest));
    return OperationResult(std::make_shared<const CheckpointList>(std::move(found)));
  }
  Result<OperationResult> operator()(const operation::PinAttempt& pin) {
    const Nonce id = surroundings.nonce();
    storage::Mark mark{storage::pin_name(id), pin.key, true, 0, pin.holder, surroundings.unix_time_ns(), id};
    SHOAL_ASSIGN_OR_RETURN(bool created, storage::create_mark(storage, storage::MarkKind::pin, mark));
    if (!created) return Status(Code::already_exists, "pin " + mark.name + " is there already");
    return OperationResult(std::make_shared<const storage::Mark>(std::move(mark)));
  }
  Result<OperationResult> operator()(const operation::RenewPin& renew) {
    return as_result(storage::replace_mark(storage, storage::MarkKind::pin, *renew.pin));
  }
  Result<OperationResult> operator()(const operation::RemovePin& remove) {
    if (remove.unused) pieces.close(*remove.unused);
    if (remove.name.empty()) return OperationResult(operation::Done{});
    return as_result(storage::remove_mark(storage, storage::MarkKind::pin, remove.name));
  }
  Result<OperationResult> operator()(const operation::PlanRetention& plan) {
    std::lock_guard lock(retention_mutex);
    auto planned =
        storage::plan_retention(storage, plan.policy, surroundings.unix_time_ns(), &known_attempts);
    if (!planned.ok()) return planned.status();
    return OperationResult(std::make_shared<const storage::RetentionPlan>(std::move(*planned)));
  }
  Result<OperationResult> operator()(const operation::DeleteCheckpoint& remove) {
    storage::Deletion deletion{
        remove.key,      remove.cause, root_id, surroundings.nonce(), surroundings.unix_time_ns(),
        kDeletionThreads};
    SHOAL_ASSIGN_OR_RETURN(storage::DeletionResult result, storage::delete_checkpoint(storage, deletion));
    if (catalog != nullptr && result.outcome != storage::DeletionResult::Outcome::kept) {
      storage::Decision gone{remove.key, deletion.nonce, root_id, deletion.unix_time_ns,
                             storage::Tombstone{storage::Tombstone::Reason::deleted, remove.cause}};
      Status recorded = catalog->record(gone);  // the catalog is an index: the files are deleted anyway
      if (!recorded.ok()) result.why += (result.why.empty() ? "" : "; ") + recorded.to_string();
    }
    return OperationResult(std::move(result));
  }
  Result<OperationResult> operator()(const operation::RemoveRemains& remains) {
    return as_result(storage::remove_remains(storage, remains.folder));
  }
  Result<OperationResult> operator()(const operation::InspectAttempt& inspect) {
    return as_result(storage::inspect_attempt(storage, inspect.key));
  }
  Result<OperationResult> operator()(const operation::SweepAttempt& sweep) {
    return as_result(storage::sweep_attempt(storage, sweep.key));
  }
  Result<OperationResult> operator()(const operation::PublishLoadChoice& publish) {
    storage::LoadChoice choice = publish.choice;
    choice.nonce = surroundings.nonce();
    return as_result(
        storage::publish_load_choice(storage, publish.generation, publish.ordinal, choice, publish.of));
  }
  Result<OperationResult> operator()(const operation::ReadLoadChoice& read) {
    return as_result(storage::read_load_choice(storage, read.generation, read.ordinal, read.of));
  }

  Result<OperationResult> operator()(const operation::MeasureObjects& measure) {
    std::vector<uint64_t> lengths;
    lengths.reserve(measure.pieces.size());
    for (const auto& piece : measure.pieces) {
      SHOAL_ASSIGN_OR_RETURN(uint64_t bytes, pieces.measure(*piece));
      lengths.push_back(bytes);
    }
    return OperationResult(std::move(lengths));
  }

  Result<OperationResult> operator()(const operation::ReadBatch& batch) {
    SHOAL_ASSIGN_OR_RETURN(Slabs::View slab, slabs.find(batch.client, batch.slab_id));
    DamageList damage;
    for (const operation::ReadRange& range : batch.ranges) {
      SHOAL_RETURN_IF_ERROR(pieces.read(range, slab.bytes, &damage));
    }
    if (damage.count != 0) return OperationResult(std::move(damage));
    return OperationResult(operation::Done{});
  }

  Result<OperationResult> operator()(const operation::LocateRanges& locate) {
    return OperationResult(std::make_shared<const LocatedRanges>(pieces.locate(locate.ranges)));
  }

  Result<OperationResult> operator()(const operation::ListenToPeers&) {
    return Status(Code::unavailable, "this host serves no other nodes");
  }

  Result<OperationResult> operator()(const operation::ReadChunk& read) {
    auto chunk = std::make_shared<Chunk>();
    for (const operation::ReadRange& range : read.ranges) chunk->size += range.end - range.begin;
    if (chunk->size > kChunkBytes || read.ranges.size() > kMaxChunkRanges) {
      return Status(Code::invalid_argument, fmt::format("{} in {} ranges are no chunk",
                                                        human_bytes(chunk->size), read.ranges.size()));
    }
    chunk->bytes.resize(chunk->size);
    operation::ReadRange at;
    for (const operation::ReadRange& range : read.ranges) {
      const uint64_t offset = at.slab_offset;
      at = range;
      at.slab_offset = offset;
      SHOAL_RETURN_IF_ERROR(pieces.read(at, chunk->bytes, &chunk->damaged));
      at.slab_offset += range.end - range.begin;
    }
    return OperationResult(ChunkPtr(std::move(chunk)));
  }

  Result<OperationResult> operator()(const operation::CheckChunk& check) {
    constexpr std::string_view kWhose = "a chunk from a peer";
    const ByteView bytes = check.chunk->bytes;
    uint64_t at = 0;
    for (const operation::ReadRange& range : check.ranges) {
      const uint64_t count = range.end - range.begin;
      if (!lies_within(at, count, bytes.size()))
        return Status(Code::corrupt, "it is too short").with_context(kWhose);
      SHOAL_RETURN_IF_ERROR(pieces.check(range, bytes.subspan(at, count)).with_context(kWhose));
      at += count;
    }
    if (at != bytes.size()) return Status(Code::corrupt, "it is too long").with_context(kWhose);
    return OperationResult(operation::Done{});
  }

  Result<OperationResult> operator()(const operation::ReadHeader& read) {
    auto header = std::make_shared<Chunk>();
    SHOAL_ASSIGN_OR_RETURN(header->bytes, pieces.read_header(*read.piece, kMaxPassedHeaderBytes));
    header->size = header->bytes.size();
    return OperationResult(ChunkPtr(std::move(header)));
  }

  Result<OperationResult> operator()(const operation::CheckHeader& check) {
    constexpr std::string_view kWhose = "a header from a peer";
    if (check.chunk->size > kMaxPassedHeaderBytes)
      return Status(Code::corrupt, "it is too long").with_context(kWhose);
    return as_result(pieces.take_header(*check.piece, check.chunk->bytes).with_context(kWhose));
  }

  Result<OperationResult> operator()(const operation::CopyChunk& copy) {
    for (const operation::CopyChunk::Copy& each : copy.copies) {
      SHOAL_ASSIGN_OR_RETURN(Slabs::View slab, slabs.find(each.client, each.slab_id));
      if (!lies_within(each.slab_offset, each.bytes, slab.bytes.size()) ||
          !lies_within(each.chunk_offset, each.bytes, copy.chunk->bytes.size())) {
        return Status(Code::invalid_argument, "a copy does not fit its window or chunk");
      }
      if (each.bytes == 0) continue;
      std::memcpy(slab.bytes.data() + each.slab_offset, copy.chunk->bytes.data() + each.chunk_offset,
                  each.bytes);
    }
    return OperationResult(operation::Done{});
  }

  Result<OperationResult> operator()(const operation::ReleaseWindow& window) {
    return as_result(slabs.release(window.client, window.slab_id));
  }

  // Restores the roster in the root, because it may have been removed since ranks planned by it.
  Status keep_roster_of(const storage::Decision& committed);
  // Whether a later run exists: a node that has lost its coordinator may not know.
  Result<bool> is_passed(uint32_t generation);
  Result<storage::Decision> abort(const AttemptKey& key, const std::string& cause, bool looks_first);
  // Rejects an abort of an attempt that the catalog has as committed: an operator or the file system has lost
  // its manifest. A tombstone would let its shards be swept.
  Status refuse_lost_manifest(const AttemptKey& key);

  Result<storage::WrittenShard> write_in_parts(const operation::WriteShard& write,
                                               std::atomic<uint64_t>* bytes_done);
  // The bytes of each piece; `views` keep them mapped.
  Result<std::vector<ByteView>> resolve(const operation::WriteShard& write, std::vector<Slabs::View>* views);
};

Status OperationRunner::Impl::keep_roster_of(const storage::Decision& committed) {
  const storage::Manifest& manifest = committed.manifest();
  const storage::RosterRecord record{manifest.world, manifest.options, manifest.rule_version};
  std::lock_guard lock(roster_mutex);
  if (roster_seen != manifest.world->roster.id()) roster_seen_at.clear();
  roster_seen = manifest.world->roster.id();
  return storage::keep_roster(storage, committed.key.generation, record, surroundings.nonce(),
                              &roster_seen_at);
}

Result<bool> OperationRunner::Impl::is_passed(uint32_t generation) {
  auto generations = storage::list_generations(storage);
  const Code code = generations.status().code();
  if (code == Code::not_found || code == Code::corrupt) return code == Code::corrupt;
  SHOAL_RETURN_IF_ERROR(generations.status());
  return !generations->empty() && generations->back().generation > generation;
}

Result<storage::Decision> OperationRunner::Impl::abort(const AttemptKey& key, const std::string& cause,
                                                       bool looks_first) {
  const storage::DecisionStamp mark = stamp();
  SHOAL_ASSIGN_OR_RETURN(const bool passed, looks_first ? is_passed(key.generation) : Result<bool>(true));
  if (!passed) {
    auto completed = storage::complete_if_begun(storage, key, mark, surroundings.before_commit);
    if (completed.ok() || !storage::is_unproven(completed.status())) return completed;
  }
  SHOAL_RETURN_IF_ERROR(refuse_lost_manifest(key));
  return storage::abort_attempt(storage, key, mark, cause, surroundings.before_commit);
}

Status OperationRunner::Impl::refuse_lost_manifest(const AttemptKey& key) {
  if (catalog == nullptr) return ok_status();
  auto known = catalog->find(key);  // the catalog is an index: if it fails, only the root counts
  if (!known.ok() || !*known || (*known)->state != storage::AttemptInfo::State::committed) return ok_status();
  auto info = storage::inspect_attempt(storage, key);
  if (info.status().code() == Code::not_found) return ok_status();  // deleted, with its folder
  SHOAL_RETURN_IF_ERROR(info.status());
  if (info->state != storage::AttemptInfo::State::undecided || info->leftover_files == 0) return ok_status();
  return Status(Code::corrupt,
                fmt::format("{}/{}: gone, though the catalog has {} as committed: it is neither loaded nor "
                            "aborted; put the file back, or remove its folder to give it up",
                            storage.describe(), storage::decision_path(key), to_string(key)));
}

// A file without pieces has no slab.
Result<storage::WrittenShard> OperationRunner::Impl::write_in_parts(const operation::WriteShard& write,
                                                                    std::atomic<uint64_t>* bytes_done) {
  const std::string path = storage::shard_path(write.key, write.rank, write.file);
  if (write.data.empty()) {
    return storage::write_shard(storage, path, surroundings.nonce(), write.pieces.vector(), {}, write.user);
  }
  const SlabRange& first = *write.data.begin();
  SHOAL_ASSIGN_OR_RETURN(const Slabs::View slab, slabs.find(first.client, first.slab_id));
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<PartSource> source,
                         slabs.parts_of(first.client, first.slab_id, write.key));
  return write_shard_in_parts(storage, path, surroundings.nonce(), write, slab.bytes, *source, bytes_done);
}

Result<std::vector<ByteView>> OperationRunner::Impl::resolve(const operation::WriteShard& write,
                                                             std::vector<Slabs::View>* views) {
  if (write.data.size() != write.pieces.size()) {
    return Status(Code::invalid_argument,
                  fmt::format("{} ranges for {} pieces", write.data.size(), write.pieces.size()));
  }
  std::vector<ByteView> data;
  data.reserve(write.data.size());
  const SlabRange* before = nullptr;  // usually all ranges lie in one slab
  for (size_t i = 0; i < write.data.size(); ++i) {
    const SlabRange& range = write.data[i];
    if (before == nullptr || before->client != range.client || before->slab_id != range.slab_id) {
      SHOAL_ASSIGN_OR_RETURN(Slabs::View view, slabs.find(range.client, range.slab_id));
      views->push_back(std::move(view));
      before = &range;
    }
    MutableByteView slab = views->back().bytes;
    if (!lies_within(range.offset, range.bytes, slab.size())) {
      return Status(Code::invalid_argument,
                    fmt::format("'{}': {} bytes at {} do not lie in slab {} of {} bytes", write.pieces[i].key,
                                range.bytes, range.offset, range.slab_id, slab.size()));
    }
    data.push_back(slab.subspan(range.offset, range.bytes));
  }
  return data;
}

OperationRunner::OperationRunner(storage::Storage& storage, storage::Catalog* catalog, Slabs& slabs,
                                 RootId root_id, Surroundings surroundings)
    : impl_(new Impl{storage,
                     catalog,
                     slabs,
                     root_id,
                     std::move(surroundings),
                     PieceReader(storage),
                     {},
                     {},
                     {},
                     {},
                     {},
                     {}}) {}
OperationRunner::~OperationRunner() = default;

Result<OperationResult> OperationRunner::run(const Operation& operation) {
  if (impl_->surroundings.read_only && root_use(operation) == RootUse::writes) {
    return Status(Code::refused, fmt::format("{}: {} is not for a job that only reads",
                                             impl_->storage.describe(), operation_name(operation)));
  }
  return std::visit(*impl_, operation);
}

namespace {
// One overload for each operation, so that a new operation does not compile without one.
struct RootUses {
  static constexpr RootUse reads = RootUse::reads, keeps = RootUse::keeps_what_is_read,
                           writes = RootUse::writes;
  RootUse operator()(const operation::WriteShard&) const { return writes; }
  RootUse operator()(const operation::MeasureWrites&) const { return reads; }
  RootUse operator()(const operation::RecordStaged&) const { return writes; }
  RootUse operator()(const operation::PublishDecision&) const { return writes; }
  RootUse operator()(const operation::PublishRankManifest&) const { return writes; }
  RootUse operator()(const operation::CompleteRankLocal&) const { return writes; }
  RootUse operator()(const operation::CompleteAttempt&) const { return writes; }
  RootUse operator()(const operation::ReadDecision&) const { return reads; }
  RootUse operator()(const operation::DecodeDecision&) const { return reads; }
  RootUse operator()(const operation::VerifyCheckpoint&) const { return reads; }
  RootUse operator()(const operation::CheckFiles&) const { return reads; }
  RootUse operator()(const operation::RecordDecision&) const { return writes; }
  RootUse operator()(const operation::PublishRoster&) const { return writes; }
  RootUse operator()(const operation::ReadRoster&) const { return reads; }
  RootUse operator()(const operation::ReadEpoch&) const { return reads; }
  RootUse operator()(const operation::ListAttempts&) const { return reads; }
  RootUse operator()(const operation::ListNewestAttempts&) const { return reads; }
  RootUse operator()(const operation::ListAttemptsOfStep&) const { return reads; }
  RootUse operator()(const operation::ListCheckpoints&) const { return reads; }
  RootUse operator()(const operation::InspectAttempt&) const { return reads; }
  RootUse operator()(const operation::SweepAttempt&) const { return writes; }
  RootUse operator()(const operation::PublishLoadChoice& publish) const {
    return publish.of == storage::ChoiceOf::reader ? keeps : writes;
  }
  RootUse operator()(const operation::ReadLoadChoice&) const { return reads; }
  RootUse operator()(const operation::MeasureObjects&) const { return reads; }
  RootUse operator()(const operation::ReadBatch&) const { return reads; }
  RootUse operator()(const operation::ListenToPeers&) const { return reads; }
  RootUse operator()(const operation::ReadChunk&) const { return reads; }
  RootUse operator()(const operation::CheckChunk&) const { return reads; }
  RootUse operator()(const operation::CopyChunk&) const { return reads; }
  RootUse operator()(const operation::ReadHeader&) const { return reads; }
  RootUse operator()(const operation::CheckHeader&) const { return reads; }
  RootUse operator()(const operation::LocateRanges&) const { return reads; }
  RootUse operator()(const operation::ListMissingManifests&) const { return reads; }
  RootUse operator()(const operation::ReleaseWindow&) const { return reads; }
  RootUse operator()(const operation::PinAttempt&) const { return keeps; }
  RootUse operator()(const operation::RenewPin&) const { return keeps; }
  RootUse operator()(const operation::RemovePin&) const { return keeps; }
  RootUse operator()(const operation::PlanRetention&) const { return writes; }  // it plans deletions
  RootUse operator()(const operation::DeleteCheckpoint&) const { return writes; }
  RootUse operator()(const operation::RemoveRemains&) const { return writes; }
};
}  // namespace

RootUse root_use(const Operation& operation) {
  return std::visit(RootUses{}, operation);
}

namespace {
struct OperationNames {
  std::string_view operator()(const operation::WriteShard&) const { return "WriteShard"; }
  std::string_view operator()(const operation::MeasureWrites&) const { return "MeasureWrites"; }
  std::string_view operator()(const operation::RecordStaged&) const { return "RecordStaged"; }
  std::string_view operator()(const operation::PublishDecision&) const { return "PublishDecision"; }
  std::string_view operator()(const operation::PublishRankManifest&) const { return "PublishRankManifest"; }
  std::string_view operator()(const operation::CompleteRankLocal&) const { return "CompleteRankLocal"; }
  std::string_view operator()(const operation::CompleteAttempt&) const { return "CompleteAttempt"; }
  std::string_view operator()(const operation::ListMissingManifests&) const { return "ListMissingManifests"; }
  std::string_view operator()(const operation::VerifyCheckpoint&) const { return "VerifyCheckpoint"; }
  std::string_view operator()(const operation::ReadDecision&) const { return "ReadDecision"; }
  std::string_view operator()(const operation::DecodeDecision&) const { return "DecodeDecision"; }
  std::string_view operator()(const operation::CheckFiles&) const { return "CheckFiles"; }
  std::string_view operator()(const operation::RecordDecision&) const { return "RecordDecision"; }
  std::string_view operator()(const operation::PublishRoster&) const { return "PublishRoster"; }
  std::string_view operator()(const operation::ReadRoster&) const { return "ReadRoster"; }
  std::string_view operator()(const operation::ListAttempts&) const { return "ListAttempts"; }
  std::string_view operator()(const operation::InspectAttempt&) const { return "InspectAttempt"; }
  std::string_view operator()(const operation::SweepAttempt&) const { return "SweepAttempt"; }
  std::string_view operator()(const operation::PublishLoadChoice&) const { return "PublishLoadChoice"; }
  std::string_view operator()(const operation::ReadLoadChoice&) const { return "ReadLoadChoice"; }
  std::string_view operator()(const operation::MeasureObjects&) const { return "MeasureObjects"; }
  std::string_view operator()(const operation::ReadBatch&) const { return "ReadBatch"; }
  std::string_view operator()(const operation::ListenToPeers&) const { return "ListenToPeers"; }
  std::string_view operator()(const operation::ReadChunk&) const { return "ReadChunk"; }
  std::string_view operator()(const operation::CheckChunk&) const { return "CheckChunk"; }
  std::string_view operator()(const operation::CopyChunk&) const { return "CopyChunk"; }
  std::string_view operator()(const operation::ReadHeader&) const { return "ReadHeader"; }
  std::string_view operator()(const operation::LocateRanges&) const { return "LocateRanges"; }
  std::string_view operator()(const operation::CheckHeader&) const { return "CheckHeader"; }
  std::string_view operator()(const operation::ReleaseWindow&) const { return "ReleaseWindow"; }
  std::string_view operator()(const operation::ReadEpoch&) const { return "ReadEpoch"; }
  std::string_view operator()(const operation::ListNewestAttempts&) const { return "ListNewestAttempts"; }
  std::string_view operator()(const operation::ListAttemptsOfStep&) const { return "ListAttemptsOfStep"; }
  std::string_view operator()(const operation::ListCheckpoints&) const { return "ListCheckpoints"; }
  std::string_view operator()(const operation::PinAttempt&) const { return "PinAttempt"; }
  std::string_view operator()(const operation::RenewPin&) const { return "RenewPin"; }
  std::string_view operator()(const operation::RemovePin&) const { return "RemovePin"; }
  std::string_view operator()(const operation::PlanRetention&) const { return "PlanRetention"; }
  std::string_view operator()(const operation::DeleteCheckpoint&) const { return "DeleteCheckpoint"; }
  std::string_view operator()(const operation::RemoveRemains&) const { return "RemoveRemains"; }
};
}  // namespace

std::string_view operation_name(const Operation& operation) {
  return std::visit(OperationNames{}, operation);
}

}  // namespace shoal::actors
