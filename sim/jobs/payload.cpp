#include "sim/jobs/payload.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "shoal/bytes.h"
#include "shoal/dtype.h"

namespace shoal::sim {

namespace {

uint64_t bytes_held(const Layout& layout, Rank rank) {
  uint64_t bytes = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    if (entry.kind != LayoutEntry::Kind::tensor) continue;
    for (const Box& box : layout.shards_of(entry, rank).boxes) {
      bytes += box.elements() * dtype_bytes(entry.dtype).value();
    }
  }
  return bytes;
}

}  // namespace

std::string_view payload_name(Payload payload) {
  return payload == Payload::full ? "full" : "counted";
}
std::optional<Payload> payload_of_name(std::string_view name) {
  if (name == "counted") return Payload::counted;
  return name == "full" ? std::optional(Payload::full) : std::nullopt;
}

Result<uint64_t> bytes_of_save(const Model& model, const MeshShape& mesh, SaveMode mode) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<LayoutPtr> layouts, layouts_of_stages(model, mesh));
  uint64_t bytes = 0;
  if (mode != SaveMode::rank_local) {
    std::map<std::string_view, uint64_t> tensors;
    for (const LayoutPtr& layout : layouts) {
      for (const LayoutEntry& entry : layout->entries()) {
        if (entry.kind != LayoutEntry::Kind::tensor) continue;
        tensors.emplace(entry.fqn, element_count(entry.shape).value_or(0) * dtype_bytes(entry.dtype).value());
      }
    }
    for (const auto& [name, held] : tensors) bytes += held;
    return bytes;
  }
  const auto ranks = static_cast<uint32_t>(mesh.ranks());
  for (Rank rank = 0; rank < ranks; ++rank) {
    const size_t layout =
        model.world ? model.world->roster.layout_of(rank) : uint64_t{rank} * layouts.size() / ranks;
    bytes += bytes_held(*layouts[layout], rank);
  }
  return bytes;
}

Status check_full_payload(const Model& model, const MeshShape& mesh, SaveMode mode, uint32_t saves) {
  if (mesh.ranks() > kMaxFullRanks) {
    return Status(Code::too_large,
                  fmt::format("payload full: the job has {} ranks, but at most {} may have true bytes",
                              mesh.ranks(), kMaxFullRanks));
  }
  SHOAL_ASSIGN_OR_RETURN(const uint64_t bytes, bytes_of_save(model, mesh, mode));
  if (bytes <= kMaxFullBytes / saves) return ok_status();
  return Status(
      Code::too_large,
      fmt::format("payload full: {} of {}, {} each, are more than the {} that the simulator holds in memory",
                  saves == 1 ? "one save" : fmt::format("{} saves", saves), model.name, human_bytes(bytes),
                  human_bytes(kMaxFullBytes)));
}

}  // namespace shoal::sim
