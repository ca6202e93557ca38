#include <fmt/format.h>

#include "client/planners/planned_load.h"
#include "client/planners/planned_save.h"
#include "client/planners/state_items.h"

namespace shoal::client {

namespace {

using Entry = StateDict::Entry;

Status bad(const dcp::ReadItem& item, std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("{}: {}", to_string(item.storage_index), what));
}

// The box that an item reads from the stored tensor.
Result<Box> stored_box(const dcp::ReadItem& item, const Dims& shape) {
  if (!item.storage_index.offset || item.storage_index.offset->size() != shape.size() ||
      item.storage_offsets.size() != shape.size() || item.lengths.size() != shape.size()) {
    return bad(item, fmt::format("its offsets or lengths do not have the {} dimensions of the tensor",
                                 shape.size()));
  }
  Box box{*item.storage_index.offset, item.lengths};
  for (size_t d = 0; d < shape.size(); ++d) box.offsets[d] += item.storage_offsets[d];
  if (Status status = validate_box(box, shape); !status.ok()) return bad(item, status.message());
  return box;
}

}  // namespace

Result<dcp::LoadPlan> make_load_plan(dcp::LoadPlanner& planner, const dcp::Role& role,
                                     const PrepareLoad& prepare) {
  Result<dcp::LoadPlan> plan = planner.create_local_plan();
  if (!plan.ok()) return plan.status().with_context("create_local_plan");
  if (prepare) {
    plan = prepare(std::move(plan).value());
    if (!plan.ok()) return plan;
  }
  if (planner.overrides_global_plan()) {
    Result<std::vector<dcp::LoadPlan>> global = planner.create_global_plan({std::move(plan).value()});
    if (!global.ok()) return global.status().with_context("create_global_plan");
    if (global->size() != role.world_size) {
      return Status(Code::invalid_argument, fmt::format("create_global_plan returned {} plans for {} ranks",
                                                        global->size(), role.world_size));
    }
    plan = std::move(global->front());
  }
  plan = planner.finish_plan(std::move(plan).value());
  return plan.ok() ? plan : plan.status().with_context("finish_plan");
}

Status PlannedLoad::plan(const StateDict& state, const dcp::Metadata& metadata, const dcp::Role& role) {
  if (planner_.overrides_global_plan() && role.world_size > 1) {
    return Status(Code::invalid_argument,
                  fmt::format("the planner {} overrides create_global_plan, and a load by {} ranks cannot "
                              "use a global plan: the ranks do not wait for each other",
                              class_name(typeid(planner_)), role.world_size));
  }
  SHOAL_RETURN_IF_ERROR(check_on_host(state));
  SHOAL_RETURN_IF_ERROR(planner_.set_up_planner(state, metadata, role).with_context("set_up_planner"));
  SHOAL_ASSIGN_OR_RETURN(plan_, make_load_plan(planner_, role));
  rank_ = role.rank;
  for (uint32_t i = 0; i < plan_.items.size(); ++i) SHOAL_RETURN_IF_ERROR(add_item(i, metadata));
  for (auto& [fqn, value] : values_) {
    const bool has_elements = value.entry->object || !value.entry->boxes.empty();
    if (has_elements) state_.add(value.entry);
  }
  return ok_status();
}

Status PlannedLoad::add_item(uint32_t number, const dcp::Metadata& metadata) {
  const dcp::ReadItem& item = plan_.items[number];
  const std::string& fqn = item.storage_index.fqn;
  auto stored = metadata.state_dict_metadata.find(fqn);
  if (stored == metadata.state_dict_metadata.end()) return bad(item, "the checkpoint has no such value");
  const auto* tensor = std::get_if<dcp::TensorStorageMetadata>(&stored->second);
  if ((tensor != nullptr) != (item.type == dcp::LoadItemType::tensor)) {
    return bad(item, tensor ? "it is stored as a tensor" : "it is stored as an object");
  }
  Value& value = values_[fqn];
  value.items.push_back(number);
  if (!value.entry) {
    value.entry = std::make_shared<Entry>();
    value.entry->fqn = fqn;
    value.entry->form = tensor ? Entry::Form::boxes : Entry::Form::object;
    if (tensor) {
      value.entry->dtype = tensor->properties.dtype;
      value.entry->shape = tensor->size;
    } else {
      value.entry->object = &value.object;
      value.entry->mesh = Mesh::single(rank_);
    }
  }
  return tensor ? add_box(item, *tensor, value) : ok_status();
}

Status PlannedLoad::add_box(const dcp::ReadItem& item, const dcp::TensorStorageMetadata& stored,
                            Value& value) {
  SHOAL_ASSIGN_OR_RETURN(const Box box, stored_box(item, stored.size));
  Result<dcp::Tensor> home = planner_.resolve_tensor(item);
  if (!home.ok()) return home.status().with_context("resolve_tensor");
  const Box in_buffer{home->offsets, item.lengths};
  SHOAL_ASSIGN_OR_RETURN(const uint64_t element_bytes, dtype_bytes(stored.properties.dtype));
  if (!validate_box(in_buffer, home->buffer_shape).ok() || home->element_bytes != element_bytes ||
      (!home->data && !box.empty())) {
    return bad(item, "the returned memory is too small").with_context("resolve_tensor");
  }
  const auto position = static_cast<uint32_t>(value.entry->boxes.size());
  if (!box.empty() && value.places.emplace(box, position).second) {
    value.entry->boxes.push_back({box, home->data});
    value.entry->places.push_back({home->data, whole(home->buffer_shape), in_buffer});
  }
  value.stored.push_back(box);
  value.homes.push_back(std::move(home).value());
  return ok_status();
}

Status PlannedLoad::commit(Value& value) {
  if (std::exchange(value.is_committed, true)) return ok_status();
  for (size_t i = 0; i < value.homes.size(); ++i) {
    const dcp::ReadItem& item = plan_.items[value.items[i]];
    const dcp::Tensor& home = value.homes[i];
    if (auto found = value.places.find(value.stored[i]); found != value.places.end()) {
      // If several items request one box, the load placed it at the first item's destination.
      const Entry::Place& place = value.entry->places[found->second];
      if (place.data != home.data || place.box.offsets != home.offsets) {
        const Bytes bytes = dcp::internal::gather(place.data, place.whole, place.box, home.element_bytes);
        dcp::fill_tensor(home, item.lengths, bytes.data());
      }
    }
    SHOAL_RETURN_IF_ERROR(planner_.commit_tensor(item, home).with_context("commit_tensor"));
  }
  return ok_status();
}

Status PlannedLoad::arrived(const std::string& stored_fqn) {
  return commit(values_.at(stored_fqn));
}

Status PlannedLoad::finish() {
  for (auto& [fqn, value] : values_) {
    if (!value.entry->object) SHOAL_RETURN_IF_ERROR(commit(value));
  }
  for (auto& [fqn, value] : values_) {
    if (!value.entry->object) continue;
    for (uint32_t item : value.items) {
      SHOAL_RETURN_IF_ERROR(planner_.load_bytes(plan_.items[item], value.object).with_context("load_bytes"));
    }
  }
  return ok_status();
}

}  // namespace shoal::client
