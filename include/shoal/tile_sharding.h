// TileSharding: how XLA and JAX shard a tensor, as a value, over devices of which a rank may drive several.
//
// Semantics: OpSharding (xla/xla_data.proto) and HloSharding (xla/hlo/ir/hlo_sharding.h). A tile assignment
// is an array of devices with a dimension for each of the tensor's, and, where it replicates on the last tile
// dimension, one more along which devices hold the same tile. Every dimension is cut into tiles of
// ceil(size / tiles) elements, of which the last ones may be short or empty; here nothing is padded. That is
// Shard(0), Shard(1), ... on a mesh of the devices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/box.h"
#include "shoal/mesh.h"
#include "shoal/status.h"

namespace shoal {

using Device = uint64_t;  // any number: a global device id

// Devices of one tensor that one rank drives: it bounds the boxes that a rank holds, as kMaxSplitFactor does.
inline constexpr uint32_t kMaxDevicesPerRank = 1u << 16;

// Which rank drives which device: of JAX, device.process_index by device.id. Immutable; copies are cheap.
class DeviceMap {
 public:
  struct Owner {
    Device device = 0;
    Rank rank = 0;
    friend auto operator<=>(const Owner&, const Owner&) = default;
  };
  // Code::invalid_argument: no device, more than kMaxMeshSize, or a device twice.
  static Result<DeviceMap> make(std::vector<Owner> owners);
  // Device d belongs to rank d / devices_per_rank.
  static Result<DeviceMap> uniform(uint32_t ranks, uint32_t devices_per_rank);

  std::optional<Rank> rank_of(Device device) const;
  std::vector<Device> devices_of(Rank rank) const;                    // ascending
  const std::vector<Owner>& owners() const { return data_->owners; }  // ascending by device
  const Mesh& ranks() const { return data_->ranks; }                  // one dimension, ascending
  friend bool operator==(const DeviceMap& a, const DeviceMap& b) {
    return a.data_ == b.data_ || a.data_->owners == b.data_->owners;
  }

 private:
  struct Data {
    std::vector<Owner> owners, by_rank;  // by ascending device; by ascending rank, then device
    Mesh ranks;
  };
  explicit DeviceMap(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::shared_ptr<const Data> data_;
};

// Immutable; copies are cheap. Equal values compare equal; so may their layouts where values differ.
class TileSharding {
 public:
  enum class Type : uint8_t { replicated, maximal, tiled };

  // Every device of the map holds all of the tensor.
  static TileSharding replicated(const DeviceMap& devices);
  // One device holds all of it.
  static Result<TileSharding> maximal(const DeviceMap& devices, Device device);
  // `tiles` are OpSharding's tile_assignment_dimensions; `assignment` its devices, row-major.
  // Code::invalid_argument: sizes of 0, another number of devices than tiles, a device that stands twice or
  // is in no rank; more than kMaxDims dimensions, kMaxMeshSize devices or kMaxDevicesPerRank of one rank.
  static Result<TileSharding> tiled(const DeviceMap& devices, Dims tiles, std::vector<Device> assignment,
                                    bool replicate_on_last_tile_dim = false);
  // JAX's and XLA's "tiles<=[reshape]T(transpose)": devices 0, 1, 2, ... in the shape `reshape`, transposed,
  // in the shape `tiles`. An empty transpose is none.
  static Result<TileSharding> iota(const DeviceMap& devices, Dims tiles, const Dims& reshape,
                                   const std::vector<uint32_t>& transpose = {},
                                   bool replicate_on_last_tile_dim = false);

  Type type() const { return data_->type; }
  const DeviceMap& device_map() const { return data_->devices; }
  const Dims& tiles() const { return data_->tiles; }                      // of type tiled
  const std::vector<Device>& assignment() const { return data_->order; }  // row-major; all where replicated
  bool replicate_on_last_tile_dim() const { return data_->replicates_last; }
  bool is_sharded() const;  // there is more than one tile; otherwise whoever holds any of it holds all

  // Code::invalid_argument where a tiled assignment has not one dimension for each of the tensor's.
  Status validate_for(std::span<const uint64_t> shape) const;
  // What follows needs validate_for(shape).

  // What a device holds, unpadded, which may have no element; nullopt of a device that is not assigned.
  std::optional<Box> box_of(std::span<const uint64_t> shape, Device device) const;
  struct HeldBox {
    Box box;
    std::vector<Device> devices;  // of the rank, ascending
  };
  // The distinct boxes with elements that a rank's devices hold, ascending.
  std::vector<HeldBox> boxes_of(std::span<const uint64_t> shape, Rank rank) const;

  // As a layout says it. `mesh` is of ranks where devices_per_rank is 1: an unsharded tensor, and one of
  // whose devices no two belong to one rank. Otherwise its numbers are rank * devices_per_rank + n, n
  // counting a rank's devices in row-major order, so that the ids of devices, which mean nothing to a
  // checkpoint, are in no layout. Dimensions are those of `tiles`, without a last one of size 1 that
  // replicates.
  struct OnMesh {
    Mesh mesh;
    uint32_t devices_per_rank = 1;
    bool replicates_last = false;
    std::span<const Placement> placements() const;
  };
  const OnMesh& on_mesh() const { return data_->on_mesh; }

  friend bool operator==(const TileSharding& a, const TileSharding& b);

 private:
  struct Data {
    Type type = Type::replicated;
    DeviceMap devices;
    Dims tiles;
    std::vector<Device> order;
    bool replicates_last = false;
    std::vector<uint32_t> by_device;  // positions in `order` by ascending device
    OnMesh on_mesh;
  };
  static Result<TileSharding> make(Data data);
  std::optional<uint64_t> position_of(Device device) const;
  explicit TileSharding(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::shared_ptr<const Data> data_;
};

// The tile at a coordinate of `tiles`, which has at least the dimensions of `shape`: offsets of
// min(i * ceil(size / n), size) in each.
Box tile_at(std::span<const uint64_t> shape, std::span<const uint64_t> tiles,
            std::span<const uint64_t> coordinate);

// Shard(0), Shard(1), ... for each tensor dimension, then Replicate if asked for. Lives for ever.
std::span<const Placement> tile_placements(size_t tensor_dims, bool replicates_last);

}  // namespace shoal
