#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "shoal/layout.h"

namespace shoal {

namespace {

// For every dotted prefix, including the empty one: the mesh of the entries below it, or nullptr if they
// differ.
using MeshOfPrefix = std::map<std::string_view, const Mesh*>;

void add_prefix(std::string_view prefix, const Mesh& mesh, MeshOfPrefix& prefixes) {
  auto [found, is_new] = prefixes.emplace(prefix, &mesh);
  if (!is_new && found->second && *found->second != mesh) found->second = nullptr;
}

void add_prefixes(std::string_view fqn, const Mesh& mesh, MeshOfPrefix& prefixes) {
  for (size_t dot = fqn.rfind('.'); dot != std::string_view::npos && dot > 0; dot = fqn.rfind('.', dot - 1)) {
    add_prefix(fqn.substr(0, dot), mesh, prefixes);
  }
  add_prefix("", mesh, prefixes);
}

Result<const Mesh*> mesh_of_siblings(std::string_view fqn, const MeshOfPrefix& prefixes) {
  for (size_t dot = fqn.rfind('.'); dot != std::string_view::npos && dot > 0; dot = fqn.rfind('.', dot - 1)) {
    auto found = prefixes.find(fqn.substr(0, dot));
    if (found == prefixes.end()) continue;
    if (found->second) return found->second;
    return Status(
        Code::invalid_argument,
        fmt::format("'{}' has no group, and the values under '{}' are on different meshes: name its group",
                    fqn, found->first));
  }
  const auto all = prefixes.find("");
  if (all == prefixes.end()) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' has no group, and no other value is on a mesh: name its group", fqn));
  }
  if (all->second) return all->second;
  return Status(
      Code::invalid_argument,
      fmt::format("'{}' has no group, and the other values are on different meshes: name its group", fqn));
}

}  // namespace

LayoutBuilder::MeshPtr LayoutBuilder::shared(const Mesh& mesh) {
  if (last_mesh_ == nullptr || *last_mesh_ != mesh) last_mesh_ = std::make_shared<const Mesh>(mesh);
  return last_mesh_;
}

LayoutBuilder::Pending& LayoutBuilder::add(std::string fqn, DType dtype, Dims shape) {
  Pending pending;
  pending.entry.fqn = std::move(fqn);
  pending.entry.dtype = dtype;
  pending.entry.shape = std::move(shape);
  pending_.push_back(std::move(pending));
  return pending_.back();
}

void LayoutBuilder::add_tensor(std::string fqn, DType dtype, Dims shape, const Mesh& mesh,
                               std::vector<Placement> placements) {
  Pending& pending = add(std::move(fqn), dtype, std::move(shape));
  pending.entry.sharding = MeshSharding{0, std::move(placements)};
  pending.mesh = shared(mesh);
}

void LayoutBuilder::add_tensor(std::string fqn, DType dtype, Dims shape, const TileSharding& sharding) {
  const TileSharding::OnMesh& on_mesh = sharding.on_mesh();
  Pending& pending = add(std::move(fqn), dtype, std::move(shape));
  pending.refused = sharding.validate_for(pending.entry.shape);
  if (on_mesh.devices_per_rank > 1) {
    pending.entry.sharding = DeviceSharding{0, on_mesh.devices_per_rank};
  } else {
    const std::span<const Placement> placements = on_mesh.placements();
    pending.entry.sharding = MeshSharding{0, {placements.begin(), placements.end()}};
  }
  pending.mesh = shared(on_mesh.mesh);
  pending.siblings = std::make_shared<const Mesh>(sharding.device_map().ranks());
}

void LayoutBuilder::add_tensor_boxes(std::string fqn, DType dtype, Dims shape, std::vector<RankBoxes> boxes,
                                     bool replicated) {
  Pending& pending = add(std::move(fqn), dtype, std::move(shape));
  pending.entry.replicated = replicated;
  pending.entry.sharding = BoxSharding{std::move(boxes)};
}

void LayoutBuilder::add_value(std::string fqn, DType dtype, Dims shape, std::optional<Mesh> group,
                              bool replicated) {
  Pending& pending = add(std::move(fqn), dtype, std::move(shape));
  pending.entry.replicated = replicated;
  pending.entry.sharding = GroupSharding{0};
  pending.wants_siblings = !group.has_value();
  if (group) pending.mesh = shared(*group);
}

void LayoutBuilder::add_object(std::string fqn, std::optional<Mesh> group, bool replicated) {
  add_value(std::move(fqn), DType::u8, {}, std::move(group), replicated);
  pending_.back().entry.kind = LayoutEntry::Kind::object;
}

void LayoutBuilder::add_rank_object(std::string fqn, Rank rank) {
  add_object(rank_fqn(fqn, rank), Mesh::single(rank));
}

void LayoutBuilder::add_rank_objects(std::string_view fqn) {
  Pending& pending = add(fmt::format("{}@rank", fqn), DType::u8, {});
  pending.entry.kind = LayoutEntry::Kind::object;
  pending.entry.sharding = RankSharding{};
}

Result<LayoutPtr> LayoutBuilder::build() && {
  const bool needs_prefixes = std::ranges::any_of(pending_, &Pending::wants_siblings);
  MeshOfPrefix prefixes;
  for (const Pending& pending : pending_) {
    SHOAL_RETURN_IF_ERROR(validate_fqn(pending.entry.fqn));
    if (!pending.refused.ok()) return pending.refused.with_context(fmt::format("'{}'", pending.entry.fqn));
    if (needs_prefixes && pending.mesh) {
      add_prefixes(pending.entry.fqn, pending.siblings ? *pending.siblings : *pending.mesh, prefixes);
    }
  }
  std::map<Mesh, uint32_t> numbers;
  std::vector<Mesh> meshes;
  std::vector<LayoutEntry> entries;
  entries.reserve(pending_.size());
  for (Pending& pending : pending_) {
    const Mesh* mesh = pending.mesh.get();
    if (pending.wants_siblings) {
      SHOAL_ASSIGN_OR_RETURN(mesh, mesh_of_siblings(pending.entry.fqn, prefixes));
    }
    if (mesh) {
      auto [number, is_new] = numbers.emplace(*mesh, static_cast<uint32_t>(meshes.size()));
      if (is_new) meshes.push_back(*mesh);
      if (auto* sharding = std::get_if<MeshSharding>(&pending.entry.sharding))
        sharding->mesh = number->second;
      if (auto* group = std::get_if<GroupSharding>(&pending.entry.sharding)) group->mesh = number->second;
      if (auto* devices = std::get_if<DeviceSharding>(&pending.entry.sharding))
        devices->mesh = number->second;
    }
    if (needs_prefixes) {
      entries.push_back(pending.entry);  // a copy, because the prefixes refer to the names
    } else {
      entries.push_back(std::move(pending.entry));
    }
  }
  prefixes.clear();
  pending_ = PagedVector<Pending>();  // freed before the layout is encoded, which needs memory too
  return make_layout(std::move(meshes), std::move(entries));
}

}  // namespace shoal
