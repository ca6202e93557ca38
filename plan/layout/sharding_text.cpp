#include "plan/layout/sharding_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <variant>
#include <vector>

namespace shoal::plan {

namespace {

std::string describe_placement(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::replicate:
      return "Replicate()";
    case Placement::Kind::shard:
      return fmt::format("Shard({})", placement.dim);
    case Placement::Kind::strided_shard:
      break;
  }
  return fmt::format("_StridedShard({}, sf={})", placement.dim, placement.split_factor);
}

}  // namespace

std::string describe_mesh(const Mesh& mesh) {
  if (mesh.size() == 1) return fmt::format("rank {}", mesh.ranks().front());
  bool consecutive = mesh.is_affine();
  uint64_t stride = 1;
  for (size_t i = mesh.dims(); consecutive && i-- > 0;) {
    consecutive = mesh.shape()[i] == 1 || mesh.strides()[i] == stride;
    stride *= mesh.shape()[i];
  }
  std::string shape = fmt::format("{}", fmt::join(mesh.shape(), "x"));
  if (consecutive) return fmt::format("{} ranks {}-{}", shape, mesh.base(), mesh.base() + mesh.size() - 1);
  if (mesh.is_affine())
    return fmt::format("{} ranks from {} by {}", shape, mesh.base(), fmt::join(mesh.strides(), ","));
  return fmt::format("{} ranks, listed", shape);
}

std::string describe_mesh_of(const Instance& instance) {
  if (instance.devices_per_rank == 1) return describe_mesh(*instance.mesh);
  return fmt::format("{} devices, {} a rank", fmt::join(instance.mesh->shape(), "x"),
                     instance.devices_per_rank);
}

std::string describe_sharding(const Layout& layout, const LayoutEntry& entry) {
  std::string replicated = entry.replicated ? ", declared replicated" : "";
  if (const auto* mesh = std::get_if<MeshSharding>(&entry.sharding)) {
    std::vector<std::string> placements;
    for (const Placement& placement : mesh->placements) placements.push_back(describe_placement(placement));
    return fmt::format("[{}] on {}{}", fmt::join(placements, ", "),
                       describe_mesh(layout.meshes()[mesh->mesh]), replicated);
  }
  if (const auto* group = std::get_if<GroupSharding>(&entry.sharding)) {
    return fmt::format("whole on {}{}", describe_mesh(layout.meshes()[group->mesh]), replicated);
  }
  if (const auto* devices = std::get_if<DeviceSharding>(&entry.sharding)) {
    const Mesh& mesh = layout.meshes()[devices->mesh];
    return fmt::format("tiles {}{} of {} devices, {} a rank", fmt::join(mesh.shape(), "x"),
                       mesh.dims() > entry.shape.size() ? " (the last replicates)" : "", mesh.size(),
                       devices->devices_per_rank);
  }
  const auto& ranks = std::get<BoxSharding>(entry.sharding).ranks;
  size_t boxes = 0;
  for (const RankBoxes& one : ranks) boxes += one.boxes.size();
  return fmt::format("{} {} on {} {}{}", boxes, boxes == 1 ? "box" : "boxes", ranks.size(),
                     ranks.size() == 1 ? "rank" : "ranks", replicated);
}

}  // namespace shoal::plan
