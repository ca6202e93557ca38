#include "actors/planner/staged_assignment.h"

#include <algorithm>
#include <tuple>

namespace shoal::actors {
namespace {

// The staged piece that holds [offset, offset + bytes) of a local box; null if none does.
const local::StagedPiece* find_staged(const local::Staged& staged, uint32_t entry, uint32_t local_box,
                                      uint64_t offset, uint64_t bytes) {
  auto after =
      std::upper_bound(staged.pieces.begin(), staged.pieces.end(), std::tuple(entry, local_box, offset),
                       [](const auto& wanted, const local::StagedPiece& piece) {
                         return wanted < std::tuple(piece.entry, piece.local_box, piece.local_offset);
                       });
  if (after == staged.pieces.begin()) return nullptr;
  const local::StagedPiece& piece = *std::prev(after);
  if (piece.entry != entry || piece.local_box != local_box) return nullptr;
  const uint64_t within = offset - piece.local_offset;
  if (within > piece.bytes || bytes > piece.bytes - within) return nullptr;
  return &piece;
}

}  // namespace

Result<std::vector<operation::WriteShard>> shard_writes(const Layout& layout, const SavePlan& plan,
                                                        const AttemptKey& key, ClientId client,
                                                        const local::Staged& staged) {
  auto wrong = [&](const std::string& what) {
    return Status(Code::invalid_argument, "rank " + std::to_string(plan.rank) + " " + what);
  };
  if (staged.layout_id != layout.id()) {
    return wrong("staged layout " + staged.layout_id.short_hex() + ", but the roster in force gives it " +
                 layout.id().short_hex());
  }
  if (!staged.roster_id.is_zero() && staged.roster_id != plan.roster_id) {
    return wrong("staged under roster " + staged.roster_id.short_hex() + ", but roster " +
                 plan.roster_id.short_hex() + " is in force");
  }
  const std::vector<std::string> keys = item_keys(layout, plan);
  std::vector<operation::WriteShard> writes(plan.files);
  for (uint32_t file = 0; file < plan.files; ++file) {
    writes[file].key = key;
    writes[file].rank = plan.rank;
    writes[file].file = file;
    writes[file].in_parts = staged.in_parts;
  }
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const WriteItem& item = plan.items[i];
    const LayoutEntry& entry = layout.entries()[item.entry];
    const bool is_object = entry.kind == LayoutEntry::Kind::object;
    const local::StagedPiece* piece =
        find_staged(staged, item.entry, item.local_box, item.local_offset, item.bytes);
    if (piece == nullptr && (is_object || item.bytes != 0)) {
      return wrong("did not stage its part of '" + value_fqn(entry, plan.rank) + "' " + to_string(item.box));
    }
    storage::ShardPiece shard_piece{
        keys[i], value_fqn(entry, plan.rank), entry.dtype, is_object, entry.shape, item.box, item.bytes};
    SlabRange range{client, staged.slab_id, 0, item.bytes};
    if (piece != nullptr) range.offset = piece->slab_offset + (item.local_offset - piece->local_offset);
    if (is_object) shard_piece.bytes = range.bytes = piece->bytes;
    writes[item.file].pieces.push_back(std::move(shard_piece));
    writes[item.file].data.push_back(range);
  }
  return writes;
}

}  // namespace shoal::actors
