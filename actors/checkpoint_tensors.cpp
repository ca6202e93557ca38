#include "actors/checkpoint_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "actors/executor/piece_reader.h"
#include "actors/loader/read_plan.h"
#include "actors/loader/stored_checkpoint.h"
#include "base/digest/digest.h"

namespace shoal::actors {

namespace {

constexpr uint64_t kTensorReadBytes = 8 * base::kDigestBlockBytes;  // of a piece, at a time
static_assert(kTensorReadBytes % base::kDigestBlockBytes == 0);

// Where the elements of a window belong: boxes of the tensor, one after another in `out`.
struct ElementWindow {
  std::vector<Box> boxes;
  MutableByteView out;
  uint64_t element_bytes = 1;

  // Copies what the window needs of the elements [begin, end) of a stored piece. Returns how many it copied.
  uint64_t copy(const Box& piece, uint64_t begin, uint64_t end, ByteView source) const {
    uint64_t copied = 0, source_at = 0;
    for (const Box& part : boxes_of_range(piece, begin, end)) {
      uint64_t out_at = 0;
      for (const Box& box : boxes) {
        for_each_run(part, box, [&](uint64_t from, uint64_t to, uint64_t count) {
          std::memcpy(out.data() + (out_at + to) * element_bytes,
                      source.data() + (source_at + from) * element_bytes, count * element_bytes);
          copied += count;
        });
        out_at += box.elements();
      }
      source_at += part.elements();
    }
    return copied;
  }
};

}  // namespace

struct CheckpointTensors::Impl {
  Impl(storage::Storage& storage, std::shared_ptr<const storage::Decision> committed)
      : stored(std::move(committed)), pieces(storage) {}
  StoredCheckpoint stored;
  PieceReader pieces;
  Bytes blocks;
  DamageList damage;
};

CheckpointTensors::CheckpointTensors(storage::Storage& storage,
                                     std::shared_ptr<const storage::Decision> committed)
    : impl_(std::make_unique<Impl>(storage, std::move(committed))) {}

CheckpointTensors::~CheckpointTensors() = default;

const DamageList& CheckpointTensors::damage() const {
  return impl_->damage;
}

Status CheckpointTensors::read(const std::string& fqn, DType dtype, const Dims& shape, uint64_t begin,
                               uint64_t end, MutableByteView out) {
  if (begin == end) return ok_status();
  return read_boxes(fqn, dtype, shape, boxes_of_range(whole(shape), begin, end), out);
}

Status CheckpointTensors::read_boxes(const std::string& fqn, DType dtype, const Dims& shape,
                                     const std::vector<Box>& boxes, MutableByteView out) {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t element_bytes, dtype_bytes(dtype));
  const ElementWindow window{boxes, out, element_bytes};
  uint64_t elements = 0, copied = 0;
  for (const Box& box : boxes) elements += box.elements();
  local::LoadTargets targets{{fqn, LayoutEntry::Kind::tensor, dtype, shape, window.boxes}};
  SHOAL_ASSIGN_OR_RETURN(const ReadPlan plan, plan_reads(impl_->stored, targets));
  impl_->blocks.resize(kTensorReadBytes);
  for (const PlannedRead& read : plan.reads) {
    const Box piece = plan.pieces->box(read.piece);
    const auto ref = plan.pieces->ref(read.piece);
    for (uint64_t at = read.begin; at < read.end; at += kTensorReadBytes) {
      const uint64_t to = std::min(read.end, at + kTensorReadBytes);
      SHOAL_RETURN_IF_ERROR(impl_->pieces.read({ref, at, to, 0}, impl_->blocks, &impl_->damage));
      copied += window.copy(piece, at / element_bytes, to / element_bytes, impl_->blocks);
    }
  }
  if (copied == elements) return ok_status();
  return Status(Code::corrupt,
                fmt::format("'{}': the pieces of the checkpoint hold {} of {} elements from {}", fqn, copied,
                            elements, to_string(boxes.front())));
}

namespace {

Result<std::shared_ptr<const operation::PieceRef>> piece_of_object(StoredCheckpoint& stored,
                                                                   const std::string& fqn) {
  local::LoadTargets targets{{fqn, LayoutEntry::Kind::object, DType::u8, {}, {}}};
  SHOAL_ASSIGN_OR_RETURN(const ReadPlan plan, plan_reads(stored, targets));
  if (!plan.objects.empty()) return plan.pieces->ref(plan.objects.front().piece);
  return Status(Code::corrupt, fmt::format("'{}': no file of the checkpoint holds this object", fqn));
}

// Empty if the header cannot be read.
std::vector<uint64_t> digests_of(PieceReader& pieces, std::shared_ptr<const operation::PieceRef> piece,
                                 uint64_t bytes) {
  return pieces.locate({{std::move(piece), 0, bytes, 0}}).digests;
}

}  // namespace

Status CheckpointTensors::read_object(const std::string& fqn, uint64_t begin, uint64_t end,
                                      MutableByteView out) {
  SHOAL_ASSIGN_OR_RETURN(const auto piece, piece_of_object(impl_->stored, fqn));
  return impl_->pieces.read({piece, begin, end, 0}, out, &impl_->damage);
}

Result<std::vector<CheckpointTensors::Piece>> CheckpointTensors::pieces(const std::string& fqn,
                                                                        LayoutEntry::Kind kind, DType dtype,
                                                                        const Dims& shape) {
  std::vector<Piece> out;
  if (kind == LayoutEntry::Kind::object) {
    SHOAL_ASSIGN_OR_RETURN(const auto piece, piece_of_object(impl_->stored, fqn));
    SHOAL_ASSIGN_OR_RETURN(const uint64_t bytes, impl_->pieces.measure(*piece));
    out.push_back({Box{}, bytes, digests_of(impl_->pieces, piece, bytes)});
    return out;
  }
  local::LoadTargets targets{{fqn, kind, dtype, shape, {whole(shape)}}};
  SHOAL_ASSIGN_OR_RETURN(const ReadPlan plan, plan_reads(impl_->stored, targets));
  for (const PlannedRead& read : plan.reads) {
    const auto ref = plan.pieces->ref(read.piece);
    out.push_back({ref->box, read.piece_bytes, digests_of(impl_->pieces, ref, read.piece_bytes)});
  }
  std::ranges::sort(out, {}, &Piece::box);
  return out;
}

}  // namespace shoal::actors
