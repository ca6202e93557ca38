// Operation: storage work that a role starts by an effect and hears of by an event.
// actors/executor/operation_runner.h carries it out.
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
  // Their bytes come to the slab part by part, by Slabs::parts_of; offsets are those of the staged pieces.
  bool in_parts = false;
  UserMetadataPtr user = nullptr;
};
// -> Done: that a rank has staged, which writes nothing (storage/decisions/staged_record.h).
// Code::already_exists where another process of the rank has staged something else.
struct RecordStaged {
  AttemptKey key;
  Rank rank = 0;
  LayoutId layout_id;
  PlanId share_id;
  UserMetadataPtr user = nullptr;
};
// -> Decision, the one that stands. nonce, root_id and unix_time_ns are filled in. Where all ranks of a
// rank-local save have published their manifests, no tombstone of an abort is: the save is committed.
struct PublishDecision {
  AttemptKey key;
  std::shared_ptr<const storage::DecisionBody> body;  // not null
  // Of a tombstone: an attempt that the root proves complete is committed instead (actors/giving_up.h).
  bool looks_first = false;
};
struct PublishRankManifest {  // -> Done, read back. nonce, root_id and unix_time_ns are filled in
  std::shared_ptr<const storage::RankManifest> manifest;
};
struct CompleteRankLocal {  // -> Decision: that which stands, or what a complete set makes. Code::not_found
  AttemptKey key;           // names the ranks whose manifests are missing
};
// -> std::vector<uint64_t>: ranks of the world whose manifests are missing, ascending. Code::not_found where
// nothing of the attempt lies in the root.
struct ListMissingManifests {
  AttemptKey key;
  uint32_t world_size = 0;
};
// -> Decision: the one that stands, or the manifest of an attempt that the root proves complete.
// Code::not_found or corrupt: it does not (storage/decisions/completion.h).
struct CompleteAttempt {
  AttemptKey key;
};
struct ReadDecision {  // -> Decision; Code::not_found while undecided
  AttemptKey key;
  bool leaves_encoded = false;  // a manifest may be left encoded: then its world is nullptr
};
struct DecodeDecision {  // -> Decision: all of one that was left encoded
  std::shared_ptr<const storage::Decision> encoded;
};
// -> Done: every byte of that checkpoint is as its manifest says. Code::corrupt: it is not, or a file is
// missing, by name. Code::not_found: it is committed no more. Any other: it could not be read.
struct VerifyCheckpoint {
  AttemptKey key;
};
struct CheckFiles {  // -> Done
  AttemptKey key;
  std::shared_ptr<const std::vector<storage::FileEntry>> files;  // not null
};
struct RecordDecision {  // -> Done: into the catalog
  std::shared_ptr<const storage::Decision> decision;
};
struct PublishRoster {  // -> RosterRecord, the one that stands
  uint32_t generation = 0;
  storage::RosterRecord record;
  bool is_first = true;  // else one of the same id stands beside the first
};
struct ReadRoster {  // -> RosterRecord; Code::not_found
  uint32_t generation = 0;
  std::optional<RosterId> id;  // none: the first
};
struct ReadEpoch {};           // -> EpochRecord, the highest; Code::not_found
struct ListAttempts {};        // -> AttemptList
struct ListNewestAttempts {};  // -> AttemptList: the newest checkpoint and what stands above it
struct ListAttemptsOfStep {    // -> AttemptList
  uint64_t step = 0;
};
struct ListCheckpoints {  // -> CheckpointList: the newest attempts, for whoever asks
  uint32_t newest = 0;
};
struct InspectAttempt {  // -> AttemptInfo
  AttemptKey key;
};
struct SweepAttempt {  // -> uint64_t, the bytes removed
  AttemptKey key;
};
struct PinAttempt {  // -> Mark, a lease under a name of its own
  AttemptKey key;
  std::string holder;  // for people
};
struct RenewPin {  // -> Done; Code::not_found where somebody has ended it. The counter is the new one
  std::shared_ptr<const storage::Mark> pin;  // not null
};
struct RemovePin {                   // -> Done
  std::string name;                  // "": none stands
  std::optional<AttemptKey> unused;  // no load here needs it any more: its shards are closed
};
struct PlanRetention {  // -> RetentionPlan
  storage::RetentionPolicy policy;
};
struct DeleteCheckpoint {  // -> DeletionResult; a tombstone goes into the catalog, if there is one
  AttemptKey key;
  std::string cause;
};
struct RemoveRemains {  // -> Done
  std::string folder;
};
struct PublishLoadChoice {  // -> LoadChoice, the one that stands. nonce is filled in
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
  Rank rank = 0;  // that wrote the file
  std::string file_name;
  uint64_t file_size = 0;
  Hash128 header_digest;
  std::string piece_key;  // in the file
};
// A piece by what the manifest and the rule say of it. Where the file's own header disagrees: Code::corrupt
// by name.
struct PieceRef : PiecePlace {
  AttemptKey key;
  std::string fqn;
  LayoutEntry::Kind kind = LayoutEntry::Kind::tensor;
  DType dtype = DType::u8;
  Box box;                         // no dimensions for an object
  std::vector<PiecePlace> copies;  // read in this order where its own file is damaged or gone
};
struct MeasureObjects {  // -> std::vector<uint64_t>, the length of each
  std::vector<std::shared_ptr<const PieceRef>> pieces;
};
// Reads whole digest blocks: bytes [begin, end) of the piece, begin on a block's start, end on one or at the
// piece's end, verified, to the slab.
struct ReadRange {
  std::shared_ptr<const PieceRef> piece;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t slab_offset = 0;
};
struct ReadBatch {  // -> Done; DamageList, where something was read from a copy
  ClientId client = 0;
  uint32_t slab_id = 0;
  std::vector<ReadRange> ranges;
};
// -> LocatedRangesPtr, for a client that reads files itself. Of the files nothing but headers is read.
// slab_offset is not used.
struct LocateRanges {
  ClientId client = 0;
  std::vector<ReadRange> ranges;
};
// -> std::string, the address by which other nodes' Loaders reach this one; opened the first time.
// Code::unavailable: none can.
struct ListenToPeers {};
struct ReadChunk {  // -> ChunkPtr: the ranges, one after the other, verified; slab_offset is not used
  std::vector<ReadRange> ranges;
};
// -> Done: a peer's chunk is the ranges, one after the other, by the digests in the headers of their files,
// which this node reads where it does not know them. Code::corrupt: it is not. slab_offset is not used.
struct CheckChunk {
  ChunkPtr chunk;
  std::vector<ReadRange> ranges;
};
// -> ChunkPtr: the header of the piece's file, for others too. Code::too_large beyond kMaxPassedHeaderBytes.
struct ReadHeader {
  std::shared_ptr<const PieceRef> piece;
};
// -> Done: a peer's chunk is the header of the piece's file, by the digest that the manifest has of it; it is
// not read again. Code::corrupt: it is not.
struct CheckHeader {
  ChunkPtr chunk;
  std::shared_ptr<const PieceRef> piece;
};
struct CopyChunk {  // -> Done
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
struct ReleaseWindow {  // -> Done: nothing that lies in that slab is needed any more, nor its memory
  ClientId client = 0;
  uint32_t slab_id = 0;
};
struct Done {};
}  // namespace operation

// Where ranges of pieces lie in the files that the manifest names, and what they are.
struct LocatedRanges {
  struct Place {
    std::optional<uint32_t> file;  // into files; none: that file or its header is damaged, or gone
    uint64_t offset = 0;           // of the range's first byte
  };
  std::vector<std::string> files;  // paths under the root
  std::vector<Place> places;       // parallel to the ranges
  std::vector<uint64_t> digests;   // of the blocks of those that have a file, one range after the other
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
    operation::VerifyCheckpoint, operation::RecordStaged>;
// Few are as large as a Mark, and of many that are not there are a great number at once in the simulator.
using OperationResult =
    std::variant<operation::Done, storage::WrittenShard, std::shared_ptr<const storage::Decision>,
                 storage::RosterRecord, storage::AttemptList, storage::AttemptInfo, uint64_t,
                 storage::LoadChoice, std::vector<uint64_t>, std::shared_ptr<const storage::Mark>,
                 std::shared_ptr<const storage::RetentionPlan>, storage::DeletionResult,
                 std::shared_ptr<const storage::EpochRecord>, std::string, ChunkPtr, DamageList,
                 LocatedRangesPtr, std::shared_ptr<const CheckpointList>>;

std::string_view operation_name(const Operation& operation);

// Whether an operation changes the root, or what a catalog says of it. A job that only reads may carry out
// those alone that do not, but for its own pins and choices of what it loads.
enum class RootUse : uint8_t { reads, keeps_what_is_read, writes };
RootUse root_use(const Operation& operation);

}  // namespace shoal::actors
