#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "client/state_dict_internal.h"

namespace shoal {

namespace {

using Entry = StateDict::Entry;

Status bad(const std::string& fqn, std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("'{}': {}", fqn, what));
}

bool same_entry(const Entry& a, const Entry& b) {
  auto same_box = [](const StateDict::BoxData& x, const StateDict::BoxData& y) { return x.box == y.box; };
  return a.form == b.form && a.fqn == b.fqn && a.dtype == b.dtype && a.shape == b.shape &&
         a.replicated == b.replicated && a.placements == b.placements && a.mesh == b.mesh &&
         std::equal(a.boxes.begin(), a.boxes.end(), b.boxes.begin(), b.boxes.end(), same_box);
}

// The name under which this rank's layout has the entry.
std::string fqn_on(const Entry& entry, Rank rank) {
  return entry.form == Entry::Form::rank_object ? rank_fqn(entry.fqn, rank) : entry.fqn;
}

Status check_entry(const Entry& entry, Rank rank) {
  SHOAL_RETURN_IF_ERROR(validate_fqn(entry.fqn));
  SHOAL_RETURN_IF_ERROR(validate_fqn(fqn_on(entry, rank)));
  if (entry.form == Entry::Form::object || entry.form == Entry::Form::rank_object) {
    if (!entry.object) return bad(entry.fqn, "an object without a string");
  } else if (Result<uint64_t> bytes = dtype_bytes(entry.dtype); !bytes.ok()) {
    return bytes.status().with_context(fmt::format("'{}'", entry.fqn));
  }
  if (entry.mesh && !entry.mesh->contains(rank)) {
    return bad(entry.fqn, fmt::format("rank {} is not in its mesh", rank));
  }
  return ok_status();
}

void add_to(LayoutBuilder& builder, const Entry& entry, Rank rank) {
  switch (entry.form) {
    case Entry::Form::mesh:
      return builder.add_tensor(entry.fqn, entry.dtype, entry.shape, *entry.mesh, entry.placements);
    case Entry::Form::boxes: {
      RankBoxes held{rank, {}};
      for (const StateDict::BoxData& box : entry.boxes) held.boxes.push_back(box.box);
      return builder.add_tensor_boxes(entry.fqn, entry.dtype, entry.shape, {std::move(held)},
                                      entry.replicated);
    }
    case Entry::Form::value:
      return builder.add_value(entry.fqn, entry.dtype, entry.shape, entry.mesh, entry.replicated);
    case Entry::Form::object:
      return builder.add_object(entry.fqn, entry.mesh, entry.replicated);
    case Entry::Form::rank_object:
      return builder.add_rank_objects(entry.fqn);
  }
}

// Memory is needed exactly where the rank holds an element.
Status check_memory(const Entry& entry, const LocalShards& shards) {
  if (entry.form == Entry::Form::object || entry.form == Entry::Form::rank_object) {
    return entry.object ? ok_status() : bad(entry.fqn, "an object without a string");
  }
  for (size_t i = 0; i < shards.boxes.size(); ++i) {
    if (shards.boxes[i].empty()) continue;
    const void* data = entry.form == Entry::Form::boxes ? entry.boxes[i].data : entry.data;
    if (!data) return bad(entry.fqn, "no memory is given for what this rank holds");
  }
  return ok_status();
}

}  // namespace

void StateDict::add_tensor(std::string fqn, DType dtype, Dims shape, const Mesh& mesh,
                           std::vector<Placement> placements, void* data) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::mesh;
  entry->fqn = std::move(fqn);
  entry->dtype = dtype;
  entry->shape = std::move(shape);
  entry->mesh = mesh;
  entry->placements = std::move(placements);
  entry->data = data;
  entries_.push_back(std::move(entry));
}

void StateDict::add_tensor_boxes(std::string fqn, DType dtype, Dims shape, std::vector<BoxData> boxes,
                                 bool replicated) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::boxes;
  entry->fqn = std::move(fqn);
  entry->dtype = dtype;
  entry->shape = std::move(shape);
  entry->boxes = std::move(boxes);
  entry->replicated = replicated;
  entries_.push_back(std::move(entry));
}

void StateDict::add_value(std::string fqn, DType dtype, Dims shape, void* data, std::optional<Mesh> group,
                          bool replicated) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::value;
  entry->fqn = std::move(fqn);
  entry->dtype = dtype;
  entry->shape = std::move(shape);
  entry->mesh = std::move(group);
  entry->replicated = replicated;
  entry->data = data;
  entries_.push_back(std::move(entry));
}

void StateDict::add_object(std::string fqn, std::string* bytes, std::optional<Mesh> group, bool replicated) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::object;
  entry->fqn = std::move(fqn);
  entry->mesh = std::move(group);
  entry->replicated = replicated;
  entry->object = bytes;
  entries_.push_back(std::move(entry));
}

void StateDict::add_rank_object(std::string fqn, std::string* bytes) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::rank_object;
  entry->fqn = std::move(fqn);
  entry->object = bytes;
  entries_.push_back(std::move(entry));
}

bool same_structure(const StateEntries& a, const StateEntries& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !same_entry(*a[i], *b[i])) return false;
  }
  return true;
}

Result<BoundState> BoundState::bind(const StateDict& state, Rank rank) {
  BoundState out;
  out.entries_ = state.entries();
  LayoutBuilder builder;
  out.rank_ = rank;
  std::map<std::string, uint32_t> positions;  // by the names that values have on this rank
  for (uint32_t i = 0; i < out.entries_.size(); ++i) {
    const Entry& entry = *out.entries_[i];
    SHOAL_RETURN_IF_ERROR(check_entry(entry, rank));
    add_to(builder, entry, rank);
    if (!positions.emplace(fqn_on(entry, rank), i).second) {
      return Status(Code::invalid_argument, fmt::format("'{}' is given twice", fqn_on(entry, rank)));
    }
  }
  SHOAL_ASSIGN_OR_RETURN(out.layout_, std::move(builder).build());
  for (const LayoutEntry& entry : out.layout_->entries()) {
    Value value;
    value.position = positions.at(value_fqn(entry, rank));
    SHOAL_ASSIGN_OR_RETURN(value.element_bytes, dtype_bytes(entry.dtype));
    value.shards = out.layout_->shards_of(entry, rank);
    const Entry& given = *out.entries_[value.position];
    if (given.form == Entry::Form::value && value.shards.boxes.empty() && !whole(entry.shape).empty()) {
      return bad(entry.fqn, fmt::format("rank {} is not in the group of its siblings", rank));
    }
    SHOAL_RETURN_IF_ERROR(check_memory(given, value.shards));
    out.values_.push_back(std::move(value));
  }
  return out;
}

Status BoundState::rebind(const StateDict& state) {
  for (const Value& value : values_) {
    SHOAL_RETURN_IF_ERROR(check_memory(*state.entries()[value.position], value.shards));
  }
  entries_ = state.entries();
  return ok_status();
}

BoundState::Home BoundState::home_of(uint32_t layout_entry, uint32_t local_box) const {
  const Value& value = values_[layout_entry];
  const Entry& entry = *entries_[value.position];
  if (entry.form == Entry::Form::boxes) {
    const Box itself = whole(value.shards.boxes[local_box].sizes);
    return {static_cast<std::byte*>(entry.boxes[local_box].data), itself, itself};
  }
  return {static_cast<std::byte*>(entry.data), whole(value.shards.local_shape),
          value.shards.local[local_box]};
}

}  // namespace shoal
