#include "shoal/dcp/load_planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "client/loading/load_report.h"
#include "client/planners/state_items.h"

namespace shoal::dcp {

namespace {

// The values of a checkpoint, ascending by name.
std::vector<TensorMetadata> stored_values(const Metadata& metadata) {
  std::vector<TensorMetadata> values;
  values.reserve(metadata.state_dict_metadata.size());
  for (const auto& [fqn, stored] : metadata.state_dict_metadata) {
    if (const auto* tensor = std::get_if<TensorStorageMetadata>(&stored)) {
      values.push_back({fqn, LayoutEntry::Kind::tensor, tensor->properties.dtype, tensor->size});
    } else {
      values.push_back({fqn, LayoutEntry::Kind::object, DType::u8, {}});
    }
  }
  return values;
}

TensorMetadata wanted_value(const WriteItem& item) {
  if (!item.tensor_data) return {item.index.fqn, LayoutEntry::Kind::object, DType::u8, {}};
  return {item.index.fqn, LayoutEntry::Kind::tensor, item.tensor_data->properties.dtype,
          item.tensor_data->size};
}

KeyPolicy with_missing_allowed(KeyPolicy policy) {
  if (policy == KeyPolicy::strict) return KeyPolicy::allow_missing;
  return policy == KeyPolicy::allow_unexpected ? KeyPolicy::lenient : policy;
}

KeyPolicies policies_of(const DefaultLoadPlannerOptions& options) {
  KeyPolicies policies = options.policies;
  if (!options.allow_partial_load) return policies;
  policies.root = with_missing_allowed(policies.root);
  for (auto& [subtree, policy] : policies.subtrees) policy = with_missing_allowed(policy);
  return policies;
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
    return Status(
        Code::corrupt,
        fmt::format("{}: the checkpoint has {} bytes for a chunk of [{}], from which {} is to be read",
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
  return plan_beside({}, {}, nullptr);
}

Result<LoadPlan> DefaultLoadPlanner::plan_beside(const std::vector<client::WantedKey>& others,
                                                 std::vector<client::LeftOutKey> left_out,
                                                 std::vector<bool>* readable) {
  SHOAL_RETURN_IF_ERROR(client::validate_policies(options_.policies));
  const std::vector<WriteItem> items = items_->write_items(KeyRules{});
  std::vector<client::WantedKey> keys = others;
  std::vector<std::optional<size_t>> key_of(items.size());  // by item
  for (size_t i = 0; i < items.size(); ++i) {
    const WriteItem& item = items[i];
    auto as_stored = [&](std::string name) {
      return item.per_rank ? rank_fqn(name, role_.rank) : std::move(name);
    };
    if (i > 0 && item.index.fqn == items[i - 1].index.fqn) {  // items of one value are adjacent
      key_of[i] = key_of[i - 1];
    } else if (std::optional<std::string> stored_fqn = options_.keys.stored_name(item.index.fqn)) {
      key_of[i] = keys.size();
      keys.push_back({wanted_value(item), as_stored(std::move(*stored_fqn))});
    } else {
      left_out.push_back({item.index.fqn, as_stored(options_.keys.renamed(item.index.fqn))});
    }
  }
  SHOAL_RETURN_IF_ERROR(options_.keys.check_prefixes([&](const std::function<void(std::string_view)>& see) {
    for (const client::WantedKey& key : others) see(key.value.fqn);
    for (const client::LeftOutKey& key : left_out) see(key.fqn);
    for (const WriteItem& item : items) see(item.index.fqn);
    for (const auto& [fqn, value] : metadata_.state_dict_metadata) see(fqn);
  }));
  client::KeyComparison comparison =
      client::compare_keys(stored_values(metadata_), keys, policies_of(options_), role_.rank, left_out);
  report_ = std::move(comparison.report);
  SHOAL_RETURN_IF_ERROR(comparison.outcome.with_context(
      fmt::format("{} does not have what this load needs", metadata_.storage_meta.checkpoint_id)));

  std::vector<bool> is_readable(keys.size(), false);
  for (uint32_t key : comparison.readable) is_readable[key] = true;
  LoadPlan plan;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!key_of[i] || !is_readable[*key_of[i]]) continue;
    const WriteItem& item = items[i];
    const std::string& stored_fqn = keys[*key_of[i]].stored_fqn;
    if (!item.tensor_data) {
      SHOAL_RETURN_IF_ERROR(items_->object(item.index).status());  // fails before anything is placed
      plan.items.push_back({LoadItemType::byte_io, item.index, {}, MetadataIndex{stored_fqn}, {}, {}});
      continue;
    }
    append_read_items(item.index, item.tensor_data->chunk, stored_fqn,
                      std::get<TensorStorageMetadata>(metadata_.state_dict_metadata.at(stored_fqn)),
                      plan.items);
  }
  if (readable)
    readable->assign(is_readable.begin(), is_readable.begin() + static_cast<ptrdiff_t>(others.size()));
  return plan;
}

Status DefaultLoadPlanner::load_bytes(const ReadItem& read_item, std::string value) {
  SHOAL_ASSIGN_OR_RETURN(const BytesRef object, items_->object(read_item.dest_index));
  object.replace(std::move(value));
  return ok_status();
}

Result<Tensor> DefaultLoadPlanner::resolve_tensor(const ReadItem& read_item) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Tensor> homes,
                         items_->homes(read_item.dest_index, read_item.dest_offsets));
  if (!homes.empty()) return std::move(homes[0]);
  return Status(Code::invalid_argument, fmt::format("{} has no elements", to_string(read_item.dest_index)));
}

// Copies it to other local shards that hold the same tile.
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
