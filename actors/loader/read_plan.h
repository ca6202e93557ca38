// ReadPlan: what a load has to read: the digest blocks of stored pieces that a rank's targets touch.
// ReadBatches cuts it into batches that fit the window.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/loader/piece_table.h"
#include "actors/loader/stored_checkpoint.h"
#include "local/messages/messages.h"
#include "plan/reading/locate.h"
#include "shoal/page_buffer.h"

namespace shoal::actors {

inline constexpr uint32_t kWindowParts = 4;  // batches of one load in progress
inline constexpr size_t kMaxRangesPerBatch = 2048;
inline constexpr size_t kMaxCopies = 3;  // copies of a piece that are tried if its own file is damaged
inline constexpr uint64_t kMinWindowBytes = uint64_t{4} << 20;  // one digest block for each part

// A contiguous run of whole digest blocks of one stored piece, for one target.
struct PlannedRead {
  uint32_t target = 0;
  uint32_t piece = 0;  // index into the PieceTable of the plan
  uint64_t piece_bytes = 0;
  uint64_t begin = 0;  // bytes [begin, end) of the piece
  uint64_t end = 0;
};

struct PlannedObject {  // only the header of its file has its length
  uint32_t target = 0;
  uint32_t piece = 0;
};

using PlannedReads = PagedVector<PlannedRead>;

struct ReadPlan {
  std::shared_ptr<const PieceTable> pieces;
  PlannedReads reads;  // ordered by file, then by position in the plan: neighbours are read together
  std::vector<PlannedObject> objects;
};

// The first answer to a load. Leaves out values that the client knows: those of a checkpoint that it keeps
// open, and those that follow from the layouts if it requested these. `metadata`: of `committed`, without
// values.
local::Found found_by(const local::Load& request, const storage::Decision& committed, Metadata metadata,
                      const PassedOverPtr& passed_over);

// Code::key_mismatch, with one report of all targets that the checkpoint lacks or holds with another kind,
// type or shape.
Status compare_targets(const plan::Locator& locator, const local::LoadTargets& targets);

// Precondition: compare_targets is OK. Code::corrupt: the manifest lacks a file in which the planning rule
// places a piece.
Result<ReadPlan> plan_reads(StoredCheckpoint& stored, const local::LoadTargets& targets);
// The reads of objects, once their lengths are known. Parallel to plan.objects. An empty object has one empty
// read.
std::vector<PlannedRead> object_reads(const std::vector<PlannedObject>& objects,
                                      const std::vector<uint64_t>& lengths);

struct ReadBatchPlan {
  std::vector<PlannedRead> reads;
  std::vector<uint64_t> offsets;  // parallel to reads: offsets from the start of the part
};
// Reads cut into batches of at most part_bytes (a multiple of the digest block) and kMaxRangesPerBatch.
// Stores only where each batch begins, and cuts out its reads on request.
class ReadBatches {
 public:
  ReadBatches() = default;
  ReadBatches(std::shared_ptr<const PieceTable> pieces, PlannedReads reads, uint64_t part_bytes);
  // The reads of a plan; this keeps the plan alive.
  ReadBatches(std::shared_ptr<const ReadPlan> plan, uint64_t part_bytes);

  size_t size() const { return starts_.size(); }
  bool empty() const { return starts_.empty(); }
  ReadBatchPlan operator[](size_t batch) const;
  const PieceTable& pieces() const { return *pieces_; }  // of the reads; precondition: there are any
  const std::shared_ptr<const PieceTable>& table() const { return pieces_; }  // as pieces()
  // The reads of a batch as arguments of an operation, for a part of the slab that begins at slab_offset.
  std::vector<operation::ReadRange> ranges_of(size_t batch, uint64_t slab_offset) const;

 private:
  struct Start {
    size_t read = 0;
    uint64_t begin = 0;  // byte of the piece
  };
  void find_starts();
  // Moves `at` to where the next batch begins.
  void cut(Start& at, ReadBatchPlan* batch) const;

  std::shared_ptr<const PieceTable> pieces_;
  std::shared_ptr<const PlannedReads> reads_;
  uint64_t part_bytes_ = 0;
  std::vector<Start> starts_;
};

}  // namespace shoal::actors
