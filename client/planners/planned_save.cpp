#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "client/planners/planned_save.h"

namespace shoal::client {

namespace {

using dcp::ValueSharding;
using Entry = StateDict::Entry;

Status bad(const std::string& fqn, std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("'{}': {}", fqn, what));
}

// Checks that two items of one value agree on its type, dtype, shape and sharding.
Status check_alike(const dcp::WriteItem& first, const dcp::WriteItem& item) {
  const bool alike = first.type != dcp::WriteItemType::byte_io && item.tensor_data &&
                     item.tensor_data->properties == first.tensor_data->properties &&
                     item.tensor_data->size == first.tensor_data->size &&
                     item.replicated == first.replicated && same_sharding(item.sharding, first.sharding);
  if (alike) return ok_status();
  return bad(item.index.fqn,
             "its items have different types, dtypes, shapes or shardings: was it added twice?");
}

Status refuse_global_plan(const dcp::SavePlanner& planner, SaveMode mode) {
  return Status(Code::invalid_argument,
                fmt::format("the planner {} overrides create_global_plan, and a {} save cannot use a global "
                            "plan: it requests only the plan of its own rank",
                            class_name(typeid(planner)), mode_name(mode)));
}

}  // namespace

std::string class_name(const std::type_info& type) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 && name ? name.get() : type.name();
}

Status PlannedSave::plan(const StateDict& state, const AttemptKey& key, const dcp::Role& role, SaveMode mode,
                         const dcp::internal::ExchangePlans& exchange) {
  SHOAL_RETURN_IF_ERROR(check_on_host(state));
  role_ = role;
  follows_planner_ = planner_.overrides_global_plan();
  if (follows_planner_ && mode != SaveMode::collective) return refuse_global_plan(planner_, mode);
  const auto noted = [this, &exchange](plan::PlannerPlan mine, const dcp::internal::MakePlans& make) {
    has_exchanged_ = true;
    return exchange(std::move(mine), make);
  };
  if (auto* through = dynamic_cast<dcp::internal::ExchangingPlanner*>(&planner_)) through->use(mode, noted);
  const dcp::StorageMeta meta{key, dcp::checkpoint_id_of(key)};
  SHOAL_RETURN_IF_ERROR(planner_.set_up_planner(state, meta, role).with_context("set_up_planner"));
  Result<dcp::SavePlan> made = planner_.create_local_plan();
  if (!made.ok()) return made.status().with_context("create_local_plan");
  local_ = std::move(made).value();
  if (follows_planner_) {
    SHOAL_RETURN_IF_ERROR(dcp::validate_local_plan(local_).with_context("create_local_plan"));
    SHOAL_ASSIGN_OR_RETURN(
        local_, dcp::internal::follow_global_plan(local_, dcp::internal::global_step_of(planner_), noted));
  }
  std::map<std::string, std::vector<uint32_t>> by_fqn;
  for (uint32_t i = 0; i < local_.items.size(); ++i) by_fqn[local_.items[i].index.fqn].push_back(i);
  value_of_item_.resize(local_.items.size());
  for (auto& [fqn, items] : by_fqn) {
    SHOAL_RETURN_IF_ERROR(make_value(fqn, std::move(items)).with_context("create_local_plan"));
  }
  return ok_status();
}

Status PlannedSave::make_value(const std::string& fqn, std::vector<uint32_t> items) {
  const dcp::WriteItem& first = local_.items[items[0]];
  const bool is_object = first.type == dcp::WriteItemType::byte_io;
  if (is_object == first.tensor_data.has_value())
    return bad(fqn, "tensor_data does not match the item's type");
  for (size_t i = 0; i < items.size(); ++i) {
    value_of_item_[items[i]] = static_cast<uint32_t>(values_.size());
    if (i > 0) SHOAL_RETURN_IF_ERROR(check_alike(first, local_.items[items[i]]));
  }
  auto value = std::make_unique<Value>();
  value->items = std::move(items);
  value->entry = std::make_shared<Entry>();
  value->entry->fqn = fqn;
  value->entry->replicated = first.replicated && !follows_planner_;
  value->entry->resolved_later = true;
  SHOAL_RETURN_IF_ERROR(is_object ? make_object(first, *value) : make_tensor(first, *value));
  state_.add(value->entry);
  values_.push_back(std::move(value));
  return ok_status();
}

Status PlannedSave::make_object(const dcp::WriteItem& item, Value& value) {
  value.entry->object = &value.object;
  value.entry->form = item.per_rank ? Entry::Form::rank_object : Entry::Form::object;
  if (item.per_rank) return ok_status();
  value.entry->mesh = Mesh::contiguous({role_.world_size});
  if (!item.sharding || follows_planner_) return ok_status();
  const auto* group = std::get_if<ValueSharding::Group>(&item.sharding->form);
  if (!group) return bad(item.index.fqn, "an object must belong to a group");
  value.entry->mesh = group->mesh;
  return ok_status();
}

Status PlannedSave::make_tensor(const dcp::WriteItem& first, Value& value) {
  Entry& entry = *value.entry;
  entry.dtype = first.tensor_data->properties.dtype;
  entry.shape = first.tensor_data->size;
  for (uint32_t item : value.items) {
    const Box& chunk = local_.items[item].tensor_data->chunk;
    if (Status status = validate_box(chunk, entry.shape); !status.ok()) {
      return status.with_context(fmt::format("'{}'", entry.fqn));
    }
  }
  std::vector<Box> boxes;
  if (!first.sharding || follows_planner_) {  // a global plan decides itself who writes a chunk
    entry.form = Entry::Form::boxes;
    for (uint32_t i = 0; i < value.items.size(); ++i) {
      entry.boxes.push_back({local_.items[value.items[i]].tensor_data->chunk, nullptr});
      value.item_of_box.push_back(i);
    }
    name_places(value);
    return ok_status();
  }
  if (const auto* mesh = std::get_if<ValueSharding::OnMesh>(&first.sharding->form)) {
    entry.form = Entry::Form::mesh;
    entry.mesh = mesh->mesh;
    entry.placements = mesh->placements;
    SHOAL_RETURN_IF_ERROR(validate_placements(mesh->placements, mesh->mesh, entry.shape)
                              .with_context(fmt::format("'{}'", entry.fqn)));
    const std::optional<Dims> coordinate = mesh->mesh.coordinate_of(role_.rank);
    if (!coordinate) return bad(entry.fqn, fmt::format("rank {} is not in the mesh", role_.rank));
    boxes = shards_at(entry.shape, mesh->mesh, mesh->placements, *coordinate).boxes;
  } else if (const auto* group = std::get_if<ValueSharding::Group>(&first.sharding->form)) {
    entry.form = Entry::Form::value;
    entry.mesh = group->mesh;
    if (Box all = whole(entry.shape); !all.empty()) boxes = {std::move(all)};
  } else {
    entry.form = Entry::Form::tiles;
    entry.tiles = std::get<TileSharding>(first.sharding->form);
    SHOAL_RETURN_IF_ERROR(
        entry.tiles->validate_for(entry.shape).with_context(fmt::format("'{}'", entry.fqn)));
    for (Device device : entry.tiles->device_map().devices_of(role_.rank)) {
      if (entry.tiles->box_of(entry.shape, device)) entry.shards.push_back({device, nullptr});
    }
    for (TileSharding::HeldBox& held : entry.tiles->boxes_of(entry.shape, role_.rank)) {
      boxes.push_back(std::move(held.box));
    }
  }
  return match_boxes(boxes, value);
}

// Each chunk is a separate buffer, whose memory is not known yet.
void PlannedSave::name_places(Value& value) {
  for (uint32_t item : value.item_of_box) {
    const Box all = whole(local_.items[value.items[item]].tensor_data->chunk.sizes);
    value.entry->places.push_back({nullptr, all, all});
  }
}

// Checks that the items with elements are exactly the boxes that the sharding gives, each once.
Status PlannedSave::match_boxes(const std::vector<Box>& boxes, Value& value) {
  std::map<Box, uint32_t> given;
  for (uint32_t i = 0; i < value.items.size(); ++i) {
    const Box& chunk = local_.items[value.items[i]].tensor_data->chunk;
    if (chunk.empty()) continue;
    if (!given.emplace(chunk, i).second) {
      return bad(value.entry->fqn, fmt::format("chunk {} is given twice", to_string(chunk)));
    }
  }
  for (const Box& box : boxes) {
    auto found = given.find(box);
    if (found == given.end() && !box.empty()) {
      return bad(value.entry->fqn, fmt::format("no item has {}, which the sharding gives to rank {}; items "
                                               "without a sharding are explicit boxes, on every rank",
                                               to_string(box), role_.rank));
    }
    value.item_of_box.push_back(found == given.end() ? 0 : found->second);
    if (found != given.end()) given.erase(found);
  }
  if (given.empty()) {
    name_places(value);
    return ok_status();
  }
  return bad(value.entry->fqn, fmt::format("the sharding does not give rank {} the chunk {}; items without a "
                                           "sharding are explicit boxes, on every rank",
                                           role_.rank, to_string(given.begin()->first)));
}

// This rank's assignment as items of the local plan; `chosen` gets their indices there.
dcp::SavePlan PlannedSave::final_plan(const BoundState& bound, const SavePlan* assigned,
                                      std::vector<uint32_t>& chosen) {
  std::map<uint32_t, std::vector<Box>> parts;  // by index of the item
  if (assigned) {
    for (const WriteItem& piece : assigned->items) {
      const Value& value = *values_[bound.values()[piece.entry].position];
      const bool has_boxes = piece.local_box < value.item_of_box.size();
      parts[value.items[has_boxes ? value.item_of_box[piece.local_box] : 0]].push_back(piece.box);
    }
  } else {
    for (uint32_t i = 0; i < local_.items.size(); ++i) parts[i];
  }
  dcp::SavePlan plan{{}, local_.storage_data, local_.planner_data};
  for (auto& [number, boxes] : parts) {
    plan.items.push_back(local_.items[number]);
    const std::optional<dcp::TensorWriteData>& tensor = local_.items[number].tensor_data;
    const bool all = !tensor || boxes.empty() || (boxes.size() == 1 && boxes[0] == tensor->chunk);
    if (!all) plan.items.back().parts = std::move(boxes);
    chosen.push_back(number);
  }
  return plan;
}

Status PlannedSave::resolve(const BoundState& bound, const SavePlan* assigned) {
  std::vector<uint32_t> chosen;
  const dcp::SavePlan wanted = final_plan(bound, assigned, chosen);
  Result<dcp::SavePlan> finished = planner_.finish_plan(wanted);
  if (!finished.ok()) return finished.status().with_context("finish_plan");
  if (finished->items != wanted.items) {
    return Status(Code::invalid_argument,
                  fmt::format("finish_plan: the planner {} changed the items to write; it may only read them",
                              class_name(typeid(planner_))));
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    const dcp::WriteItem& item = finished->items[i];
    Result<dcp::Data> data = planner_.resolve_data(item);
    if (!data.ok()) return data.status().with_context("resolve_data");
    SHOAL_RETURN_IF_ERROR(take(item, chosen[i], std::move(data).value()).with_context("resolve_data"));
  }
  return ok_status();
}

Status PlannedSave::take(const dcp::WriteItem& item, uint32_t number, dcp::Data data) {
  Value& value = *values_[value_of_item_[number]];
  if (!item.tensor_data) {
    value.object.assign(as_text(data.bytes));
    return ok_status();
  }
  if (data.bytes.size() != item.chunk_bytes()) {
    return bad(item.index.fqn,
               fmt::format("resolve_data returned {} bytes for chunk {}, which has {}", data.bytes.size(),
                           to_string(item.tensor_data->chunk), item.chunk_bytes()));
  }
  if (data.bytes.empty()) return ok_status();
  if (!data.bytes.data()) return bad(item.index.fqn, "the memory for what this rank holds is missing");
  auto* bytes = const_cast<std::byte*>(data.bytes.data());  // a save only reads the bytes
  Entry& entry = *value.entry;
  for (uint32_t i = 0; i < value.item_of_box.size(); ++i) {
    if (value.items[value.item_of_box[i]] == number) entry.places[i].data = bytes;
  }
  owners_.push_back(std::move(data.owner));
  return ok_status();
}

}  // namespace shoal::client
