#include "shoal/tile_sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>

namespace shoal {

namespace {

Status bad_tiles(std::string what) {
  return Status(Code::invalid_argument, std::move(what));
}

// The coordinate of a row-major position.
Dims coordinate_at(std::span<const uint64_t> shape, uint64_t position) {
  Dims coordinate(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    coordinate[i] = position % shape[i];
    position /= shape[i];
  }
  return coordinate;
}

// The shape of one tile: 1 in every dimension except a last one that replicates.
bool is_one_tile(const Dims& tiles, bool replicates_last) {
  const auto sharded = tiles.begin() + static_cast<ptrdiff_t>(tiles.size() - (replicates_last ? 1 : 0));
  return std::all_of(tiles.begin(), sharded, [](uint64_t size) { return size == 1; });
}

Status validate_tiles(const Dims& tiles, uint64_t devices) {
  if (tiles.empty() || tiles.size() > kMaxDims) {
    return bad_tiles(
        fmt::format("a tile assignment has {} dimensions: 1 to {} are allowed", tiles.size(), kMaxDims));
  }
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (tiles[i] == 0) return bad_tiles(fmt::format("dimension {} of a tile assignment is 0", i));
  }
  std::optional<uint64_t> count = element_count(tiles);
  if (!count || *count > kMaxMeshSize) {
    return bad_tiles(fmt::format("a tile assignment has more than {} devices", kMaxMeshSize));
  }
  if (*count != devices) {
    return bad_tiles(fmt::format("a tile assignment of [{}] needs {} devices, and {} are given",
                                 fmt::join(tiles, ","), *count, devices));
  }
  return ok_status();
}

Mesh mesh_of_ranks(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const uint64_t size = ranks.size();
  Result<Mesh> mesh = Mesh::from_ranks({size}, std::move(ranks));
  SHOAL_CHECK(mesh.ok());  // the numbers are distinct and at most the number of devices
  return std::move(mesh).value();
}

// Numbers the devices of each rank in row-major order.
Result<TileSharding::OnMesh> number_devices(Dims tiles, bool replicates_last,
                                            const std::vector<Rank>& ranks) {
  if (replicates_last && tiles.back() == 1) {
    tiles.pop_back();
    replicates_last = false;
  }
  std::vector<std::pair<Rank, uint32_t>> by_rank;  // second: position
  for (uint32_t i = 0; i < ranks.size(); ++i) by_rank.emplace_back(ranks[i], i);
  std::sort(by_rank.begin(), by_rank.end());
  std::vector<uint64_t> nth(ranks.size(), 0);
  uint64_t most = 1;
  for (size_t i = 1; i < by_rank.size(); ++i) {
    if (by_rank[i].first != by_rank[i - 1].first) continue;
    nth[by_rank[i].second] = nth[by_rank[i - 1].second] + 1;
    most = std::max(most, nth[by_rank[i].second] + 1);
  }
  if (most > kMaxDevicesPerRank) {
    return bad_tiles(fmt::format("a tile assignment has {} devices on one rank: at most {} are allowed", most,
                                 kMaxDevicesPerRank));
  }
  if (most * (uint64_t{by_rank.back().first} + 1) > std::numeric_limits<Rank>::max()) {
    return bad_tiles(fmt::format("rank {} with {} devices a rank: the device numbers exceed 32 bits",
                                 by_rank.back().first, most));
  }
  std::vector<Rank> numbers;
  numbers.reserve(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) numbers.push_back(static_cast<Rank>(ranks[i] * most + nth[i]));
  SHOAL_ASSIGN_OR_RETURN(Mesh mesh, Mesh::from_ranks(std::move(tiles), std::move(numbers)));
  return TileSharding::OnMesh{std::move(mesh), static_cast<uint32_t>(most), replicates_last};
}

}  // namespace

Result<DeviceMap> DeviceMap::make(std::vector<Owner> owners) {
  if (owners.empty() || owners.size() > kMaxMeshSize) {
    return bad_tiles(
        fmt::format("a device map has {} devices: 1 to {} are allowed", owners.size(), kMaxMeshSize));
  }
  std::sort(owners.begin(), owners.end());
  std::vector<Rank> ranks;
  for (size_t i = 0; i < owners.size(); ++i) {
    if (i > 0 && owners[i].device == owners[i - 1].device) {
      return bad_tiles(fmt::format("device {} occurs twice in a device map", owners[i].device));
    }
    ranks.push_back(owners[i].rank);
  }
  std::vector<Owner> by_rank = owners;
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [](const Owner& a, const Owner& b) { return a.rank < b.rank; });
  return DeviceMap(
      std::make_shared<Data>(Data{std::move(owners), std::move(by_rank), mesh_of_ranks(std::move(ranks))}));
}

Result<DeviceMap> DeviceMap::uniform(uint32_t ranks, uint32_t devices_per_rank) {
  const uint64_t count = uint64_t{ranks} * devices_per_rank;
  if (count == 0 || count > kMaxMeshSize) {
    return bad_tiles(fmt::format("a device map has {} devices: 1 to {} are allowed", count, kMaxMeshSize));
  }
  std::vector<Owner> owners;
  owners.reserve(count);
  for (Device device = 0; device < count; ++device) {
    owners.push_back({device, static_cast<Rank>(device / devices_per_rank)});
  }
  return make(std::move(owners));
}

std::optional<Rank> DeviceMap::rank_of(Device device) const {
  const std::vector<Owner>& all = owners();
  auto found = std::lower_bound(all.begin(), all.end(), device,
                                [](const Owner& owner, Device wanted) { return owner.device < wanted; });
  if (found == all.end() || found->device != device) return std::nullopt;
  return found->rank;
}

std::vector<Device> DeviceMap::devices_of(Rank rank) const {
  const std::vector<Owner>& all = data_->by_rank;
  auto at = std::lower_bound(all.begin(), all.end(), rank,
                             [](const Owner& owner, Rank wanted) { return owner.rank < wanted; });
  std::vector<Device> out;
  for (; at != all.end() && at->rank == rank; ++at) out.push_back(at->device);
  return out;
}

// Makes a TileSharding from the parts that do not follow from others; `order` may be invalid.
Result<TileSharding> TileSharding::make(Data data) {
  std::vector<Rank> ranks;
  ranks.reserve(data.order.size());
  for (Device device : data.order) {
    std::optional<Rank> rank = data.devices.rank_of(device);
    if (!rank)
      return bad_tiles(fmt::format("device {} of a tile assignment is in no rank's device map", device));
    ranks.push_back(*rank);
  }
  data.by_device.resize(data.order.size());
  std::iota(data.by_device.begin(), data.by_device.end(), 0u);
  std::sort(data.by_device.begin(), data.by_device.end(),
            [&](uint32_t a, uint32_t b) { return data.order[a] < data.order[b]; });
  for (size_t i = 1; i < data.by_device.size(); ++i) {
    const Device device = data.order[data.by_device[i]];
    if (device == data.order[data.by_device[i - 1]]) {
      return bad_tiles(fmt::format("device {} occurs twice in a tile assignment", device));
    }
  }
  if (data.type != Type::tiled || is_one_tile(data.tiles, data.replicates_last)) {
    data.on_mesh = {mesh_of_ranks(std::move(ranks)), 1, true};
  } else {
    SHOAL_ASSIGN_OR_RETURN(data.on_mesh, number_devices(data.tiles, data.replicates_last, ranks));
  }
  return TileSharding(std::make_shared<Data>(std::move(data)));
}

TileSharding TileSharding::replicated(const DeviceMap& devices) {
  std::vector<Device> order;
  for (const DeviceMap::Owner& owner : devices.owners()) order.push_back(owner.device);
  Result<TileSharding> sharding = make({Type::replicated, devices, {}, std::move(order), false, {}, {}});
  SHOAL_CHECK(sharding.ok());
  return std::move(sharding).value();
}

Result<TileSharding> TileSharding::maximal(const DeviceMap& devices, Device device) {
  return make({Type::maximal, devices, {}, {device}, false, {}, {}});
}

Result<TileSharding> TileSharding::tiled(const DeviceMap& devices, Dims tiles, std::vector<Device> assignment,
                                         bool replicate_on_last_tile_dim) {
  SHOAL_RETURN_IF_ERROR(validate_tiles(tiles, assignment.size()));
  return make(
      {Type::tiled, devices, std::move(tiles), std::move(assignment), replicate_on_last_tile_dim, {}, {}});
}

Result<TileSharding> TileSharding::iota(const DeviceMap& devices, Dims tiles, const Dims& reshape,
                                        const std::vector<uint32_t>& transpose,
                                        bool replicate_on_last_tile_dim) {
  std::vector<uint32_t> order = transpose;
  if (order.empty()) {
    order.resize(reshape.size());
    std::iota(order.begin(), order.end(), 0u);
  }
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != i)
      return bad_tiles(
          fmt::format("T({}) is not a permutation of the dimensions", fmt::join(transpose, ",")));
  }
  if (order.size() != reshape.size()) {
    return bad_tiles(fmt::format("T({}) does not fit an array of {} dimensions", fmt::join(transpose, ","),
                                 reshape.size()));
  }
  std::optional<uint64_t> count = element_count(reshape);
  if (!count || *count == 0 || *count > kMaxMeshSize) {
    return bad_tiles(fmt::format("<=[{}] has a wrong number of devices: 1 to {} are allowed",
                                 fmt::join(reshape, ","), kMaxMeshSize));
  }
  Dims strides(reshape.size(), 1), shape, steps;
  for (size_t i = reshape.size(); i-- > 1;) strides[i - 1] = strides[i] * reshape[i];
  for (uint32_t i : order) shape.push_back(reshape[i]), steps.push_back(strides[i]);
  std::vector<Device> assignment;
  assignment.reserve(*count);
  for (uint64_t position = 0; position < *count; ++position) {
    const Dims coordinate = coordinate_at(shape, position);
    assignment.push_back(std::inner_product(coordinate.begin(), coordinate.end(), steps.begin(), Device{0}));
  }
  return tiled(devices, std::move(tiles), std::move(assignment), replicate_on_last_tile_dim);
}

std::span<const Placement> TileSharding::OnMesh::placements() const {
  return tile_placements(mesh.dims() - (replicates_last ? 1 : 0), replicates_last);
}

bool TileSharding::is_sharded() const {
  return type() == Type::tiled && !is_one_tile(tiles(), data_->replicates_last);
}

Status TileSharding::validate_for(std::span<const uint64_t> shape) const {
  if (type() != Type::tiled) return ok_status();
  const size_t dims = tiles().size() - (data_->replicates_last ? 1 : 0);
  if (dims == shape.size()) return ok_status();
  return bad_tiles(fmt::format(
      "a tile assignment of [{}]{} does not fit a tensor of {} dimensions", fmt::join(tiles(), ","),
      data_->replicates_last ? " (its last dimension replicates)" : "", shape.size()));
}

std::optional<uint64_t> TileSharding::position_of(Device device) const {
  const std::vector<uint32_t>& by_device = data_->by_device;
  auto found =
      std::lower_bound(by_device.begin(), by_device.end(), device,
                       [&](uint32_t position, Device wanted) { return data_->order[position] < wanted; });
  if (found == by_device.end() || data_->order[*found] != device) return std::nullopt;
  return *found;
}

std::optional<Box> TileSharding::box_of(std::span<const uint64_t> shape, Device device) const {
  std::optional<uint64_t> position = position_of(device);
  if (!position) return std::nullopt;
  if (type() != Type::tiled) return whole(shape);
  return tile_at(shape, tiles(), coordinate_at(tiles(), *position));
}

std::vector<TileSharding::HeldBox> TileSharding::boxes_of(std::span<const uint64_t> shape, Rank rank) const {
  std::map<Box, std::vector<Device>> held;
  for (Device device : data_->devices.devices_of(rank)) {
    std::optional<Box> box = box_of(shape, device);
    if (box && !box->empty()) held[std::move(*box)].push_back(device);
  }
  std::vector<HeldBox> out;
  for (auto& [box, devices] : held) out.push_back({box, std::move(devices)});
  return out;
}

bool operator==(const TileSharding& a, const TileSharding& b) {
  const TileSharding::Data &x = *a.data_, &y = *b.data_;
  return &x == &y || (x.type == y.type && x.tiles == y.tiles && x.order == y.order &&
                      x.replicates_last == y.replicates_last && x.devices == y.devices);
}

Box tile_at(std::span<const uint64_t> shape, std::span<const uint64_t> tiles,
            std::span<const uint64_t> coordinate) {
  Box box{Dims(shape.size()), Dims(shape.size())};
  for (size_t i = 0; i < shape.size(); ++i) {
    const uint64_t size = shape[i] / tiles[i] + (shape[i] % tiles[i] != 0);
    box.offsets[i] = std::min(coordinate[i] * size, shape[i]);
    box.sizes[i] = std::min(size, shape[i] - box.offsets[i]);
  }
  return box;
}

std::span<const Placement> tile_placements(size_t tensor_dims, bool replicates_last) {
  using Table = std::array<std::array<Placement, kMaxDims + 1>, kMaxDims + 1>;
  static const Table table = [] {
    Table out;
    for (uint32_t dims = 0; dims <= kMaxDims; ++dims) {
      for (uint32_t i = 0; i < dims; ++i) out[dims][i] = Placement::shard(i);
    }
    return out;
  }();
  return {table[tensor_dims].data(), tensor_dims + (replicates_last ? 1 : 0)};
}

}  // namespace shoal
