// Layout: name, type, global shape and sharding of every value that a rank holds. It names no rank as its
// owner, so that the ranks of one SPMD group share one; its LayoutId is the hash of its canonical encoding.
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

// An fqn is 1 to kMaxFqnBytes of clean UTF-8 without control characters, not "__metadata__" (safetensors' own
// key), and has no part ".." between slashes or backslashes: Shoal makes no path of it, but others do who
// unpack a checkpoint.
Status validate_fqn(std::string_view fqn);

struct MeshSharding {  // placements prove which ranks hold equal bytes
  uint32_t mesh = 0;   // into Layout::meshes
  std::vector<Placement> placements;
  friend auto operator<=>(const MeshSharding&, const MeshSharding&) = default;
};
struct GroupSharding {  // the whole value on every rank of a mesh; equality is proven by nothing
  uint32_t mesh = 0;
  friend auto operator<=>(const GroupSharding&, const GroupSharding&) = default;
};
struct RankBoxes {
  Rank rank = 0;
  std::vector<Box> boxes;
  friend auto operator<=>(const RankBoxes&, const RankBoxes&) = default;
};
struct BoxSharding {  // explicit boxes, by ascending rank; a layout may list only some of the tensor's ranks
  std::vector<RankBoxes> ranks;
  friend auto operator<=>(const BoxSharding&, const BoxSharding&) = default;
};
struct RankSharding {  // an object of its own on each rank that has the layout: stated once for all of them
  friend auto operator<=>(const RankSharding&, const RankSharding&) = default;
};
// Tiles of a TileSharding on a mesh of devices: device d belongs to rank d / devices_per_rank. Mesh dimension
// i shards tensor dimension i; one more mesh dimension than the tensor has replicates. Where no two devices
// belong to one rank, a MeshSharding says the same.
struct DeviceSharding {
  uint32_t mesh = 0;              // into Layout::meshes
  uint32_t devices_per_rank = 2;  // from 2 to kMaxDevicesPerRank
  friend auto operator<=>(const DeviceSharding&, const DeviceSharding&) = default;
};
using Sharding = std::variant<MeshSharding, GroupSharding, BoxSharding, RankSharding, DeviceSharding>;

struct LayoutEntry {
  enum class Kind : uint8_t { tensor = 0, object = 1 };
  std::string fqn;  // of a RankSharding "x@rank", to which a rank adds its number: see value_fqn
  Kind kind = Kind::tensor;
  DType dtype = DType::u8;  // u8 for an object
  Dims shape;               // global; empty for a scalar, and for an object, whose length is in no layout
  bool replicated =
      false;  // the caller declares holders of the same box to hold the same bytes; not with a mesh
  Sharding sharding;
  friend auto operator<=>(const LayoutEntry&, const LayoutEntry&) = default;
};

inline bool is_per_rank(const LayoutEntry& entry) {
  return std::holds_alternative<RankSharding>(entry.sharding);
}
// The mesh of an entry that has one, into Layout::meshes; of ranks, but of devices in a DeviceSharding.
std::optional<uint32_t> mesh_of(const LayoutEntry& entry);
uint32_t devices_per_rank(const LayoutEntry& entry);  // 1, but in a DeviceSharding
// A placement for each dimension of `mesh`, which is the entry's; none of a group, all of which holds all.
std::span<const Placement> placements_of(const LayoutEntry& entry, const Mesh& mesh);

// What a rank holds of an entry at one place of its mesh.
struct HeldPart {
  Dims coordinate;         // 0 where devices replicate
  uint32_t first_box = 0;  // of `boxes`, in shards_of(entry, rank).boxes
  std::vector<Box> boxes;  // with elements, ascending; at least one
};
// One at most on a mesh of ranks. On one of devices, one with one box for each distinct tile, by ascending
// box.
std::vector<HeldPart> parts_of(const LayoutEntry& entry, const Mesh& mesh, Rank rank);

// The name of what `rank` holds of an entry: its fqn; "x@rank7" of a RankSharding.
std::string value_fqn(const LayoutEntry& entry, Rank rank);
std::string rank_fqn(std::string_view fqn, Rank rank);  // "x@rank7" of "x"
struct RankFqn {
  std::string_view prefix;  // "x@rank": the fqn of the entry, if one of a RankSharding has it
  Rank rank = 0;
};
// "x@rank7" taken apart; nullopt for any other name.
std::optional<RankFqn> split_rank_fqn(std::string_view fqn);

class Layout {
 public:
  const std::vector<Mesh>& meshes() const { return meshes_; }
  const std::vector<LayoutEntry>& entries() const { return entries_; }  // ascending by fqn
  const LayoutId& id() const { return id_; }
  std::optional<uint32_t> find(std::string_view fqn) const;

  // What `rank` holds of an entry: boxes in global coordinates in the rank's local order, and their place in
  // the local tensor. A rank that holds nothing gets no boxes. For an object: one box without dimensions, if
  // held. Explicit boxes and devices: `local` and `local_shape` are left empty, each box being its own
  // buffer. A tensor without elements has no boxes on a mesh.
  LocalShards shards_of(const LayoutEntry& entry, Rank rank) const;
  // Whether the rank is in the entry's mesh, or listed with a box. It may still hold no element.
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

// Brings meshes and entries into canonical order (unused meshes dropped, equal ones joined, RankBoxes without
// boxes dropped), validates all of it and computes the id. Code::invalid_argument names the entry;
// Code::too_large beyond kMaxEntries or the bytes that decode_layout takes. An object is held whole: its
// sharding is a GroupSharding or a RankSharding. No rank lists a box with elements twice.
Result<LayoutPtr> make_layout(std::vector<Mesh> meshes, std::vector<LayoutEntry> entries);

// Of what is in canonical order already, and encodes to bytes of that hash. All else is validated as above;
// Code::corrupt where it is in no such order. Whether it does encode to them is for the caller to know.
Result<LayoutPtr> layout_in_order(std::vector<Mesh> meshes, std::vector<LayoutEntry> entries,
                                  const LayoutId& id);

// Collects what one rank holds, in any order, then builds the Layout.
class LayoutBuilder {
 public:
  // A name given twice is refused by build().
  void add_tensor(std::string fqn, DType dtype, Dims shape, const Mesh& mesh,
                  std::vector<Placement> placements);
  void add_tensor(std::string fqn, DType dtype, Dims shape, const TileSharding& sharding);
  void add_tensor_boxes(std::string fqn, DType dtype, Dims shape, std::vector<RankBoxes> boxes,
                        bool replicated = false);
  // A value held whole by every rank of `group`. Without a group it belongs to the mesh of its siblings: the
  // entries that share its longest dotted prefix, if these agree on one mesh; otherwise build() fails and
  // says so. Of a TileSharding that mesh is all ranks of its device map.
  void add_value(std::string fqn, DType dtype, Dims shape, std::optional<Mesh> group,
                 bool replicated = false);
  void add_object(std::string fqn, std::optional<Mesh> group, bool replicated = false);
  // One object for one rank, under its own name: "fqn@rank7".
  void add_rank_object(std::string fqn, Rank rank);
  // One for each rank that has this layout, under the same names, stated once.
  void add_rank_objects(std::string_view fqn);
  Result<LayoutPtr> build() &&;

 private:
  using MeshPtr = std::shared_ptr<const Mesh>;
  struct Pending {
    LayoutEntry entry;
    MeshPtr mesh;      // of a sharding that has one
    MeshPtr siblings;  // the mesh for values without a group, if not that one
    Status refused;    // what is wrong with it already
    bool wants_siblings = false;
  };
  // Most entries have the mesh of the one before: they share it.
  MeshPtr shared(const Mesh& mesh);

  PagedVector<Pending> pending_;
  MeshPtr last_mesh_;
};

}  // namespace shoal
