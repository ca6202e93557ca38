// What a load has to read: the digest blocks of stored pieces that a rank's targets touch, in batches that
// fit its window.
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

inline constexpr uint32_t kWindowParts = 4;  // batches that one load has under way
inline constexpr size_t kMaxRangesPerBatch = 2048;
inline constexpr size_t kMaxCopies = 3;  // of a piece, that are read where its own file is damaged
inline constexpr uint64_t kMinWindowBytes = uint64_t{4} << 20;  // one digest block a part

// One contiguous run of whole digest blocks of one stored piece, for one target.
struct PlannedRead {
  uint32_t target = 0;
  uint32_t piece = 0;  // of the table that goes with it
  uint64_t piece_bytes = 0;
  uint64_t begin = 0;  // bytes of the piece
  uint64_t end = 0;
};

struct PlannedObject {  // its length stands in its file's header only
  uint32_t target = 0;
  uint32_t piece = 0;
};

using PlannedReads = PagedVector<PlannedRead>;

struct ReadPlan {
  std::shared_ptr<const PieceTable> pieces;
  PlannedReads reads;  // ordered by file, then position in the plan: neighbours are read together
  std::vector<PlannedObject> objects;
};

// The first answer to a load. Values are left out where the client knows them: of what it keeps open already,
// and where it asks for layouts, from which they follow.
local::Found found_by(const local::Load& request, const storage::Decision& committed,
                      const PassedOverPtr& passed_over);

// One report of every target that the checkpoint lacks or holds with another kind, type or shape:
// Code::key_mismatch. OK if none.
Status compare_targets(const plan::Locator& locator, const local::LoadTargets& targets);

// Precondition: compare_targets is OK. Code::corrupt where the manifest has no file for a piece that the rule
// places.
Result<ReadPlan> plan_reads(StoredCheckpoint& stored, const local::LoadTargets& targets);
// The reads of objects, once their lengths are known; parallel to plan.objects. Empty objects have one empty
// read.
std::vector<PlannedRead> object_reads(const std::vector<PlannedObject>& objects,
                                      const std::vector<uint64_t>& lengths);

struct ReadBatchPlan {
  std::vector<PlannedRead> reads;
  std::vector<uint64_t> offsets;  // parallel: in the slab, counted from the start of the part
};
// Reads cut into batches of at most part_bytes (a multiple of the digest block) and kMaxRangesPerBatch. What
// is kept of a batch is where it begins; its reads are cut out when somebody asks for them.
class ReadBatches {
 public:
  ReadBatches() = default;
  ReadBatches(std::shared_ptr<const PieceTable> pieces, PlannedReads reads, uint64_t part_bytes);
  // The reads of a plan, which lives on for them.
  ReadBatches(std::shared_ptr<const ReadPlan> plan, uint64_t part_bytes);

  size_t size() const { return starts_.size(); }
  bool empty() const { return starts_.empty(); }
  ReadBatchPlan operator[](size_t batch) const;
  const PieceTable& pieces() const { return *pieces_; }                       // of reads, if there are any
  const std::shared_ptr<const PieceTable>& table() const { return pieces_; }  // the same
  // What an operation is told of a batch's reads, the part of the slab beginning there.
  std::vector<operation::ReadRange> ranges_of(size_t batch, uint64_t slab_offset) const;

 private:
  struct Start {
    size_t read = 0;
    uint64_t begin = 0;  // byte of its piece
  };
  void find_starts();
  // Moves on to where the next one begins.
  void cut(Start& at, ReadBatchPlan* batch) const;

  std::shared_ptr<const PieceTable> pieces_;
  std::shared_ptr<const PlannedReads> reads_;
  uint64_t part_bytes_ = 0;
  std::vector<Start> starts_;
};

}  // namespace shoal::actors
