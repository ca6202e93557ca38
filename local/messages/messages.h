// What a trainer's client and the node on its host say to each other over a unix socket (schema/local.capnp).
// Plain values here; encode_local and decode_local cross the boundary. docs/reference/client-node.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/limits.h"
#include "local/messages/load_targets.h"
#include "local/status/node_status.h"
#include "plan/layout/codec.h"
#include "plan/saving/plan_exchange.h"
#include "shoal/bytes.h"
#include "shoal/checkpoint_info.h"
#include "shoal/hash.h"
#include "shoal/load_times.h"
#include "shoal/metadata.h"
#include "shoal/passed_over.h"
#include "shoal/read_damage.h"
#include "shoal/roster.h"
#include "shoal/save_plan.h"
#include "shoal/shared_vector.h"
#include "shoal/status.h"

namespace shoal::local {

inline constexpr uint32_t kLocalSchemaVersion = 1;
inline constexpr size_t kMaxLocalMessageBytes = size_t{256} << 20;
inline constexpr uint32_t kMaxSlabsPerClient = 64;
inline constexpr uint64_t kMaxSlabBytes = uint64_t{1} << 44;
inline constexpr size_t kMaxLocalPieces = size_t{1} << 23;   // of one Staged or Loaded
inline constexpr size_t kMaxPartRanges = size_t{1} << 14;    // of one PartWanted
inline constexpr size_t kMaxLocalDigests = size_t{1} << 23;  // of one FilesToRead
inline constexpr size_t kMaxLocalPathBytes = 1024;           // of a file under the root
inline constexpr uint64_t kMaxLocalFileBytes = uint64_t{1} << 62;
inline constexpr size_t kMaxBoxesPerTarget = size_t{1} << 20;
inline constexpr size_t kMaxDamagedPathBytes = 4096;            // under the root
inline constexpr size_t kMaxLocalCauseBytes = size_t{1} << 20;  // longer causes are cut when encoded

struct Attach {  // client -> node, first on every connection
  uint32_t schema_version = kLocalSchemaVersion;
  Rank rank = 0;
  uint32_t world_size = 0;
  std::string job_id;
  int32_t pid = 0;
  Nonce process;               // one and the same for all that this process opens; zero: not said
  uint32_t ranks_on_host = 0;  // of this job, as its launcher says; 0: it does not
  bool read_only = false;      // it loads alone, and needs a node that does likewise
};
struct Attached {  // node -> client
  uint32_t generation = 0;
  int32_t node_pid = 0;
  uint32_t node_deadline_ms = 0;  // within which the node ends each save that it can end; 0: not said
  bool grants_staging = false;    // it answers StagingWanted
};
struct Failed {  // node -> client: this connection is of no more use
  Status why;
};
struct LayoutIs {  // client -> node, before the first save with it
  LayoutPtr layout;
  SaveOptions options;
};
struct RosterIs {  // node -> client: plan with this from now on
  std::shared_ptr<const World> world;
  uint32_t rule_version = kRuleVersion;
  SaveOptions options;
};
struct Slab {  // client -> node, with one descriptor: a memfd sealed against growing and shrinking
  uint32_t slab_id = 0;
  uint64_t bytes = 0;
};
struct StagedPiece {
  uint32_t entry = 0;         // into the layout's entries
  uint32_t local_box = 0;     // into shards_of(entry, rank).boxes; 0 for an object
  uint64_t local_offset = 0;  // first byte staged, in the row-major bytes of that box
  uint64_t bytes = 0;
  uint64_t slab_offset = 0;
};
struct Staged {  // client -> node: a save's bytes lie in the slab
  uint64_t step = 0;
  uint32_t attempt = 0;
  LayoutId layout_id;
  RosterId roster_id;  // zero: no roster yet, everything held is staged
  PlanId plan_id;      // of the plan staged; zero without a roster
  uint32_t slab_id = 0;
  bool again = false;                // it was offered to the node before, over an earlier connection
  SharedVector<StagedPiece> pieces;  // ascending by (entry, local_box, local_offset)
  // The slab is smaller than what is staged. Nothing lies in it yet: the node asks for it by PartWanted, in
  // the offsets that the pieces would have in a slab that is large enough.
  bool in_parts = false;
  UserMetadataPtr user = nullptr;  // SaveAttributes::metadata
};
struct DurableFile {
  uint32_t index = 0;
  uint64_t size = 0;
  Hash128 header_digest;
  uint64_t payload_bytes = 0;
};
struct DurableShare {  // what a rank's share of a save became; files ascend by index, none is left out
  RosterId roster_id;
  PlanId plan_id;
  std::vector<DurableFile> files;
};
struct SlabFree {  // node -> client: its bytes are durable or dropped, the slab may be reused
  uint32_t slab_id = 0;
  uint64_t step = 0;  // of the save that it was staged for
  uint32_t attempt = 0;
  std::optional<DurableShare> durable;  // nothing: dropped
};
struct Written {  // client -> node: an earlier node of this host made this share durable
  uint64_t step = 0;
  uint32_t attempt = 0;
  DurableShare share;
  UserMetadataPtr user = nullptr;  // as in Staged
};
struct NotStaged {  // client -> node: this rank takes no part in this save, which can therefore not be whole
  uint64_t step = 0;
  uint32_t attempt = 0;
  Status why;
};
struct Decided {  // node -> client
  uint64_t step = 0;
  uint32_t attempt = 0;
  Status outcome;                              // OK: committed; else the first cause
  std::shared_ptr<const Metadata> checkpoint;  // if committed; shared by all who are told
};
struct Latest {  // client -> node: what load(latest) would choose, deciding nothing
  uint32_t request_id = 0;
};
struct List {  // client -> node: which checkpoints there are, deciding nothing
  uint32_t request_id = 0;
  uint32_t newest = 0;  // attempts, at most kMaxListedCheckpoints
};
struct Listing {  // node -> client
  uint32_t request_id = 0;
  Status outcome;
  std::shared_ptr<const CheckpointList> list;  // never null where the outcome is OK
};
struct Load {  // client -> node, after its window slab
  uint32_t request_id = 0;
  bool latest = true;
  uint64_t step = 0;  // where not latest: the newest committed attempt at this step
  // Of load(latest): 1 + the calls of save before it, alike on all ranks; with kFallbackOrdinal where it may
  // fall back.
  uint32_t ordinal = 0;
  uint32_t slab_id = 0;  // the load window
  LoadTargets targets;
  // The checkpoint stays pinned, and what the node knows of it stays there, until Close names this request.
  bool keeps_open = false;
  uint32_t of = 0;  // the request id that keeps it open: nothing is chosen anew; 0: none
  bool wants_layouts = false;
  // Who else may need the same. Nothing: nobody is asked.
  struct Sharing {
    LoadWay way = LoadWay::automatic;
    Rank rank = 0;
    uint32_t world_size = 0;
    uint32_t round = 0;  // how many loads this rank began before; alike on all ranks, else they do not share
    LayoutPtr layout;    // what the targets follow from; whoever has the same one wants the same of it
    std::vector<Rank> among;  // ascending; those alone share. Empty: all
  };
  std::optional<Sharing> sharing = std::nullopt;
  bool reads_files = false;  // this client reads files under the root itself, where the node says which
};
struct Close {  // client -> node: what a load of this id kept open
  uint32_t request_id = 0;
};
struct StoredLayouts {                 // who held what of a checkpoint, and by which rule it was written
  std::shared_ptr<const World> world;  // not needed where `encoded` is there
  uint32_t rule_version = kRuleVersion;
  SaveOptions options;
  std::shared_ptr<const plan::EncodedWorld> encoded = nullptr;  // passed on as it is. Decoding never sets it
};
struct Found {  // node -> client: answer to Latest, and the first answer to Load
  uint32_t request_id = 0;
  Status outcome;       // also why layouts that a node passed on without looking into them cannot be decoded
  Metadata checkpoint;  // of a Load with `of`: without values
  // If wanted; the values of `checkpoint` follow from them, and are not said.
  std::optional<StoredLayouts> layouts = std::nullopt;
  // Said instead of the values of `checkpoint`, which are listed from it when this is encoded: of many small
  // tensors they take more than the window. Decoding never sets it.
  std::shared_ptr<const World> values_of = nullptr;
  PassedOverPtr passed_over = nullptr;  // to a Load of the latest
};
struct StoredRange {    // of a stored piece, for one target
  uint32_t target = 0;  // into the request's targets
  Box box;              // the stored piece in global coordinates, row-major; no dimensions for an object
  uint64_t piece_offset = 0;  // where in the stored piece these bytes begin
  uint64_t bytes = 0;
  uint64_t piece_bytes = 0;  // of the whole stored piece: an object's length
};
struct LoadedPiece : StoredRange {
  uint64_t slab_offset = 0;  // where in the window the bytes lie, verified
};
struct Loaded {  // node -> client
  uint32_t request_id = 0;
  uint32_t batch = 0;
  std::vector<LoadedPiece> pieces;
};
struct Placed {  // client -> node: the batch's part of the window may be overwritten
  uint32_t request_id = 0;
  uint32_t batch = 0;
};
struct FileRange : StoredRange {  // whole digest blocks of the piece
  uint32_t file = 0;              // into the message's files
  uint64_t file_offset = 0;       // of the range's first byte
};
// node -> client, to a Load with reads_files: bytes that the client is to read, and to verify, itself.
struct FilesToRead {
  uint32_t request_id = 0;
  uint32_t batch = 0;                  // counted apart from those of Loaded
  std::vector<std::string> files;      // paths under the root
  std::vector<FileRange> ranges;       // neighbours in a file follow each other
  std::vector<uint64_t> digests = {};  // of the ranges' blocks, one range after the other
};
struct UnreadRange {
  uint32_t range = 0;  // into the ranges of the batch
  uint64_t begin = 0;  // bytes of the stored piece: whole digest blocks of the range
  uint64_t end = 0;
};
// client -> node: the batch is placed, but for what this client could not read, or what is not as its digest
// says. That the node reads, from copies where there are any.
struct FilesRead {
  uint32_t request_id = 0;
  uint32_t batch = 0;
  std::vector<UnreadRange> unread = {};
};
struct LoadDone {  // node -> client
  uint32_t request_id = 0;
  Status outcome;
  LoadTimes times = {};
  DamageList damaged = {};  // of a load that succeeded: what was read from copies
};
struct Refused {  // node -> client: this one save failed before it began; its slab is free
  uint64_t step = 0;
  uint32_t attempt = 0;
  Status why;
};
struct Ping {};  // client -> node, answered by the role that writes; a node that is stopped does not
struct Pong {};  // node -> client
// What a node is doing, asked in place of Attach by anybody of the same user; the node answers and closes.
struct StatusWanted {};
struct StatusIs {  // never null
  std::shared_ptr<const NodeStatus> status;
};
// Mode collective: a save asks first what this rank is to write, and stages that.
struct PlanWanted {  // client -> node; again, whenever the connection is another one
  uint64_t step = 0;
  uint32_t attempt = 0;
  LayoutId layout_id;
  PlanId known;                  // share_id_of the plan that the client has for this layout; zero: none
  bool follows_planner = false;  // the layout follows from a PlanExchange
};
struct PlanIs {  // node -> client
  uint64_t step = 0;
  uint32_t attempt = 0;
  RosterId roster_id;
  SavePlanPtr plan;  // null: the one that the client has, under this roster
};
// Mode collective, where planners make the global plan: before PlanWanted.
struct PlanExchange {  // offered, made: client -> node; again, likewise. gathered, told: node -> client
  uint64_t step = 0;
  uint32_t attempt = 0;
  plan::ExchangeStage stage = plan::ExchangeStage::offered;
  Rank coordinator_rank = 0;  // whose planner makes it
  SaveOptions options;
  std::vector<plan::PlannerPlan> plans;  // offered, told: this rank's; gathered, made: of all ranks, by rank
};
// How much memory the slabs of this rank may take: client -> node, before it makes one that does not fit into
// what was granted to it. docs/reference/client-node.md, "Slabs".
struct StagingWanted {
  uint64_t bytes = 0;               // of a slab that holds one save
  uint32_t slabs = 0;               // how many it wants; slabs for saves have lower ids than that
  uint64_t bytes_max = UINT64_MAX;  // of all of them, by the limits of this process
  std::string because = {};         // which limit that is
  uint64_t number = 0;              // of the request, from 1; the answer repeats it
};
struct StagingGranted {  // node -> client; takes the place of an earlier grant
  uint32_t slabs = 0;
  uint64_t slab_bytes = 0;  // as wanted; less where a save has to be staged in parts
  bool in_parts = false;
  Status outcome = {};  // not OK: nothing is granted
  uint64_t number = 0;  // of the request that this answers; 0: an older node, which repeats none
};
// client -> node: what it has of a grant, after it has given some of it back, or of an earlier node's.
struct StagingKept {
  uint64_t bytes = 0;                   // that its slabs may take together
  std::vector<uint32_t> slab_ids = {};  // those that still have memory
  uint32_t slabs = 0;                   // slabs for saves have lower ids
};
struct GiveBack {};  // node -> client: memory is short: each slab as soon as it is free, and the grant
struct PartRange {
  uint64_t from = 0;  // in the offsets of the staged pieces; lies within one of them
  uint64_t bytes = 0;
  uint64_t slab_offset = 0;
};
struct PartWanted {  // node -> client: copy these bytes of a save that is staged in parts
  uint32_t slab_id = 0;
  uint64_t step = 0;
  uint32_t attempt = 0;
  uint64_t number = 0;
  std::vector<PartRange> ranges = {};
};
struct PartStaged {  // client -> node
  uint32_t slab_id = 0;
  uint64_t number = 0;
  Status outcome = {};  // not OK: the bytes do not lie there
};
struct Detach {};  // client -> node: a clean end; without it the trainer died

using LocalMessage =
    std::variant<local::Attach, local::Attached, local::Failed, local::LayoutIs, local::RosterIs, local::Slab,
                 local::Staged, local::SlabFree, local::Decided, local::Latest, local::Load, local::Found,
                 local::Loaded, local::Placed, local::LoadDone, local::Refused, local::Detach, local::Written,
                 local::NotStaged, local::Ping, local::Pong, local::StatusWanted, local::StatusIs,
                 local::PlanWanted, local::PlanIs, local::PlanExchange, local::Close, local::FilesToRead,
                 local::FilesRead, local::StagingWanted, local::StagingGranted, local::StagingKept,
                 local::GiveBack, local::PartWanted, local::PartStaged, local::List, local::Listing>;

Bytes encode_local(const LocalMessage& message);
// Untrusted bytes: bounded memory, no crash; one-line errors.
Result<LocalMessage> decode_local(ByteView bytes);

}  // namespace shoal::local
