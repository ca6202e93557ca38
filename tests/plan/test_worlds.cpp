#include "tests/plan/test_worlds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>

namespace shoal::plan {

namespace {

uint64_t up_to(std::mt19937_64& random, uint64_t most) {
  return random() % (most + 1);
}
bool chance(std::mt19937_64& random, uint64_t percent) {
  return random() % 100 < percent;
}
template <class T>
const T& one_of(std::mt19937_64& random, const std::vector<T>& items) {
  return items[random() % items.size()];
}

std::vector<Rank> some_ranks(std::mt19937_64& random, uint32_t world_size, uint64_t count) {
  std::vector<Rank> ranks(world_size);
  for (Rank rank = 0; rank < world_size; ++rank) ranks[rank] = rank;
  const bool in_order = chance(random, 70);
  if (!in_order) std::shuffle(ranks.begin(), ranks.end(), random);
  const auto first = static_cast<std::ptrdiff_t>(in_order ? up_to(random, world_size - count) : 0);
  return {ranks.begin() + first, ranks.begin() + first + static_cast<std::ptrdiff_t>(count)};
}

Mesh random_mesh(std::mt19937_64& random, uint32_t world_size) {
  Dims shape(1 + up_to(random, 3), 1);
  uint64_t size = 1;
  for (uint64_t& s : shape) {
    uint64_t wanted = 1 + up_to(random, 3);
    if (size * wanted <= world_size) s = wanted, size *= wanted;
  }
  return *Mesh::from_ranks(shape, some_ranks(random, world_size, size));
}

Dims random_shape(std::mt19937_64& random) {
  static const std::vector<uint64_t> sizes{1, 2, 3, 5, 8, 13, 31, 97};
  Dims shape(3 - std::min(up_to(random, 3), up_to(random, 3)));
  for (uint64_t& size : shape) size = chance(random, 4) ? 0 : one_of(random, sizes);
  if (shape.size() == 3) shape[up_to(random, 2)] = 1 + up_to(random, 3);
  if (chance(random, 6)) {
    shape.assign(5 + up_to(random, 1), 1);
    for (uint64_t& size : shape) size = 1 + up_to(random, 3);
  }
  return shape;
}

std::vector<Placement> random_placements(std::mt19937_64& random, const Mesh& mesh, const Dims& shape) {
  std::vector<Placement> placements(mesh.dims());
  for (Placement& placement : placements) {
    if (shape.empty() || chance(random, 40)) continue;
    auto dim = static_cast<uint32_t>(random() % shape.size());
    placement =
        chance(random, 70) ? Placement::shard(dim) : Placement::strided_shard(dim, 1 + up_to(random, 4));
  }
  return placements;
}

std::vector<Box> random_tiling(std::mt19937_64& random, const Dims& shape) {
  std::vector<Box> boxes{whole(shape)};
  for (uint64_t cuts = up_to(random, 9); cuts > 0 && !shape.empty(); --cuts) {
    size_t i = random() % boxes.size(), dim = random() % shape.size();
    if (boxes[i].sizes[dim] < 2) continue;
    auto parts = split(boxes[i], dim, 1 + random() % (boxes[i].sizes[dim] - 1));
    boxes[i] = parts.first;
    boxes.push_back(parts.second);
  }
  if (chance(random, 8) && boxes.size() > 1) boxes.pop_back();
  if (chance(random, 8)) boxes.push_back(random_box(random, shape));
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

// What will become one layout for each rank.
struct Draft {
  explicit Draft(uint32_t world_size) : builders(world_size) {}
  std::vector<LayoutBuilder> builders;
  std::vector<Mesh> meshes;  // drawn so far: values that share one fall into the same replica groups
  std::vector<DeviceMap> device_maps;
  uint32_t size() const { return static_cast<uint32_t>(builders.size()); }
};

struct Tensor {
  std::string fqn;
  DType dtype;
  Dims shape;
};

Mesh draw_mesh(std::mt19937_64& random, Draft& draft) {
  if (draft.meshes.size() < 2 || chance(random, 20))
    draft.meshes.push_back(random_mesh(random, draft.size()));
  return one_of(random, draft.meshes);
}

// Devices of some ranks, one to three of each, called by any numbers.
DeviceMap draw_devices(std::mt19937_64& random, Draft& draft) {
  if (!draft.device_maps.empty() && !chance(random, 20)) return one_of(random, draft.device_maps);
  const uint64_t most = 1 + up_to(random, 2);
  std::vector<DeviceMap::Owner> owners;
  for (Rank rank : draw_mesh(random, draft).ranks()) {
    for (uint64_t count = chance(random, 80) ? most : 1 + up_to(random, most - 1); count > 0; --count) {
      owners.push_back({owners.size() * 3 + random() % 3, rank});
    }
  }
  draft.device_maps.push_back(*DeviceMap::make(owners));
  return draft.device_maps.back();
}

// One sharding of a tensor, on a mesh of ranks or of devices.
struct OneSharding {
  std::optional<Mesh> mesh;
  std::optional<TileSharding> tiles;
  std::vector<Placement> placements;
  bool is_group = false, replicated = false;

  bool contains(Rank rank, const Dims& shape) const {
    if (mesh) return mesh->contains(rank);
    for (Device device : tiles->device_map().devices_of(rank)) {
      if (tiles->box_of(shape, device)) return true;
    }
    return false;
  }
  void add_to(LayoutBuilder& builder, const Tensor& tensor) const {
    if (tiles) return builder.add_tensor(tensor.fqn, tensor.dtype, tensor.shape, *tiles);
    if (is_group) return builder.add_value(tensor.fqn, tensor.dtype, tensor.shape, *mesh, replicated);
    builder.add_tensor(tensor.fqn, tensor.dtype, tensor.shape, *mesh, placements);
  }
};

OneSharding draw_sharding(std::mt19937_64& random, Draft& draft, const Tensor& tensor, bool replicated) {
  OneSharding sharding;
  if (chance(random, 30)) {
    const DeviceMap devices = draw_devices(random, draft);
    sharding.tiles = chance(random, 8) ? TileSharding::replicated(devices)
                                       : random_tiles(random, devices, tensor.shape.size());
    return sharding;
  }
  sharding.mesh = draw_mesh(random, draft);
  sharding.is_group = chance(random, 25);
  sharding.replicated = replicated;
  sharding.placements = random_placements(random, *sharding.mesh, tensor.shape);
  return sharding;
}

void add_on_meshes(std::mt19937_64& random, Draft& draft, const Tensor& tensor) {
  std::vector<bool> taken(draft.size(), false);
  const bool everybody = chance(random, 20), lazily = chance(random, 20), replicated = chance(random, 50);
  for (uint64_t meshes = 1 + (chance(random, 40) ? 1 : 0); meshes > 0; --meshes) {
    const OneSharding sharding = draw_sharding(random, draft, tensor, replicated);
    for (Rank rank = 0; rank < draft.size(); ++rank) {
      const bool is_in = everybody || sharding.contains(rank, tensor.shape);
      if (taken[rank] || !is_in || (lazily && chance(random, 30))) continue;
      taken[rank] = true;
      sharding.add_to(draft.builders[rank], tensor);
    }
  }
}

void add_boxes(std::mt19937_64& random, Draft& draft, const Tensor& tensor) {
  std::map<Rank, std::vector<Box>> held;
  const uint64_t copies_max = up_to(random, 2);
  for (const Box& box : random_tiling(random, tensor.shape)) {
    for (uint64_t copies = 1 + up_to(random, copies_max); copies > 0; --copies) {
      std::vector<Box>& boxes = held[static_cast<Rank>(random() % draft.size())];
      if (std::find(boxes.begin(), boxes.end(), box) == boxes.end()) boxes.push_back(box);
    }
  }
  std::vector<RankBoxes> all;
  for (auto& [rank, boxes] : held) all.push_back({rank, boxes});
  const bool replicated = chance(random, 60), all_listed = chance(random, 50);
  for (const RankBoxes& each : all) {
    const bool declares = replicated && !chance(random, 10);
    draft.builders[each.rank].add_tensor_boxes(tensor.fqn, tensor.dtype, tensor.shape,
                                               all_listed ? all : std::vector<RankBoxes>{each}, declares);
  }
}

void add_object(std::mt19937_64& random, Draft& draft, const Tensor& tensor) {
  const Mesh mesh = draw_mesh(random, draft);
  for (Rank rank = 0; rank < draft.size(); ++rank) {
    if (mesh.contains(rank)) draft.builders[rank].add_object(tensor.fqn, mesh, chance(random, 50));
  }
}

// Per-rank objects of the ranks of a mesh; other ranks do not have them.
void add_rank_objects(std::mt19937_64& random, Draft& draft, const std::string& fqn) {
  const Mesh mesh = draw_mesh(random, draft);
  for (Rank rank : mesh.ranks()) draft.builders[rank].add_rank_objects(fqn);
}

}  // namespace

World world_of(const std::vector<LayoutPtr>& by_rank, uint32_t ranks_a_host) {
  std::vector<LayoutId> ids;
  std::vector<uint32_t> hosts;
  std::map<LayoutId, LayoutPtr> layouts;
  for (const LayoutPtr& layout : by_rank) {
    hosts.push_back(static_cast<uint32_t>(ids.size()) / ranks_a_host);
    ids.push_back(layout->id());
    layouts.emplace(layout->id(), layout);
  }
  World world;
  world.roster = *Roster::make(ids, hosts);
  for (const LayoutId& id : world.roster.layout_ids()) world.layouts.push_back(layouts.at(id));
  EXPECT_TRUE(validate_world(world).ok()) << validate_world(world).to_string();
  return world;
}

World uniform_world(LayoutBuilder builder, uint32_t size, uint32_t ranks_a_host) {
  return world_of(std::vector<LayoutPtr>(size, *std::move(builder).build()), ranks_a_host);
}

World random_world(std::mt19937_64& random) {
  Draft draft(static_cast<uint32_t>(1 + up_to(random, 11)));
  static const std::vector<DType> dtypes{DType::u8, DType::bf16, DType::f32, DType::f64, DType::f8_e4m3};
  for (uint64_t count = 1 + up_to(random, 7); count > 0; --count) {
    Tensor tensor{"model." + std::to_string(random() % 1000) + ".p" + std::to_string(count),
                  one_of(random, dtypes), random_shape(random)};
    uint64_t kind = random() % 100;
    if (kind < 60) {
      add_on_meshes(random, draft, tensor);
    } else if (kind < 90) {
      add_boxes(random, draft, tensor);
    } else {
      add_object(random, draft, tensor);
    }
  }
  if (chance(random, 30)) add_rank_objects(random, draft, "rng");
  if (chance(random, 10)) add_rank_objects(random, draft, "model.rng@rank1");
  std::vector<LayoutPtr> layouts;
  for (LayoutBuilder& builder : draft.builders) layouts.push_back(*std::move(builder).build());
  World world = world_of(layouts, 1);
  std::vector<LayoutId> ids;
  std::vector<uint32_t> hosts;
  const uint64_t ranks_a_host = 1 + up_to(random, 3);
  for (Rank rank = 0; rank < layouts.size(); ++rank) {
    ids.push_back(layouts[rank]->id());
    hosts.push_back(static_cast<uint32_t>(chance(random, 10) ? random() % 4 : rank / ranks_a_host));
  }
  world.roster = *Roster::make(ids, hosts);
  return world;
}

TileSharding random_tiles(std::mt19937_64& random, const DeviceMap& devices, size_t dims) {
  std::vector<Device> order;
  for (const DeviceMap::Owner& owner : devices.owners()) order.push_back(owner.device);
  if (chance(random, 60)) std::shuffle(order.begin(), order.end(), random);
  const bool replicates = dims == 0 || chance(random, 40);
  Dims tiles(dims + (replicates ? 1 : 0), 1);
  uint64_t used = 1;
  for (uint64_t tries = 2 * tiles.size(); tries > 0; --tries) {
    uint64_t& size = tiles[random() % tiles.size()];
    const uint64_t wanted = 2 + up_to(random, 2);
    if (used * wanted <= order.size()) size *= wanted, used *= wanted;
  }
  order.resize(used);
  return *TileSharding::tiled(devices, std::move(tiles), std::move(order), replicates);
}

Box random_box(std::mt19937_64& random, const Dims& shape) {
  Box box = whole(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    box.offsets[i] = up_to(random, shape[i]);
    box.sizes[i] = up_to(random, shape[i] - box.offsets[i]);
  }
  return box;
}

std::vector<uint64_t> element_numbers(const Box& box, const Dims& shape) {
  std::vector<uint64_t> numbers;
  for_each_run(whole(shape), box, [&](uint64_t in_tensor, uint64_t, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) numbers.push_back(in_tensor + i);
  });
  return numbers;
}

std::vector<std::string> split_text(const std::string& text, char by) {
  std::vector<std::string> parts{""};
  for (char c : text) {
    if (c == by) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (parts.size() == 1 && parts[0].empty()) parts.clear();
  return parts;
}

Dims numbers_in(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<uint64_t>(in), {}};
}

}  // namespace shoal::plan
