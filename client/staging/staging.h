// From a plan to copies: which bytes of the caller's memory go where in a slab.
#pragma once

#include <cstdint>
#include <vector>

#include "client/state_dict_internal.h"
#include "gpu/stager.h"
#include "local/messages/messages.h"
#include "shoal/save_plan.h"

namespace shoal::client {

// Where pieces begin in a slab: a cache line.
inline constexpr uint64_t kPieceAlignmentBytes = 64;

// Made once for a (layout, plan), used by every save.
class StageRecipe {
 public:
  StageRecipe() = default;
  // The plan is of the state's layout and this rank.
  StageRecipe(const BoundState& state, const SavePlan& plan);

  // This save's pieces, with their places in the slab, and the bytes of slab they need.
  // Code::invalid_argument: no memory is given for a value, or an object is beyond every slab.
  struct Staging {
    std::vector<local::StagedPiece> pieces;
    uint64_t slab_bytes = 0;
    uint64_t payload_bytes = 0;
  };
  Result<Staging> lay_out(const BoundState& state) const;
  // The copies of a laid-out save.
  void make_tasks(const BoundState& state, const Staging& staging, std::byte* slab,
                  std::vector<gpu::CopyTask>& tasks) const;
  // Those of some of its bytes: each range lies within one piece, and goes to its place in `slab`.
  // Code::invalid_argument: a node asks for what is not there.
  Status make_part_tasks(const BoundState& state, const Staging& staging,
                         const std::vector<local::PartRange>& ranges, MutableByteView slab,
                         std::vector<gpu::CopyTask>& tasks) const;

 private:
  struct Copy {
    uint32_t piece = 0;
    uint64_t source_offset = 0;  // from the start of the buffer that holds the local box
    uint64_t piece_offset = 0;
    uint64_t row_bytes = 0, rows = 0, source_stride = 0;
  };
  static void add_rows(const Copy& copy, const std::byte* buffer, uint64_t begin, uint64_t end,
                       std::byte* target, std::vector<gpu::CopyTask>& tasks);

  std::vector<local::StagedPiece> pieces_;  // without places; an object's without bytes
  std::vector<Copy> copies_;                // by piece; of tensors only
};

}  // namespace shoal::client
