// The messages between a client and the node on its host, over a unix socket (schema/local.capnp). They are
// plain values; encode_local and decode_local convert them to and from bytes. docs/reference/client-node.md.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/limits.h"
#include "base/visit.h"
#include "local/messages/load_targets.h"
#include "local/status/job_status.h"
#include "local/status/node_status.h"
#include "plan/layout/codec.h"
#include "plan/saving/plan_gathering.h"
#include "plan/saving/replica_blocks.h"
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
inline constexpr size_t kMaxPartRanges = size_t{1} << 14;    // of one PartRequest
inline constexpr size_t kMaxLocalDigests = size_t{1} << 23;  // of one FilesToRead
inline constexpr size_t kMaxLocalPathBytes = 1024;           // of a file, relative to the root
inline constexpr uint64_t kMaxLocalFileBytes = uint64_t{1} << 62;
inline constexpr size_t kMaxBoxesPerTarget = size_t{1} << 20;
inline constexpr size_t kMaxDamagedPathBytes = 4096;            // relative to the root
inline constexpr size_t kMaxLocalCauseBytes = size_t{1} << 20;  // encode_local cuts longer causes

struct Attach {  // client -> node, the first message of every connection
  uint32_t schema_version = kLocalSchemaVersion;
  Rank rank = 0;
  uint32_t world_size = 0;
  std::string job_id;
  int32_t pid = 0;
  Nonce process;               // the same for all connections of this process; zero: not given
  uint32_t ranks_on_host = 0;  // ranks of this job on this host, from the launcher; 0: unknown
  bool read_only = false;      // the client only loads, and needs a node that only loads
};
struct Attached {  // node -> client
  uint32_t generation = 0;
  int32_t node_pid = 0;
  uint32_t node_deadline_ms = 0;  // within this time the node ends each save that it can end; 0: not given
  bool grants_staging = false;    // the node answers StagingRequest
  bool counts_returns = false;    // the node takes SaveReturned
};
struct Failed {  // node -> client: the connection cannot be used any more
  Status why;
};
struct LayoutUpdate {  // client -> node, before the first save with it
  LayoutPtr layout;
  SaveOptions options;
};
struct RosterUpdate {  // node -> client: from now on the client plans with this roster
  std::shared_ptr<const World> world;
  uint32_t rule_version = kRuleVersion;
  SaveOptions options;
};
struct Slab {  // client -> node, with one descriptor: a memfd sealed against growing and shrinking
  uint32_t slab_id = 0;
  uint64_t bytes = 0;
};
struct StagedPiece {
  uint32_t entry = 0;         // index into the layout's entries
  uint32_t local_box = 0;     // index into shards_of(entry, rank).boxes; 0 for an object
  uint64_t local_offset = 0;  // first byte staged, in the row-major bytes of that box
  uint64_t bytes = 0;
  uint64_t slab_offset = 0;
};
struct Staged {  // client -> node: a save's bytes are in the slab
  uint64_t step = 0;
  uint32_t attempt = 0;
  LayoutId layout_id;
  RosterId roster_id;  // zero: there is no roster yet, and the client stages everything it holds
  PlanId plan_id;      // of the plan that the client used; zero without a roster
  uint32_t slab_id = 0;
  bool again = false;                // the client sent it before, over an earlier connection
  SharedVector<StagedPiece> pieces;  // ascending by (entry, local_box, local_offset)
  // The slab is smaller than the save, and empty so far. The node requests the bytes with PartRequest;
  // offsets are those that the pieces would have in a slab that is large enough.
  bool in_parts = false;
  UserMetadataPtr user = nullptr;  // SaveAttributes::metadata
  plan::ReplicaDigestsPtr replicas = nullptr;
};
struct DurableFile {
  uint32_t index = 0;
  uint64_t size = 0;
  Hash128 header_digest;
  uint64_t payload_bytes = 0;
};
struct DurableAssignment {  // all files that a rank's assignment became, ascending by index
  RosterId roster_id;
  PlanId plan_id;
  std::vector<DurableFile> files;
};
struct SlabFree {  // node -> client: the slab's bytes are durable or dropped, and the client may reuse it
  uint32_t slab_id = 0;
  uint64_t step = 0;  // of the save whose bytes were in the slab
  uint32_t attempt = 0;
  std::optional<DurableAssignment> durable;  // nullopt: the bytes were dropped
};
struct Written {  // client -> node: an earlier node of this host made this assignment durable
  uint64_t step = 0;
  uint32_t attempt = 0;
  DurableAssignment assignment;
  UserMetadataPtr user = nullptr;              // as in Staged
  plan::ReplicaDigestsPtr replicas = nullptr;  // as in Staged
};
struct NotStaged {  // client -> node: this rank does not stage this save, so that it cannot be complete
  uint64_t step = 0;
  uint32_t attempt = 0;
  Status why;
};
struct StillWriting {  // node -> client: the save is undecided, and its writing makes progress
  uint64_t step = 0;
  uint32_t attempt = 0;
};
// client -> node, if Attached has counts_returns: the call of save has returned, and the save is staged or
// being copied. Sent once; a node that comes later does not get it.
struct SaveReturned {
  uint64_t step = 0;
  uint32_t attempt = 0;
  uint64_t blocked_ns = 0;  // SaveStats::seconds_blocked
  uint64_t waited_ns = 0;   // SaveStats::seconds_waited
};
struct Decided {  // node -> client
  uint64_t step = 0;
  uint32_t attempt = 0;
  Status outcome;                              // OK: committed; else the first cause
  std::shared_ptr<const Metadata> checkpoint;  // if committed; messages to all clients share it
  std::string warning = {};                    // if committed: SaveHandle::warning
};
struct Latest {  // client -> node: which checkpoint load(latest) would choose; makes no load choice
  uint32_t request_id = 0;
};
struct List {  // client -> node: which attempts the root has
  uint32_t request_id = 0;
  uint32_t newest = 0;  // attempts, at most kMaxListedCheckpoints
};
struct Listing {  // node -> client
  uint32_t request_id = 0;
  Status outcome;
  std::shared_ptr<const CheckpointList> list;  // not null if the outcome is OK
};
struct Load {  // client -> node, after its window slab
  uint32_t request_id = 0;
  bool latest = true;
  // If not latest: load the newest committed attempt at this step. For load(latest): the step of the last
  // save that this rank has called in this generation.
  uint64_t step = 0;
  uint32_t attempt = 0;  // for load(latest): the attempt number of that save; 0: it has called none
  // For load(latest): 1 + the number of calls of save before it, the same on all ranks. A load with a
  // fallback adds the bit kFallbackOrdinal.
  uint32_t ordinal = 0;
  uint32_t slab_id = 0;  // the load window
  LoadTargets targets;
  // The node keeps the checkpoint pinned and open until Close names this request.
  bool keeps_open = false;
  uint32_t of = 0;  // load from the checkpoint that this request id keeps open; 0: choose one
  bool wants_layouts = false;
  // The ranks that may need the same bytes. nullopt: this load is not shared.
  struct Sharing {
    LoadMethod method = LoadMethod::automatic;
    Rank rank = 0;
    uint32_t world_size = 0;
    uint32_t round = 0;       // number of earlier loads of this rank; only ranks with the same number share
    LayoutPtr layout;         // the targets follow from it: ranks with the same layout need the same bytes
    std::vector<Rank> among;  // ascending: the ranks that may share. Empty: all
  };
  std::optional<Sharing> sharing = std::nullopt;
  bool reads_files = false;  // this client can read the files that the node names itself
};
struct Close {  // client -> node: close the checkpoint that the load with this id kept open
  uint32_t request_id = 0;
};
struct StoredLayouts {                 // roster and layouts of a checkpoint, and the rule that planned it
  std::shared_ptr<const World> world;  // may be null if `encoded` is set
  uint32_t rule_version = kRuleVersion;
  SaveOptions options;
  std::shared_ptr<const plan::EncodedWorld> encoded = nullptr;  // sent unchanged. decode_local never sets it
};
struct Found {  // node -> client: answer to Latest, and the first answer to Load
  uint32_t request_id = 0;
  // The node passes layouts on without decoding them: if decode_local cannot decode them, it sets the error
  // here.
  Status outcome;
  Metadata checkpoint;  // without values if the Load had `of`
  // If the Load wanted them. Then the message does not contain the values of `checkpoint`, which follow.
  std::optional<StoredLayouts> layouts = std::nullopt;
  // encode_local lists the values of `checkpoint` from this world: as Metadata, the values of many small
  // tensors need more memory than the window. decode_local never sets it.
  std::shared_ptr<const World> values_of = nullptr;
  PassedOverPtr passed_over = nullptr;  // for a Load of the latest
};
struct StoredRange {    // a range of a stored piece, for one target
  uint32_t target = 0;  // index into the request's targets
  Box box;              // the stored piece in global coordinates, row-major; no dimensions for an object
  uint64_t piece_offset = 0;  // offset of the range in the stored piece
  uint64_t bytes = 0;
  uint64_t piece_bytes = 0;  // length of the whole stored piece: an object's length
};
struct LoadedPiece : StoredRange {
  uint64_t slab_offset = 0;  // place of the verified bytes in the window
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
  uint32_t file = 0;              // index into the message's files
  uint64_t file_offset = 0;       // of the range's first byte
};
// node -> client, answer to a Load with reads_files: bytes that the client must read and verify itself.
struct FilesToRead {
  uint32_t request_id = 0;
  uint32_t batch = 0;                  // counted separately from batches of Loaded
  std::vector<std::string> files;      // paths relative to the root
  std::vector<FileRange> ranges;       // adjacent ranges of a file follow each other
  std::vector<uint64_t> digests = {};  // of the blocks of the first range, then of the second, and so on
};
struct UnreadRange {
  uint32_t range = 0;  // index into the ranges of the batch
  uint64_t begin = 0;  // offsets in the stored piece: whole digest blocks of the range
  uint64_t end = 0;
};
// client -> node: the client has placed the batch, except bytes that it could not read or that do not match
// their digest. The node reads those, from copies if there are any.
struct FilesRead {
  uint32_t request_id = 0;
  uint32_t batch = 0;
  std::vector<UnreadRange> unread = {};
};
struct LoadDone {  // node -> client
  uint32_t request_id = 0;
  Status outcome;
  LoadTimes times = {};
  DamageList damaged = {};  // if the load succeeded: what was read from copies
};
struct Refused {  // node -> client: the node did not accept this save; its slab is free
  uint64_t step = 0;
  uint32_t attempt = 0;
  Status why;
};
struct Ping {};  // client -> node: the ShardWriter answers with Pong, unless the process is stopped
struct Pong {};  // node -> client
// client -> node, instead of Attach, from any process of the same user: the node answers with StatusReport
// and closes the connection.
struct StatusRequest {};
struct StatusReport {
  std::shared_ptr<const NodeStatus> status;  // never null
};
// client -> node, likewise: the node answers with JobStatusReport. It may first wait for other hosts, for
// kJobStatusPatienceMs (local/status/job_status.h) at most.
struct JobStatusRequest {};
struct JobStatusReport {
  std::shared_ptr<const JobStatus> status;  // never null
};
// Mode collective: before it stages, the client requests this rank's plan.
struct PlanRequest {  // client -> node; sent again on every new connection
  uint64_t step = 0;
  uint32_t attempt = 0;
  LayoutId layout_id;
  PlanId known;  // assignment_id_of of the plan that the client has for this layout; zero: none
  bool follows_planner = false;  // the layout follows from a PlanGathering
};
struct PlanUpdate {  // node -> client
  uint64_t step = 0;
  uint32_t attempt = 0;
  RosterId roster_id;
  SavePlanPtr plan;  // null: the plan that the client has, under this roster
};
// Mode collective, if planners make the global plan: before PlanRequest. Stages `offered` and `made` go from
// client to node, again on every new connection; stages `gathered` and `delivered` go from node to client.
struct PlanGathering {
  uint64_t step = 0;
  uint32_t attempt = 0;
  plan::GatherStage stage = plan::GatherStage::offered;
  Rank coordinator_rank = 0;  // the rank whose planner makes the global plan
  SaveOptions options;
  std::vector<plan::PlannerPlan>
      plans;  // offered, delivered: this rank's; gathered, made: of all ranks, by rank
};
// client -> node: requests memory for slabs, before the client makes a slab that exceeds its grant.
// docs/reference/client-node.md, "Slabs".
struct StagingRequest {
  uint64_t bytes = 0;               // size of a slab that holds one save
  uint32_t slabs = 0;               // number of slabs; slabs for saves have ids below it
  uint64_t bytes_max = UINT64_MAX;  // the most that all slabs may take by the limits of the client's process
  std::string because = {};         // the limit that sets bytes_max
  uint64_t number = 0;              // number of the request, from 1; the answer repeats it
};
struct StagingGranted {  // node -> client; replaces an earlier grant
  uint32_t slabs = 0;
  uint64_t slab_bytes = 0;  // the requested size, or less if the client must stage in parts
  bool in_parts = false;
  Status outcome = {};  // not OK: the node grants nothing
  uint64_t number = 0;  // number of the answered request; 0: from an older node, which does not repeat it
};
// client -> node: what the client keeps of a grant after it gave back some of it, or of an earlier node's
// grant.
struct StagingKept {
  uint64_t bytes = 0;                   // the most that its slabs may take together
  std::vector<uint32_t> slab_ids = {};  // the slabs that still have memory
  uint32_t slabs = 0;                   // slabs for saves have ids below it
};
struct GiveBack {};  // node -> client: memory is short; give back the grant, and each slab once it is free
struct PartRange {
  uint64_t from = 0;  // offset as in the staged pieces; the range lies within one piece
  uint64_t bytes = 0;
  uint64_t slab_offset = 0;
};
struct PartRequest {  // node -> client: requests these bytes of a save that is staged in parts
  uint32_t slab_id = 0;
  uint64_t step = 0;
  uint32_t attempt = 0;
  uint64_t number = 0;
  std::vector<PartRange> ranges = {};
};
struct PartStaged {  // client -> node
  uint32_t slab_id = 0;
  uint64_t number = 0;
  Status outcome = {};  // not OK: the bytes are not in the slab
};
// client -> node: a clean end. If a connection ends without it, the trainer has died.
struct Detach {};

using LocalMessage =
    std::variant<local::Attach, local::Attached, local::Failed, local::LayoutUpdate, local::RosterUpdate,
                 local::Slab, local::Staged, local::SlabFree, local::Decided, local::Latest, local::Load,
                 local::Found, local::Loaded, local::Placed, local::LoadDone, local::Refused, local::Detach,
                 local::Written, local::NotStaged, local::Ping, local::Pong, local::StatusRequest,
                 local::StatusReport, local::PlanRequest, local::PlanUpdate, local::PlanGathering,
                 local::Close, local::FilesToRead, local::FilesRead, local::StagingRequest,
                 local::StagingGranted, local::StagingKept, local::GiveBack, local::PartRequest,
                 local::PartStaged, local::List, local::Listing, local::StillWriting, local::SaveReturned,
                 local::JobStatusRequest, local::JobStatusReport>;

// Who sends a message. With these, code that handles the messages of one side, by std::visit, names only the
// others of that side. PlanGathering passes both ways.
template <class T>
concept OnlyFromClient =
    base::OneOf<T, Attach, LayoutUpdate, Slab, Staged, Latest, Load, Placed, Detach, Written, NotStaged, Ping,
                StatusRequest, PlanRequest, Close, FilesRead, StagingRequest, StagingKept, PartStaged, List,
                SaveReturned, JobStatusRequest>;
template <class T>
concept OnlyFromNode =
    base::OneOf<T, Attached, Failed, RosterUpdate, SlabFree, Decided, Found, Loaded, LoadDone, Refused, Pong,
                StatusReport, PlanUpdate, FilesToRead, StagingGranted, GiveBack, PartRequest, Listing,
                StillWriting, JobStatusReport>;

template <class... T>
constexpr bool has_each_one_sender(const std::variant<T...>*) {
  return ((OnlyFromClient<T> + OnlyFromNode<T> + std::same_as<T, PlanGathering> == 1) && ...);
}
static_assert(has_each_one_sender(static_cast<const LocalMessage*>(nullptr)),
              "state who sends a new message");

Bytes encode_local(const LocalMessage& message);
// `bytes` are untrusted: it needs bounded memory and never crashes. Errors have one line.
Result<LocalMessage> decode_local(ByteView bytes);

}  // namespace shoal::local
