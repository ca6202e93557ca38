#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>

#include "actors/executor/operation_runner.h"
#include "actors/executor/part_write.h"
#include "actors/executor/piece_reader.h"
#include "actors/executor/write_counts.h"
#include "actors/operation_traits.h"
#include "storage/decisions/completion.h"
#include "storage/decisions/staged_record.h"
#include "storage/root/attempt_views.h"
#include "storage/root/run_claims.h"
#include "storage/root/verifier.h"

namespace shoal::actors {

namespace {

constexpr unsigned kDeletionThreads = 4;   // for one checkpoint
constexpr unsigned kVerifyingThreads = 4;  // for one checkpoint

Result<DecisionPtr> shared(Result<storage::Decision> decision) {
  if (!decision.ok()) return decision.status();
  return std::make_shared<const storage::Decision>(std::move(decision).value());
}

Result<operation::Done> done(const Status& status) {
  if (!status.ok()) return status;
  return operation::Done{};
}

std::optional<AttemptKey> attempt_of(const std::vector<operation::ReadRange>& ranges) {
  return ranges.empty() ? std::nullopt : std::optional(ranges.front().piece->key);
}

bool lies_within(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

}  // namespace

struct OperationRunner::Impl {
  template <class Op>
  using Answer = Result<typename Op::Answer>;

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

  Answer<operation::WriteShard> operator()(const operation::WriteShard& write) {
    std::string name = shard_file_name(write.rank, write.file);
    auto named = [&](const Status& status) {
      return status.with_context(
          fmt::format("rank {} cannot write {} of {}", write.rank, name, to_string(write.key)));
    };
    const WriteCounts::Count count = writes.begin(write.key);
    if (write.in_parts) {
      Result<storage::WrittenShard> written = write_in_parts(write, count.get());
      if (!written.ok()) return named(written.status());
      return *written;
    }
    std::vector<Slabs::View> views;
    Result<std::vector<ByteView>> data = resolve(write, &views);
    if (!data.ok()) return named(data.status());
    Result<storage::WrittenShard> written =
        storage::write_shard(storage, storage::shard_path(write.key, write.rank, write.file),
                             surroundings.nonce(), write.pieces.vector(), *data, write.user, count.get());
    if (!written.ok()) return named(written.status());
    return *written;
  }
  Answer<operation::MeasureWrites> operator()(const operation::MeasureWrites& measure) {
    return writes.change_mark(measure.keys);
  }

  Answer<operation::RecordStaged> operator()(const operation::RecordStaged& staged) {
    return done(storage::write_staged_record(storage, {staged.key, staged.rank, staged.layout_id,
                                                       staged.assignment_id, or_none(staged.user)})
                    .with_context(fmt::format("rank {} cannot record that it has staged {}", staged.rank,
                                              to_string(staged.key))));
  }
  Answer<operation::PublishDecision> operator()(const operation::PublishDecision& publish) {
    const auto* tombstone = std::get_if<storage::Tombstone>(publish.body.get());
    if (tombstone != nullptr && tombstone->reason == storage::Tombstone::Reason::aborted) {
      return shared(abort(publish, tombstone->cause));
    }
    storage::Decision decision{publish.key, surroundings.nonce(), root_id, surroundings.unix_time_ns(),
                               *publish.body};
    if (decision.committed()) {
      SHOAL_RETURN_IF_ERROR(storage::allow_commit(surroundings.before_commit));
      SHOAL_RETURN_IF_ERROR(keep_roster_of(decision));
    }
    return shared(decision.committed() ? storage::publish_decision_in_folder(storage, decision)
                                       : storage::publish_decision(storage, decision));
  }
  Answer<operation::PublishRankManifest> operator()(const operation::PublishRankManifest& publish) {
    SHOAL_RETURN_IF_ERROR(storage::allow_commit(surroundings.before_commit));
    storage::RankManifest manifest = *publish.manifest;
    const storage::DecisionStamp mark = stamp();
    manifest.nonce = mark.nonce;
    manifest.root_id = mark.root_id;
    manifest.unix_time_ns = mark.unix_time_ns;
    return done(storage::publish_rank_manifest(storage, manifest));
  }
  Answer<operation::CompleteRankLocal> operator()(const operation::CompleteRankLocal& complete) {
    return shared(storage::complete_rank_local(storage, complete.key, stamp(), surroundings.before_commit));
  }
  Answer<operation::ListMissingManifests> operator()(const operation::ListMissingManifests& list) {
    auto missing = storage::list_missing_manifests(storage, list.key, list.world_size);
    if (!missing.ok()) return missing.status();
    return std::vector<uint64_t>(missing->begin(), missing->end());
  }
  Answer<operation::CompleteAttempt> operator()(const operation::CompleteAttempt& complete) {
    const storage::DecisionStamp mark = stamp();
    auto decision = storage::complete_attempt(storage, complete.key, mark, surroundings.before_commit);
    const bool is_new = decision.ok() && decision->committed() && decision->nonce == mark.nonce;
    // The catalog is an index: a failure does not matter.
    if (is_new && catalog != nullptr) (void)catalog->record(*decision);
    return shared(std::move(decision));
  }
  Answer<operation::ReadDecision> operator()(const operation::ReadDecision& read) {
    return shared(read.leaves_encoded ? storage::read_decision_encoded(storage, read.key)
                                      : storage::read_decision(storage, read.key));
  }
  Answer<operation::VerifyCheckpoint> operator()(const operation::VerifyCheckpoint& verify) {
    SHOAL_ASSIGN_OR_RETURN(const storage::Decision decision, storage::read_decision(storage, verify.key));
    if (!decision.committed()) return Status(Code::not_found, to_string(verify.key) + " is not committed");
    storage::RateLimit unlimited(0);
    std::atomic<uint64_t> bytes_done{0};
    const Status sound = storage::as_status(
        storage::verify_checkpoint(storage, decision, kVerifyingThreads, unlimited, &bytes_done));
    if (sound.ok()) return operation::Done{};
    // Files that disappear during the verification may have been deleted by retention. Then a tombstone
    // exists.
    SHOAL_ASSIGN_OR_RETURN(const storage::Decision now, storage::read_decision(storage, verify.key));
    if (!now.committed()) return Status(Code::not_found, to_string(verify.key) + " was deleted");
    return sound;
  }
  Answer<operation::DecodeDecision> operator()(const operation::DecodeDecision& decode) {
    return shared(storage::decode_rest(*decode.encoded));
  }
  Answer<operation::CheckFiles> operator()(const operation::CheckFiles& check) {
    return done(storage::check_files_present(storage, check.key, *check.files));
  }
  Answer<operation::RecordDecision> operator()(const operation::RecordDecision& record) {
    if (catalog == nullptr) return Status(Code::unavailable, "this node has no catalog");
    return done(catalog->record(*record.decision));
  }
  Answer<operation::PublishRoster> operator()(const operation::PublishRoster& publish) {
    const Nonce nonce = surroundings.nonce();
    return publish.is_first
               ? storage::publish_roster(storage, publish.generation, publish.record, nonce)
               : storage::publish_later_roster(storage, publish.generation, publish.record, nonce);
  }
  Answer<operation::ReadRoster> operator()(const operation::ReadRoster& read) {
    return read.id ? storage::read_roster_of_id(storage, read.generation, *read.id)
                   : storage::read_roster(storage, read.generation);
  }
  Answer<operation::ReadEpoch> operator()(const operation::ReadEpoch&) {
    SHOAL_ASSIGN_OR_RETURN(std::optional<storage::EpochRecord> highest, storage::highest_epoch(storage));
    if (!highest) return Status(Code::not_found, storage.describe() + " has no epoch");
    return std::make_shared<const storage::EpochRecord>(std::move(*highest));
  }
  Answer<operation::ListAttempts> operator()(const operation::ListAttempts&) {
    return storage::list_attempts(storage);
  }
  Answer<operation::ListNewestAttempts> operator()(const operation::ListNewestAttempts&) {
    return storage::list_newest_attempts(storage);
  }
  Answer<operation::ListAttemptsOfStep> operator()(const operation::ListAttemptsOfStep& list) {
    return storage::list_attempts_of_step(storage, list.step);
  }
  Answer<operation::ListCheckpoints> operator()(const operation::ListCheckpoints& list) {
    SHOAL_ASSIGN_OR_RETURN(CheckpointList found, storage::list_newest_checkpoints(storage, list.newest));
    return std::make_shared<const CheckpointList>(std::move(found));
  }
  Answer<operation::PinAttempt> operator()(const operation::PinAttempt& pin) {
    const Nonce id = surroundings.nonce();
    storage::Mark mark{storage::pin_name(id), pin.key, true, 0, pin.holder, surroundings.unix_time_ns(), id};
    SHOAL_ASSIGN_OR_RETURN(bool created, storage::create_mark(storage, storage::MarkKind::pin, mark));
    if (!created) return Status(Code::already_exists, "pin " + mark.name + " exists already");
    return std::make_shared<const storage::Mark>(std::move(mark));
  }
  Answer<operation::RenewPin> operator()(const operation::RenewPin& renew) {
    return done(storage::replace_mark(storage, storage::MarkKind::pin, *renew.pin));
  }
  Answer<operation::RemovePin> operator()(const operation::RemovePin& remove) {
    if (remove.unused) pieces.close(*remove.unused);
    if (remove.name.empty()) return operation::Done{};
    return done(storage::remove_mark(storage, storage::MarkKind::pin, remove.name));
  }
  Answer<operation::PlanRetention> operator()(const operation::PlanRetention& plan) {
    std::lock_guard lock(retention_mutex);
    auto planned =
        storage::plan_retention(storage, plan.policy, surroundings.unix_time_ns(), &known_attempts);
    if (!planned.ok()) return planned.status();
    return std::make_shared<const storage::RetentionPlan>(std::move(*planned));
  }
  Answer<operation::DeleteCheckpoint> operator()(const operation::DeleteCheckpoint& remove) {
    storage::Deletion deletion{
        remove.key,       remove.cause,          root_id, surroundings.nonce(), surroundings.unix_time_ns(),
        kDeletionThreads, remove.keeps_tombstone};
    {
      // A node that writes late may make the folder again. The next plan then reads it anew.
      std::lock_guard lock(retention_mutex);
      known_attempts.attempts.erase(remove.key);
    }
    SHOAL_ASSIGN_OR_RETURN(storage::DeletionResult result, storage::delete_checkpoint(storage, deletion));
    using Outcome = storage::DeletionResult::Outcome;
    if (catalog != nullptr && result.outcome != Outcome::kept) {
      const storage::Decision gone{remove.key, deletion.nonce, root_id, deletion.unix_time_ns,
                                   storage::Tombstone{storage::Tombstone::Reason::deleted, remove.cause}};
      // The catalog is an index: the files are deleted anyway.
      const Status recorded =
          result.outcome == Outcome::gone ? catalog->forget(remove.key) : catalog->record(gone);
      if (!recorded.ok()) result.why += (result.why.empty() ? "" : "; ") + recorded.to_string();
    }
    return result;
  }
  Answer<operation::RemoveRemains> operator()(const operation::RemoveRemains& remains) {
    return done(storage::remove_remains(storage, remains.folder));
  }
  Answer<operation::InspectAttempt> operator()(const operation::InspectAttempt& inspect) {
    return storage::inspect_attempt(storage, inspect.key);
  }
  Answer<operation::SweepAttempt> operator()(const operation::SweepAttempt& sweep) {
    return storage::sweep_attempt(storage, sweep.key);
  }
  Answer<operation::PublishLoadChoice> operator()(const operation::PublishLoadChoice& publish) {
    storage::LoadChoice choice = publish.choice;
    choice.nonce = surroundings.nonce();
    return storage::publish_load_choice(storage, publish.generation, publish.ordinal, choice, publish.of);
  }
  Answer<operation::ReadLoadChoice> operator()(const operation::ReadLoadChoice& read) {
    return storage::read_load_choice(storage, read.generation, read.ordinal, read.of);
  }

  Answer<operation::MeasureObjects> operator()(const operation::MeasureObjects& measure) {
    const auto use =
        pieces.use(measure.pieces.empty() ? std::nullopt : std::optional(measure.pieces.front()->key));
    std::vector<uint64_t> lengths;
    lengths.reserve(measure.pieces.size());
    for (const auto& piece : measure.pieces) {
      SHOAL_ASSIGN_OR_RETURN(uint64_t bytes, pieces.measure(*piece));
      lengths.push_back(bytes);
    }
    return lengths;
  }

  Answer<operation::ReadBatch> operator()(const operation::ReadBatch& batch) {
    SHOAL_ASSIGN_OR_RETURN(Slabs::View slab, slabs.find(batch.client, batch.slab_id));
    const auto use = pieces.use(attempt_of(batch.ranges));
    DamageList damage;
    for (const operation::ReadRange& range : batch.ranges) {
      SHOAL_RETURN_IF_ERROR(pieces.read(range, slab.bytes, &damage));
    }
    return damage;
  }

  Answer<operation::LocateRanges> operator()(const operation::LocateRanges& locate) {
    const auto use = pieces.use(attempt_of(locate.ranges));
    return std::make_shared<const LocatedRanges>(pieces.locate(locate.ranges));
  }

  Answer<operation::ListenToPeers> operator()(const operation::ListenToPeers&) {
    return Status(Code::unavailable, "this host serves no other nodes");
  }

  Answer<operation::ReadChunk> operator()(const operation::ReadChunk& read) {
    auto chunk = std::make_shared<Chunk>();
    for (const operation::ReadRange& range : read.ranges) chunk->size += range.end - range.begin;
    if (chunk->size > kChunkBytes || read.ranges.size() > kMaxChunkRanges) {
      return Status(Code::invalid_argument, fmt::format("{} in {} ranges are too much for one chunk",
                                                        human_bytes(chunk->size), read.ranges.size()));
    }
    const auto use = pieces.use(attempt_of(read.ranges));
    chunk->bytes.resize(chunk->size);
    operation::ReadRange at;
    for (const operation::ReadRange& range : read.ranges) {
      const uint64_t offset = at.slab_offset;
      at = range;
      at.slab_offset = offset;
      SHOAL_RETURN_IF_ERROR(pieces.read(at, chunk->bytes, &chunk->damaged));
      at.slab_offset += range.end - range.begin;
    }
    return ChunkPtr(std::move(chunk));
  }

  Answer<operation::CheckChunk> operator()(const operation::CheckChunk& check) {
    constexpr std::string_view kWhose = "a chunk from a peer";
    const auto use = pieces.use(attempt_of(check.ranges));
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
    return operation::Done{};
  }

  Answer<operation::ReadHeader> operator()(const operation::ReadHeader& read) {
    const auto use = pieces.use(read.piece->key);
    auto header = std::make_shared<Chunk>();
    SHOAL_ASSIGN_OR_RETURN(header->bytes, pieces.read_header(*read.piece, kMaxPassedHeaderBytes));
    header->size = header->bytes.size();
    return ChunkPtr(std::move(header));
  }

  Answer<operation::CheckHeader> operator()(const operation::CheckHeader& check) {
    constexpr std::string_view kWhose = "a header from a peer";
    if (check.chunk->size > kMaxPassedHeaderBytes)
      return Status(Code::corrupt, "it is too long").with_context(kWhose);
    const auto use = pieces.use(check.piece->key);
    return done(pieces.take_header(*check.piece, check.chunk->bytes).with_context(kWhose));
  }

  Answer<operation::CopyChunk> operator()(const operation::CopyChunk& copy) {
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
    return operation::Done{};
  }

  Answer<operation::ReleaseWindow> operator()(const operation::ReleaseWindow& window) {
    return done(slabs.release(window.client, window.slab_id));
  }

  // Restores the roster in the root, because it may have been removed since ranks planned by it.
  Status keep_roster_of(const storage::Decision& committed);
  // Whether a later run exists: a node that has lost its coordinator may not know.
  Result<bool> is_passed(uint32_t generation);
  Result<storage::Decision> abort(const operation::PublishDecision& publish, const std::string& cause);
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

Result<storage::Decision> OperationRunner::Impl::abort(const operation::PublishDecision& publish,
                                                       const std::string& cause) {
  const AttemptKey& key = publish.key;
  const storage::DecisionStamp mark = stamp();
  SHOAL_ASSIGN_OR_RETURN(const bool passed,
                         publish.looks_first ? is_passed(key.generation) : Result<bool>(true));
  if (!passed) {
    auto completed = storage::complete_if_begun(storage, key, mark, surroundings.before_commit);
    if (completed.ok() || !storage::is_unproven(completed.status())) return completed;
  }
  SHOAL_RETURN_IF_ERROR(refuse_lost_manifest(key));
  const auto folder =
      publish.has_folder ? storage::FolderOfAttempt::exists : storage::FolderOfAttempt::may_lack;
  return storage::abort_attempt(storage, key, mark, cause, folder, surroundings.before_commit);
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
                fmt::format("{}/{} is missing, but the catalog lists {} as committed: Shoal neither loads "
                            "nor aborts it; restore the file, or remove its folder to give the checkpoint up",
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
    return Status(Code::invalid_argument, fmt::format("a write names {} ranges for {} pieces",
                                                      write.data.size(), write.pieces.size()));
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
  if (impl_->surroundings.read_only && traits_of(operation).root_use == RootUse::writes) {
    return Status(Code::refused, fmt::format("{}: a job that only reads must not start the operation {}",
                                             impl_->storage.describe(), traits_of(operation).name));
  }
  return std::visit(
      [this](const auto& each) -> Result<OperationResult> {
        auto answer = (*impl_)(each);
        if (!answer.ok()) return answer.status();
        return OperationResult(std::move(answer).value());
      },
      operation);
}

}  // namespace shoal::actors
