// Layout: name, type, global shape and sharding of every value that a rank holds. A layout does not name the
// rank that has it, so that the ranks of one SPMD group share one layout. Its LayoutId is the hash of its
// canonical encoding.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shoal/box.h"
#include "shoal/dtype.h"
#include "shoal/hash.h"
#include "shoal/mesh.h"
#include "shoal/page_buffer.h"
#include "shoal/status.h"
#include "shoal/tile_sharding.h"

namespace shoal {

inline constexpr size_t kMaxFqnBytes = 4096;
inline constexpr size_t kMaxEntries = size_t{1} << 22;  // of one layout

// Checks a name: 1 to kMaxFqnBytes bytes of valid UTF-8 without control characters. "__metadata__" is the
// safetensors format's own key and not allowed. No part between slashes or backslashes may be "..": Shoal
// makes no path from an fqn, but programs that unpack a checkpoint may.
Status validate_fqn(std::string_view fqn);

struct MeshSharding {  // placements prove which ranks hold equal bytes
  uint32_t mesh = 0;   // into Layout::meshes
  std::vector<Placement> placements;
  friend auto operator<=>(const MeshSharding&, const MeshSharding&) = default;
};
struct GroupSharding {  // the whole value on every rank of a mesh; it does not prove that the bytes are equal
  uint32_t mesh = 0;
  friend auto operator<=>(const GroupSharding&, const GroupSharding&) = default;
};
struct RankBoxes {
  Rank rank = 0;
  std::vector<Box> boxes;
  friend auto operator<=>(const RankBoxes&, const RankBoxes&) = default;
};
struct BoxSharding {  // explicit boxes, ascending by rank; a layout may list only some of the tensor's ranks
  std::vector<RankBoxes> ranks;
  friend auto operator<=>(const BoxSharding&, const BoxSharding&) = default;
};
struct RankSharding {  // one separate object on each rank that has the layout; one entry describes them all
  friend auto operator<=>(const RankSharding&, const RankSharding&) = default;
};
// Tiles of a TileSharding on a mesh of devices: device d belongs to rank d / devices_per_rank. Mesh dimension
// i shards tensor dimension i. One more mesh dimension than the tensor has replicates. If no two devices
// belong to one rank, a MeshSharding describes the same tiles.
struct DeviceSharding {
  uint32_t mesh = 0;              // into Layout::meshes
  uint32_t devices_per_rank = 2;  // from 2 to kMaxDevicesPerRank
  friend auto operator<=>(const DeviceSharding&, const DeviceSharding&) = default;
};
using Sharding = std::variant<MeshSharding, GroupSharding, BoxSharding, RankSharding, DeviceSharding>;

struct LayoutEntry {
  enum class Kind : uint8_t { tensor = 0, object = 1 };
  std::string fqn;  // with a RankSharding "x@rank", to which value_fqn adds the rank's number
  Kind kind = Kind::tensor;
  DType dtype = DType::u8;  // u8 for an object
  Dims shape;               // global; empty for a scalar and for an object, whose length is in no layout
  // The caller declares that all holders of a box hold the same bytes. Only with a GroupSharding or
  // BoxSharding.
  bool replicated = false;
  Sharding sharding;
  friend auto operator<=>(const LayoutEntry&, const LayoutEntry&) = default;
};

inline bool is_per_rank(const LayoutEntry& entry) {
  return std::holds_alternative<RankSharding>(entry.sharding);
}
// The index of the entry's mesh in Layout::meshes; nullopt if it has no mesh. The mesh of a DeviceSharding
// consists of devices, every other mesh of ranks.
std::optional<uint32_t> mesh_of(const LayoutEntry& entry);
uint32_t devices_per_rank(const LayoutEntry& entry);  // 1 unless the entry has a DeviceSharding
// One placement for each dimension of `mesh`, the entry's mesh. Empty for a group, whose ranks all hold the
// whole value.
std::span<const Placement> placements_of(const LayoutEntry& entry, const Mesh& mesh);

// What a rank holds of an entry at one coordinate of its mesh.
struct HeldPart {
  Dims coordinate;         // 0 in the dimension along which devices replicate
  uint32_t first_box = 0;  // index of boxes[0] in shards_of(entry, rank).boxes
  std::vector<Box> boxes;  // non-empty boxes, ascending; at least one
};
// On a mesh of ranks at most one part. On a mesh of devices one part with one box for each distinct tile,
// ascending by box.
std::vector<HeldPart> parts_of(const LayoutEntry& entry, const Mesh& mesh, Rank rank);

// The name of the value that `rank` holds of an entry: the entry's fqn, or "x@rank7" for a RankSharding.
std::string value_fqn(const LayoutEntry& entry, Rank rank);
std::string rank_fqn(std::string_view fqn, Rank rank);  // "x@rank7" for "x"
struct RankFqn {
  std::string_view prefix;  // "x@rank": the fqn that an entry with a RankSharding would have
  Rank rank = 0;
};
// Splits a name like "x@rank7"; nullopt for any other name.
std::optional<RankFqn> split_rank_fqn(std::string_view fqn);

class Layout {
 public:
  const std::vector<Mesh>& meshes() const { return meshes_; }
  const std::vector<LayoutEntry>& entries() const { return entries_; }  // ascending by fqn
  const LayoutId& id() const { return id_; }
  std::optional<uint32_t> find(std::string_view fqn) const;

  // What `rank` holds of an entry: boxes in global coordinates in the rank's local order, and their place in
  // the local tensor. Empty if the rank holds nothing. An object that the rank holds is one box without
  // dimensions. With explicit boxes and with devices each box is a separate buffer, so that `local` and
  // `local_shape` are empty. On a mesh, a tensor without elements has no boxes.
  LocalShards shards_of(const LayoutEntry& entry, Rank rank) const;
  // Whether the rank is in the entry's mesh, or is listed with a box. Such a rank may hold no element.
  bool holds(const LayoutEntry& entry, Rank rank) const;

 private:
  friend Result<std::shared_ptr<const Layout>> make_layout(std::vector<Mesh>, std::vector<LayoutEntry>);
  friend Result<std::shared_ptr<const Layout>> layout_in_order(std::vector<Mesh>, std::vector<LayoutEntry>,
                                                               const LayoutId&);
  std::vector<Mesh> meshes_;
  std::vector<LayoutEntry> entries_;
  LayoutId id_;
};
using LayoutPtr = std::shared_ptr<const Layout>;

// Brings meshes and entries into canonical order, validates them and computes the id. It drops unused meshes
// and RankBoxes without boxes, and merges equal meshes. The sharding of an object must be a GroupSharding or
// a RankSharding. No rank may list a non-empty box twice. Code::invalid_argument names the entry.
// Code::too_large: more than kMaxEntries, or more bytes than decode_layout accepts.
Result<LayoutPtr> make_layout(std::vector<Mesh> meshes, std::vector<LayoutEntry> entries);

// Makes a layout from parts that are already in canonical order; Code::corrupt if they are not. Validates the
// rest as make_layout does. The caller guarantees that `id` is the hash of the encoded parts: this function
// does not check it.
Result<LayoutPtr> layout_in_order(std::vector<Mesh> meshes, std::vector<LayoutEntry> entries,
                                  const LayoutId& id);

// Collects what one rank holds, in any order, then builds the Layout.
class LayoutBuilder {
 public:
  // Each name may be added once; build() rejects a second one.
  void add_tensor(std::string fqn, DType dtype, Dims shape, const Mesh& mesh,
                  std::vector<Placement> placements);
  void add_tensor(std::string fqn, DType dtype, Dims shape, const TileSharding& sharding);
  void add_tensor_boxes(std::string fqn, DType dtype, Dims shape, std::vector<RankBoxes> boxes,
                        bool replicated = false);
  // A value that every rank of `group` holds whole. Without a group, its group is the mesh of its siblings:
  // the entries that share its longest dotted prefix. The mesh of a sibling with a TileSharding is all ranks
  // of its device map. build() fails if the siblings have different meshes.
  void add_value(std::string fqn, DType dtype, Dims shape, std::optional<Mesh> group,
                 bool replicated = false);
  void add_object(std::string fqn, std::optional<Mesh> group, bool replicated = false);
  // One object on one rank, named "fqn@rank7".
  void add_rank_object(std::string fqn, Rank rank);
  // One object on each rank that has this layout, with the same names, as one entry.
  void add_rank_objects(std::string_view fqn);
  Result<LayoutPtr> build() &&;

 private:
  using MeshPtr = std::shared_ptr<const Mesh>;
  struct Pending {
    LayoutEntry entry;
    MeshPtr mesh;      // null if the sharding has no mesh
    MeshPtr siblings;  // the mesh that siblings without a group get, if it is not `mesh`
    Status refused;    // the error that build() will return
    bool wants_siblings = false;
  };
  // Most entries have the mesh of the entry before them, and share its memory.
  MeshPtr shared(const Mesh& mesh);
  Pending& add(std::string fqn, DType dtype, Dims shape);

  PagedVector<Pending> pending_;
  MeshPtr last_mesh_;
};

}  // namespace shoal
