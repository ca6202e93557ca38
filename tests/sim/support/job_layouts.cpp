#include "tests/sim/support/job_layouts.h"

#include <algorithm>
#include <utility>

#include "shoal/check.h"

namespace shoal::sim {
namespace {

LayoutPtr stage_layout(uint32_t stage, uint32_t stages, uint32_t ranks_per_stage, uint64_t tp) {
  const Mesh mesh = Mesh::contiguous({ranks_per_stage / tp, tp}, stage * ranks_per_stage);
  LayoutBuilder builder;
  auto shard = Placement::shard;
  for (uint32_t layer = stage; layer < 4; layer += stages) {
    const std::string name = "layers." + std::to_string(layer);
    builder.add_tensor(name + ".attn.weight", DType::f32, {96, 40}, mesh,
                       {Placement::strided_shard(0, tp), shard(0)});
    builder.add_tensor(name + ".mlp.weight", DType::f32, {37, 24}, mesh, {shard(0), shard(1)});
    builder.add_tensor(name + ".norm.weight", DType::f32, {50}, mesh, {shard(0), Placement::replicate()});
    builder.add_value(name + ".mlp.weight.step", DType::f32, {}, std::nullopt, true);
  }
  builder.add_tensor("empty" + std::to_string(stage), DType::f32, {0, 4}, mesh,
                     {shard(0), Placement::replicate()});
  builder.add_rank_objects("rng");
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  return *layout;
}

}  // namespace

std::vector<LayoutPtr> pipeline_job(uint32_t world_size, uint32_t stages, uint64_t tp) {
  std::vector<LayoutPtr> layouts;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    layouts.insert(layouts.end(), world_size / stages, stage_layout(stage, stages, world_size / stages, tp));
  }
  return layouts;
}

std::vector<LayoutPtr> flat_job(uint32_t world_size, Rank rng_of) {
  const Mesh mesh = Mesh::contiguous({world_size});
  LayoutBuilder builder;
  for (uint32_t layer = 0; layer < 4; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    builder.add_tensor(name + ".attn.weight", DType::f32, {96, 40}, mesh, {Placement::shard(1)});
    builder.add_tensor(name + ".mlp.weight", DType::f32, {37, 24}, mesh, {Placement::shard(0)});
    builder.add_tensor(name + ".norm.weight", DType::f32, {50}, mesh, {Placement::replicate()});
    builder.add_value(name + ".mlp.weight.step", DType::f32, {}, mesh, true);
  }
  builder.add_object(rank_fqn("rng", rng_of), mesh, true);
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  return std::vector<LayoutPtr>(world_size, *layout);
}

std::vector<LayoutPtr> replicated_job(uint32_t world_size) {
  const Mesh mesh = Mesh::contiguous({world_size});
  LayoutBuilder builder;
  builder.add_tensor("norm.weight", DType::f32, {50}, mesh, {Placement::replicate()});
  builder.add_tensor("norm.bias", DType::f32, {50}, mesh, {Placement::replicate()});
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  return std::vector<LayoutPtr>(world_size, *layout);
}

namespace {

uint64_t draw(std::mt19937_64& random, uint64_t first, uint64_t last) {
  return first + random() % (last - first + 1);
}

// Runs of rows, one for each of the ranks until there are none left.
std::vector<RankBoxes> drawn_boxes(std::mt19937_64& random, const Dims& shape, Rank first, uint32_t size) {
  std::vector<RankBoxes> boxes;
  for (uint64_t row = 0, rank = 0; row < shape[0]; ++rank) {
    const uint64_t rows = rank + 1 == size ? shape[0] - row : std::min(draw(random, 1, 7), shape[0] - row);
    Box box = whole(shape);
    box.offsets[0] = row;
    box.sizes[0] = rows;
    boxes.push_back({first + static_cast<Rank>(rank), {box}});
    row += rows;
  }
  return boxes;
}

// Over one or two devices of each rank, in any order.
TileSharding drawn_tiles(std::mt19937_64& random, const Dims& shape, Rank first, uint32_t size) {
  std::vector<DeviceMap::Owner> owners;
  for (uint64_t count = draw(random, 1, 2) * size; owners.size() < count;) {
    owners.push_back({owners.size(), first + static_cast<Rank>(owners.size() % size)});
  }
  std::vector<Device> order;
  for (const DeviceMap::Owner& owner : owners) order.push_back(owner.device);
  std::shuffle(order.begin(), order.end(), random);
  uint64_t cut = draw(random, 1, order.size());
  while (order.size() % cut != 0) --cut;
  Dims tiles(shape.size(), 1);
  if (!shape.empty()) tiles[random() % shape.size()] = cut;
  const bool replicates = shape.empty() || cut < order.size();
  if (replicates) tiles.push_back(shape.empty() ? order.size() : order.size() / cut);
  return TileSharding::tiled(DeviceMap::make(owners).value(), tiles, order, replicates).value();
}

// Over ranks [first, first + size), so that these hold all of it.
void add_drawn(std::mt19937_64& random, LayoutBuilder& builder, const TensorMetadata& tensor, Rank first,
               uint32_t size) {
  const auto& [fqn, kind, dtype, shape] = tensor;
  uint64_t inner = draw(random, 1, size);
  while (size % inner != 0) --inner;
  const Mesh mesh =
      inner == 1 ? Mesh::contiguous({size}, first) : Mesh::contiguous({size / inner, inner}, first);
  const uint64_t method = draw(random, 0, 9);
  if (method == 0) return builder.add_value(fqn, dtype, shape, mesh, draw(random, 0, 1) == 1);
  if (method == 1) return builder.add_tensor(fqn, dtype, shape, drawn_tiles(random, shape, first, size));
  if (method == 2 && !shape.empty() && *element_count(shape) != 0) {
    return builder.add_tensor_boxes(fqn, dtype, shape, drawn_boxes(random, shape, first, size));
  }
  std::vector<Placement> placements;
  for (size_t d = 0; d < mesh.dims(); ++d) {
    const auto dim = static_cast<uint32_t>(shape.empty() ? 0 : draw(random, 0, shape.size() - 1));
    const uint64_t choice = shape.empty() ? 0 : draw(random, 0, 4);
    placements.push_back(choice <= 1   ? Placement::replicate()
                         : choice <= 3 ? Placement::shard(dim)
                                       : Placement::strided_shard(dim, draw(random, 1, 4)));
  }
  builder.add_tensor(fqn, dtype, shape, mesh, placements);
}

// Any but those of which an element is no whole bytes.
DType drawn_dtype(std::mt19937_64& random) {
  while (true) {
    const DType dtype = dtype_from_number(static_cast<uint8_t>(random() % kDTypeCount)).value();
    if (dtype_bytes(dtype).ok()) return dtype;
  }
}

TensorMetadata drawn_tensor(std::mt19937_64& random, std::string fqn) {
  TensorMetadata tensor{std::move(fqn), LayoutEntry::Kind::tensor, drawn_dtype(random), {}};
  for (uint64_t dims = draw(random, 0, 3), d = 0; d < dims; ++d) tensor.shape.push_back(draw(random, 1, 19));
  if (!tensor.shape.empty() && draw(random, 0, 15) == 0) tensor.shape[random() % tensor.shape.size()] = 0;
  return tensor;
}

}  // namespace

std::vector<LayoutPtr> drawn_job(std::mt19937_64& random, uint32_t world_size) {
  const bool is_even = world_size >= 4 && world_size % 2 == 0;
  const uint32_t groups = is_even ? static_cast<uint32_t>(draw(random, 1, 2)) : 1;
  const uint32_t size = world_size / groups;
  std::vector<TensorMetadata> shared;
  for (uint64_t i = 0, values = draw(random, 0, 3); i < values; ++i) {
    shared.push_back(drawn_tensor(random, "shared.v" + std::to_string(i)));
  }
  std::vector<LayoutPtr> layouts;
  for (uint32_t group = 0; group < groups; ++group) {
    const Rank first = group * size;
    LayoutBuilder builder;
    for (uint64_t i = 0, values = draw(random, 3, 8); i < values; ++i) {
      const std::string fqn = "g" + std::to_string(group) + ".v" + std::to_string(i);
      add_drawn(random, builder, drawn_tensor(random, fqn), first, size);
    }
    for (const TensorMetadata& tensor : shared) {
      const Mesh mesh = Mesh::contiguous({size}, first);
      const auto dim = static_cast<uint32_t>(tensor.shape.empty() ? 0 : random() % tensor.shape.size());
      const bool is_whole = tensor.shape.empty() || draw(random, 0, 2) == 0;
      builder.add_tensor(tensor.fqn, tensor.dtype, tensor.shape, mesh,
                         {is_whole ? Placement::replicate() : Placement::shard(dim)});
    }
    builder.add_rank_objects("rng");
    auto layout = std::move(builder).build();
    SHOAL_CHECK(layout.ok());
    layouts.insert(layouts.end(), size, *layout);
  }
  return layouts;
}

std::vector<LayoutPtr> drawn_job_of(std::mt19937_64& random, const std::vector<TensorMetadata>& values,
                                    uint32_t world_size) {
  const uint32_t groups = world_size % 2 == 0 ? static_cast<uint32_t>(draw(random, 1, 2)) : 1;
  const uint32_t size = world_size / groups;
  std::vector<LayoutBuilder> builders(groups);
  for (const TensorMetadata& value : values) {
    const uint64_t only = draw(random, 0, groups);  // the number of groups: all of them want it
    for (uint32_t group = 0; group < groups; ++group) {
      if (only < groups && only != group) continue;
      if (value.kind == LayoutEntry::Kind::object) {
        builders[group].add_object(value.fqn, Mesh::contiguous({size}, group * size), true);
      } else {
        add_drawn(random, builders[group], value, group * size, size);
      }
    }
  }
  std::vector<LayoutPtr> layouts;
  for (LayoutBuilder& builder : builders) {
    auto layout = std::move(builder).build();
    SHOAL_CHECK(layout.ok());
    layouts.insert(layouts.end(), size, *layout);
  }
  return layouts;
}

std::vector<LayoutPtr> flat_job_of(const std::vector<TensorMetadata>& values, uint32_t world_size,
                                   Placement placement) {
  const Mesh mesh = Mesh::contiguous({world_size});
  LayoutBuilder builder;
  for (const TensorMetadata& value : values) {
    if (value.kind == LayoutEntry::Kind::object) {
      builder.add_object(value.fqn, mesh, true);
    } else {
      builder.add_tensor(value.fqn, value.dtype, value.shape, mesh,
                         {value.shape.empty() ? Placement::replicate() : placement});
    }
  }
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  return std::vector<LayoutPtr>(world_size, *layout);
}

}  // namespace shoal::sim
