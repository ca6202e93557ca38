// The values that planners and storages exchange, modelled on PyTorch DCP: index, item, plan, result.
//
// Source of the interface: torch.distributed.checkpoint (2.13), planner.py, storage.py and metadata.py. The
// names are the same. They have a separate namespace because Shoal's own plans (include/shoal/save_plan.h)
// have types of the same names, with entry numbers instead of fqns. Where DCP has `Any`, these types have
// bytes, because nodes may send them.
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
  std::optional<uint32_t> index;  // a hint if several pieces could be meant; not compared
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

// Which ranks hold a value, if its planner can state it. It proves that ranks hold the same bytes. Without it
// pieces are explicit boxes, whose holders share the writing only if `replicated` is declared.
struct ValueSharding {
  struct OnMesh {
    Mesh mesh;
    std::vector<Placement> placements;
    friend bool operator==(const OnMesh&, const OnMesh&) = default;
  };
  struct Group {  // each of these ranks holds the whole value; that does not prove that the bytes are equal
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

// `tensor`: a whole tensor; `shard`: a piece of a tensor; `byte_io`: an object. The numbers are DCP's.
enum class WriteItemType : uint8_t { tensor = 1, shard = 2, byte_io = 3 };

// One piece of one value that a rank holds.
struct WriteItem {
  MetadataIndex index;  // for a tensor, offset is chunk.offsets
  WriteItemType type = WriteItemType::tensor;
  std::optional<TensorWriteData> tensor_data;  // set unless type is byte_io

  // DCP does not have the following members. sharding, replicated and per_rank must be the same in all items
  // of one fqn.

  // The chunk is the box, or one of the boxes, that this sharding gives the rank. For an object it is a
  // Group. nullptr: the chunk is an explicit box, or the object belongs to all ranks whose plans have it.
  ValueShardingPtr sharding;
  bool replicated = false;  // declares that all holders of this chunk hold the same bytes; not with OnMesh
  bool per_rank = false;    // this rank's own object, named "fqn@rank7" on rank 7
  // In a final plan: the parts of the chunk that this rank must write, if other ranks write the rest.
  std::vector<Box> parts;

  uint64_t chunk_bytes() const;  // requires a valid item; 0 for an object
  friend bool operator==(const WriteItem& a, const WriteItem& b);
};

struct SavePlan {
  std::vector<WriteItem> items;
  std::string storage_data;  // bytes that only the storage interprets
  std::string planner_data;  // bytes that only the planner interprets
  friend bool operator==(const SavePlan&, const SavePlan&) = default;
};

enum class LoadItemType : uint8_t { tensor = 1, byte_io = 2 };

// A hyper-rectangle to copy from a stored chunk to a piece of the state.
struct ReadItem {
  LoadItemType type = LoadItemType::tensor;
  MetadataIndex dest_index;     // in the state; for a tensor with the offset of the piece
  Dims dest_offsets;            // within that piece
  MetadataIndex storage_index;  // in the checkpoint; for a tensor with the offset of the chunk
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
  std::string storage_data;  // bytes that only the storage interprets; a StorageReader gets them back
  friend bool operator==(const WriteResult&, const WriteResult&) = default;
};

// Names the checkpoint that a call is about.
struct StorageMeta {
  AttemptKey key;
  std::string checkpoint_id;  // "step-00000010/g3a1"; no other attempt in this root ever has the same
};
std::string checkpoint_id_of(const AttemptKey& key);

struct TensorStorageMetadata {
  TensorProperties properties;
  Dims size;
  // Ascending, each once; they tile the tensor. If Shoal keeps the bytes, there is one chunk, the whole
  // tensor: Shoal computes where the bytes of any box are.
  std::vector<Box> chunks;
  friend bool operator==(const TensorStorageMetadata&, const TensorStorageMetadata&) = default;
};
struct BytesStorageMetadata {
  friend bool operator==(const BytesStorageMetadata&, const BytesStorageMetadata&) = default;
};

struct Metadata {
  std::map<std::string, std::variant<TensorStorageMetadata, BytesStorageMetadata>> state_dict_metadata;
  std::string planner_data;
  std::map<MetadataIndex, WriteResult> storage_data;  // results of a custom storage
  StorageMeta storage_meta;
};
Metadata metadata_of(const shoal::Metadata& checkpoint);  // for a checkpoint whose bytes Shoal keeps

// The calling process.
struct Role {
  Rank rank = 0;
  uint32_t world_size = 1;
  bool is_coordinator = true;  // rank == CheckpointerOptions::coordinator_rank
};

// The bytes of an item: a chunk's elements row-major, or an object.
struct Data {
  ByteView bytes;
  // Shoal keeps it until it has copied the bytes. Null: the state owns them.
  std::shared_ptr<const void> owner;
  static Data owned(std::string bytes);
  static Data owned(Bytes bytes);
};

// The destination of an item: `lengths` elements at `offsets` of a row-major buffer with shape buffer_shape.
struct Tensor {
  std::byte* data = nullptr;  // of the buffer
  Dims buffer_shape;
  Dims offsets;
  uint64_t element_bytes = 1;
  // Shoal keeps it until the tensor is committed. Null: the state owns the buffer.
  std::shared_ptr<void> owner;
};

}  // namespace shoal::dcp
