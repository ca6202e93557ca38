// What a load has to read: the digest blocks of stored pieces that a rank's targets touch, in batches that
// fit its window.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/operation.h"
#include "actors/stored_checkpoint.h"
#include "local/messages.h"
#include "plan/locate.h"

namespace shoal {

inline constexpr uint32_t kWindowParts = 4;  // batches that one load has under way
inline constexpr size_t kMaxRangesPerBatch = 2048;
inline constexpr size_t kMaxCopies = 3;  // of a piece, that are read where its own file is damaged
inline constexpr uint64_t kMinWindowBytes = uint64_t{4} << 20;  // one digest block a part

// One contiguous run of whole digest blocks of one stored piece, for one target.
struct PlannedRead {
  uint32_t target = 0;
  std::shared_ptr<const operation::PieceRef> piece;
  uint64_t piece_bytes = 0;
  uint64_t begin = 0;  // bytes of the piece
  uint64_t end = 0;
};

struct PlannedObject {  // its length stands in its file's header only
  uint32_t target = 0;
  std::shared_ptr<const operation::PieceRef> piece;
};

struct ReadPlan {
  std::vector<PlannedRead> reads;  // ordered by file, then position in the plan: neighbours are read together
  std::vector<PlannedObject> objects;
};

// The first answer to a load. Values are left out where the client knows them: of what it keeps open already,
// and where it asks for layouts, from which they follow.
local::Found found_by(const local::Load& request, const Decision& committed);

// One report of every target that the checkpoint lacks or holds with another kind, type or shape:
// Code::invalid_argument (Code::not_found if all of them are merely missing). OK if none.
Status compare_targets(const Locator& locator, const std::vector<local::LoadTarget>& targets);

// Precondition: compare_targets is OK. Code::corrupt where the manifest has no file for a piece that the rule
// places.
Result<ReadPlan> plan_reads(StoredCheckpoint& stored, const std::vector<local::LoadTarget>& targets);
// The reads of objects, once their lengths are known; parallel to plan.objects. Empty objects have one empty
// read.
std::vector<PlannedRead> object_reads(const std::vector<PlannedObject>& objects,
                                      const std::vector<uint64_t>& lengths);

// Cuts reads into batches of at most part_bytes (a multiple of the digest block) and kMaxRangesPerBatch, slab
// offsets counted from the start of the part.
struct ReadBatchPlan {
  std::vector<PlannedRead> reads;
  std::vector<uint64_t> offsets;  // parallel
};
using ReadBatches = std::vector<ReadBatchPlan>;
ReadBatches make_batches(const std::vector<PlannedRead>& reads, uint64_t part_bytes);

}  // namespace shoal
