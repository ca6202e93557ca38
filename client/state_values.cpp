// ShardedTensor, and scalars that a StateDict stores.
#include <fmt/format.h>

#include <algorithm>

#include "client/state_dict.h"
#include "shoal/check.h"

namespace shoal {

Result<LocalShards> ShardedTensor::local(Rank rank) const {
  SHOAL_RETURN_IF_ERROR(mesh.status());
  SHOAL_RETURN_IF_ERROR(validate_placements(placements, mesh, shape));
  const std::optional<Dims> coordinate = mesh.coordinate_of(rank);
  if (!coordinate) {
    return Status(Code::invalid_argument, fmt::format("rank {} is not in the tensor's mesh", rank));
  }
  return shards_at(shape, mesh, placements, *coordinate);
}

Result<uint64_t> ShardedTensor::local_elements(Rank rank) const {
  SHOAL_ASSIGN_OR_RETURN(const LocalShards held, local(rank));
  const std::optional<uint64_t> elements = element_count(held.local_shape);
  if (!elements) return Status(Code::invalid_argument, "the tensor has more elements than 64 bits can count");
  return *elements;
}

Result<uint64_t> ShardedTensor::local_bytes(Rank rank) const {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t elements, local_elements(rank));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t element_bytes, dtype_bytes(dtype));
  if (elements > UINT64_MAX / element_bytes) {
    return Status(Code::invalid_argument, "the tensor has more bytes than 64 bits can count");
  }
  return elements * element_bytes;
}

void StateDict::add_tensor(std::string fqn, const ShardedTensor& tensor, MemoryRef data) {
  add_tensor(std::move(fqn), tensor.dtype, tensor.shape, tensor.mesh, tensor.placements, data);
}

void StateDict::add_scalar(std::string fqn, DType dtype, ByteView value, std::optional<Mesh> group,
                           bool replicated) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::value;
  entry->fqn = std::move(fqn);
  entry->dtype = dtype;
  entry->mesh = std::move(group);
  entry->replicated = replicated;
  entry->kept = std::make_shared<Bytes>(value.begin(), value.end());
  entry->data = entry->kept->data();
  entries_.push_back(std::move(entry));
}

Result<MutableByteView> StateDict::scalar(std::string_view fqn, DType dtype) const {
  const auto found = std::ranges::find_if(
      entries_, [&](const std::shared_ptr<const Entry>& entry) { return entry->kept && entry->fqn == fqn; });
  if (found == entries_.end()) {
    return Status(Code::not_found, fmt::format("the state keeps no scalar '{}'", fqn));
  }
  if ((*found)->dtype != dtype) {
    return Status(Code::invalid_argument, fmt::format("'{}' is {} in the state, not {}", fqn,
                                                      dtype_name((*found)->dtype), dtype_name(dtype)));
  }
  return MutableByteView(*(*found)->kept);
}

}  // namespace shoal
