#include "shoal/dcp/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace shoal::dcp {

std::string to_string(const MetadataIndex& index) {
  if (!index.offset) return fmt::format("'{}'", index.fqn);
  return fmt::format("'{}' at [{}]", index.fqn, fmt::join(*index.offset, ", "));
}

bool same_sharding(const ValueShardingPtr& a, const ValueShardingPtr& b) {
  return a == b || (a && b && *a == *b);
}

bool operator==(const WriteItem& a, const WriteItem& b) {
  return a.index == b.index && a.type == b.type && a.tensor_data == b.tensor_data &&
         a.replicated == b.replicated && a.per_rank == b.per_rank && a.parts == b.parts &&
         same_sharding(a.sharding, b.sharding);
}

uint64_t WriteItem::chunk_bytes() const {
  if (!tensor_data) return 0;
  return tensor_data->chunk.elements() * dtype_bytes(tensor_data->properties.dtype).value();
}

std::string checkpoint_id_of(const AttemptKey& key) {
  return fmt::format("step-{:08}/g{}a{}", key.step, key.generation, key.attempt);
}

Metadata metadata_of(const shoal::Metadata& checkpoint) {
  Metadata out;
  for (const TensorMetadata& value : checkpoint.state_dict_metadata) {
    if (value.kind == LayoutEntry::Kind::object) {
      out.state_dict_metadata.emplace(value.fqn, BytesStorageMetadata{});
    } else {
      out.state_dict_metadata.emplace(
          value.fqn, TensorStorageMetadata{{value.dtype}, value.shape, {whole(value.shape)}});
    }
  }
  out.storage_meta = {checkpoint.key, checkpoint_id_of(checkpoint.key)};
  return out;
}

Data Data::owned(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  return {as_view(*owner), owner};
}

Data Data::owned(Bytes bytes) {
  auto owner = std::make_shared<const Bytes>(std::move(bytes));
  return {ByteView(*owner), owner};
}

}  // namespace shoal::dcp
