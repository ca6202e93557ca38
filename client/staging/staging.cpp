#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "client/staging/staging.h"

namespace shoal::client {

namespace {

Box shifted(Box box, const Dims& by) {
  for (size_t d = 0; d < by.size(); ++d) box.offsets[d] += by[d];
  return box;
}

// Moves the tasks from number `first` on, whose source lies on a device, to the batch of their queue.
// `entry` becomes the tag of the copies.
void move_to_device(const MemoryRef& memory, uint32_t entry, uint64_t gap_bytes, size_t first,
                    std::vector<gpu::CopyTask>& tasks, std::vector<gpu::DeviceBatch>* on_devices) {
  SHOAL_CHECK(on_devices != nullptr);
  const gpu::Queue queue{memory.device(), memory.stream()};
  auto batch = std::ranges::find(*on_devices, queue, &gpu::DeviceBatch::queue);
  if (batch == on_devices->end()) batch = on_devices->insert(batch, gpu::DeviceBatch{queue, {}, gap_bytes});
  for (size_t i = first; i < tasks.size(); ++i) {
    const gpu::CopyTask& task = tasks[i];
    batch->copies.push_back(
        {task.source, task.target, task.row_bytes, task.rows, task.source_stride, task.row_bytes, entry});
  }
  tasks.resize(first);
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
    // Merges runs into the rows of one task as long as they have equal length and spacing.
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
      piece.bytes = entry.object.view().size();
    } else if (piece.bytes != 0 && !state.data_of(piece.entry, piece.local_box)) {
      return Status(Code::invalid_argument,
                    fmt::format("'{}': the memory for what this rank holds is missing", entry.fqn));
    }
    piece.slab_offset = staging.slab_bytes;
    if (piece.bytes > local::kMaxSlabBytes - staging.slab_bytes) {
      return Status(Code::too_large, fmt::format("'{}': the save has more than {} bytes up to this value",
                                                 entry.fqn, local::kMaxSlabBytes));
    }
    const uint64_t end = staging.slab_bytes + piece.bytes;
    staging.slab_bytes = (end + kPieceAlignmentBytes - 1) / kPieceAlignmentBytes * kPieceAlignmentBytes;
    staging.payload_bytes += piece.bytes;
  }
  return staging;
}

void StageRecipe::make_tasks(const BoundState& state, const Staging& staging, std::byte* slab,
                             std::vector<gpu::CopyTask>& tasks,
                             std::vector<gpu::DeviceBatch>* on_devices) const {
  tasks.clear();
  tasks.reserve(copies_.size());
  const bool uses_devices = state.uses_devices();
  for (const Copy& copy : copies_) {
    const local::StagedPiece& piece = staging.pieces[copy.piece];
    const std::byte* buffer = state.data_of(piece.entry, piece.local_box);
    tasks.push_back({buffer + copy.source_offset, slab + piece.slab_offset + copy.piece_offset,
                     copy.row_bytes, copy.rows, copy.source_stride, piece.entry});
    if (!uses_devices) continue;
    const MemoryRef memory = state.memory_of(piece.entry, piece.local_box);
    if (!memory.is_on_device()) continue;
    // Smaller gaps than kPieceAlignmentBytes between pieces are padding, which copies may overwrite.
    move_to_device(memory, piece.entry, kPieceAlignmentBytes - 1, tasks.size() - 1, tasks, on_devices);
  }
  for (const local::StagedPiece& piece : staging.pieces) {
    const StateDict::Entry& entry = state.entry_of(piece.entry);
    if (!entry.object || piece.bytes == 0) continue;
    tasks.push_back({entry.object.view().data(), slab + piece.slab_offset, piece.bytes, 1, 0, piece.entry});
  }
}

Status StageRecipe::make_part_tasks(const BoundState& state, const Staging& staging,
                                    const std::vector<local::PartRange>& ranges, MutableByteView slab,
                                    std::vector<gpu::CopyTask>& tasks,
                                    std::vector<gpu::DeviceBatch>* on_devices) const {
  tasks.clear();
  for (const local::PartRange& range : ranges) {
    const auto after = std::upper_bound(
        staging.pieces.begin(), staging.pieces.end(), range.from,
        [](uint64_t from, const local::StagedPiece& piece) { return from < piece.slab_offset; });
    const bool fits_slab = range.slab_offset <= slab.size() && range.bytes <= slab.size() - range.slab_offset;
    if (after == staging.pieces.begin() || !fits_slab) {
      return Status(Code::invalid_argument, "the node requests bytes that were not staged");
    }
    const auto number = static_cast<uint32_t>(std::prev(after) - staging.pieces.begin());
    const local::StagedPiece& piece = staging.pieces[number];
    const uint64_t begin = range.from - piece.slab_offset;
    if (begin > piece.bytes || range.bytes > piece.bytes - begin) {
      return Status(Code::invalid_argument, "the node requests bytes after the end of a staged piece");
    }
    std::byte* const target = slab.data() + range.slab_offset;
    if (const StateDict::Entry& entry = state.entry_of(piece.entry); entry.object) {
      if (range.bytes == 0) continue;
      tasks.push_back({entry.object.view().data() + begin, target, range.bytes, 1, 0, piece.entry});
      continue;
    }
    const std::byte* buffer = state.data_of(piece.entry, piece.local_box);
    const size_t first_task = tasks.size();
    auto copy = std::lower_bound(copies_.begin(), copies_.end(), number,
                                 [](const Copy& each, uint32_t wanted) { return each.piece < wanted; });
    for (; copy != copies_.end() && copy->piece == number; ++copy) {
      const uint64_t copy_end = copy->piece_offset + copy->row_bytes * copy->rows;
      const uint64_t from = std::max(begin, copy->piece_offset);
      const uint64_t end = std::min(begin + range.bytes, copy_end);
      if (from >= end) continue;
      add_rows(*copy, piece.entry, buffer, from - copy->piece_offset, end - copy->piece_offset,
               target + (from - begin), tasks);
    }
    if (!state.uses_devices()) continue;
    const MemoryRef memory = state.memory_of(piece.entry, piece.local_box);
    // The node chose the places of the ranges, so bytes between two of them may belong to something else.
    if (memory.is_on_device()) move_to_device(memory, piece.entry, 0, first_task, tasks, on_devices);
  }
  return ok_status();
}

// Adds tasks for bytes [begin, end) of a copy: the rest of a row, whole rows, the start of a row.
void StageRecipe::add_rows(const Copy& copy, uint32_t entry, const std::byte* buffer, uint64_t begin,
                           uint64_t end, std::byte* target, std::vector<gpu::CopyTask>& tasks) {
  while (begin < end) {
    const uint64_t row = begin / copy.row_bytes, in_row = begin % copy.row_bytes, left = end - begin;
    const std::byte* source = buffer + copy.source_offset + row * copy.source_stride + in_row;
    const bool is_whole = in_row == 0 && left >= copy.row_bytes;
    const uint64_t rows = is_whole ? left / copy.row_bytes : 1;
    const uint64_t row_bytes = is_whole ? copy.row_bytes : std::min(copy.row_bytes - in_row, left);
    tasks.push_back({source, target, row_bytes, rows, copy.source_stride, entry});
    begin += rows * row_bytes;
    target += rows * row_bytes;
  }
}

}  // namespace shoal::client
