#include <fmt/format.h>

#include <algorithm>

#include "client/planners/state_items.h"

namespace shoal::dcp::internal {

ValueShardingPtr sharding_of(const Layout& layout, const LayoutEntry& entry, const StateDict::Entry& given) {
  if (const auto* mesh = std::get_if<MeshSharding>(&entry.sharding)) {
    return std::make_shared<ValueSharding>(
        ValueSharding{ValueSharding::OnMesh{layout.meshes()[mesh->mesh], mesh->placements}});
  }
  if (const auto* group = std::get_if<GroupSharding>(&entry.sharding)) {
    return std::make_shared<ValueSharding>(ValueSharding{ValueSharding::Group{layout.meshes()[group->mesh]}});
  }
  if (std::holds_alternative<DeviceSharding>(entry.sharding)) {
    return std::make_shared<ValueSharding>(ValueSharding{*given.tiles});
  }
  return nullptr;
}

Bytes gather(const std::byte* buffer, const Box& whole, const Box& box, uint64_t element_bytes) {
  Bytes out(box.elements() * element_bytes);
  for_each_run(box, whole, [&](uint64_t to, uint64_t from, uint64_t count) {
    std::memcpy(out.data() + to * element_bytes, buffer + from * element_bytes, count * element_bytes);
  });
  return out;
}

Status StateItems::set_up(const StateDict& state, Rank rank) {
  places_.clear();
  if (bound_ && rank == rank_ && client::same_structure(bound_->entries(), state.entries())) {
    return bound_->rebind(state);
  }
  bound_.reset();
  SHOAL_ASSIGN_OR_RETURN(bound_, client::BoundState::bind(state, rank));
  rank_ = rank;
  return ok_status();
}

std::vector<WriteItem> StateItems::write_items(const KeyRules& keys) {
  std::vector<WriteItem> items;
  places_.clear();
  const std::vector<LayoutEntry>& entries = bound_->layout()->entries();
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const std::optional<std::string> name = keys.stored_name(bound_->entry_of(i).fqn);
    if (!name) continue;
    if (entries[i].kind == LayoutEntry::Kind::object) {
      add_object(*name, i, items);
    } else {
      add_tensor(*name, i, items);
    }
  }
  return items;
}

void StateItems::add_object(const std::string& name, uint32_t entry, std::vector<WriteItem>& out) {
  const LayoutEntry& of = bound_->layout()->entries()[entry];
  WriteItem item;
  item.index.fqn = name;
  item.type = WriteItemType::byte_io;
  item.sharding = sharding_of(*bound_->layout(), of, bound_->entry_of(entry));
  item.replicated = of.replicated;
  item.per_rank = is_per_rank(of);
  places_.insert_or_assign(item.index, Place{entry, 0});
  out.push_back(std::move(item));
}

void StateItems::add_tensor(const std::string& name, uint32_t entry, std::vector<WriteItem>& out) {
  const Layout& layout = *bound_->layout();
  const LayoutEntry& of = layout.entries()[entry];
  if (!layout.holds(of, rank_)) return;
  const client::BoundState::Value& value = bound_->values()[entry];
  WriteItem item;
  item.sharding = sharding_of(layout, of, bound_->entry_of(entry));
  item.replicated = of.replicated;
  item.tensor_data = TensorWriteData{{}, {of.dtype}, of.shape};
  auto add = [&](const Box& box, uint32_t local_box) {
    item.index = {name, box.offsets, static_cast<uint32_t>(local_box)};
    item.type = box == whole(of.shape) ? WriteItemType::tensor : WriteItemType::shard;
    item.tensor_data->chunk = box;
    places_.insert_or_assign(item.index, Place{entry, local_box});
    out.push_back(item);
  };
  const size_t before = out.size();
  for (uint32_t i = 0; i < value.shards().boxes.size(); ++i) {
    if (!value.shards().boxes[i].empty()) add(value.shards().boxes[i], i);
  }
  if (out.size() > before) return;
  // A value without elements on this rank keeps its name, so that ranks of one sharding have one layout.
  Box nothing = whole(of.shape);
  if (!nothing.empty()) std::fill(nothing.sizes.begin(), nothing.sizes.end(), 0);
  add(nothing, 0);
}

Result<StateItems::Place> StateItems::find(const MetadataIndex& index) const {
  auto found = places_.find(index);
  if (found != places_.end()) return found->second;
  return Status(Code::not_found, fmt::format("the planner's state has no item {}", to_string(index)));
}

Result<Data> StateItems::resolve(const MetadataIndex& index) const {
  SHOAL_ASSIGN_OR_RETURN(const Place place, find(index));
  const auto [entry, local_box] = place;
  if (const BytesRef object = bound_->entry_of(entry).object) return Data{object.view(), nullptr};
  const client::BoundState::Value& value = bound_->values()[entry];
  if (local_box >= value.shards().boxes.size() || value.shards().boxes[local_box].empty()) return Data{};
  const client::BoundState::Home home = bound_->home_of(entry, local_box);
  const uint64_t bytes = home.box.elements() * value.element_bytes;
  if (const std::optional<uint64_t> at = contiguous_offset(home.whole, home.box)) {
    return Data{ByteView(home.data + *at * value.element_bytes, bytes), nullptr};
  }
  return Data::owned(gather(home.data, home.whole, home.box, value.element_bytes));
}

Result<std::vector<Tensor>> StateItems::homes(const MetadataIndex& index, const Dims& offsets) const {
  SHOAL_ASSIGN_OR_RETURN(const Place place, find(index));
  const auto [entry, local_box] = place;
  if (bound_->entry_of(entry).object) {
    return Status(Code::invalid_argument, fmt::format("{} is an object", to_string(index)));
  }
  SHOAL_RETURN_IF_ERROR(client::check_fillable(bound_->entry_of(entry)));
  std::vector<Tensor> out;
  if (local_box >= bound_->values()[entry].shards().boxes.size()) return out;
  for (size_t i = 0; i < bound_->copies_of(entry, local_box); ++i) {
    client::BoundState::Home home = bound_->home_of(entry, local_box, i);
    for (size_t d = 0; d < offsets.size() && d < home.box.dims(); ++d) home.box.offsets[d] += offsets[d];
    out.push_back({home.data, std::move(home.whole.sizes), std::move(home.box.offsets),
                   bound_->values()[entry].element_bytes, nullptr});
  }
  return out;
}

Result<BytesRef> StateItems::object(const MetadataIndex& index) const {
  SHOAL_ASSIGN_OR_RETURN(const Place place, find(index));
  const BytesRef object = bound_->entry_of(place.entry).object;
  if (!object) return Status(Code::invalid_argument, fmt::format("{} is a tensor", to_string(index)));
  SHOAL_RETURN_IF_ERROR(client::check_fillable(bound_->entry_of(place.entry)));
  return object;
}

}  // namespace shoal::dcp::internal
