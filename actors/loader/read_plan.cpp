#include "actors/loader/read_plan.h"

#include <algorithm>
#include <map>

#include "base/digest/digest.h"

namespace shoal::actors {
namespace {

constexpr size_t kDifferencesNamed = 4;

std::string describe_value(LayoutEntry::Kind kind, DType dtype, const Dims& shape) {
  if (kind == LayoutEntry::Kind::object) return "an object";
  std::string text = std::string(dtype_name(dtype)) + "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

std::optional<operation::PiecePlace> place_in(const storage::FileEntry* file, Result<std::string> key) {
  if (!file || !key.ok()) return std::nullopt;
  return operation::PiecePlace{file->rank, file->name, file->size, file->header_digest,
                               std::move(key).value()};
}

// Adds the blocks that [begin, end) touches to ascending, disjoint runs. Calls must come in ascending order.
void add_blocks(std::vector<std::pair<uint64_t, uint64_t>>& runs, uint64_t begin, uint64_t end,
                uint64_t piece_bytes) {
  begin = begin / base::kDigestBlockBytes * base::kDigestBlockBytes;
  end = std::min(piece_bytes,
                 (end + base::kDigestBlockBytes - 1) / base::kDigestBlockBytes * base::kDigestBlockBytes);
  if (!runs.empty() && begin <= runs.back().second) {
    runs.back().second = std::max(runs.back().second, end);
  } else {
    runs.emplace_back(begin, end);
  }
}

std::vector<std::pair<uint64_t, uint64_t>> merge(std::vector<std::pair<uint64_t, uint64_t>> runs) {
  std::sort(runs.begin(), runs.end());
  std::vector<std::pair<uint64_t, uint64_t>> merged;
  for (const auto& run : runs) {
    if (!merged.empty() && run.first <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, run.second);
    } else {
      merged.push_back(run);
    }
  }
  return merged;
}

}  // namespace

local::Found found_by(const local::Load& request, const storage::Decision& committed, Metadata metadata,
                      const PassedOverPtr& passed_over) {
  const storage::Manifest& manifest = committed.manifest();
  local::Found found{request.request_id, ok_status(), std::move(metadata)};
  found.passed_over = passed_over;
  if (request.of == 0 && !request.wants_layouts) found.values_of = manifest.world;
  if (request.wants_layouts) {
    found.layouts = local::StoredLayouts{manifest.world, manifest.rule_version, manifest.options};
    if (manifest.encoded) found.layouts->encoded = {manifest.encoded, &manifest.encoded->world};
  }
  return found;
}

Status compare_targets(const plan::Locator& locator, const local::LoadTargets& targets) {
  std::string report;
  size_t missing = 0, different = 0;
  auto name = [&](const std::string& line) {
    if (missing + different <= kDifferencesNamed) report += (report.empty() ? "" : "; ") + line;
  };
  local::LoadTarget target;
  for (size_t t = 0; t < targets.size(); ++t) {
    targets.read(t, target);
    auto stored = locator.value(target.fqn);
    if (!stored.ok()) {
      ++missing;
      name("missing '" + target.fqn + "'");
    } else if (stored->kind != target.kind ||
               (target.kind == LayoutEntry::Kind::tensor &&
                (stored->dtype != target.dtype || stored->shape != target.shape))) {
      ++different;
      name("'" + target.fqn + "' is " + describe_value(stored->kind, stored->dtype, stored->shape) +
           " in the checkpoint, " + describe_value(target.kind, target.dtype, target.shape) + " here");
    }
  }
  if (missing + different == 0) return ok_status();
  if (missing + different > kDifferencesNamed) {
    report += "; and " + std::to_string(missing + different - kDifferencesNamed) + " more";
  }
  return Status(Code::key_mismatch, report);
}

Result<ReadPlan> plan_reads(StoredCheckpoint& stored, const local::LoadTargets& targets) {
  plan::Locator& locator = stored.locator();
  auto table = std::make_shared<PieceTable>(stored.key());
  ReadPlan plan;
  plan.reads.reserve(targets.size());  // most targets have one
  size_t name_bytes = 0;
  for (uint32_t t = 0; t < targets.size(); ++t) name_bytes += targets.fqn(t).size();
  table->reserve(targets.size(), name_bytes);
  local::LoadTarget target;
  for (uint32_t t = 0; t < targets.size(); ++t) {
    targets.read(t, target);
    const bool is_object = target.kind == LayoutEntry::Kind::object;
    std::vector<Box> boxes = is_object ? std::vector<Box>{Box{}} : target.boxes;
    struct Touched {
      std::vector<std::pair<uint64_t, uint64_t>> runs;
    };
    std::map<plan::StoredPiece, Touched> touched;
    uint64_t element_bytes = 1;
    if (!is_object) {
      SHOAL_ASSIGN_OR_RETURN(element_bytes, dtype_bytes(target.dtype));
    }
    for (const Box& box : boxes) {
      SHOAL_RETURN_IF_ERROR(validate_box(box, is_object ? Dims{} : target.shape).with_context(target.fqn));
      SHOAL_ASSIGN_OR_RETURN(std::vector<plan::StoredPiece> pieces, locator.pieces(target.fqn, box));
      for (const plan::StoredPiece& piece : pieces) {
        Touched& here = touched[piece];
        if (is_object || piece.box.empty()) continue;
        const uint64_t piece_bytes = piece.box.elements() * element_bytes;
        std::vector<std::pair<uint64_t, uint64_t>> runs;
        for_each_run(piece.box, box, [&](uint64_t at, uint64_t, uint64_t count) {
          add_blocks(runs, at * element_bytes, (at + count) * element_bytes, piece_bytes);
        });
        here.runs.insert(here.runs.end(), runs.begin(), runs.end());
      }
    }
    for (auto& [piece, what] : touched) {
      const storage::FileEntry* file = stored.file_of(piece.rank, piece.file);
      if (file == nullptr) {
        return Status(Code::corrupt, to_string(stored.key()) + ": the manifest lists no " +
                                         shard_file_name(piece.rank, piece.file) + ", which holds '" +
                                         target.fqn + "' " + to_string(piece.box));
      }
      SHOAL_ASSIGN_OR_RETURN(std::string key, stored.key_of(piece, target.fqn));
      const uint32_t number =
          table->add(*place_in(file, std::move(key)), target.fqn, target.kind, target.dtype, piece.box);
      SHOAL_ASSIGN_OR_RETURN(std::vector<plan::StoredPiece> copies,
                             locator.copies(target.fqn, piece, kMaxCopies));
      for (const plan::StoredPiece& copy : copies) {
        auto place = place_in(stored.file_of(copy.rank, copy.file), stored.key_of(copy, target.fqn));
        if (place) table->add_copy(*place);
      }
      if (is_object) {
        plan.objects.push_back({t, number});
        continue;
      }
      const uint64_t piece_bytes = piece.box.elements() * element_bytes;
      for (const auto& [begin, end] : merge(std::move(what.runs))) {
        plan.reads.push_back({t, number, piece_bytes, begin, end});
      }
    }
  }
  const auto by_file = [&](const PlannedRead& a, const PlannedRead& b) {
    return !table->same_file(a.piece, b.piece) && table->file_name(a.piece) < table->file_name(b.piece);
  };
  if (!std::ranges::is_sorted(plan.reads, by_file)) std::ranges::stable_sort(plan.reads, by_file);
  plan.pieces = std::move(table);
  return plan;
}

std::vector<PlannedRead> object_reads(const std::vector<PlannedObject>& objects,
                                      const std::vector<uint64_t>& lengths) {
  SHOAL_CHECK(objects.size() == lengths.size());
  std::vector<PlannedRead> reads;
  for (size_t i = 0; i < objects.size(); ++i) {
    reads.push_back({objects[i].target, objects[i].piece, lengths[i], 0, lengths[i]});
  }
  return reads;
}

ReadBatches::ReadBatches(std::shared_ptr<const PieceTable> pieces, PlannedReads reads, uint64_t part_bytes)
    : pieces_(std::move(pieces)),
      reads_(std::make_shared<const PlannedReads>(std::move(reads))),
      part_bytes_(part_bytes) {
  find_starts();
}

ReadBatches::ReadBatches(std::shared_ptr<const ReadPlan> plan, uint64_t part_bytes)
    : pieces_(plan->pieces), reads_(plan, &plan->reads), part_bytes_(part_bytes) {
  find_starts();
}

void ReadBatches::find_starts() {
  SHOAL_CHECK(part_bytes_ >= base::kDigestBlockBytes && part_bytes_ % base::kDigestBlockBytes == 0);
  if (reads_->empty()) return;
  Start at{0, reads_->front().begin};
  while (at.read < reads_->size()) {
    starts_.push_back(at);
    cut(at, nullptr);
  }
}

void ReadBatches::cut(Start& at, ReadBatchPlan* batch) const {
  uint64_t used = 0;
  for (size_t count = 0; at.read < reads_->size() && count < kMaxRangesPerBatch; ++count) {
    const PlannedRead& read = (*reads_)[at.read];
    const uint64_t left = read.end - at.begin;
    uint64_t room = part_bytes_ - used;
    if (room < std::min(left, base::kDigestBlockBytes)) return;
    if (room < left) room = room / base::kDigestBlockBytes * base::kDigestBlockBytes;
    const uint64_t end = at.begin + std::min(left, room);
    if (batch != nullptr) {
      batch->reads.push_back(read);
      batch->reads.back().begin = at.begin;
      batch->reads.back().end = end;
      batch->offsets.push_back(used);
    }
    used += end - at.begin;
    at.begin = end;
    if (end < read.end) continue;
    ++at.read;
    if (at.read < reads_->size()) at.begin = (*reads_)[at.read].begin;
  }
}

ReadBatchPlan ReadBatches::operator[](size_t batch) const {
  ReadBatchPlan out;
  Start at = starts_[batch];
  cut(at, &out);
  return out;
}

std::vector<operation::ReadRange> ReadBatches::ranges_of(size_t batch, uint64_t slab_offset) const {
  const ReadBatchPlan planned = (*this)[batch];
  std::vector<operation::ReadRange> ranges;
  ranges.reserve(planned.reads.size());
  for (size_t i = 0; i < planned.reads.size(); ++i) {
    const PlannedRead& each = planned.reads[i];
    ranges.push_back({pieces_->ref(each.piece), each.begin, each.end, slab_offset + planned.offsets[i]});
  }
  return ranges;
}

}  // namespace shoal::actors
