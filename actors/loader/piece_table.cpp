#include "actors/loader/piece_table.h"

#include <algorithm>
#include <limits>

namespace shoal::actors {

static_assert(kMaxFqnBytes <= std::numeric_limits<uint16_t>::max());
static_assert(storage::kMaxShardKeyBytes <= std::numeric_limits<uint16_t>::max());
static_assert(kMaxDims <= std::numeric_limits<uint8_t>::max());

Box PieceTable::box(uint32_t piece) const {
  const Entry& entry = entries_[piece];
  const uint64_t* sizes = numbers_.data() + entry.numbers_at;
  Box box;
  box.sizes.assign(sizes, sizes + entry.dims);
  if (entry.is_at_origin) {
    box.offsets.assign(entry.dims, 0);
  } else {
    box.offsets.assign(sizes + entry.dims, sizes + 2 * entry.dims);
  }
  return box;
}

operation::PiecePlace PieceTable::place(uint32_t file, std::string_view piece_key) const {
  operation::PiecePlace place = files_[file];
  place.piece_key = piece_key;
  return place;
}

std::shared_ptr<const operation::PieceRef> PieceTable::ref(uint32_t piece) const {
  if (piece < refs_.size()) return refs_[piece];
  const Entry& entry = entries_[piece];
  auto ref = std::make_shared<operation::PieceRef>();
  static_cast<operation::PiecePlace&>(*ref) = place(entry.file, text(key_of(entry)));
  ref->key = key_;
  ref->fqn = text(fqn_of(entry));
  ref->kind = entry.kind;
  ref->dtype = entry.dtype;
  ref->box = box(piece);
  ref->copies.reserve(entry.copies);
  for (uint32_t i = 0; i < entry.copies; ++i) {
    const Copy& copy = copies_[entry.first_copy + i];
    ref->copies.push_back(place(copy.file, text(copy.key)));
  }
  return ref;
}

uint32_t PieceTable::number_of(const operation::PiecePlace& file) {
  if (!entries_.empty() && files_[entries_.back().file].file_name == file.file_name)
    return entries_.back().file;
  auto [found, fresh] = file_numbers_.try_emplace(file.file_name, static_cast<uint32_t>(files_.size()));
  if (fresh) {
    files_.push_back(file);
    files_.back().piece_key.clear();
  }
  return found->second;
}

void PieceTable::reserve(size_t pieces, size_t name_bytes) {
  entries_.reserve(pieces);
  names_.reserve(name_bytes);
}

PieceTable::Name PieceTable::add_name(std::string_view name) {
  SHOAL_CHECK(name.size() <= std::numeric_limits<uint16_t>::max());
  const Name added{names_.size(), static_cast<uint16_t>(name.size())};
  names_.insert(names_.end(), name.begin(), name.end());
  return added;
}

uint32_t PieceTable::add(const operation::PiecePlace& place, std::string_view fqn, LayoutEntry::Kind kind,
                         DType dtype, const Box& box) {
  SHOAL_CHECK(refs_.empty() && numbers_.size() <= std::numeric_limits<uint32_t>::max());
  Entry entry;
  entry.file = number_of(place);
  const Name name = add_name(fqn);
  entry.name_at = name.at;
  entry.fqn_bytes = name.bytes;
  if (place.piece_key != fqn) entry.key_bytes = add_name(place.piece_key).bytes;
  entry.numbers_at = static_cast<uint32_t>(numbers_.size());
  entry.first_copy = static_cast<uint32_t>(copies_.size());
  entry.dims = static_cast<uint8_t>(box.dims());
  entry.kind = kind;
  entry.dtype = dtype;
  entry.is_at_origin = std::ranges::all_of(box.offsets, [](uint64_t offset) { return offset == 0; });
  numbers_.insert(numbers_.end(), box.sizes.begin(), box.sizes.end());
  if (!entry.is_at_origin) numbers_.insert(numbers_.end(), box.offsets.begin(), box.offsets.end());
  entries_.push_back(entry);
  return size() - 1;
}

void PieceTable::add_copy(const operation::PiecePlace& place) {
  const uint32_t file = number_of(place);
  Entry& entry = entries_.back();
  copies_.push_back(
      {file, place.piece_key == text(key_of(entry)) ? key_of(entry) : add_name(place.piece_key)});
  ++entry.copies;
}

uint32_t PieceTable::add(const operation::PieceRef& piece) {
  const uint32_t number = add(piece, piece.fqn, piece.kind, piece.dtype, piece.box);
  for (const operation::PiecePlace& copy : piece.copies) add_copy(copy);
  return number;
}

void PieceTable::hold_refs() const {
  if (refs_.size() == size()) return;
  std::vector<std::shared_ptr<const operation::PieceRef>> refs;
  refs.reserve(size());
  for (uint32_t piece = 0; piece < size(); ++piece) refs.push_back(ref(piece));
  refs_ = std::move(refs);
}

}  // namespace shoal::actors
