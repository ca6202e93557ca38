// The values that planners and storages pass on, in the shape of PyTorch DCP's: index, item, plan, result.
//
// Source of the interface: torch.distributed.checkpoint (2.13), planner.py, storage.py and metadata.py, whose
// names are kept. They live in a namespace of their own, since Shoal's plans (include/shoal/save_plan.h)
// count entries and carry no names. What a DCP planner would put into `Any` is bytes here: it may have to
// travel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/layout.h"
#include "shoal/metadata.h"

namespace shoal::dcp {

// A value, or the piece of a tensor that begins at `offset`.
struct MetadataIndex {
  std::string fqn;
  std::optional<Dims> offset;     // of a tensor; global coordinates, in elements
  std::optional<uint32_t> index;  // a hint where several could be meant; not compared
  friend bool operator==(const MetadataIndex& a, const MetadataIndex& b) {
    return a.fqn == b.fqn && a.offset == b.offset;
  }
  friend auto operator<=>(const MetadataIndex& a, const MetadataIndex& b) {
    if (auto order = a.fqn <=> b.fqn; order != 0) return order;
    return a.offset <=> b.offset;
  }
};
std::string to_string(const MetadataIndex& index);  // "'w' at [0, 4]"

struct TensorProperties {
  DType dtype = DType::u8;
  friend bool operator==(const TensorProperties&, const TensorProperties&) = default;
};

// Who has a value, where its planner can say so. This is what proves that ranks hold the same bytes: without
// it pieces are explicit boxes, whose holders share the writing only where `replicated` is declared.
struct ValueSharding {
  struct OnMesh {
    Mesh mesh;
    std::vector<Placement> placements;
    friend bool operator==(const OnMesh&, const OnMesh&) = default;
  };
  struct Group {  // each of these ranks holds all of it; nothing is proven
    Mesh mesh;
    friend bool operator==(const Group&, const Group&) = default;
  };
  std::variant<OnMesh, Group, TileSharding> form;
  friend bool operator==(const ValueSharding&, const ValueSharding&) = default;
};
using ValueShardingPtr = std::shared_ptr<const ValueSharding>;
bool same_sharding(const ValueShardingPtr& a, const ValueShardingPtr& b);

struct TensorWriteData {
  Box chunk;  // of this item, in global coordinates; a scalar has no dimensions
  TensorProperties properties;
  Dims size;  // of the whole tensor
  friend bool operator==(const TensorWriteData&, const TensorWriteData&) = default;
};

// `tensor`: all of a tensor; `shard`: a piece of one; `byte_io`: an object. DCP's numbers.
enum class WriteItemType : uint8_t { tensor = 1, shard = 2, byte_io = 3 };

// One piece of one value that a rank holds.
struct WriteItem {
  MetadataIndex index;  // of a tensor with offset = chunk.offsets
  WriteItemType type = WriteItemType::tensor;
  std::optional<TensorWriteData> tensor_data;  // iff not byte_io

  // What follows DCP does not have. Alike in all items of one fqn.

  // The chunk is the box, or one of the boxes, that it gives this rank; of an object a Group. nullptr: an
  // explicit box; an object that belongs to the ranks whose plans have it.
  ValueShardingPtr sharding;
  bool replicated = false;  // declared: whoever holds this chunk holds the same bytes. Not OnMesh, not tiles
  bool per_rank = false;    // an object of this rank's own, called "fqn@rank7" on rank 7
  // In a final plan: the parts of the chunk that this rank is to write, where others write the rest.
  std::vector<Box> parts;

  std::optional<uint64_t> tensor_storage_size() const;  // bytes of the whole tensor, as in DCP
  uint64_t chunk_bytes() const;                         // of the chunk; 0 of an object. A valid item's
  friend bool operator==(const WriteItem& a, const WriteItem& b);
};

struct SavePlan {
  std::vector<WriteItem> items;
  std::string storage_data;  // bytes of the storage's own
  std::string planner_data;  // bytes of the planner's own
  friend bool operator==(const SavePlan&, const SavePlan&) = default;
};

enum class LoadItemType : uint8_t { tensor = 1, byte_io = 2 };

// A hyper-rectangle to copy from a stored chunk to a piece of the state.
struct ReadItem {
  LoadItemType type = LoadItemType::tensor;
  MetadataIndex dest_index;     // in the state; of a tensor with the offset of the piece
  Dims dest_offsets;            // within that piece
  MetadataIndex storage_index;  // in the checkpoint; of a tensor with the offset of the chunk
  Dims storage_offsets;         // within that chunk
  Dims lengths;
  friend bool operator==(const ReadItem&, const ReadItem&) = default;
};

struct LoadPlan {
  std::vector<ReadItem> items;
  std::string storage_data;
  std::string planner_data;
  friend bool operator==(const LoadPlan&, const LoadPlan&) = default;
};

struct WriteResult {
  MetadataIndex index;
  uint64_t size_in_bytes = 0;
  std::string storage_data;  // bytes of the storage's own, which a StorageReader gets back
  friend bool operator==(const WriteResult&, const WriteResult&) = default;
};

// Which checkpoint it is about.
struct StorageMeta {
  AttemptKey key;
  std::string checkpoint_id;  // "step-00000010/g3a1": a name no other attempt ever has in this root
};
std::string checkpoint_id_of(const AttemptKey& key);

struct TensorStorageMetadata {
  TensorProperties properties;
  Dims size;
  // Ascending, each once; they tile the tensor. Of a checkpoint whose bytes Shoal keeps: one, the whole, for
  // whatever box is asked of it is found by arithmetic.
  std::vector<Box> chunks;
  friend bool operator==(const TensorStorageMetadata&, const TensorStorageMetadata&) = default;
};
struct BytesStorageMetadata {
  friend bool operator==(const BytesStorageMetadata&, const BytesStorageMetadata&) = default;
};

struct Metadata {
  std::map<std::string, std::variant<TensorStorageMetadata, BytesStorageMetadata>> state_dict_metadata;
  std::string planner_data;
  std::map<MetadataIndex, WriteResult> storage_data;  // of a storage of one's own
  StorageMeta storage_meta;
};
Metadata metadata_of(const shoal::Metadata& checkpoint);  // of one whose bytes Shoal keeps

// Which process asks.
struct Role {
  Rank rank = 0;
  uint32_t world_size = 1;
  bool is_coordinator = true;  // rank == CheckpointerOptions::coordinator_rank
};

// The bytes of an item: a chunk's elements row-major, or an object.
struct Data {
  ByteView bytes;
  std::shared_ptr<const void> owner;  // kept until they are copied; null: they lie in the state
  static Data owned(std::string bytes);
  static Data owned(Bytes bytes);
};

// Where an item is to be put: `lengths` elements at `offsets` of a row-major buffer of that shape.
struct Tensor {
  std::byte* data = nullptr;  // of the buffer
  Dims buffer_shape;
  Dims offsets;
  uint64_t element_bytes = 1;
  std::shared_ptr<void> owner;  // kept until it is committed; null: it lies in the state
};

}  // namespace shoal::dcp
