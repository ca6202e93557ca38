#include "shoal/checkpoint_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <utility>

#include "client/checkpointer.h"

namespace shoal {

namespace {

bool is_in(std::string_view subtree, std::string_view fqn) {
  return subtree.empty() ||
         (fqn.starts_with(subtree) && (fqn.size() == subtree.size() || fqn[subtree.size()] == '.'));
}

}  // namespace

CheckpointReader::CheckpointReader(Checkpointer::Impl& client,
                                   std::unique_ptr<client::OpenedCheckpoint> opened)
    : client_(&client), opened_(std::move(opened)) {}

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

CheckpointReader& CheckpointReader::operator=(CheckpointReader&& other) noexcept {
  std::swap(client_, other.client_);
  std::swap(opened_, other.opened_);
  return *this;
}

CheckpointReader::~CheckpointReader() {
  if (opened_ && client_->check_process().ok()) client_->close(*opened_);
}

const Metadata& CheckpointReader::metadata() const {
  return opened_->listed();
}

const World& CheckpointReader::world() const {
  return *opened_->layouts->world;
}

const PassedOver& CheckpointReader::passed_over() const {
  return opened_->passed_over;
}

const SaveOptions& CheckpointReader::save_options() const {
  return opened_->layouts->options;
}

const TensorMetadata* CheckpointReader::find(std::string_view fqn) const {
  const std::vector<TensorMetadata>& values = metadata().state_dict_metadata;
  auto found =
      std::lower_bound(values.begin(), values.end(), fqn,
                       [](const TensorMetadata& value, std::string_view name) { return value.fqn < name; });
  return found != values.end() && found->fqn == fqn ? &*found : nullptr;
}

Result<std::vector<Box>> CheckpointReader::boxes_of(std::string_view fqn, Rank rank) const {
  if (!find_value(world(), fqn)) {
    return Status(Code::key_mismatch,
                  fmt::format("'{}' is not in {}", fqn, to_string(opened_->metadata.key)));
  }
  if (rank >= world().roster.world_size()) {
    return Status(Code::invalid_argument,
                  fmt::format("rank {} is not among the {} ranks that saved the checkpoint", rank,
                              world().roster.world_size()));
  }
  const Layout& layout = world().layout_of(rank);
  const std::optional<RankFqn> own = split_rank_fqn(fqn);
  std::optional<uint32_t> entry = layout.find(fqn);
  if (!entry && own && own->rank == rank) entry = layout.find(own->prefix);
  if (!entry) return std::vector<Box>();
  return layout.shards_of(layout.entries()[*entry], rank).boxes;
}

// The tensor of that name, and the number of bytes of `box`. Does not list the checkpoint's values.
Result<const LayoutEntry*> CheckpointReader::tensor(std::string_view fqn, const Box* box,
                                                    uint64_t* bytes) const {
  const LayoutEntry* value = find_value(world(), fqn);
  if (!value) {
    return Status(Code::key_mismatch,
                  fmt::format("'{}' is not in {}", fqn, to_string(opened_->metadata.key)));
  }
  if (value->kind != LayoutEntry::Kind::tensor) {
    return Status(Code::invalid_argument, fmt::format("'{}' is an object, not a tensor", fqn));
  }
  SHOAL_ASSIGN_OR_RETURN(const uint64_t element_bytes, dtype_bytes(value->dtype));
  if (box) {
    SHOAL_RETURN_IF_ERROR(validate_box(*box, value->shape).with_context(fmt::format("'{}'", fqn)));
  }
  *bytes = (box ? box->elements() : whole(value->shape).elements()) * element_bytes;
  return value;
}

Status CheckpointReader::read(const StateDict& given) {
  SHOAL_RETURN_IF_ERROR(client_->check_process());
  const client::LoadingThread::Turn turn(client_->loading_thread);
  SHOAL_RETURN_IF_ERROR(turn.status());
  SHOAL_ASSIGN_OR_RETURN(const StateDict* state, client_->of_group(given));
  SHOAL_RETURN_IF_ERROR(client::check_on_host(*state));
  for (const auto& entry : state->entries()) SHOAL_RETURN_IF_ERROR(client::check_fillable(*entry));
  return fill(*state);
}

Status CheckpointReader::fill(const StateDict& state) {
  SHOAL_RETURN_IF_ERROR(client_->check_process());
  const client::LoadingThread::Turn turn(client_->loading_thread);
  SHOAL_RETURN_IF_ERROR(turn.status());
  SHOAL_ASSIGN_OR_RETURN(const client::BoundState target,
                         client::BoundState::bind(state, client_->options.rank));
  const Result<Metadata> loaded = client_->while_open(*opened_, [&]() -> Result<Metadata> {
    std::vector<uint32_t> all(target.values().size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    client::Placer placer(target, std::move(all));
    return client_->load_targets(placer, {}, opened_.get());
  });
  return loaded.status().with_context(client_->name_load(to_string(opened_->metadata.key)));
}

Status CheckpointReader::read(std::string_view fqn, const Box& box, void* data, uint64_t bytes) {
  uint64_t wanted = 0;
  SHOAL_ASSIGN_OR_RETURN(const LayoutEntry* value, tensor(fqn, &box, &wanted));
  if (bytes != wanted) {
    return Status(Code::invalid_argument, fmt::format("'{}' {} has {} bytes, and the buffer has {}", fqn,
                                                      to_string(box), wanted, bytes));
  }
  if (box.empty()) return ok_status();
  StateDict state;
  state.add_tensor_boxes(std::string(fqn), value->dtype, value->shape, {{box, data}});
  return fill(state);
}

Status CheckpointReader::read(std::string_view fqn, void* data, uint64_t bytes) {
  uint64_t wanted = 0;
  SHOAL_ASSIGN_OR_RETURN(const LayoutEntry* value, tensor(fqn, nullptr, &wanted));
  return read(fqn, whole(value->shape), data, bytes);
}

Result<Bytes> CheckpointReader::read(std::string_view fqn, const Box& box) {
  uint64_t wanted = 0;
  SHOAL_RETURN_IF_ERROR(tensor(fqn, &box, &wanted).status());
  try {
    Bytes bytes(wanted);
    SHOAL_RETURN_IF_ERROR(read(fqn, box, bytes.data(), bytes.size()));
    return bytes;
  } catch (const std::bad_alloc&) {
    return Status(Code::no_space, fmt::format("'{}': cannot allocate {} bytes", fqn, wanted));
  }
}

Result<Bytes> CheckpointReader::read(std::string_view fqn) {
  const LayoutEntry* value = find_value(world(), fqn);
  if (!value || value->kind == LayoutEntry::Kind::tensor) {
    uint64_t wanted = 0;
    SHOAL_ASSIGN_OR_RETURN(value, tensor(fqn, nullptr, &wanted));
    return read(fqn, whole(value->shape));
  }
  std::string object;
  StateDict state;
  state.add_object(std::string(fqn), &object, Mesh::single(client_->options.rank));
  SHOAL_RETURN_IF_ERROR(fill(state));
  const ByteView bytes = as_view(object);
  return Bytes(bytes.begin(), bytes.end());
}

Result<LoadResult> CheckpointReader::load(const StateDict& given, const KeyPolicies& policies) {
  SHOAL_RETURN_IF_ERROR(client_->check_process());
  const client::LoadingThread::Turn turn(client_->loading_thread);
  SHOAL_RETURN_IF_ERROR(turn.status());
  client_->report = {};
  SHOAL_RETURN_IF_ERROR(client::validate_policies(policies));
  SHOAL_ASSIGN_OR_RETURN(const StateDict* state, client_->of_group(given));
  const LoadOptions options{opened_->metadata.key.step, policies};
  Result<LoadResult> loaded = client_->while_open(*opened_, [&] {
    return client_->load({*state, options, opened_.get()});
  });
  if (loaded.ok()) return loaded;
  return loaded.status().with_context(client_->name_load(to_string(opened_->metadata.key)));
}

Result<std::map<std::string, CheckpointReader::Value>> CheckpointReader::read_all(std::string_view subtree) {
  std::map<std::string, Value> values;
  std::map<std::string, std::string> objects;
  StateDict state;
  try {
    for (const TensorMetadata& about : metadata().state_dict_metadata) {
      if (!is_in(subtree, about.fqn)) continue;
      Value& value = values[about.fqn];
      value.about = about;
      if (about.kind == LayoutEntry::Kind::object) {
        state.add_object(about.fqn, &objects[about.fqn], Mesh::single(client_->options.rank));
        continue;
      }
      uint64_t bytes = 0;
      SHOAL_RETURN_IF_ERROR(tensor(about.fqn, nullptr, &bytes).status());
      if (bytes == 0) continue;
      value.bytes.resize(bytes);
      state.add_tensor_boxes(about.fqn, about.dtype, about.shape, {{whole(about.shape), value.bytes.data()}});
    }
    if (values.empty() && !subtree.empty()) {
      return Status(Code::key_mismatch, fmt::format("{} has no key '{}' and no key below it",
                                                    to_string(opened_->metadata.key), subtree));
    }
    if (!state.entries().empty()) SHOAL_RETURN_IF_ERROR(fill(state));
    for (auto& [fqn, object] : objects) {
      const ByteView bytes = as_view(object);
      values[fqn].bytes.assign(bytes.begin(), bytes.end());
      object = std::string();
    }
  } catch (const std::bad_alloc&) {
    return Status(Code::no_space,
                  fmt::format("{} does not fit into memory", to_string(opened_->metadata.key)));
  }
  return values;
}

}  // namespace shoal
