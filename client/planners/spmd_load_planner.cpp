#include <fmt/format.h>

#include <algorithm>

#include "client/loading/load_report.h"
#include "shoal/dcp/spmd_planner.h"

namespace shoal::dcp {

SpmdLoadPlanner::SpmdLoadPlanner(std::vector<SpmdTensor> tensors, DefaultLoadPlannerOptions options)
    : tensors_(std::move(tensors)), options_(options), others_(std::move(options)) {}

Status SpmdLoadPlanner::set_up_planner(const StateDict& state_dict, const Metadata& metadata,
                                       const Role& role) {
  role_ = role;
  metadata_ = metadata;
  numbers_.clear();
  loading_.assign(tensors_.size(), Loading());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const SpmdTensor& tensor = tensors_[i];
    auto bad = [&](std::string_view what) {
      return Status(Code::invalid_argument, fmt::format("'{}': {}", tensor.fqn, what));
    };
    if (!numbers_.emplace(tensor.fqn, i).second) return bad("is given twice");
    if (!tensor.hand_over) return bad("hand_over is not set");
    SHOAL_RETURN_IF_ERROR(dtype_bytes(tensor.dtype).status().with_context(fmt::format("'{}'", tensor.fqn)));
    SHOAL_RETURN_IF_ERROR(
        tensor.sharding.validate_for(tensor.shape).with_context(fmt::format("'{}'", tensor.fqn)));
  }
  return others_.set_up_planner(state_dict, metadata, role);
}

Result<LoadPlan> SpmdLoadPlanner::create_local_plan() {
  std::vector<client::WantedKey> keys;
  std::vector<size_t> numbers;  // of these keys, into tensors_
  std::vector<client::LeftOutKey> left_out;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const SpmdTensor& tensor = tensors_[i];
    if (std::optional<std::string> stored_fqn = options_.keys.stored_name(tensor.fqn)) {
      numbers.push_back(i);
      keys.push_back(
          {{tensor.fqn, LayoutEntry::Kind::tensor, tensor.dtype, tensor.shape}, std::move(*stored_fqn)});
    } else {
      loading_[i].is_handed_over = true;
      left_out.push_back({tensor.fqn, options_.keys.renamed(tensor.fqn)});
    }
  }
  std::vector<bool> readable;
  SHOAL_ASSIGN_OR_RETURN(LoadPlan plan, others_.plan_beside(keys, std::move(left_out), &readable));
  for (const ReadItem& item : plan.items) {
    if (!numbers_.contains(item.dest_index.fqn)) continue;
    return Status(Code::invalid_argument, fmt::format("'{}' is also in the state", item.dest_index.fqn));
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (readable[i]) {
      plan_tensor(numbers[i], keys[i].stored_fqn, plan);
    } else {
      loading_[numbers[i]].is_handed_over = true;
    }
  }
  return plan;
}

void SpmdLoadPlanner::plan_tensor(size_t number, const std::string& stored_fqn, LoadPlan& plan) {
  const SpmdTensor& tensor = tensors_[number];
  Loading& loading = loading_[number];
  const auto& stored = std::get<TensorStorageMetadata>(metadata_.state_dict_metadata.at(stored_fqn));
  const size_t before = plan.items.size();
  for (TileSharding::HeldBox& held : tensor.sharding.boxes_of(tensor.shape, role_.rank)) {
    append_read_items({tensor.fqn, held.box.offsets}, held.box, stored_fqn, stored, plan.items);
    Dims offsets = held.box.offsets;
    loading.tiles.emplace(std::move(offsets), Tile{std::move(held.box), std::move(held.devices), nullptr});
  }
  loading.items_awaited = plan.items.size() - before;
}

Result<LoadPlan> SpmdLoadPlanner::finish_plan(LoadPlan central_plan) {
  for (size_t i = 0; i < loading_.size(); ++i) {
    if (loading_[i].items_awaited == 0) SHOAL_RETURN_IF_ERROR(hand_over(i));
  }
  return others_.finish_plan(std::move(central_plan));
}

Status SpmdLoadPlanner::load_bytes(const ReadItem& read_item, std::string value) {
  return others_.load_bytes(read_item, std::move(value));
}

Result<std::pair<size_t, SpmdLoadPlanner::Tile*>> SpmdLoadPlanner::tile_of(const ReadItem& read_item) {
  auto number = numbers_.find(read_item.dest_index.fqn);
  if (number == numbers_.end()) return std::pair<size_t, Tile*>{0, nullptr};
  auto& tiles = loading_[number->second].tiles;
  auto tile = tiles.find(read_item.dest_index.offset.value_or(Dims()));
  if (tile != tiles.end()) return std::pair{number->second, &tile->second};
  return Status(Code::key_mismatch, fmt::format("no local shard has {}", to_string(read_item.dest_index)));
}

Result<Tensor> SpmdLoadPlanner::resolve_tensor(const ReadItem& read_item) {
  std::lock_guard lock(mutex_);
  SHOAL_ASSIGN_OR_RETURN(const auto found, tile_of(read_item));
  Tile* tile = found.second;
  if (!tile) return others_.resolve_tensor(read_item);
  const uint64_t element_bytes = dtype_bytes(tensors_[found.first].dtype).value();
  if (!tile->data) {
    tile->data = std::shared_ptr<std::byte>(new std::byte[tile->box.elements() * element_bytes],
                                            std::default_delete<std::byte[]>());
  }
  return Tensor{tile->data.get(), tile->box.sizes, read_item.dest_offsets, element_bytes, tile->data};
}

Status SpmdLoadPlanner::commit_tensor(const ReadItem& read_item, const Tensor& tensor) {
  std::lock_guard lock(mutex_);
  SHOAL_ASSIGN_OR_RETURN(const auto found, tile_of(read_item));
  if (!found.second) return others_.commit_tensor(read_item, tensor);
  Loading& loading = loading_[found.first];
  if (loading.items_awaited == 0 || --loading.items_awaited > 0) return ok_status();
  return hand_over(found.first);
}

Status SpmdLoadPlanner::hand_over(size_t number) {
  Loading& loading = loading_[number];
  if (std::exchange(loading.is_handed_over, true)) return ok_status();
  const SpmdTensor& tensor = tensors_[number];
  std::vector<HostShard> shards;
  for (Device device : tensor.sharding.device_map().devices_of(role_.rank)) {
    std::optional<Box> box = tensor.sharding.box_of(tensor.shape, device);
    if (!box) continue;
    auto tile = loading.tiles.find(box->offsets);
    const bool is_held = !box->empty() && tile != loading.tiles.end();
    shards.push_back({device, box->sizes, is_held ? tile->second.data : nullptr});
  }
  std::sort(shards.begin(), shards.end(),
            [](const HostShard& a, const HostShard& b) { return a.device < b.device; });
  loading.tiles.clear();  // the receiver owns the memory now
  return tensor.hand_over(std::move(shards)).with_context(fmt::format("'{}'", tensor.fqn));
}

}  // namespace shoal::dcp
