// The rule by which every rank computes its assignment of a save: rule version 1.
//
// plan_save is a pure function of (roster, rank, rule version, options). docs/explanation/planning.md
// describes it in enough detail that another program can recompute it; tests/plan/golden/plans.txt has
// examples that must not change. In short:
//
// A replica group is the set of ranks that provably hold the same boxes of a value. These are the ranks of
// its mesh that have the same coordinates in all sharded mesh dimensions and whose layout has the identical
// entry. With declared replication they are the ranks that hold the same box. If several meshes hold a value,
// hash(fqn) chooses the mesh that writes it. If nothing proves that holders have equal bytes, hash(fqn)
// chooses one holder, which writes the whole value.
//
// The rule cuts everything that one replica group holds into units of at most unit_bytes. It cuts a larger
// box into slices of the outermost dimension whose slice fits. It packs smaller tensors whole, in canonical
// order (fqn, then box).
//
// Each unit goes to the member with the fewest bytes so far; on a tie to the first one. Members are ordered
// round-robin over the hosts, rotated by the hash of the group. The units of one box are assigned as
// contiguous runs, so that a member writes only a few pieces of it. The largest assignment of a group exceeds
// the mean by at most one unit.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
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

// How the ranks of a save make one checkpoint. docs/reference/protocol.md.
enum class SaveMode : uint8_t {
  collective_free = 0,  // each node sends one report to the coordinator, which commits
  rank_local = 1,       // nodes exchange no messages; each rank publishes its own manifest
  collective = 2,       // the coordinator gathers all layouts, plans once and sends plans before ranks stage
};
std::string_view mode_name(SaveMode mode);  // "rank-local"
std::optional<SaveMode> mode_of_name(std::string_view name);

// When the trainer may go on after a save of memory of a device. Host memory is copied before save returns.
//   wait    save returns when all bytes are in host memory.
//   stream  save returns at once. The streams that the state names wait for the copies before they run what
//           they are given next.
//   until   save returns at once and no stream waits. The trainer must call SaveHandle::wait_staged before it
//           changes or frees what the state names.
// A save that the host's memory cannot hold at once (SaveStats::parts) always waits.
enum class StagingMode : uint8_t { wait, stream, until };

// Whether a save looks for replicas that differ: ranks whose layouts prove that they hold the same box of a
// tensor, and whose memory does not hold the same bytes. Each save compares another twentieth of the bytes
// that have replicas, by digests; twenty saves compare all of them. docs/how-to/operations.md, "Replicas that
// differ".
enum class ReplicaCheck : uint8_t {
  off = 0,
  warn = 1,   // the save commits; SaveHandle::warning names tensor, block and ranks
  abort = 2,  // the save aborts with a cause that names them
};

struct SaveOptions {
  Dedupe dedupe = Dedupe::balanced;
  uint64_t unit_bytes = kDefaultUnitBytes;
  SaveMode mode = SaveMode::collective_free;
  // Ranks may differ in the next three options: no plan depends on them, and nodes do not compare them.
  StagingMode staging = StagingMode::wait;
  // The memory that a save copies is digested before and after. A save whose state changed meanwhile fails
  // with Code::invalid_argument and names the value. Costs two reads of that memory, by its device or by the
  // thread that calls save. A save in parts verifies each part by itself.
  bool verify_unchanged = false;
  // Ranks with ReplicaCheck::off take no part. If others differ, the strictest counts. Costs a read of 5 % of
  // the bytes that have replicas, by the thread that calls save. Mode rank_local is Code::invalid_argument:
  // no process sees the digests of all ranks. So is a save of memory of a device: only host memory is
  // compared.
  ReplicaCheck replica_check = ReplicaCheck::off;
  friend std::strong_ordering operator<=>(const SaveOptions& a, const SaveOptions& b) {
    return std::tie(a.dedupe, a.unit_bytes, a.mode) <=> std::tie(b.dedupe, b.unit_bytes, b.mode);
  }
  friend bool operator==(const SaveOptions& a, const SaveOptions& b) { return (a <=> b) == 0; }
};
// unit_bytes must be in [1 KiB, 1 TiB]. Mode rank_local requires dedupe none: a rank that does not know the
// others writes everything it holds. It also requires replica_check off.
Status validate_options(const SaveOptions& options);

// One piece that a rank writes. It is contiguous in the row-major bytes of one of the rank's local boxes.
struct WriteItem {
  uint32_t entry = 0;  // index into the layout's entries
  Box box;             // global coordinates; no dimensions for an object
  // Index into shards_of(entry, rank).boxes. 0 for an object, and for a tensor without elements, which has no
  // boxes there.
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
  // Ordered by file. Within a file tensors come first, by descending element size, then fqn, then box;
  // objects come last, by fqn. This is the order of the bytes in the file.
  SharedVector<WriteItem> items;
  uint64_t tensor_bytes = 0;
  uint32_t files = 0;    // file indices are 0 .. files - 1; a rank that writes nothing has none
  PlanId id;             // hash of roster id, rank, rule version, options and items
  PlanId assignment_id;  // see assignment_id_of; zero: not computed yet
};
using SavePlanPtr = std::shared_ptr<const SavePlan>;

// The hash of a plan with its roster id. It leaves out id, tensor_bytes and files, which follow from the
// rest.
PlanId plan_id_of(const SavePlan& plan);
// The hash of a plan without its roster id. Two plans of one layout by which a rank writes the same pieces
// have the same assignment id, whatever the other ranks hold.
PlanId assignment_id_of(const SavePlan& plan);
// The same plan with another roster id, and the id that follows from it.
SavePlanPtr under_roster(const SavePlanPtr& plan, const RosterId& roster_id);

// Whether a rank with this layout can write by a plan that another program made. Every item must lie in one
// of the rank's boxes, contiguous and at its stated offset. Items must be in the order of the bytes in a file
// and must not repeat. The message names the value.
Status check_plan(const SavePlan& plan, const Layout& layout);

// Requires that validate_world(world) and validate_options(options) are OK, and rank < world_size.
Result<SavePlan> plan_save(const World& world, Rank rank, const SaveOptions& options);

// The world that a rank assumes in mode rank_local: all `world_size` ranks have its layout. With dedupe none,
// plan_save gives the rank the same items in this world as in every world in which it has this layout; only
// WriteItem::canonical may differ. Code::invalid_argument: the layout names a rank that is not in the world.
Result<std::shared_ptr<const World>> rank_local_world(const LayoutPtr& layout, uint32_t world_size);

// A plan of everything a rank holds, which a client stages as long as there is no roster. It has one item for
// each local box and object, in canonical order, all in file 0. A tensor without elements is one item with an
// empty box. The id is the hash of (layout, rank); roster_id is zero.
SavePlan plan_all_held(const Layout& layout, Rank rank);

// The name of file number `file` of a rank in the attempt's folder: "rank-00007.safetensors" for 0,
// "rank-00007-2.safetensors" for 2.
std::string shard_file_name(Rank rank, uint32_t file);
// The key of each item in its file, in the order of plan.items. It is the value's fqn, "x@rank7" for a
// per-rank object. If pieces of one tensor share a file, the second and further ones have the key "fqn#n"; n
// counts from 1 and skips keys that are another value's fqn.
std::vector<std::string> item_keys(const Layout& layout, const SavePlan& plan);

// OK iff the canonical pieces of all ranks tile every value of the world exactly once. The message names fqn
// and box. For mesh shardings the check is analytic, and its cost does not depend on the number of ranks. For
// explicit boxes it is a sweep.
Status check_coverage(const World& world, const SaveOptions& options);

}  // namespace shoal
