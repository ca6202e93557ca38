// StoredPayload: the true bytes of what a simulation counts. Every operation that CountedRoot answers is
// carried out by the production OperationRunner besides, over a file system in memory: shards with their
// headers and digests, rank manifests, decisions, rosters, choices and pins. What the two answer is compared,
// and in how many bytes; roles go on with what the storage answered, so that digests are true ones.
//
// A tensor's bytes are a function of its name and of where an element lies in it, so that whoever reads it
// back, on other ranks, knows what must lie there. What a rank has staged is worked out when it is read.
//
// Nodes that share a load pass on the bytes that were read. Counted alone remain: times, the records of
// epochs, and what a catalog takes. One thread.
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

// Bytes [offset, offset + out.size()) of the row-major bytes of `box`, which lies in a tensor of that name
// and shape. Precondition: offset is a multiple of element_bytes.
void fill_with_known_bytes(std::string_view fqn, const Dims& shape, const Box& box, uint64_t element_bytes,
                           uint64_t offset, MutableByteView out);

class StoredPayload {
 public:
  StoredPayload();
  ~StoredPayload();

  // Nodes that know nothing come to the same root: trainers' slabs and open files are gone.
  void begin_generation();
  // A trainer has staged: its slab holds these pieces until it is freed.
  void stage(actors::ClientId client, uint32_t slab_id, LayoutPtr layout, Rank rank,
             SharedVector<local::StagedPiece> pieces);
  void free(actors::ClientId client, uint32_t slab_id);

  // Carries the operation out, and returns what came of it. `counted`: what it was counted to come to;
  // `counted_bytes`: to write, where it makes an object.
  Result<actors::OperationResult> carry_out(size_t node, bool has_catalog, const actors::Operation& operation,
                                            Result<actors::OperationResult> counted, uint64_t counted_bytes);

  // The first thing in which count and storage differ; it names operation and value. Code::internal.
  const Status& disagreement() const { return disagreement_; }
  uint64_t used_bytes() const { return file_system_.used_bytes(); }
  uint64_t bytes_checked() const { return bytes_checked_; }  // that loads have read

 private:
  class StagedSlabs;
  using FileName = std::pair<AttemptKey, std::string>;
  using Pieces = SharedVector<storage::ShardPiece>;

  actors::OperationRunner& runner(size_t node, bool has_catalog);
  void disagree(std::string_view what, uint64_t counted, uint64_t stored);
  void compare(const Result<actors::OperationResult>& counted, const Result<actors::OperationResult>& stored);
  void compare(const storage::Decision& counted, const storage::Decision& stored);
  void compare(const storage::AttemptInfo& counted, const storage::AttemptInfo& stored);
  // Whether the bytes read are those that were staged. In `bytes`: by slab_offset, or one after the other.
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
  std::map<FileName, std::unordered_map<std::string_view, const storage::ShardPiece*>>
      by_key_;                  // of files read
  std::string_view under_way_;  // the operation's name
  Status disagreement_;
  uint64_t bytes_checked_ = 0;
};

}  // namespace shoal::sim
