// StageRecipe: the copies that stage a plan: which bytes of the caller's memory go where in a slab.
#pragma once

#include <cstdint>
#include <vector>

#include "client/state_dict.h"
#include "gpu/device_stager.h"
#include "gpu/stager.h"
#include "local/messages/messages.h"
#include "shoal/save_plan.h"

namespace shoal::client {

// The alignment of pieces in a slab: a cache line.
inline constexpr uint64_t kPieceAlignmentBytes = 64;

// Made once for each pair of layout and plan; every save with that pair uses it.
class StageRecipe {
 public:
  StageRecipe() = default;
  // The plan must be for the state's layout and this rank.
  StageRecipe(const BoundState& state, const SavePlan& plan);

  // The pieces of one save with their places in the slab, and the bytes that they need there.
  // Code::invalid_argument: a value has no memory, or an object is larger than the largest slab.
  struct Staging {
    std::vector<local::StagedPiece> pieces;
    uint64_t slab_bytes = 0;
    uint64_t payload_bytes = 0;
  };
  Result<Staging> lay_out(const BoundState& state) const;
  // Makes the copies of a whole save: those from host memory in `tasks`, those from devices in `on_devices`,
  // which is needed only if state.uses_devices(). The tag of a copy is the index of its entry in the layout.
  void make_tasks(const BoundState& state, const Staging& staging, std::byte* slab,
                  std::vector<gpu::CopyTask>& tasks,
                  std::vector<gpu::DeviceBatch>* on_devices = nullptr) const;
  // Makes the copies of some of its bytes. Each range lies within one piece, and has its own place in `slab`.
  // Code::invalid_argument: the node requested bytes that the save does not have.
  Status make_part_tasks(const BoundState& state, const Staging& staging,
                         const std::vector<local::PartRange>& ranges, MutableByteView slab,
                         std::vector<gpu::CopyTask>& tasks,
                         std::vector<gpu::DeviceBatch>* on_devices = nullptr) const;

 private:
  struct Copy {
    uint32_t piece = 0;
    uint64_t source_offset = 0;  // from the start of the buffer that holds the local box
    uint64_t piece_offset = 0;
    uint64_t row_bytes = 0, rows = 0, source_stride = 0;
  };
  static void add_rows(const Copy& copy, uint32_t entry, const std::byte* buffer, uint64_t begin,
                       uint64_t end, std::byte* target, std::vector<gpu::CopyTask>& tasks);

  std::vector<local::StagedPiece> pieces_;  // slab_offset is not set, nor the bytes of objects
  std::vector<Copy> copies_;                // of tensors only, ordered by piece
};

}  // namespace shoal::client
