#include "client/load_planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "client/state_items_internal.h"

namespace shoal::dcp {

namespace {

// What is wrong with a value of the state, of which this is an item; "" if nothing is.
std::string mismatch(const WriteItem& item, const std::string& stored_fqn,
                     const std::variant<TensorStorageMetadata, BytesStorageMetadata>& stored) {
  const auto* tensor = std::get_if<TensorStorageMetadata>(&stored);
  if ((tensor != nullptr) != item.tensor_data.has_value()) {
    return fmt::format("'{}' is stored as {}", stored_fqn, tensor ? "a tensor" : "an object");
  }
  if (!tensor) return "";
  if (tensor->properties != item.tensor_data->properties) {
    return fmt::format("'{}' is stored as {}, not {}", stored_fqn, dtype_name(tensor->properties.dtype),
                       dtype_name(item.tensor_data->properties.dtype));
  }
  if (tensor->size != item.tensor_data->size) {
    return fmt::format("'{}' is stored with shape [{}], not [{}]", stored_fqn, fmt::join(tensor->size, ", "),
                       fmt::join(item.tensor_data->size, ", "));
  }
  return "";
}

Dims minus(Dims a, const Dims& b) {
  for (size_t d = 0; d < a.size(); ++d) a[d] -= b[d];
  return a;
}

}  // namespace

void append_read_items(const MetadataIndex& dest, const Box& box, const std::string& stored_fqn,
                       const TensorStorageMetadata& stored, std::vector<ReadItem>& out) {
  for (const Box& chunk : stored.chunks) {
    const std::optional<Box> shared = intersect(box, chunk);
    if (!shared) continue;
    out.push_back({LoadItemType::tensor, dest, minus(shared->offsets, box.offsets),
                   MetadataIndex{stored_fqn, chunk.offsets}, minus(shared->offsets, chunk.offsets),
                   shared->sizes});
  }
}

void fill_tensor(const Tensor& tensor, const Dims& lengths, const std::byte* source) {
  const Box part{tensor.offsets, lengths};
  for_each_run(part, whole(tensor.buffer_shape), [&](uint64_t from, uint64_t to, uint64_t count) {
    std::memcpy(tensor.data + to * tensor.element_bytes, source + from * tensor.element_bytes,
                count * tensor.element_bytes);
  });
}

Status fill_from_chunk(const ReadItem& read_item, const Dims& chunk_sizes, ByteView chunk,
                       const Tensor& tensor) {
  const Box part{read_item.storage_offsets, read_item.lengths};
  const std::optional<uint64_t> elements = element_count(chunk_sizes);
  if (!validate_box(part, chunk_sizes).ok() || !elements || chunk.size() % tensor.element_bytes != 0 ||
      chunk.size() / tensor.element_bytes != *elements) {
    return Status(Code::corrupt,
                  fmt::format("{}: {} bytes are stored for a chunk of [{}], of which {} is read",
                              to_string(read_item.storage_index), chunk.size(), fmt::join(chunk_sizes, ", "),
                              to_string(part)));
  }
  const Bytes mine = internal::gather(chunk.data(), whole(chunk_sizes), part, tensor.element_bytes);
  fill_tensor(tensor, read_item.lengths, mine.data());
  return ok_status();
}

DefaultLoadPlanner::DefaultLoadPlanner(DefaultLoadPlannerOptions options)
    : options_(std::move(options)), items_(std::make_unique<internal::StateItems>()) {}

DefaultLoadPlanner::~DefaultLoadPlanner() = default;

Status DefaultLoadPlanner::set_up_planner(const StateDict& state_dict, const Metadata& metadata,
                                          const Role& role) {
  metadata_ = metadata;
  role_ = role;
  return items_->set_up(state_dict, role.rank);
}

Result<LoadPlan> DefaultLoadPlanner::create_local_plan() {
  LoadPlan plan;
  missing_.clear();
  std::vector<std::string> wrong;
  std::string last;  // items of one value follow each other
  for (const WriteItem& item : items_->write_items(KeyRules{})) {
    std::optional<std::string> stored_fqn = options_.keys.stored_name(item.index.fqn);
    if (!stored_fqn) continue;
    if (item.per_rank) *stored_fqn = rank_fqn(*stored_fqn, role_.rank);
    const bool is_first = item.index.fqn != last;
    last = item.index.fqn;
    auto stored = metadata_.state_dict_metadata.find(*stored_fqn);
    if (stored == metadata_.state_dict_metadata.end()) {
      if (!is_first) continue;
      missing_.push_back(item.index.fqn);
      if (!options_.allow_partial_load) wrong.push_back(fmt::format("missing '{}'", *stored_fqn));
      continue;
    }
    if (std::string what = mismatch(item, *stored_fqn, stored->second); !what.empty()) {
      if (is_first) wrong.push_back(std::move(what));
      continue;
    }
    if (!item.tensor_data) {
      plan.items.push_back({LoadItemType::byte_io, item.index, {}, MetadataIndex{*stored_fqn}, {}, {}});
      continue;
    }
    append_read_items(item.index, item.tensor_data->chunk, *stored_fqn,
                      std::get<TensorStorageMetadata>(stored->second), plan.items);
  }
  std::sort(missing_.begin(), missing_.end());
  if (wrong.empty()) return plan;
  return Status(Code::invalid_argument,
                fmt::format("{} holds not what is to be loaded: {}", metadata_.storage_meta.checkpoint_id,
                            fmt::join(wrong, "; ")));
}

Status DefaultLoadPlanner::load_bytes(const ReadItem& read_item, std::string value) {
  SHOAL_ASSIGN_OR_RETURN(std::string * object, items_->object(read_item.dest_index));
  *object = std::move(value);
  return ok_status();
}

Result<Tensor> DefaultLoadPlanner::resolve_tensor(const ReadItem& read_item) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Tensor> homes,
                         items_->homes(read_item.dest_index, read_item.dest_offsets));
  if (!homes.empty()) return std::move(homes[0]);
  return Status(Code::invalid_argument, fmt::format("{} has no elements", to_string(read_item.dest_index)));
}

// Other local shards that hold the same tile get it too.
Status DefaultLoadPlanner::commit_tensor(const ReadItem& read_item, const Tensor& tensor) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Tensor> homes,
                         items_->homes(read_item.dest_index, read_item.dest_offsets));
  if (homes.size() < 2) return ok_status();
  const Bytes bytes = internal::gather(tensor.data, whole(tensor.buffer_shape),
                                       Box{tensor.offsets, read_item.lengths}, tensor.element_bytes);
  for (size_t i = 1; i < homes.size(); ++i) fill_tensor(homes[i], read_item.lengths, bytes.data());
  return ok_status();
}

}  // namespace shoal::dcp
