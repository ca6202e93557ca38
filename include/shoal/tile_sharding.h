// TileSharding: the sharding of a tensor in XLA and JAX, as a value. It shards over devices, of which one
// rank may drive several.
//
// Semantics: OpSharding (xla/xla_data.proto) and HloSharding (xla/hlo/ir/hlo_sharding.h). A tile assignment
// is an array of devices with one dimension for each tensor dimension. If it replicates on the last tile
// dimension, it has one more, along which devices hold the same tile. Every tensor dimension is cut into
// tiles of ceil(size / tiles) elements; the last tiles may be short or empty, and are not padded. That equals
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

// Bound on the devices of one tensor that one rank drives. Like kMaxSplitFactor, it bounds the boxes that a
// rank holds.
inline constexpr uint32_t kMaxDevicesPerRank = 1u << 16;

// Which rank drives which device; in JAX, device.process_index by device.id. Immutable; copies are cheap.
class DeviceMap {
 public:
  struct Owner {
    Device device = 0;
    Rank rank = 0;
    friend auto operator<=>(const Owner&, const Owner&) = default;
  };
  // Code::invalid_argument: no device, more than kMaxMeshSize devices, or a device twice.
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

// Immutable; copies are cheap. Different TileShardings may give equal layouts.
class TileSharding {
 public:
  enum class Type : uint8_t { replicated, maximal, tiled };

  // Every device of the map holds all of the tensor.
  static TileSharding replicated(const DeviceMap& devices);
  // One device holds all of the tensor.
  static Result<TileSharding> maximal(const DeviceMap& devices, Device device);
  // `tiles` are OpSharding's tile_assignment_dimensions; `assignment` has its devices, row-major.
  // Code::invalid_argument: a size of 0, another number of devices than tiles, a device twice or not in the
  // map; more than kMaxDims dimensions, kMaxMeshSize devices or kMaxDevicesPerRank devices of one rank.
  static Result<TileSharding> tiled(const DeviceMap& devices, Dims tiles, std::vector<Device> assignment,
                                    bool replicate_on_last_tile_dim = false);
  // "tiles<=[reshape]T(transpose)" in the notation of JAX and XLA. Devices 0, 1, 2, ... are arranged in the
  // shape `reshape`, transposed, then reshaped to `tiles`. An empty `transpose` does not transpose.
  static Result<TileSharding> iota(const DeviceMap& devices, Dims tiles, const Dims& reshape,
                                   const std::vector<uint32_t>& transpose = {},
                                   bool replicate_on_last_tile_dim = false);

  Type type() const { return data_->type; }
  const DeviceMap& device_map() const { return data_->devices; }
  const Dims& tiles() const { return data_->tiles; }                      // of type tiled
  const std::vector<Device>& assignment() const { return data_->order; }  // row-major; all if replicated
  bool replicate_on_last_tile_dim() const { return data_->replicates_last; }
  bool is_sharded() const;  // there is more than one tile; otherwise every holder holds the whole tensor

  // Code::invalid_argument: a tiled assignment does not have one dimension for each tensor dimension.
  Status validate_for(std::span<const uint64_t> shape) const;
  // box_of and boxes_of require that validate_for(shape) is OK.

  // The unpadded box that a device holds, which may be empty; nullopt for a device that is not assigned.
  std::optional<Box> box_of(std::span<const uint64_t> shape, Device device) const;
  struct HeldBox {
    Box box;
    std::vector<Device> devices;  // of the rank, ascending
  };
  // The distinct boxes with elements that a rank's devices hold, ascending.
  std::vector<HeldBox> boxes_of(std::span<const uint64_t> shape, Rank rank) const;

  // The form that a layout uses. devices_per_rank is 1 for an unsharded tensor, and for one of whose devices
  // no two belong to one rank: then `mesh` consists of ranks. Otherwise the mesh has the numbers
  // rank * devices_per_rank + n, where n counts a rank's devices in row-major order. A layout thus contains
  // no device ids, which have no meaning in a checkpoint. The mesh has the dimensions of `tiles`, without a
  // last replicating dimension of size 1.
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

// The tile at a coordinate of `tiles`, which has at least as many dimensions as `shape`. Its offset in each
// dimension is min(i * ceil(size / n), size).
Box tile_at(std::span<const uint64_t> shape, std::span<const uint64_t> tiles,
            std::span<const uint64_t> coordinate);

// Shard(0), Shard(1), ... for each tensor dimension, then Replicate if `replicates_last`. The span is valid
// until the process ends.
std::span<const Placement> tile_placements(size_t tensor_dims, bool replicates_last);

}  // namespace shoal
