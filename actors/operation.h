// Operation: storage work that a role starts with effect::Start. event::OperationDone brings its result: the
// type after "->" below, or an error. actors/executor/operation_runner.h carries operations out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/messages/chunk.h"
#include "local/messages/messages.h"
#include "shoal/bytes.h"
#include "shoal/checkpoint_info.h"
#include "shoal/hash.h"
#include "shoal/read_damage.h"
#include "shoal/shared_vector.h"
#include "shoal/status.h"
#include "storage/catalog/catalog.h"
#include "storage/decisions/decision.h"
#include "storage/decisions/rank_manifest.h"
#include "storage/retention/retention.h"
#include "storage/root/run_root.h"
#include "storage/shards/shard_file.h"
#include "storage/storage.h"

namespace shoal::actors {

using ClientId = uint64_t;  // one connection of a trainer to its node; never used twice

struct SlabRange {
  ClientId client = 0;
  uint32_t slab_id = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

namespace operation {
struct WriteShard {  // -> WrittenShard
  AttemptKey key;
  Rank rank = 0;
  uint32_t file = 0;
  SharedVector<storage::ShardPiece> pieces;
  SharedVector<SlabRange> data;  // parallel to pieces
  // The bytes reach the slab part by part (Slabs::parts_of). The offsets are those of the staged pieces.
  bool in_parts = false;
  UserMetadataPtr user = nullptr;
};
// -> uint64_t, which differs from the last answer if a WriteShard of these attempts has written since. Waits
// for no storage.
struct MeasureWrites {
  std::vector<AttemptKey> keys;
};
// -> Done. Records that a rank which writes no file has staged (storage/decisions/staged_record.h).
// Code::already_exists: another process of the rank has staged something else.
struct RecordStaged {
  AttemptKey key;
  Rank rank = 0;
  LayoutId layout_id;
  PlanId assignment_id;
  UserMetadataPtr user = nullptr;
};
// -> Decision, the one that exists afterwards. The executor fills in nonce, root_id and unix_time_ns. If all
// ranks of a rank-local save have published their manifests, the save is committed instead of aborted.
struct PublishDecision {
  AttemptKey key;
  std::shared_ptr<const storage::DecisionBody> body;  // not null
  // For a tombstone: if the root proves the attempt complete, commit it instead (actors/giving_up.h).
  bool looks_first = false;
};
// -> Done, after a read-back; the executor fills in nonce, root_id, unix_time_ns
struct PublishRankManifest {
  std::shared_ptr<const storage::RankManifest> manifest;
};
// -> Decision: the existing one, or the manifest made of a complete set of rank manifests. Code::not_found
// names the ranks whose manifests are missing.
struct CompleteRankLocal {
  AttemptKey key;
};
// -> std::vector<uint64_t>: ranks of the world whose manifests are missing, ascending. Code::not_found: the
// root holds nothing of the attempt.
struct ListMissingManifests {
  AttemptKey key;
  uint32_t world_size = 0;
};
// -> Decision: the existing one, or the manifest of an attempt that the root proves complete. Code::not_found
// or corrupt: the root does not prove it complete (storage/decisions/completion.h).
struct CompleteAttempt {
  AttemptKey key;
};
struct ReadDecision {  // -> Decision; Code::not_found while undecided
  AttemptKey key;
  bool leaves_encoded = false;  // may leave a manifest encoded; its world is then nullptr
};
struct DecodeDecision {  // -> Decision, with everything that was left encoded
  std::shared_ptr<const storage::Decision> encoded;
};
// -> Done: every byte of the checkpoint is as its manifest states. Code::corrupt: a file differs or is
// missing; the message names it. Code::not_found: the checkpoint is no longer committed. Other codes: a read
// failed.
struct VerifyCheckpoint {
  AttemptKey key;
};
struct CheckFiles {  // -> Done: all files exist with these sizes
  AttemptKey key;
  std::shared_ptr<const std::vector<storage::FileEntry>> files;  // not null
};
struct RecordDecision {  // -> Done: the catalog has the decision
  std::shared_ptr<const storage::Decision> decision;
};
struct PublishRoster {  // -> RosterRecord, the one that exists afterwards
  uint32_t generation = 0;
  storage::RosterRecord record;
  bool is_first = true;  // false: publish it under its RosterId, beside the first one
};
struct ReadRoster {  // -> RosterRecord; Code::not_found
  uint32_t generation = 0;
  std::optional<RosterId> id;  // none: the first
};
struct ReadEpoch {};           // -> EpochRecord, the highest; Code::not_found
struct ListAttempts {};        // -> AttemptList
struct ListNewestAttempts {};  // -> AttemptList: the newest checkpoint and all newer attempts
struct ListAttemptsOfStep {    // -> AttemptList
  uint64_t step = 0;
};
struct ListCheckpoints {  // -> CheckpointList of the newest attempts, for clients that list them
  uint32_t newest = 0;
};
struct InspectAttempt {  // -> AttemptInfo
  AttemptKey key;
};
struct SweepAttempt {  // -> uint64_t, the number of bytes removed
  AttemptKey key;
};
struct PinAttempt {  // -> Mark: a pin lease with a unique name
  AttemptKey key;
  std::string holder;  // human-readable
};
// -> Done. `pin` has the new counter. Code::not_found: the pin was removed, so the lease has ended.
struct RenewPin {
  std::shared_ptr<const storage::Mark> pin;  // not null
};
struct RemovePin {                   // -> Done
  std::string name;                  // "": there is no pin to remove
  std::optional<AttemptKey> unused;  // no load of this node needs this attempt any more: close its shards
};
struct PlanRetention {  // -> RetentionPlan
  storage::RetentionPolicy policy;
};
// -> DeletionResult; also records the tombstone in the catalog, if the node has one
struct DeleteCheckpoint {
  AttemptKey key;
  std::string cause;
};
struct RemoveRemains {  // -> Done
  std::string folder;
};
struct PublishLoadChoice {  // -> LoadChoice, the one that exists afterwards; the executor fills in nonce
  uint32_t generation = 0;
  uint32_t ordinal = 0;
  storage::LoadChoice choice;
  storage::ChoiceOf of = storage::ChoiceOf::generation;
};
struct ReadLoadChoice {  // -> LoadChoice; Code::not_found
  uint32_t generation = 0;
  uint32_t ordinal = 0;
  storage::ChoiceOf of = storage::ChoiceOf::generation;
};
struct PiecePlace {
  Rank rank = 0;  // the rank that wrote the file
  std::string file_name;
  uint64_t file_size = 0;
  Hash128 header_digest;
  std::string piece_key;  // key of the piece in the header of the file
};
// A piece as the manifest and the planning rule describe it. If the header of the file differs, reading it
// fails with Code::corrupt, which names the piece.
struct PieceRef : PiecePlace {
  AttemptKey key;
  std::string fqn;
  LayoutEntry::Kind kind = LayoutEntry::Kind::tensor;
  DType dtype = DType::u8;
  Box box;                         // no dimensions for an object
  std::vector<PiecePlace> copies;  // read in this order if the piece's own file is damaged or missing
};
struct MeasureObjects {  // -> std::vector<uint64_t>, the length of each
  std::vector<std::shared_ptr<const PieceRef>> pieces;
};
// A range of whole digest blocks, verified and read into the slab: bytes [begin, end) of the piece. begin is
// the start of a block; end is the start of a block or the end of the piece.
struct ReadRange {
  std::shared_ptr<const PieceRef> piece;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t slab_offset = 0;
};
struct ReadBatch {  // -> Done; or DamageList, if something was read from a copy
  ClientId client = 0;
  uint32_t slab_id = 0;
  std::vector<ReadRange> ranges;
};
// -> LocatedRangesPtr, for a client that reads the files itself. Reads only the headers of the files. Ignores
// slab_offset.
struct LocateRanges {
  ClientId client = 0;
  std::vector<ReadRange> ranges;
};
// -> std::string, the address at which Loaders of other nodes reach this one. The first call opens it.
// Code::unavailable: other nodes cannot reach this one.
struct ListenToPeers {};
struct ReadChunk {  // -> ChunkPtr: the ranges one after the other, verified; ignores slab_offset
  std::vector<ReadRange> ranges;
};
// -> Done: the bytes of a peer's chunk are the ranges, one after the other. Checked against the digests in
// the headers of their files; this node reads headers that it does not have. Code::corrupt: the bytes differ.
// Ignores slab_offset.
struct CheckChunk {
  ChunkPtr chunk;
  std::vector<ReadRange> ranges;
};
// -> ChunkPtr: the header of the piece's file, for other hosts. Code::too_large beyond kMaxPassedHeaderBytes.
struct ReadHeader {
  std::shared_ptr<const PieceRef> piece;
};
// -> Done: a peer's chunk is the header of the piece's file, as the manifest's digest proves. This node keeps
// the header and does not read it from storage. Code::corrupt: the digest differs.
struct CheckHeader {
  ChunkPtr chunk;
  std::shared_ptr<const PieceRef> piece;
};
struct CopyChunk {  // -> Done: copies bytes of the chunk into windows
  ChunkPtr chunk;
  struct Copy {
    ClientId client = 0;
    uint32_t slab_id = 0;
    uint64_t slab_offset = 0;
    uint64_t chunk_offset = 0;
    uint64_t bytes = 0;
  };
  std::vector<Copy> copies;
};
struct ReleaseWindow {  // -> Done: the node may free the memory of this window
  ClientId client = 0;
  uint32_t slab_id = 0;
};
struct Done {};
}  // namespace operation

// Where ranges of pieces lie in the files that the manifest names, and the digests of their blocks.
struct LocatedRanges {
  struct Place {
    std::optional<uint32_t> file;  // index into files; none: that file or its header is damaged or missing
    uint64_t offset = 0;           // of the first byte of the range
  };
  std::vector<std::string> files;  // paths relative to the root
  std::vector<Place> places;       // parallel to the ranges
  std::vector<uint64_t> digests;   // of the blocks of all ranges that have a file, one range after the other
};
using LocatedRangesPtr = std::shared_ptr<const LocatedRanges>;

using Operation = std::variant<
    operation::WriteShard, operation::PublishDecision, operation::ReadDecision, operation::CheckFiles,
    operation::RecordDecision, operation::PublishRoster, operation::ReadRoster, operation::ListAttempts,
    operation::InspectAttempt, operation::SweepAttempt, operation::PublishLoadChoice,
    operation::ReadLoadChoice, operation::MeasureObjects, operation::ReadBatch, operation::ListNewestAttempts,
    operation::ListAttemptsOfStep, operation::PinAttempt, operation::RenewPin, operation::RemovePin,
    operation::PlanRetention, operation::DeleteCheckpoint, operation::RemoveRemains, operation::ReadEpoch,
    operation::PublishRankManifest, operation::CompleteRankLocal, operation::ListenToPeers,
    operation::ReadChunk, operation::CheckChunk, operation::CopyChunk, operation::ReleaseWindow,
    operation::ReadHeader, operation::CheckHeader, operation::LocateRanges, operation::DecodeDecision,
    operation::CompleteAttempt, operation::ListCheckpoints, operation::ListMissingManifests,
    operation::VerifyCheckpoint, operation::RecordStaged, operation::MeasureWrites>;
// Large results are held by pointer: the simulator holds a great number of results at once.
using OperationResult =
    std::variant<operation::Done, storage::WrittenShard, std::shared_ptr<const storage::Decision>,
                 storage::RosterRecord, storage::AttemptList, storage::AttemptInfo, uint64_t,
                 storage::LoadChoice, std::vector<uint64_t>, std::shared_ptr<const storage::Mark>,
                 std::shared_ptr<const storage::RetentionPlan>, storage::DeletionResult,
                 std::shared_ptr<const storage::EpochRecord>, std::string, ChunkPtr, DamageList,
                 LocatedRangesPtr, std::shared_ptr<const CheckpointList>>;

std::string_view operation_name(const Operation& operation);

// Whether an operation changes the root or the catalog. A job that only reads may carry out those that change
// neither, and those that keep its own pins and load choices.
enum class RootUse : uint8_t { reads, keeps_what_is_read, writes };
RootUse root_use(const Operation& operation);

}  // namespace shoal::actors
