#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/stream_copy.h"
#include "client/loading/placing.h"
#include "shoal/check.h"

namespace shoal::client {

namespace {

Status corrupt(const std::string& fqn, const char* what) {
  return Status(Code::corrupt, fmt::format("the node sent a piece of '{}' {}", fqn, what));
}

struct RowRun {
  uint64_t at, count;  // in elements
};

// The runs of `outer` that contain the row-major elements of `inner`, in that order.
std::vector<RowRun> runs_in(const Box& outer, const Box& inner) {
  std::vector<RowRun> runs;
  for_each_run(inner, outer, [&](uint64_t, uint64_t at, uint64_t count) { runs.push_back({at, count}); });
  return runs;
}

// Calls `copy` with each run of the intersection of a local box and `part`: where it begins in the row-major
// elements of `part`, where in one home of the box, and how many elements it has.
template <class Copy>
void for_each_run_to(const BoundState::Home& home, const Box& held, const Box& part, const Box& shared,
                     Copy&& copy) {
  if (home.box == home.whole) return for_each_run(part, held, copy);
  // The local box is a part of a larger local tensor, so that source and target have different runs.
  Box in_buffer = shared;
  for (size_t d = 0; d < in_buffer.dims(); ++d) {
    in_buffer.offsets[d] = in_buffer.offsets[d] - held.offsets[d] + home.box.offsets[d];
  }
  const std::vector<RowRun> from_runs = runs_in(part, shared);
  size_t from = 0;
  uint64_t from_done = 0;
  for_each_run(in_buffer, home.whole, [&](uint64_t, uint64_t to, uint64_t count) {
    while (count > 0) {
      const uint64_t step = std::min(count, from_runs[from].count - from_done);
      copy(from_runs[from].at + from_done, to, step);
      to += step, count -= step, from_done += step;
      if (from_done == from_runs[from].count) ++from, from_done = 0;
    }
  });
}

// The runs as copies to a device; runs of equal length and spacing are the rows of one.
std::vector<gpu::DeviceCopy> device_copies(const BoundState::Home& home, const Box& held, const Box& part,
                                           const Box& shared, const std::byte* source,
                                           uint64_t element_bytes) {
  std::vector<gpu::DeviceCopy> copies;
  for_each_run_to(home, held, part, shared, [&](uint64_t from, uint64_t to, uint64_t count) {
    const std::byte* const begin = source + from * element_bytes;
    std::byte* const target = home.data + to * element_bytes;
    const uint64_t bytes = count * element_bytes;
    if (!copies.empty()) {
      gpu::DeviceCopy& last = copies.back();
      const auto step = static_cast<uint64_t>(target - (last.target + (last.rows - 1) * last.target_stride));
      const bool is_next = begin == last.source + last.rows * last.row_bytes && last.row_bytes == bytes;
      if (is_next && step >= bytes && (last.rows == 1 || step == last.target_stride)) {
        last.target_stride = step;
        ++last.rows;
        return;
      }
    }
    copies.push_back({begin, target, bytes, 1, bytes, bytes});
  });
  return copies;
}

}  // namespace

Placer::Placer(const BoundState& state, std::vector<uint32_t> wanted) : state_(state) {
  targets_.reserve(wanted.size());
  for (uint32_t entry : wanted) targets_.push_back({entry});
}

uint64_t Placer::wanted_elements(const Target& target) const {
  if (state_.entry_of(target.entry).object) return 0;
  uint64_t elements = 0;
  for (const Box& box : state_.values()[target.entry].shards().boxes) elements += box.elements();
  return elements;
}

local::LoadTargets Placer::targets() const {
  static const std::vector<Box> none;
  local::LoadTargets out;
  out.reserve(targets_.size());
  for (const Target& target : targets_) {
    const LayoutEntry& entry = state_.layout()->entries()[target.entry];
    const bool is_tensor = entry.kind == LayoutEntry::Kind::tensor;
    out.add(state_.fqn_of(target.entry), entry.kind, entry.dtype, entry.shape,
            is_tensor ? state_.values()[target.entry].shards().boxes : none);
  }
  return out;
}

uint64_t Placer::bytes_wanted() const {
  uint64_t bytes = 0;
  for (const Target& target : targets_) {
    bytes += wanted_elements(target) * state_.values()[target.entry].element_bytes;
  }
  return bytes;
}

Status Placer::place(const local::LoadedPiece& piece, ByteView window) {
  SHOAL_RETURN_IF_ERROR(expect(piece));
  if (piece.slab_offset > window.size() || piece.bytes > window.size() - piece.slab_offset) {
    return corrupt(state_.fqn_of(targets_[piece.target].entry), "that exceeds the window");
  }
  const ByteView bytes = window.subspan(piece.slab_offset, piece.bytes);
  return arrived(piece.target, copy(piece, piece.piece_offset, bytes));
}

Status Placer::expect(const local::StoredRange& range) {
  if (range.target >= targets_.size())
    return Status(Code::corrupt, "the node sent a piece of an unknown target");
  const uint32_t number = targets_[range.target].entry;
  const std::string& fqn = state_.layout()->entries()[number].fqn;
  if (range.piece_offset > range.piece_bytes || range.bytes > range.piece_bytes - range.piece_offset) {
    return corrupt(fqn, "that exceeds its own length");
  }
  if (state_.entry_of(number).object) return expect_object(range.target, range.piece_bytes);
  const uint64_t element_bytes = state_.values()[number].element_bytes;
  if (!validate_box(range.box, state_.layout()->entries()[number].shape).ok()) {
    return corrupt(fqn, "that is outside of the tensor's shape");
  }
  if (range.piece_bytes % element_bytes != 0 || range.box.elements() != range.piece_bytes / element_bytes) {
    return corrupt(fqn, "whose length does not fit its box");
  }
  if (range.piece_offset % element_bytes != 0 || range.bytes % element_bytes != 0) {
    return corrupt(fqn, "that cuts an element");
  }
  return ok_status();
}

Status Placer::expect_object(uint32_t number, uint64_t bytes) {
  Target& target = targets_[number];
  std::string& object = objects_[number];
  if (!target.seen) {
    if (bytes > local::kMaxSlabBytes) return corrupt(state_.fqn_of(target.entry), "that is too long");
    try {
      object.resize(bytes);
    } catch (const std::bad_alloc&) {
      return Status(Code::no_space,
                    fmt::format("'{}': cannot allocate {} bytes", state_.fqn_of(target.entry), bytes));
    }
    target.seen = true;
  }
  if (object.size() != bytes)
    return corrupt(state_.fqn_of(target.entry), "with a different length than before");
  return ok_status();
}

uint64_t Placer::copy(const local::StoredRange& range, uint64_t piece_offset, ByteView bytes) {
  const Target& target = targets_[range.target];
  if (state_.entry_of(target.entry).object) {
    std::string& object = objects_.find(range.target)->second;
    if (!bytes.empty()) std::memcpy(object.data() + piece_offset, bytes.data(), bytes.size());
    return bytes.size();
  }
  const uint64_t element_bytes = state_.values()[target.entry].element_bytes;
  SHOAL_CHECK(piece_offset % element_bytes == 0 && bytes.size() % element_bytes == 0);
  const uint64_t begin = piece_offset / element_bytes;
  const uint64_t end = begin + bytes.size() / element_bytes;
  if (begin == end) return 0;
  const std::vector<Box>& held = state_.values()[target.entry].shards().boxes;
  uint64_t copied = 0;
  for (const Box& part : boxes_of_range(range.box, begin, end)) {
    // The part is contiguous in the stored piece.
    const std::byte* source = bytes.data() + (*contiguous_offset(range.box, part) - begin) * element_bytes;
    for (uint32_t i = 0; i < held.size(); ++i) copied += copy_part(target, i, held[i], part, source);
  }
  if (bytes_done_ != nullptr) bytes_done_->fetch_add(copied * element_bytes, std::memory_order_relaxed);
  return copied;
}

Status Placer::arrived(uint32_t number, uint64_t count) {
  Target& target = targets_[number];
  const uint64_t before = target.arrived_elements;
  target.arrived_elements += count;
  if (state_.entry_of(target.entry).object) {
    bytes_placed_ += count;
    return ok_status();
  }
  bytes_placed_ += count * state_.values()[target.entry].element_bytes;
  if (!on_verified_) return ok_status();
  const uint64_t wanted = wanted_elements(target);
  const bool is_last = before < wanted && target.arrived_elements == wanted;
  return is_last ? on_verified_(state_.fqn_of(target.entry)) : ok_status();
}

// Copies the intersection of `part` and the local box to every copy of the box. `source` has the row-major
// elements of `part`.
uint64_t Placer::copy_part(const Target& target, uint32_t local_box, const Box& held, const Box& part,
                           const std::byte* source) const {
  const std::optional<Box> shared = intersect(held, part);
  if (!shared) return 0;
  const uint64_t element_bytes = state_.values()[target.entry].element_bytes;
  for (size_t i = 0; i < state_.copies_of(target.entry, local_box); ++i) {
    const BoundState::Home home = state_.home_of(target.entry, local_box, i);
    if (upload_ != nullptr) {
      const MemoryRef memory = state_.memory_of(target.entry, local_box, i);
      if (memory.is_on_device()) {  // finish() returns the error
        (void)upload_->put({memory.device(), memory.stream()},
                           device_copies(home, held, part, *shared, source, element_bytes));
        continue;
      }
    }
    for_each_run_to(home, held, part, *shared, [&](uint64_t from, uint64_t to, uint64_t count) {
      base::stream_copy(home.data + to * element_bytes, source + from * element_bytes, count * element_bytes);
    });
  }
  return shared->elements();
}

// Replaces all objects or none: it reserves memory for all of them first.
Status Placer::replace_objects() {
  for (auto& [i, object] : objects_) {
    const StateDict::Entry& entry = state_.entry_of(targets_[i].entry);
    try {
      entry.object.reserve(object.size());
    } catch (const std::bad_alloc&) {
      return Status(Code::no_space, fmt::format("'{}': cannot allocate {} bytes", entry.fqn, object.size()));
    }
  }
  for (auto& [i, object] : objects_) state_.entry_of(targets_[i].entry).object.replace(std::move(object));
  return ok_status();
}

Status Placer::finish() {
  if (upload_ != nullptr) SHOAL_RETURN_IF_ERROR(upload_->finish());
  for (uint32_t i = 0; i < targets_.size(); ++i) {
    const Target& target = targets_[i];
    const bool is_object = static_cast<bool>(state_.entry_of(target.entry).object);
    if (is_object && !target.seen) {
      return Status(Code::internal,
                    fmt::format("'{}': the node sent none of its bytes", state_.fqn_of(target.entry)));
    }
    const uint64_t wanted = is_object ? objects_.at(i).size() : wanted_elements(target);
    if (target.arrived_elements != wanted) {
      return Status(Code::internal,
                    fmt::format("'{}': {} of {} {} arrived", state_.fqn_of(target.entry),
                                target.arrived_elements, wanted, is_object ? "bytes" : "elements"));
    }
  }
  return replace_objects();
}

}  // namespace shoal::client
