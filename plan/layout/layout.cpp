#include "shoal/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "plan/layout/codec.h"
#include "shoal/bytes.h"

namespace shoal {

namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kRankSuffix = "@rank";
constexpr size_t kMostRankDigits = 10;
constexpr size_t kShownFqnBytes = 100;  // shown of a rejected name
constexpr uint64_t kMaxSize = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

Status bad_layout(std::string what) {
  return Status(Code::invalid_argument, std::move(what));
}

Status not_canonical() {
  return Status(Code::corrupt, "not in canonical form");
}

// Makes a possibly invalid name human-readable: keeps printable ASCII, escapes all else, and omits the end.
std::string shown(std::string_view fqn) {
  std::string out = "'";
  for (char letter : fqn.substr(0, kShownFqnBytes)) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool is_plain = byte >= 0x20 && byte < 0x7f && byte != '\\';
    out += is_plain ? std::string(1, letter) : fmt::format("\\x{:02x}", byte);
  }
  return out + (fqn.size() > kShownFqnBytes ? "…'" : "'");
}

// The number of bytes of its elements.
Result<uint64_t> validate_shape(const LayoutEntry& entry) {
  if (entry.shape.size() > kMaxDims) {
    return bad_layout(
        fmt::format("it has {} dimensions: at most {} are allowed", entry.shape.size(), kMaxDims));
  }
  for (uint64_t size : entry.shape) {
    if (size > kMaxSize)
      return bad_layout(fmt::format("a dimension has the size {}: at most 2^63 - 1 is allowed", size));
  }
  SHOAL_ASSIGN_OR_RETURN(uint64_t element_bytes, dtype_bytes(entry.dtype));
  std::optional<uint64_t> count = element_count(entry.shape);
  if (!count || *count > kMaxSize / element_bytes) return bad_layout("it has 2^63 bytes or more");
  return *count * element_bytes;
}

Status validate_rank_boxes(const RankBoxes& held, const LayoutEntry& entry) {
  std::vector<const Box*> sorted;
  for (const Box& box : held.boxes) {
    if (Status status = validate_box(box, entry.shape); !status.ok()) {
      return status.with_context(fmt::format("rank {}", held.rank));
    }
    if (!box.empty()) sorted.push_back(&box);
  }
  std::sort(sorted.begin(), sorted.end(), [](const Box* a, const Box* b) { return *a < *b; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (*sorted[i] == *sorted[i - 1]) {
      return bad_layout(fmt::format("rank {} lists box {} twice", held.rank, to_string(*sorted[i])));
    }
  }
  return ok_status();
}

Status validate_rank_entry(const LayoutEntry& entry) {
  if (entry.kind != LayoutEntry::Kind::object || !entry.shape.empty() || entry.dtype != DType::u8) {
    return bad_layout("a per-rank value must be an object, without shape and of dtype U8");
  }
  if (entry.replicated) return bad_layout("a per-rank value cannot be replicated");
  if (!entry.fqn.ends_with(kRankSuffix) || entry.fqn.size() == kRankSuffix.size()) {
    return bad_layout("the name of a per-rank object must end in @rank");
  }
  return validate_fqn(entry.fqn + std::string(kMostRankDigits, '9'));
}

Status validate_devices(const DeviceSharding& sharding, const Mesh& mesh, const LayoutEntry& entry) {
  if (entry.replicated)
    return bad_layout("tiles already determine what is replicated: do not set replicated");
  if (sharding.devices_per_rank < 2 || sharding.devices_per_rank > kMaxDevicesPerRank) {
    return bad_layout(fmt::format("it has {} devices a rank: 2 to {} are allowed", sharding.devices_per_rank,
                                  kMaxDevicesPerRank));
  }
  if (mesh.dims() != entry.shape.size() && mesh.dims() != entry.shape.size() + 1) {
    return bad_layout(
        fmt::format("its tiles have {} dimensions, and the tensor has {}", mesh.dims(), entry.shape.size()));
  }
  return ok_status();
}

// Checks everything except the name and the shape. Explicit boxes must be sorted by rank.
Status validate_sharding(const LayoutEntry& entry, const std::vector<Mesh>& meshes) {
  auto mesh_exists = [&](uint32_t index) {
    return index < meshes.size() ? meshes[index].status()
                                 : bad_layout(fmt::format("it names mesh {}, and the layout has {} meshes",
                                                          index, meshes.size()));
  };
  const auto* mesh = std::get_if<MeshSharding>(&entry.sharding);
  const auto* group = std::get_if<GroupSharding>(&entry.sharding);
  const auto* devices = std::get_if<DeviceSharding>(&entry.sharding);
  if (std::holds_alternative<RankSharding>(entry.sharding)) return validate_rank_entry(entry);
  if (entry.kind == LayoutEntry::Kind::object) {
    if (!group) return bad_layout("an object must be held whole, by the ranks of a group");
    if (!entry.shape.empty() || entry.dtype != DType::u8)
      return bad_layout("an object must have no shape, and dtype U8");
  }
  if (group) return mesh_exists(group->mesh);
  if (mesh) {
    SHOAL_RETURN_IF_ERROR(mesh_exists(mesh->mesh));
    if (entry.replicated)
      return bad_layout("placements already determine what is replicated: do not set replicated");
    return validate_placements(mesh->placements, meshes[mesh->mesh], entry.shape);
  }
  if (devices) {
    SHOAL_RETURN_IF_ERROR(mesh_exists(devices->mesh));
    return validate_devices(*devices, meshes[devices->mesh], entry);
  }
  const auto& ranks = std::get<BoxSharding>(entry.sharding).ranks;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0 && ranks[i].rank == ranks[i - 1].rank)
      return bad_layout(fmt::format("rank {} is listed twice", ranks[i].rank));
    SHOAL_RETURN_IF_ERROR(validate_rank_boxes(ranks[i], entry));
  }
  return ok_status();
}

void sort_rank_boxes(LayoutEntry& entry) {
  auto* boxes = std::get_if<BoxSharding>(&entry.sharding);
  if (!boxes) return;
  std::erase_if(boxes->ranks, [](const RankBoxes& held) { return held.boxes.empty(); });
  std::sort(boxes->ranks.begin(), boxes->ranks.end(),
            [](const RankBoxes& a, const RankBoxes& b) { return a.rank < b.rank; });
}

uint32_t* mesh_index(LayoutEntry& entry) {
  if (auto* mesh = std::get_if<MeshSharding>(&entry.sharding)) return &mesh->mesh;
  if (auto* group = std::get_if<GroupSharding>(&entry.sharding)) return &group->mesh;
  if (auto* devices = std::get_if<DeviceSharding>(&entry.sharding)) return &devices->mesh;
  return nullptr;
}

const RankBoxes* find_rank(const BoxSharding& sharding, Rank rank) {
  auto held = std::lower_bound(sharding.ranks.begin(), sharding.ranks.end(), rank,
                               [](const RankBoxes& boxes, Rank wanted) { return boxes.rank < wanted; });
  return held != sharding.ranks.end() && held->rank == rank ? &*held : nullptr;
}

// Sorts the meshes that entries use, merges equal ones, and renumbers the entries.
std::vector<Mesh> canonical_meshes(const std::vector<Mesh>& meshes, std::vector<LayoutEntry>& entries) {
  std::vector<bool> used(meshes.size(), false);
  for (LayoutEntry& entry : entries) {
    if (uint32_t* index = mesh_index(entry)) used[*index] = true;
  }
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < meshes.size(); ++i) {
    if (used[i]) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return meshes[a] < meshes[b]; });
  std::vector<Mesh> sorted;
  std::vector<uint32_t> renumbered(meshes.size(), 0);
  for (uint32_t i : order) {
    if (sorted.empty() || sorted.back() != meshes[i]) sorted.push_back(meshes[i]);
    renumbered[i] = static_cast<uint32_t>(sorted.size() - 1);
  }
  for (LayoutEntry& entry : entries) {
    if (uint32_t* index = mesh_index(entry)) *index = renumbered[*index];
  }
  return sorted;
}

// Tools that unpack a checkpoint turn names into paths, so no name may lead out of their folder.
bool climbs(std::string_view fqn) {
  if (fqn.find("..") == std::string_view::npos) return false;
  while (true) {
    const size_t end = fqn.find_first_of("/\\");
    if (fqn.substr(0, end) == "..") return true;
    if (end == std::string_view::npos) return false;
    fqn.remove_prefix(end + 1);
  }
}

}  // namespace

Status validate_fqn(std::string_view fqn) {
  if (fqn.empty()) return bad_layout("'': an fqn must not be empty");
  if (fqn.size() > kMaxFqnBytes) {
    return bad_layout(fmt::format("{}: this fqn has {} bytes: at most {} are allowed", shown(fqn), fqn.size(),
                                  kMaxFqnBytes));
  }
  if (!is_clean_utf8(fqn)) {
    return bad_layout(fmt::format("{}: an fqn must be valid UTF-8 without control characters", shown(fqn)));
  }
  if (climbs(fqn)) return bad_layout(fmt::format("{}: an fqn must not have the part '..'", shown(fqn)));
  if (fqn == kMetadataKey) return bad_layout("'__metadata__': the safetensors format reserves this name");
  return ok_status();
}

std::string rank_fqn(std::string_view fqn, Rank rank) {
  return fmt::format("{}{}{}", fqn, kRankSuffix, rank);
}

std::string value_fqn(const LayoutEntry& entry, Rank rank) {
  return is_per_rank(entry) ? entry.fqn + std::to_string(rank) : entry.fqn;
}

std::optional<RankFqn> split_rank_fqn(std::string_view fqn) {
  const size_t digits = fqn.find_last_not_of("0123456789") + 1;
  const std::string_view prefix = fqn.substr(0, digits), number = fqn.substr(digits);
  if (!prefix.ends_with(kRankSuffix) || number.empty() || (number.size() > 1 && number.front() == '0')) {
    return std::nullopt;
  }
  RankFqn out{prefix, 0};
  auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.rank);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  return out;
}

namespace {

// Names must ascend. All values of a layout together must have fewer than 2^63 bytes, so that no load
// overflows.
Status validate_entries(const std::vector<LayoutEntry>& entries, const std::vector<Mesh>& meshes) {
  uint64_t total = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const LayoutEntry& entry = entries[i];
    SHOAL_RETURN_IF_ERROR(validate_fqn(entry.fqn));
    if (const int order = i == 0 ? -1 : entries[i - 1].fqn.compare(entry.fqn); order >= 0) {
      if (order > 0) return not_canonical();
      return bad_layout(fmt::format("'{}' is given twice", entry.fqn));
    }
    const Result<uint64_t> bytes = validate_shape(entry);
    if (!bytes.ok()) return bytes.status().with_context(fmt::format("'{}'", entry.fqn));
    if (Status status = validate_sharding(entry, meshes); !status.ok()) {
      return status.with_context(fmt::format("'{}'", entry.fqn));
    }
    if (*bytes > kMaxSize - total) {
      return bad_layout(
          fmt::format("'{}': this value and those before it have 2^63 bytes or more", entry.fqn));
    }
    total += *bytes;
  }
  return ok_status();
}

Status validate_count(const std::vector<LayoutEntry>& entries) {
  if (entries.size() <= kMaxEntries) return ok_status();
  return Status(Code::too_large, fmt::format("the layout has {} entries: at most {} are allowed",
                                             entries.size(), kMaxEntries));
}

bool fqn_less(const LayoutEntry& a, const LayoutEntry& b) {
  return a.fqn < b.fqn;
}

bool rank_boxes_in_order(const LayoutEntry& entry) {
  const auto* boxes = std::get_if<BoxSharding>(&entry.sharding);
  if (!boxes) return true;
  return std::ranges::none_of(boxes->ranks, [](const RankBoxes& held) { return held.boxes.empty(); }) &&
         std::ranges::is_sorted(boxes->ranks, {}, &RankBoxes::rank);
}

}  // namespace

Result<LayoutPtr> make_layout(std::vector<Mesh> meshes, std::vector<LayoutEntry> entries) {
  SHOAL_RETURN_IF_ERROR(validate_count(entries));
  if (!std::ranges::is_sorted(entries, fqn_less)) std::sort(entries.begin(), entries.end(), fqn_less);
  for (LayoutEntry& entry : entries) sort_rank_boxes(entry);
  SHOAL_RETURN_IF_ERROR(validate_entries(entries, meshes));
  auto layout = std::make_shared<Layout>();
  layout->meshes_ = canonical_meshes(meshes, entries);
  layout->entries_ = std::move(entries);
  Bytes encoded = plan::encode_layout(*layout);
  if (encoded.size() > plan::kMaxEncodedLayoutBytes) {
    return Status(Code::too_large, fmt::format("the layout has {} encoded bytes: at most {} are allowed",
                                               encoded.size(), plan::kMaxEncodedLayoutBytes));
  }
  layout->id_ = xxh3_128(encoded);
  return LayoutPtr(std::move(layout));
}

Result<LayoutPtr> layout_in_order(std::vector<Mesh> meshes, std::vector<LayoutEntry> entries,
                                  const LayoutId& id) {
  SHOAL_RETURN_IF_ERROR(validate_count(entries));
  SHOAL_RETURN_IF_ERROR(validate_entries(entries, meshes));
  std::vector<bool> used(meshes.size(), false);
  for (const LayoutEntry& entry : entries) {
    if (!rank_boxes_in_order(entry)) return not_canonical();
    if (const auto* mesh = std::get_if<MeshSharding>(&entry.sharding)) {
      used[mesh->mesh] = true;
    } else if (const std::optional<uint32_t> index = mesh_of(entry)) {
      used[*index] = true;
    }
  }
  const bool all_used = std::find(used.begin(), used.end(), false) == used.end();
  const bool ascend = std::adjacent_find(meshes.begin(), meshes.end(), [](const Mesh& a, const Mesh& b) {
                        return !(a < b);
                      }) == meshes.end();
  if (!all_used || !ascend) return not_canonical();
  auto layout = std::make_shared<Layout>();
  layout->meshes_ = std::move(meshes);
  layout->entries_ = std::move(entries);
  layout->id_ = id;
  return LayoutPtr(std::move(layout));
}

std::optional<uint32_t> Layout::find(std::string_view fqn) const {
  auto found =
      std::lower_bound(entries_.begin(), entries_.end(), fqn,
                       [](const LayoutEntry& entry, std::string_view name) { return entry.fqn < name; });
  if (found == entries_.end() || found->fqn != fqn) return std::nullopt;
  return static_cast<uint32_t>(found - entries_.begin());
}

std::optional<uint32_t> mesh_of(const LayoutEntry& entry) {
  if (const auto* mesh = std::get_if<MeshSharding>(&entry.sharding)) return mesh->mesh;
  if (const auto* group = std::get_if<GroupSharding>(&entry.sharding)) return group->mesh;
  if (const auto* devices = std::get_if<DeviceSharding>(&entry.sharding)) return devices->mesh;
  return std::nullopt;
}

uint32_t devices_per_rank(const LayoutEntry& entry) {
  const auto* devices = std::get_if<DeviceSharding>(&entry.sharding);
  return devices ? devices->devices_per_rank : 1;
}

std::span<const Placement> placements_of(const LayoutEntry& entry, const Mesh& mesh) {
  if (const auto* sharding = std::get_if<MeshSharding>(&entry.sharding)) return sharding->placements;
  if (!std::holds_alternative<DeviceSharding>(entry.sharding)) return {};
  return tile_placements(entry.shape.size(), mesh.dims() > entry.shape.size());
}

std::vector<HeldPart> parts_of(const LayoutEntry& entry, const Mesh& mesh, Rank rank) {
  std::vector<HeldPart> parts;
  const uint64_t devices = devices_per_rank(entry);
  for (uint64_t device = rank * devices; device < (rank + 1) * devices; ++device) {
    if (device > std::numeric_limits<Rank>::max()) break;
    std::optional<Dims> coordinate = mesh.coordinate_of(static_cast<Rank>(device));
    if (!coordinate) continue;
    HeldPart part;
    if (const auto* sharding = std::get_if<MeshSharding>(&entry.sharding)) {
      part.boxes = shards_at(entry.shape, mesh, sharding->placements, *coordinate).boxes;
    } else if (std::holds_alternative<GroupSharding>(entry.sharding)) {
      if (Box all = whole(entry.shape); !all.empty()) part.boxes = {std::move(all)};
    } else {
      if (mesh.dims() > entry.shape.size()) coordinate->back() = 0;
      if (Box tile = tile_at(entry.shape, mesh.shape(), *coordinate); !tile.empty()) part.boxes = {tile};
    }
    part.coordinate = std::move(*coordinate);
    if (!part.boxes.empty()) parts.push_back(std::move(part));
  }
  if (devices == 1) return parts;
  std::sort(parts.begin(), parts.end(),
            [](const HeldPart& a, const HeldPart& b) { return a.boxes[0] < b.boxes[0]; });
  auto same_tile = [](const HeldPart& a, const HeldPart& b) { return a.coordinate == b.coordinate; };
  parts.erase(std::unique(parts.begin(), parts.end(), same_tile), parts.end());
  for (uint32_t i = 0; i < parts.size(); ++i) parts[i].first_box = i;
  return parts;
}

LocalShards Layout::shards_of(const LayoutEntry& entry, Rank rank) const {
  if (is_per_rank(entry)) return LocalShards{{}, {Box{}}, {Box{}}};
  if (const auto* mesh = std::get_if<MeshSharding>(&entry.sharding)) {
    std::optional<Dims> coordinate = meshes_[mesh->mesh].coordinate_of(rank);
    if (!coordinate) return {};
    return shards_at(entry.shape, meshes_[mesh->mesh], mesh->placements, *coordinate);
  }
  LocalShards out;
  if (const auto* devices = std::get_if<DeviceSharding>(&entry.sharding)) {
    for (HeldPart& part : parts_of(entry, meshes_[devices->mesh], rank)) {
      out.boxes.push_back(std::move(part.boxes[0]));
    }
    return out;
  }
  if (const auto* group = std::get_if<GroupSharding>(&entry.sharding)) {
    if (!meshes_[group->mesh].contains(rank)) return {};
    out.local_shape = entry.shape;
    if (Box box = whole(entry.shape); !box.empty()) {
      out.boxes = {box};
      out.local = {std::move(box)};
    }
    return out;
  }
  if (const RankBoxes* held = find_rank(std::get<BoxSharding>(entry.sharding), rank)) out.boxes = held->boxes;
  return out;
}

bool Layout::holds(const LayoutEntry& entry, Rank rank) const {
  if (is_per_rank(entry)) return true;
  if (std::optional<uint32_t> mesh = mesh_of(entry)) {
    const uint64_t devices = devices_per_rank(entry);
    for (uint64_t device = rank * devices; device < (rank + 1) * devices; ++device) {
      if (device > std::numeric_limits<Rank>::max()) break;
      if (meshes_[*mesh].contains(static_cast<Rank>(device))) return true;
    }
    return false;
  }
  return find_rank(std::get<BoxSharding>(entry.sharding), rank) != nullptr;
}

}  // namespace shoal
