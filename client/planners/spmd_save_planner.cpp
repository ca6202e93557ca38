#include <fmt/format.h>

#include <algorithm>

#include "client/planners/state_items.h"
#include "shoal/dcp/spmd_planner.h"

namespace shoal::dcp {

namespace {

Status invalid_tensor(const std::string& fqn, std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("'{}': {}", fqn, what));
}

}  // namespace

SpmdSavePlanner::SpmdSavePlanner(std::vector<SpmdTensor> tensors, DefaultSavePlannerOptions options)
    : tensors_(std::move(tensors)), options_(options), unsharded_(std::move(options)) {}

Status SpmdSavePlanner::set_up_planner(const StateDict& state_dict, const StorageMeta& storage_meta,
                                       const Role& role) {
  role_ = role;
  tiles_.clear();
  fetched_.clear();
  for (const SpmdTensor& tensor : tensors_) {
    fetched_.push_back(std::make_unique<Fetched>());
    if (!tensor.fetch) return invalid_tensor(tensor.fqn, "fetch is not set");
    SHOAL_RETURN_IF_ERROR(
        tensor.sharding.validate_for(tensor.shape).with_context(fmt::format("'{}'", tensor.fqn)));
  }
  return unsharded_.set_up_planner(state_dict, storage_meta, role);
}

Result<SavePlan> SpmdSavePlanner::create_local_plan() {
  SHOAL_ASSIGN_OR_RETURN(SavePlan plan, unsharded_.create_local_plan());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const SpmdTensor& tensor = tensors_[i];
    const std::optional<std::string> name = options_.keys.stored_name(tensor.fqn);
    if (!name) continue;
    WriteItem item;
    item.sharding = std::make_shared<const ValueSharding>(ValueSharding{tensor.sharding});
    item.tensor_data = TensorWriteData{{}, {tensor.dtype}, tensor.shape};
    auto add = [&](TileSharding::HeldBox held) {
      item.index = {*name, held.box.offsets};
      item.type = held.box == whole(tensor.shape) ? WriteItemType::tensor : WriteItemType::shard;
      item.tensor_data->chunk = held.box;
      tiles_.insert_or_assign(item.index, Tile{i, std::move(held.devices), std::move(held.box)});
      plan.items.push_back(item);
    };
    std::vector<TileSharding::HeldBox> held = tensor.sharding.boxes_of(tensor.shape, role_.rank);
    for (TileSharding::HeldBox& box : held) add(std::move(box));
    if (!held.empty()) continue;
    // The layout of this rank keeps the name if a device of the rank is assigned, even with an empty tile.
    for (Device device : tensor.sharding.device_map().devices_of(role_.rank)) {
      std::optional<Box> box = tensor.sharding.box_of(tensor.shape, device);
      if (!box) continue;
      add({std::move(*box), {}});
      break;
    }
  }
  if (options_.validate) SHOAL_RETURN_IF_ERROR(validate_local_plan(plan));
  return plan;
}

Result<Data> SpmdSavePlanner::resolve_data(const WriteItem& write_item) {
  auto found = tiles_.find(write_item.index);
  if (found == tiles_.end()) return unsharded_.resolve_data(write_item);
  const Tile& tile = found->second;
  if (tile.box.empty()) return Data{};
  const SpmdTensor& tensor = tensors_[tile.tensor];
  Fetched& fetched = *fetched_[tile.tensor];
  std::lock_guard lock(fetched.mutex);
  if (!fetched.is_there) {
    Result<std::vector<HostShard>> shards = tensor.fetch();
    if (!shards.ok()) return shards.status().with_context(fmt::format("'{}'", tensor.fqn));
    fetched.shards = std::move(shards).value();
    fetched.is_there = true;
  }
  return cut(tensor, tile, fetched.shards);
}

// The tile's part of a shard that may be padded. Needs no copy if only the outermost dimension is padded.
Result<Data> SpmdSavePlanner::cut(const SpmdTensor& tensor, const Tile& tile,
                                  const std::vector<HostShard>& shards) const {
  auto shard = std::find_if(shards.begin(), shards.end(), [&](const HostShard& given) {
    return std::find(tile.devices.begin(), tile.devices.end(), given.device) != tile.devices.end();
  });
  if (shard == shards.end()) {
    return invalid_tensor(tensor.fqn,
                          fmt::format("the local shard of device {} is missing", tile.devices.at(0)));
  }
  const Box mine = whole(tile.box.sizes);
  if (!validate_box(mine, shard->shape).ok() || !shard->data) {
    return invalid_tensor(tensor.fqn,
                          fmt::format("the memory of the local shard of device {} is too small for {}",
                                      shard->device, to_string(tile.box)));
  }
  SHOAL_ASSIGN_OR_RETURN(const uint64_t element_bytes, dtype_bytes(tensor.dtype));
  const Box all = whole(shard->shape);
  if (std::optional<uint64_t> at = contiguous_offset(all, mine)) {
    return Data{ByteView(shard->data.get() + *at * element_bytes, mine.elements() * element_bytes),
                shard->data};
  }
  return Data::owned(internal::gather(shard->data.get(), all, mine, element_bytes));
}

void SpmdSavePlanner::release() {
  for (auto& fetched : fetched_) {
    std::lock_guard lock(fetched->mutex);
    fetched->is_there = false;
    fetched->shards.clear();
  }
  unsharded_.release();
}

}  // namespace shoal::dcp
