#include "local/messages/load_targets.h"

#include <algorithm>
#include <limits>

namespace shoal::local {

static_assert(kMaxFqnBytes <= std::numeric_limits<uint16_t>::max());
static_assert(kMaxDims <= std::numeric_limits<uint8_t>::max());

LoadTargets::Table& LoadTargets::own() {
  if (!table_) {
    table_ = std::make_shared<Table>();
  } else if (table_.use_count() != 1) {
    table_ = std::make_shared<Table>(*table_);
  }
  return *table_;
}

std::string_view LoadTargets::fqn(size_t at) const {
  const Entry& entry = table_->entries[at];
  return {table_->names.data() + entry.name_at, entry.fqn_bytes};
}

void LoadTargets::read(size_t at, LoadTarget& out) const {
  const Entry& entry = table_->entries[at];
  out.fqn = fqn(at);
  out.kind = entry.kind;
  out.dtype = entry.dtype;
  const uint64_t* number = table_->numbers.data() + entry.numbers_at;
  out.shape.assign(number, number + entry.dims);
  out.boxes.resize(entry.boxes);
  if (entry.is_whole) {
    out.boxes[0].offsets.assign(entry.dims, 0);
    out.boxes[0].sizes = out.shape;
    return;
  }
  for (Box& box : out.boxes) {
    number += entry.dims;
    box.offsets.assign(number, number + entry.dims);
    number += entry.dims;
    box.sizes.assign(number, number + entry.dims);
  }
}

void LoadTargets::reserve(size_t size) {
  own().entries.reserve(size);
}

void LoadTargets::add(std::string_view fqn, LayoutEntry::Kind kind, DType dtype, const Dims& shape,
                      const std::vector<Box>& boxes) {
  SHOAL_CHECK(fqn.size() <= kMaxFqnBytes && shape.size() <= kMaxDims);
  Table& table = own();
  Entry entry;
  entry.name_at = table.names.size();
  entry.numbers_at = table.numbers.size();
  entry.boxes = static_cast<uint32_t>(boxes.size());
  entry.fqn_bytes = static_cast<uint16_t>(fqn.size());
  entry.dims = static_cast<uint8_t>(shape.size());
  entry.kind = kind;
  entry.dtype = dtype;
  entry.is_whole = boxes.size() == 1 && boxes[0].sizes == shape &&
                   std::ranges::all_of(boxes[0].offsets, [](uint64_t offset) { return offset == 0; });
  table.names.insert(table.names.end(), fqn.begin(), fqn.end());
  table.numbers.insert(table.numbers.end(), shape.begin(), shape.end());
  for (const Box& box : boxes) {
    if (entry.is_whole) break;
    SHOAL_CHECK(box.offsets.size() == shape.size() && box.sizes.size() == shape.size());
    table.numbers.insert(table.numbers.end(), box.offsets.begin(), box.offsets.end());
    table.numbers.insert(table.numbers.end(), box.sizes.begin(), box.sizes.end());
  }
  table.entries.push_back(entry);
}

}  // namespace shoal::local
