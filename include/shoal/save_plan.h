// The rule by which every rank works out its own share of a save: rule version 1.
//
// plan_save is a pure function of (roster, rank, rule version, options). docs/explanation/planning.md states
// it so that another program can recompute it; tests/plan/golden/plans.txt holds it still. In short:
//
// A replica group is the set of ranks that provably hold the same boxes of a value: the ranks of its mesh
// that agree on all sharded mesh dimensions and whose layout has the identical entry; or, with declared
// replication, the ranks that hold the same box. A value that several meshes hold is taken from one mesh,
// chosen by hash(fqn). A value whose equality nothing proves is written whole by one holder, by hash(fqn).
//
// What one set of ranks holds as replicas is cut into units of at most unit_bytes: a larger box by slices of
// the outermost dimension whose slice fits, smaller tensors packed whole, in canonical order (fqn, then box).
//
// Units go to the least loaded member; ties to the first, members being ordered host by host in turn and
// rotated by the hash of the group. The units of one box go out as contiguous runs, so that a member writes
// a few pieces of it at most. The largest share of a group is at most one unit above the mean.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/hash.h"
#include "shoal/roster.h"
#include "shoal/shared_vector.h"
#include "shoal/status.h"

namespace shoal {

inline constexpr uint32_t kRuleVersion = 1;
inline constexpr uint64_t kDefaultUnitBytes = uint64_t{64} << 20;
inline constexpr uint32_t kMaxFilesPerRank = 16;

enum class Dedupe : uint8_t { balanced = 0, lowest_rank = 1, none = 2 };

// How the ranks of a save come to one checkpoint. docs/reference/protocol.md.
enum class SaveMode : uint8_t {
  collective_free = 0,  // one report a node to the coordinator, which commits
  rank_local = 1,       // each rank publishes a manifest of its own; no message to anybody
  collective = 2,       // what all ranks hold is gathered, planned once, and scattered before anybody stages
};
std::string_view mode_name(SaveMode mode);  // "rank-local"
std::optional<SaveMode> mode_of_name(std::string_view name);

struct SaveOptions {
  Dedupe dedupe = Dedupe::balanced;
  uint64_t unit_bytes = kDefaultUnitBytes;
  SaveMode mode = SaveMode::collective_free;
  friend auto operator<=>(const SaveOptions&, const SaveOptions&) = default;
};
// unit_bytes in [1 KiB, 1 TiB]; rank-local only with dedupe none, since a rank that knows no other writes all
// that it holds.
Status validate_options(const SaveOptions& options);

// One piece that a rank writes. It is contiguous in the row-major bytes of one of the rank's local boxes.
struct WriteItem {
  uint32_t entry = 0;  // into the layout's entries
  Box box;             // global coordinates; no dimensions for an object
  // Into shards_of(entry, rank).boxes; 0 for an object, and for a tensor without elements, which has no boxes
  // there.
  uint32_t local_box = 0;
  uint64_t local_offset = 0;  // bytes from the start of that box, row-major
  uint64_t bytes = 0;         // 0 for an object: its length is known only when staged
  uint32_t file = 0;      // the n-th piece of a tensor on this rank lies in file min(n, kMaxFilesPerRank - 1)
  bool canonical = true;  // false: an alternate copy (dedupe none)
  friend auto operator<=>(const WriteItem&, const WriteItem&) = default;
};

struct SavePlan {
  Rank rank = 0;
  LayoutId layout_id;
  RosterId roster_id;
  SaveOptions options;
  // By file; within a file tensors by descending element size, then fqn, then box; objects last, by fqn. This
  // is the order of the bytes in the file.
  SharedVector<WriteItem> items;
  uint64_t tensor_bytes = 0;
  uint32_t files = 0;  // file indices are 0 .. files - 1; a rank that writes nothing has none
  PlanId id;           // hash of roster id, rank, rule version, options and items
  PlanId share_id;     // as share_id_of says; zero: not worked out yet
};
using SavePlanPtr = std::shared_ptr<const SavePlan>;

// The hash of all that a plan says but id, tensor_bytes and files, which follow from the rest. For plans
// under a roster.
PlanId plan_id_of(const SavePlan& plan);
// The same under no roster: equal for two plans of one layout by which a rank writes the very same, whatever
// the other ranks hold.
PlanId share_id_of(const SavePlan& plan);
// The plan as it is under another roster, its id with it.
SavePlanPtr under_roster(const SavePlanPtr& plan, const RosterId& roster_id);

// Whether a rank with this layout can write by a plan that somebody else made: every item lies within one of
// its boxes, contiguous where it is said to be, in the order of the bytes in a file, none twice. The message
// names the value.
Status check_plan(const SavePlan& plan, const Layout& layout);

// Precondition: validate_world(world) and validate_options(options) are OK, rank < world_size.
Result<SavePlan> plan_save(const World& world, Rank rank, const SaveOptions& options);

// The world of a rank that knows of no other: all `world_size` ranks have its layout. What plan_save makes of
// it with dedupe none are, but for which copies count as canonical, the items of any world in which the rank
// has this layout. Code::invalid_argument where the layout names a rank beyond the world.
Result<std::shared_ptr<const World>> rank_local_world(const LayoutPtr& layout, uint32_t world_size);

// Everything a rank holds, as it is staged before any roster is known: one item a local box or object, in
// canonical order, all in file 0; also a box of no elements for a tensor that has none. Its id is that of
// (layout, rank), its roster_id zero.
SavePlan plan_all_held(const Layout& layout, Rank rank);

// What the file of (rank, index) is called within the attempt's folder: "rank-00007.safetensors",
// "rank-00007-2.safetensors" for index 2.
std::string shard_file_name(Rank rank, uint32_t file);
// The key of each item in its file: the value's fqn ("x@rank7" of an object that each rank has); where pieces
// of one tensor share a file, "fqn#n" for the second and further ones, n counted from 1, passing over keys
// that are another value's fqn. Parallel to plan.items.
std::vector<std::string> item_keys(const Layout& layout, const SavePlan& plan);

// OK iff the canonical pieces of all ranks tile every value of the world exactly once. Analytic for meshes, a
// sweep for explicit boxes. The message names fqn and box. Cost independent of the number of ranks for mesh
// shardings.
Status check_coverage(const World& world, const SaveOptions& options);

}  // namespace shoal
