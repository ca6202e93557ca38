#include "sim/cluster/received_values.h"

#include "shoal/dtype.h"

namespace shoal::sim {

namespace {

constexpr uint64_t kMaxMarkedElements = uint64_t{1} << 20;  // of a tensor whose elements are marked

// Calls visit(index in the box, index in the tensor) for each element of a box.
template <class Visit>
void for_each_element(const Dims& shape, const Box& box, Visit visit) {
  const size_t dims = shape.size();
  std::vector<uint64_t> at(dims);
  const uint64_t count = box.elements();
  for (uint64_t in_box = 0; in_box < count; ++in_box) {
    uint64_t in_tensor = 0;
    for (size_t d = 0; d < dims; ++d) in_tensor = in_tensor * shape[d] + box.offsets[d] + at[d];
    visit(in_box, in_tensor);
    for (size_t d = dims; d-- > 0;) {
      if (++at[d] < box.sizes[d]) break;
      at[d] = 0;
    }
  }
}

bool is_marked(const local::LoadTarget& target) {
  return target.kind != LayoutEntry::Kind::object &&
         element_count(target.shape).value_or(0) <= kMaxMarkedElements;
}

}  // namespace

void ReceivedValues::add(const local::LoadTarget& target, const local::StoredRange& range) {
  if (!is_marked(target)) return;
  std::vector<bool>& marked = received_[range.target];
  marked.resize(element_count(target.shape).value_or(0));
  const uint64_t element_bytes = dtype_bytes(target.dtype).value();
  const uint64_t first = range.piece_offset / element_bytes;
  for_each_element(target.shape, range.box, [&](uint64_t in_box, uint64_t in_tensor) {
    if (in_box >= first && in_box < first + range.bytes / element_bytes) marked[in_tensor] = true;
  });
}

std::optional<std::string> ReceivedValues::incomplete(const local::LoadTargets& targets) const {
  for (size_t i = 0; i < targets.size(); ++i) {
    const local::LoadTarget target = targets[i];
    if (!is_marked(target)) continue;
    const auto marked = received_.find(static_cast<uint32_t>(i));
    bool has_all = true;
    for (const Box& box : target.boxes) {
      for_each_element(target.shape, box, [&](uint64_t, uint64_t in_tensor) {
        has_all = has_all && marked != received_.end() && marked->second[in_tensor];
      });
    }
    if (!has_all) return target.fqn;
  }
  return std::nullopt;
}

}  // namespace shoal::sim
