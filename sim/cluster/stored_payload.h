// StoredPayload: stores the bytes that a simulation otherwise only counts. For every operation that
// CountedRoot answers, the production OperationRunner also carries it out, over a file system in memory:
// shards with their headers and digests, rank manifests, decisions, rosters, choices and pins. StoredPayload
// compares the two results and their sizes in bytes. Roles receive the result of the storage, so digests are
// real.
//
// The bytes of a tensor are a function of its name and of the position of the element in it. So a reader on
// other ranks can check them. The staged bytes of a rank are computed when they are read.
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
#include "storage/files/local_storage.h"

namespace shoal::sim {

// Fills `out` with bytes [offset, offset + out.size()) of the row-major bytes of `box`, a box of the tensor
// with this name and shape. Precondition: offset is a multiple of element_bytes.
void fill_with_known_bytes(std::string_view fqn, const Dims& shape, const Box& box, uint64_t element_bytes,
                           uint64_t offset, MutableByteView out);

class StoredPayload {
 public:
  StoredPayload();
  ~StoredPayload();

  // A new generation starts on the same root: the slabs of trainers and open files are gone.
  void begin_generation();
  // A trainer has staged. Its slab holds these pieces until free() is called.
  void stage(actors::ClientId client, uint32_t slab_id, LayoutPtr layout, Rank rank,
             SharedVector<local::StagedPiece> pieces);
  void free(actors::ClientId client, uint32_t slab_id);

  // Carries the operation out and returns its result. `counted`: the result of CountedRoot. `counted_bytes`:
  // the size in bytes that CountedRoot expects, if the operation creates an object.
  Result<actors::OperationResult> carry_out(size_t node, bool has_catalog, const actors::Operation& operation,
                                            Result<actors::OperationResult> counted, uint64_t counted_bytes);

  // The first difference between CountedRoot and storage; Code::internal. The error names the operation and
  // the value.
  const Status& disagreement() const { return disagreement_; }
  uint64_t used_bytes() const { return file_system_.used_bytes(); }
  uint64_t bytes_checked() const { return bytes_checked_; }  // bytes that loads have read and that matched

 private:
  class StagedSlabs;
  using FileName = std::pair<AttemptKey, std::string>;
  using Pieces = SharedVector<storage::ShardPiece>;

  actors::OperationRunner& runner(size_t node, bool has_catalog);
  void disagree(std::string_view what, uint64_t counted, uint64_t stored);
  void compare(const Result<actors::OperationResult>& counted, const Result<actors::OperationResult>& stored);
  void compare(const storage::Decision& counted, const storage::Decision& stored);
  void compare(const storage::AttemptList& counted, const storage::AttemptList& stored);
  void compare(const storage::AttemptInfo& counted, const storage::AttemptInfo& stored);
  // Checks that the bytes read equal those that were staged. `bytes` holds each range at its slab_offset, or
  // one after the other if are_in_order.
  void check_bytes(const std::vector<actors::operation::ReadRange>& ranges, ByteView bytes,
                   bool are_in_order);
  const storage::ShardPiece* piece_of(const actors::operation::PieceRef& ref);

  MemoryFileSystem file_system_;
  std::unique_ptr<storage::LocalStorage> storage_;
  std::unique_ptr<storage::Catalog> catalog_;
  RootId root_id_;
  std::unique_ptr<StagedSlabs> slabs_;
  uint64_t nonces_ = 0;
  std::map<std::pair<size_t, bool>, std::unique_ptr<actors::OperationRunner>> runners_;
  std::map<FileName, Pieces> written_;
  // Pieces of files that loads read, by key.
  std::map<FileName, std::unordered_map<std::string_view, const storage::ShardPiece*>> by_key_;
  std::string_view in_progress_;  // name of the operation in progress
  Status disagreement_;
  uint64_t bytes_checked_ = 0;
};

}  // namespace shoal::sim
