// StoredPayload: stores the bytes that a simulation otherwise only counts. For every operation that
// CountedRoot answers, the production OperationRunner also carries it out, over a file system in memory:
// shards with their headers and digests, rank manifests, decisions, rosters, choices and pins. StoredPayload
// compares the two results and their sizes in bytes. Roles receive the result of the storage, so digests are
// real.
//
// The bytes of a tensor are a function of the attempt, of its name, and of the position of the element in it.
// So a reader on other ranks can check them, and whether they are those of that step. The staged bytes of a
// rank are computed when they are read.
//
// Nodes that share a load pass on the bytes that were read. Still only counted are times, epoch records and
// the bytes of a catalog. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "actors/executor/operation_runner.h"
#include "actors/operation.h"
#include "local/messages/messages.h"
#include "shoal/layout.h"
#include "sim/bytes/memory_file_system.h"
#include "sim/cluster/part_writes.h"
#include "storage/files/local_storage.h"
#include "storage/retention/marks.h"

namespace shoal::sim {

// The slab id of the window of every simulated trainer that loads. The ids before it belong to saves.
inline constexpr uint32_t kSimulatedWindowSlab = uint32_t{1} << 30;

// In place of the number of a node: the process of an operator's command.
inline constexpr size_t kOperatorNode = SIZE_MAX;

// The number of the state that an attempt saves: two attempts have different bytes everywhere.
uint64_t state_of(const AttemptKey& key);
// Fills `out`, in the state of this number, with bytes [offset, offset + out.size()) of the row-major bytes
// of `box`, a box of the tensor with this name and shape. Precondition: offset is a multiple of
// element_bytes.
void fill_with_known_bytes(uint64_t state, std::string_view fqn, const Dims& shape, const Box& box,
                           uint64_t element_bytes, uint64_t offset, MutableByteView out);

class StoredPayload {
 public:
  StoredPayload();
  // For a later run on the root of `before`, which may go on. Slabs, open files and catalog are its own.
  explicit StoredPayload(const StoredPayload& before);
  ~StoredPayload();

  // A new generation starts on the same root: the slabs of trainers and open files are gone.
  void begin_generation();
  // The storage loses power and starts again. What was not synced is lost or kept, as the seed decides.
  void lose_power(uint64_t seed);
  // A trainer has staged this save, or offers it again by a later connection. The slab of that connection
  // holds these pieces until free() is called for the save. `parts_slab_bytes`: the save is staged in parts,
  // through a slab of this size; 0: it is not.
  void stage(actors::ClientId client, uint32_t slab_id, const AttemptKey& key, LayoutPtr layout, Rank rank,
             SharedVector<local::StagedPiece> pieces, uint64_t parts_slab_bytes = 0);
  void free(Rank rank, uint32_t slab_id, const AttemptKey& key);
  // The next operation that carry_out() gets writes in parts, of which this became.
  void parts_copied(PartsCopied copied);

  // Carries the operation out and returns its result. `counted`: the result of CountedRoot. `counted_bytes`:
  // the size in bytes that CountedRoot expects, if the operation creates an object.
  Result<actors::OperationResult> carry_out(size_t node, bool has_catalog, const actors::Operation& operation,
                                            Result<actors::OperationResult> counted, uint64_t counted_bytes);

  // The same for a shard that was just written: CountedRoot::lose_shard().
  void lose_shard(const AttemptKey& key, Rank rank, uint32_t file, std::optional<uint64_t> bytes_left);

  // An operator pins or tags a checkpoint, or removes that mark. Every operation of an operator is carried
  // out by a process of its own: forget_operator() ends it.
  void mark(storage::MarkKind kind, const storage::Mark& mark);
  void unmark(storage::MarkKind kind, const std::string& name);
  void forget_operator() { runners_.erase({kOperatorNode, false}); }

  // Flips a bit of a file of this checkpoint, as Failure::Kind::rots says. False: there is no such file.
  bool rot(const AttemptKey& key, uint64_t part, uint64_t permille);
  bool is_damaged(const AttemptKey& key) const { return root_->damaged.contains(key); }

  // The job of this payload only reads. Returns its number under readers/. Call it instead of
  // begin_generation().
  uint32_t begin_reader();

  // A trainer has received this piece in its window, in a load of the checkpoint `key`. Checks its bytes.
  void check_loaded(actors::ClientId client, const AttemptKey& key, const local::LoadTarget& target,
                    const local::LoadedPiece& piece);
  // The same for bytes that the trainer itself has read.
  void check_range(const AttemptKey& key, const local::LoadTarget& target, const local::StoredRange& range,
                   ByteView bytes);
  // Bytes of a file of the root, as a trainer reads them. `path`: relative to the root.
  Result<Bytes> read_file(const std::string& path, uint64_t offset, uint64_t bytes);
  // A trainer has found bytes that differ from those that were saved.
  void note_difference(const std::string& of) { disagree(of, 1, 0); }

  // A chunk has arrived at a peer with other bytes: from now on checks of chunks may fail.
  void note_corrupt_chunk() { root_->has_corrupt_chunks = true; }

  // A message that its codec does not keep.
  void note_undecodable(const Status& why) {
    if (root_->disagreement.ok()) root_->disagreement = why.with_context("a message");
  }

  // The first difference between CountedRoot and storage; Code::internal. The error names the operation and
  // the value.
  const Status& disagreement() const { return root_->disagreement; }
  uint64_t used_bytes() const { return root_->file_system.used_bytes(); }
  // Bytes that loads have read and that matched.
  uint64_t bytes_checked() const { return root_->bytes_checked; }
  storage::FileSystem& file_system() { return root_->file_system; }  // the root is its folder "/root"

 private:
  class StagedSlabs;
  using FileName = std::pair<AttemptKey, std::string>;
  using Pieces = SharedVector<storage::ShardPiece>;

  actors::OperationRunner& runner(size_t node, bool has_catalog);
  void disagree(std::string_view what, uint64_t counted, uint64_t stored);
  void compare(const Result<actors::OperationResult>& counted, const Result<actors::OperationResult>& stored);
  void compare(const storage::Decision& counted, const storage::Decision& stored);
  void compare(const storage::RetentionPlan& counted, const storage::RetentionPlan& stored);
  void compare(const storage::AttemptList& counted, const storage::AttemptList& stored);
  void compare(const storage::AttemptInfo& counted, const storage::AttemptInfo& stored);
  // Checks that the bytes read equal those that were staged. `bytes` holds each range at its slab_offset, or
  // one after the other if are_in_order.
  void check_bytes(const std::vector<actors::operation::ReadRange>& ranges, ByteView bytes,
                   bool are_in_order);
  // The storage meets damage that CountedRoot does not compute.
  bool may_differ(const actors::Operation& operation) const;
  const storage::ShardPiece* piece_of(const actors::operation::PieceRef& ref);

  struct WrittenFile {
    Pieces pieces;
    Hash128 header_digest;
  };
  struct Root {  // what all runs on it share
    MemoryFileSystem file_system;
    std::unique_ptr<storage::LocalStorage> storage;
    uint64_t storage_opened = 0;  // how often; a runner of an earlier time must not be used
    RootId id;
    uint64_t nonces = 0;
    std::map<FileName, WrittenFile> written;
    // Pieces of files that loads read, by key.
    std::map<FileName, std::unordered_map<std::string_view, const storage::ShardPiece*>> by_key;
    Status disagreement;
    uint64_t bytes_checked = 0;
    bool has_corrupt_chunks = false;
    std::map<AttemptKey, bool> damaged;  // true: a bit of the manifest has flipped
    void open_storage();
  };

  const std::shared_ptr<Root> root_;
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<StagedSlabs> slabs_;
  std::map<std::pair<size_t, bool>, std::unique_ptr<actors::OperationRunner>> runners_;
  uint64_t runners_of_ = 1;  // the value of root_->storage_opened that they belong to
  bool is_reader_ = false;
  std::string_view in_progress_;  // name of the operation in progress
};

}  // namespace shoal::sim
