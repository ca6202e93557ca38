// Operation: work with storage or memory that a role starts with effect::Start. event::OperationDone brings
// its Answer, or an error; a role learns nothing of it before. actors/executor/operation_runner.h carries
// operations out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "actors/giving_up.h"
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

using DecisionPtr = std::shared_ptr<const storage::Decision>;

struct SlabRange {
  ClientId client = 0;
  uint32_t slab_id = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

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

namespace operation {
struct Done {};  // the answer of an operation that has nothing to answer

struct WriteShard {
  using Answer = storage::WrittenShard;
  AttemptKey key;
  Rank rank = 0;
  uint32_t file = 0;
  SharedVector<storage::ShardPiece> pieces;
  SharedVector<SlabRange> data;  // parallel to pieces
  // The bytes reach the slab part by part (Slabs::parts_of). The offsets are those of the staged pieces.
  bool in_parts = false;
  UserMetadataPtr user = nullptr;
};
// Answers with a number that differs from the last answer if a WriteShard of these attempts has written bytes
// since. Waits for no storage.
struct MeasureWrites {
  using Answer = uint64_t;
  std::vector<AttemptKey> keys;
};
// Records that a rank which writes no file has staged (storage/decisions/staged_record.h).
// Code::already_exists: another process of the rank has staged something else.
struct RecordStaged {
  using Answer = Done;
  AttemptKey key;
  Rank rank = 0;
  LayoutId layout_id;
  PlanId assignment_id;
  UserMetadataPtr user = nullptr;
};
// Answers with the decision that exists afterwards. The executor fills in nonce, root_id and unix_time_ns. If
// all ranks of a rank-local save have published their manifests, the save is committed instead of aborted.
struct PublishDecision {
  using Answer = DecisionPtr;
  AttemptKey key;
  std::shared_ptr<const storage::DecisionBody> body;  // not null
  // For a tombstone: if the root proves the attempt complete, commit it instead (actors/giving_up.h).
  bool looks_first = false;
  std::optional<GiveUp> give_up = std::nullopt;  // of a tombstone: why, for the metrics
  // For a tombstone: the attempt has a folder, because this node knows of files or manifests in it. If the
  // folder is gone, nothing is published, and the answer is is_folder_gone.
  bool has_folder = false;
};
// Ends after a read-back. The executor fills in nonce, root_id, unix_time_ns.
struct PublishRankManifest {
  using Answer = Done;
  std::shared_ptr<const storage::RankManifest> manifest;
};
// Answers with the existing decision, or the manifest made of a complete set of rank manifests.
// Code::not_found names the ranks whose manifests are missing.
struct CompleteRankLocal {
  using Answer = DecisionPtr;
  AttemptKey key;
};
// Answers with the ranks of the world whose manifests are missing, ascending. Code::not_found: the root holds
// nothing of the attempt.
struct ListMissingManifests {
  using Answer = std::vector<uint64_t>;
  AttemptKey key;
  uint32_t world_size = 0;
};
// Answers with the existing decision, or the manifest of an attempt that the root proves complete.
// Code::not_found or corrupt: the root does not prove it complete (storage/decisions/completion.h).
struct CompleteAttempt {
  using Answer = DecisionPtr;
  AttemptKey key;
};
struct ReadDecision {  // Code::not_found while undecided
  using Answer = DecisionPtr;
  AttemptKey key;
  bool leaves_encoded = false;  // may leave a manifest encoded; its world is then nullptr
};
struct DecodeDecision {  // answers with the decision, with everything that was left encoded
  using Answer = DecisionPtr;
  DecisionPtr encoded;
};
// Proves that every byte of the checkpoint is as its manifest states. Code::corrupt: a file differs or is
// missing; the message names it. Code::not_found: the checkpoint is no longer committed. Other codes: a read
// failed.
struct VerifyCheckpoint {
  using Answer = Done;
  AttemptKey key;
};
struct CheckFiles {  // proves that all files exist with these sizes
  using Answer = Done;
  AttemptKey key;
  std::shared_ptr<const std::vector<storage::FileEntry>> files;  // not null
};
struct RecordDecision {  // afterwards the catalog has the decision
  using Answer = Done;
  DecisionPtr decision;
};
struct PublishRoster {  // answers with the one that exists afterwards
  using Answer = storage::RosterRecord;
  uint32_t generation = 0;
  storage::RosterRecord record;
  bool is_first = true;  // false: publish it under its RosterId, beside the first one
};
struct ReadRoster {  // Code::not_found: there is none
  using Answer = storage::RosterRecord;
  uint32_t generation = 0;
  std::optional<RosterId> id;  // none: the first
};
struct ReadEpoch {  // the highest; Code::not_found: there is none
  using Answer = std::shared_ptr<const storage::EpochRecord>;
};
struct ListAttempts {
  using Answer = storage::AttemptList;
};
struct ListNewestAttempts {  // the newest checkpoint and all newer attempts
  using Answer = storage::AttemptList;
};
struct ListAttemptsOfStep {
  using Answer = storage::AttemptList;
  uint64_t step = 0;
};
struct ListCheckpoints {  // the newest attempts, for clients that list them
  using Answer = std::shared_ptr<const CheckpointList>;
  uint32_t newest = 0;
};
struct InspectAttempt {
  using Answer = storage::AttemptInfo;
  AttemptKey key;
};
struct SweepAttempt {  // answers with the number of bytes removed
  using Answer = uint64_t;
  AttemptKey key;
};
struct PinAttempt {  // answers with a pin lease that has a unique name
  using Answer = std::shared_ptr<const storage::Mark>;
  AttemptKey key;
  std::string holder;  // human-readable
};
// `pin` has the new counter. Code::not_found: the pin was removed, so the lease has ended.
struct RenewPin {
  using Answer = Done;
  std::shared_ptr<const storage::Mark> pin;  // not null
};
struct RemovePin {
  using Answer = Done;
  std::string name;                  // "": there is no pin to remove
  std::optional<AttemptKey> unused;  // no load of this node needs this attempt any more: close its shards
};
struct PlanRetention {
  using Answer = std::shared_ptr<const storage::RetentionPlan>;
  storage::RetentionPolicy policy;
};
// Also records the tombstone in the catalog, if the node has one.
struct DeleteCheckpoint {
  using Answer = storage::DeletionResult;
  AttemptKey key;
  std::string cause;
  bool keeps_tombstone = false;  // storage::Deletion
};
struct RemoveRemains {
  using Answer = Done;
  std::string folder;
};
// Answers with the choice that exists afterwards. The executor fills in nonce.
struct PublishLoadChoice {
  using Answer = storage::LoadChoice;
  uint32_t generation = 0;
  uint32_t ordinal = 0;
  storage::LoadChoice choice;
  storage::ChoiceOf of = storage::ChoiceOf::generation;
};
struct ReadLoadChoice {  // Code::not_found: no load has chosen
  using Answer = storage::LoadChoice;
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
struct MeasureObjects {  // answers with the length of each
  using Answer = std::vector<uint64_t>;
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
struct ReadBatch {  // answers with what was read from copies; usually nothing
  using Answer = DamageList;
  ClientId client = 0;
  uint32_t slab_id = 0;
  std::vector<ReadRange> ranges;
};
// For a client that reads the files itself. Reads only the headers of the files. Ignores
// slab_offset.
struct LocateRanges {
  using Answer = LocatedRangesPtr;
  ClientId client = 0;
  std::vector<ReadRange> ranges;
};
// Answers with the address at which Loaders of other nodes reach this one. The first call opens it.
// Code::unavailable: other nodes cannot reach this one.
struct ListenToPeers {
  using Answer = std::string;
};
struct ReadChunk {  // the ranges one after the other, verified; ignores slab_offset
  using Answer = ChunkPtr;
  std::vector<ReadRange> ranges;
};
// Proves that the bytes of a peer's chunk are the ranges, one after the other. Checked against the digests in
// the headers of their files; this node reads headers that it does not have. Code::corrupt: the bytes differ.
// Ignores slab_offset.
struct CheckChunk {
  using Answer = Done;
  ChunkPtr chunk;
  std::vector<ReadRange> ranges;
};
// The header of the piece's file, for other hosts. Code::too_large beyond kMaxPassedHeaderBytes.
struct ReadHeader {
  using Answer = ChunkPtr;
  std::shared_ptr<const PieceRef> piece;
};
// Proves by the manifest's digest that a peer's chunk is the header of the piece's file. This node keeps
// the header and does not read it from storage. Code::corrupt: the digest differs.
struct CheckHeader {
  using Answer = Done;
  ChunkPtr chunk;
  std::shared_ptr<const PieceRef> piece;
};
struct CopyChunk {  // copies bytes of the chunk into windows
  using Answer = Done;
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
struct ReleaseWindow {  // the node may free the memory of this window
  using Answer = Done;
  ClientId client = 0;
  uint32_t slab_id = 0;
};
}  // namespace operation

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
    std::variant<operation::Done, storage::WrittenShard, DecisionPtr, storage::RosterRecord,
                 storage::AttemptList, storage::AttemptInfo, uint64_t, storage::LoadChoice,
                 std::vector<uint64_t>, std::shared_ptr<const storage::Mark>,
                 std::shared_ptr<const storage::RetentionPlan>, storage::DeletionResult,
                 std::shared_ptr<const storage::EpochRecord>, std::string, ChunkPtr, DamageList,
                 LocatedRangesPtr, std::shared_ptr<const CheckpointList>>;

// What an operation answers with. For a choice between several, std::variant, it is what they all answer
// with.
template <class Started>
struct AnswerTo {
  using Type = typename Started::Answer;
};
template <class First, class... Others>
struct AnswerTo<std::variant<First, Others...>> {
  static_assert((std::is_same_v<typename First::Answer, typename Others::Answer> && ...));
  using Type = typename First::Answer;
};
template <class Started>
using AnswerOf = typename AnswerTo<Started>::Type;

template <class Started>
Operation as_operation(Started started) {
  return started;
}
template <class... Choices>
Operation as_operation(std::variant<Choices...> started) {
  return std::visit([](auto& chosen) -> Operation { return std::move(chosen); }, started);
}

}  // namespace shoal::actors
