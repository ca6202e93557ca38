#include "shoal/dcp/save_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "client/planners/state_items.h"
#include "shoal/dcp/global_plan.h"

namespace shoal::dcp {

namespace {

Status bad(const std::string& fqn, std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("'{}': {}", fqn, what));
}

Status check_item(const WriteItem& item) {
  const std::string& fqn = item.index.fqn;
  SHOAL_RETURN_IF_ERROR(validate_fqn(fqn));
  if (item.type == WriteItemType::byte_io) {
    if (item.tensor_data || item.index.offset) return bad(fqn, "an object must not have a tensor's data");
    if (item.per_rank && (item.sharding || item.replicated)) {
      return bad(fqn, "a per-rank object must not have a sharding, and cannot be replicated");
    }
    if (item.sharding && !std::holds_alternative<ValueSharding::Group>(item.sharding->form)) {
      return bad(fqn, "an object must belong to a group");
    }
    return ok_status();
  }
  if (!item.tensor_data) return bad(fqn, "a tensor must have tensor_data");
  const TensorWriteData& data = *item.tensor_data;
  if (Status status = validate_box(data.chunk, data.size); !status.ok()) {
    return status.with_context(fmt::format("'{}'", fqn));
  }
  if (Result<uint64_t> bytes = dtype_bytes(data.properties.dtype); !bytes.ok()) {
    return bytes.status().with_context(fmt::format("'{}'", fqn));
  }
  if (item.per_rank)
    return bad(fqn, "a tensor cannot be per_rank: give the tensor of each rank its own name");
  if (item.index.offset != data.chunk.offsets) {
    return bad(fqn, fmt::format("{} is not where its chunk {} begins", to_string(item.index),
                                to_string(data.chunk)));
  }
  return ok_status();
}

// Checks that no two chunks of one tensor share an element. No chunk may be empty.
Status check_overlaps(const std::string& fqn, std::vector<const Box*> chunks) {
  std::sort(chunks.begin(), chunks.end(), [](const Box* a, const Box* b) { return *a < *b; });
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (size_t j = i + 1; j < chunks.size(); ++j) {
      const bool may_meet =
          chunks[i]->dims() == 0 || chunks[j]->offsets[0] < chunks[i]->offsets[0] + chunks[i]->sizes[0];
      if (!may_meet) break;
      if (!intersect(*chunks[i], *chunks[j])) continue;
      return bad(fqn, fmt::format("chunks {} and {} of this rank overlap", to_string(*chunks[i]),
                                  to_string(*chunks[j])));
    }
  }
  return ok_status();
}

}  // namespace

Status validate_local_plan(const SavePlan& plan) {
  std::map<std::string_view, std::vector<const WriteItem*>> by_fqn;
  std::set<MetadataIndex> seen;
  for (const WriteItem& item : plan.items) {
    SHOAL_RETURN_IF_ERROR(check_item(item));
    if (!seen.insert(item.index).second) {
      return Status(Code::invalid_argument, to_string(item.index) + " is given twice");
    }
    by_fqn[item.index.fqn].push_back(&item);
  }
  for (const auto& [name, items] : by_fqn) {
    const WriteItem& first = *items[0];
    const std::string fqn(name);
    std::vector<const Box*> chunks;
    for (const WriteItem* item : items) {
      if (item != &first && (!item->tensor_data || !first.tensor_data)) {
        return bad(fqn, "is given twice");
      }
      if (!item->tensor_data) continue;
      if (item->tensor_data->properties != first.tensor_data->properties ||
          item->tensor_data->size != first.tensor_data->size || item->replicated != first.replicated ||
          !same_sharding(item->sharding, first.sharding)) {
        return bad(fqn, "its items have different dtypes, shapes or shardings: was it added twice?");
      }
      if (!item->tensor_data->chunk.empty()) chunks.push_back(&item->tensor_data->chunk);
    }
    SHOAL_RETURN_IF_ERROR(check_overlaps(fqn, std::move(chunks)));
  }
  return ok_status();
}

Result<GlobalSavePlan> SavePlanner::create_global_plan(std::vector<SavePlan> all_plans) {
  return default_global_plan(std::move(all_plans));
}

template <class Base>
BasicDefaultSavePlanner<Base>::BasicDefaultSavePlanner(DefaultSavePlannerOptions options)
    : options_(std::move(options)), items_(std::make_unique<internal::StateItems>()) {}

template <class Base>
BasicDefaultSavePlanner<Base>::~BasicDefaultSavePlanner() = default;

template <class Base>
Status BasicDefaultSavePlanner<Base>::set_up_planner(const StateDict& state_dict,
                                                     const StorageMeta& storage_meta, const Role& role) {
  role_ = role;
  storage_meta_ = storage_meta;
  return items_->set_up(state_dict, role.rank);
}

template <class Base>
Result<SavePlan> BasicDefaultSavePlanner<Base>::create_local_plan() {
  SavePlan plan;
  plan.items = items_->write_items(options_.keys);
  if (options_.validate) SHOAL_RETURN_IF_ERROR(validate_local_plan(plan));
  return plan;
}

template <class Base>
Result<Data> BasicDefaultSavePlanner<Base>::resolve_data(const WriteItem& write_item) {
  return items_->resolve(write_item.index);
}

template class BasicDefaultSavePlanner<LocalSavePlanner>;
template class BasicDefaultSavePlanner<SavePlanner>;

}  // namespace shoal::dcp
