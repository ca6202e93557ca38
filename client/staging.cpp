#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "client/staging_internal.h"

namespace shoal {

namespace {

Box shifted(Box box, const Dims& by) {
  for (size_t d = 0; d < by.size(); ++d) box.offsets[d] += by[d];
  return box;
}

}  // namespace

StageRecipe::StageRecipe(const BoundState& state, const SavePlan& plan) {
  for (const WriteItem& item : plan.items) {
    pieces_.push_back({item.entry, item.local_box, item.local_offset, item.bytes, 0});
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const local::StagedPiece& a, const local::StagedPiece& b) {
    return std::tie(a.entry, a.local_box, a.local_offset) < std::tie(b.entry, b.local_box, b.local_offset);
  });
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    const local::StagedPiece& piece = pieces_[i];
    if (piece.bytes == 0 || state.entry_of(piece.entry).object) continue;
    const uint64_t element_bytes = state.values()[piece.entry].element_bytes;
    const BoundState::Home home = state.home_of(piece.entry, piece.local_box);
    const size_t first = copies_.size();
    uint64_t done = 0;
    // Runs become rows of one task while they are alike and evenly spaced.
    auto add_run = [&](uint64_t source_offset, uint64_t bytes) {
      if (copies_.size() > first) {
        Copy& last = copies_.back();
        const uint64_t step = source_offset - (last.source_offset + (last.rows - 1) * last.source_stride);
        if (last.row_bytes == bytes && (last.rows == 1 || step == last.source_stride)) {
          last.source_stride = step;
          ++last.rows;
          done += bytes;
          return;
        }
      }
      copies_.push_back({i, source_offset, done, bytes, 1, 0});
      done += bytes;
    };
    const uint64_t begin = piece.local_offset / element_bytes;
    for (const Box& part :
         boxes_of_range(whole(home.box.sizes), begin, begin + piece.bytes / element_bytes)) {
      for_each_run(shifted(part, home.box.offsets), home.whole,
                   [&](uint64_t, uint64_t in_buffer, uint64_t count) {
                     add_run(in_buffer * element_bytes, count * element_bytes);
                   });
    }
    SHOAL_CHECK(done == piece.bytes);
  }
}

Result<StageRecipe::Staging> StageRecipe::lay_out(const BoundState& state) const {
  Staging staging;
  staging.pieces = pieces_;
  for (local::StagedPiece& piece : staging.pieces) {
    const StateDict::Entry& entry = state.entry_of(piece.entry);
    if (entry.object) {
      piece.bytes = entry.object->size();
    } else if (piece.bytes != 0 && !state.data_of(piece.entry, piece.local_box)) {
      return Status(Code::invalid_argument,
                    fmt::format("'{}': no memory is given for what this rank holds", entry.fqn));
    }
    piece.slab_offset = staging.slab_bytes;
    if (piece.bytes > kMaxSlabBytes - staging.slab_bytes) {
      return Status(Code::too_large,
                    fmt::format("'{}': a save of more than {} bytes", entry.fqn, kMaxSlabBytes));
    }
    const uint64_t end = staging.slab_bytes + piece.bytes;
    staging.slab_bytes = (end + kPieceAlignmentBytes - 1) / kPieceAlignmentBytes * kPieceAlignmentBytes;
    staging.payload_bytes += piece.bytes;
  }
  return staging;
}

void StageRecipe::make_tasks(const BoundState& state, const Staging& staging, std::byte* slab,
                             std::vector<CopyTask>& tasks) const {
  tasks.clear();
  tasks.reserve(copies_.size());
  for (const Copy& copy : copies_) {
    const local::StagedPiece& piece = staging.pieces[copy.piece];
    const std::byte* buffer = state.data_of(piece.entry, piece.local_box);
    tasks.push_back({buffer + copy.source_offset, slab + piece.slab_offset + copy.piece_offset,
                     copy.row_bytes, copy.rows, copy.source_stride});
  }
  for (const local::StagedPiece& piece : staging.pieces) {
    const StateDict::Entry& entry = state.entry_of(piece.entry);
    if (!entry.object || piece.bytes == 0) continue;
    tasks.push_back({as_view(*entry.object).data(), slab + piece.slab_offset, piece.bytes, 1, 0});
  }
}

}  // namespace shoal
