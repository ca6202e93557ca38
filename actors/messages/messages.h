// The messages between roles of different nodes, as plain values (schema/wire.capnp).
// docs/reference/protocol.md states when each is sent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/giving_up.h"
#include "actors/messages/chunk.h"
#include "plan/saving/plan_gathering.h"
#include "plan/saving/replica_blocks.h"
#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "shoal/metadata.h"
#include "shoal/passed_over.h"
#include "shoal/roster.h"
#include "shoal/save_plan.h"
#include "shoal/status.h"

namespace shoal::actors {

namespace wire {

struct RankLayout {
  Rank rank = 0;
  LayoutId layout_id;
  friend bool operator==(const RankLayout&, const RankLayout&) = default;
};
struct JoinRanks {  // Planner -> Coordinator: what the ranks of this host hold
  std::string host;
  uint32_t world_size = 0;
  std::vector<RankLayout> ranks;  // ascending
  SaveOptions options;
};
struct LayoutRequest {  // Coordinator -> Planner
  std::vector<LayoutId> ids;
};
struct Layouts {  // Planner -> Coordinator
  std::vector<LayoutPtr> layouts;
};
struct RosterUpdate {  // Coordinator -> Planner: the roster in force from now on
  std::shared_ptr<const World> world;
  SaveOptions options;
  uint32_t rule_version = kRuleVersion;
};
struct JoinRejected {  // Coordinator -> Planner: no roster can be made, and why
  std::string cause;
};
struct RankPlan {
  Rank rank = 0;
  PlanId plan_id;
  plan::ReplicaDigestsPtr replicas = nullptr;  // what the rank digested for replica_check
};
struct WrittenFile {
  Rank rank = 0;
  uint32_t index = 0;
  uint64_t size = 0;
  Hash128 header_digest;
  uint64_t payload_bytes = 0;
};
struct ShardsWritten {  // ShardWriter -> Coordinator; a repetition changes nothing
  AttemptKey key;
  RosterId roster_id;
  std::vector<RankPlan> plans;     // the ranks that this message reports, ascending
  std::vector<WrittenFile> files;  // ascending by (rank, index)
  UserMetadataPtr user = nullptr;  // of all these ranks
};
struct SaveFailed {  // ShardWriter -> Coordinator: this attempt cannot be committed
  AttemptKey key;
  std::optional<Rank> rank;  // nullopt: all ranks of the host fail, and none is the cause
  Status why;
  std::string host;  // of the rank; its node may not have joined yet
};
struct Pending {  // Coordinator -> ShardWriter: report received, undecided; resend more slowly
  AttemptKey key;
};
// ShardWriter -> Coordinator: the writes of this node continue; `amount` counts how often the node has seen
// them progress, not bytes. Coordinator -> ShardWriter, after Pending: `amount` counts the news of the
// attempt so far. Sent only about saves that take long; a loss does not matter. The coordinator moves its
// deadline if the amount is greater than before, a ShardWriter if it is another one. In mode rank-local the
// coordinator has no deadline: it only passes on to all nodes that one of them has made progress.
struct SaveProgress {
  AttemptKey key;
  uint64_t amount = 0;
  bool rank_local = false;
};
// Mode rank-local. ShardWriter -> Coordinator: so many ranks, all of this host, have published their
// manifests. Coordinator -> ShardWriter of rank 0: all ranks of the job have. A loss only delays the commit
// until somebody looks at the root.
struct ManifestsPublished {
  AttemptKey key;
  uint32_t ranks = 0;
  uint32_t world_size = 0;
};
// Coordinator -> ShardWriter: a durable decision exists. ShardWriter -> Coordinator, in mode rank-local: this
// node has found the attempt committed.
struct Decided {
  AttemptKey key;
  bool committed = false;
  std::string cause;        // of an abort; of a commit: a warning, or empty
  bool is_overdue = false;  // of an abort: something did not come in time, maybe from the receiver
  std::optional<GiveUp> give_up = std::nullopt;  // of an abort, if the coordinator knows it
};
// Coordinator -> ShardWriter: this coordinator could publish no decision and does not try again.
struct Undecided {
  AttemptKey key;
  Status why;
};
// ShardWriter -> Coordinator: these ranks have staged all that they hold, and the newest roster does not have
// their layouts. The message requests the roster of this attempt.
struct LayoutsStaged {
  AttemptKey key;
  std::vector<RankLayout> ranks;  // ascending
};
struct AttemptRoster {  // Coordinator -> ShardWriter: the attempt's roster, which is in the root
  AttemptKey key;
  RosterId roster_id;
};
struct Superseded {  // to a sender of an earlier epoch, from the coordinator or a node of a later one
  uint32_t epoch = 0;
  std::string address;
};
struct EndedRank {
  Rank rank = 0;
  std::string end;  // how its trainer ended, such as "exit status 3"; "": its node is stopping
};
// ShardWriter -> Coordinator: these ranks of its host stage nothing more. Replaces the earlier RanksEnded of
// this node. Coordinator -> ShardWriter, in mode rank-local: the same of the coordinator's node.
struct RanksEnded {
  std::vector<EndedRank> ranks;    // ascending
  std::vector<AttemptKey> staged;  // undecided saves that this node still reports, ascending
  std::string host;                // name of the sender's host
  std::vector<Rank> here;          // ranks whose trainers are attached, ascending; empty if the node stops
  bool may_return = false;         // the node stops while trainers are attached: another node may replace it
  bool rank_local = false;         // these ranks save in mode rank-local
  std::vector<Rank> expected;  // further ranks of this host, whose trainers have not attached yet; ascending
};

// Mode collective. The local plan of a rank is its layout, here a LayoutId. The coordinator requests layouts
// that nobody has sent yet (LayoutRequest).
struct LocalPlans {  // ShardWriter -> Coordinator: these ranks wait for their plans
  AttemptKey key;
  std::string host;
  uint32_t world_size = 0;
  SaveOptions options;
  std::vector<RankLayout> ranks;  // ascending
  // Parallel to ranks: assignment_id_of the plan that the rank has for this layout; zero: it has none.
  std::vector<PlanId> known;
  bool follows_planner = false;  // these layouts are the result of a PlanGathering
};
struct RankPart {
  Rank rank = 0;
  SavePlanPtr plan;  // null: the rank has this plan already, as LocalPlans stated
};
// Coordinator -> ShardWriter: the attempt's roster, which is in the root, and the plan of each rank.
struct GlobalPlan {
  AttemptKey key;
  RosterId roster_id;
  std::vector<RankPart> parts;  // ascending by rank
};
struct PlanOfRank {
  Rank rank = 0;
  plan::PlannerPlan bytes;
};
// Mode collective with planners that make a global plan; precedes LocalPlans. Stages offered and made:
// ShardWriter -> Coordinator. Stages gathered (to the node of coordinator_rank) and delivered:
// Coordinator -> ShardWriter. gathered and made may be split over several messages.
struct PlanGathering {
  AttemptKey key;
  plan::GatherStage stage = plan::GatherStage::offered;
  std::string host;  // empty from the Coordinator
  uint32_t world_size = 0;
  SaveOptions options;
  Rank coordinator_rank = 0;      // the rank whose planner makes the global plan
  std::vector<PlanOfRank> plans;  // ascending by rank
};

// Names one load for all nodes that take part: the same calls of `load` on all ranks have the same LoadId.
struct LoadId {
  bool latest = true;
  uint64_t step = 0;     // as in local::Load
  uint32_t ordinal = 0;  // of load(latest), as in local::Load; of a load that may_fall_back
  uint32_t round = 0;    // number of earlier loads of a rank
  uint32_t attempt = 0;  // as in local::Load
  friend auto operator<=>(const LoadId&, const LoadId&) = default;
};
// Loader -> Coordinator: these ranks of its host load. Replaces the earlier JoinLoad of this node for this
// load. The coordinator answers with LoadRoster.
struct JoinLoad {
  LoadId id;
  uint32_t world_size = 0;
  // Where this Loader serves others. Empty: it shares nothing, and only requests the choice of the
  // checkpoint.
  std::string address;
  // Ascending. The layout id is a hash of the rank's layout and of the ranks that share; equal ids mean that
  // ranks need the same bytes.
  std::vector<RankLayout> ranks;
  // How long this host would wait for each further one. The coordinator uses the longest of these times, at
  // most load_gather_longest_ms.
  uint32_t quiet_ms = 0;
};
struct LoadMembers {  // ranks [first, first + count)
  Rank first = 0;
  uint32_t count = 0;
  uint32_t host = 0;   // index into addresses
  uint32_t group = 0;  // index into groups
  friend bool operator==(const LoadMembers&, const LoadMembers&) = default;
};
// Coordinator -> Loader: which checkpoint to load, and the hosts that joined in time and share an id with the
// receiver. There are no members if the receiver joined too late, or shares nothing.
struct LoadRoster {
  LoadId id;
  Status outcome;  // not OK: nothing can be loaded
  AttemptKey key;
  std::vector<LayoutId> groups;
  std::vector<std::string> addresses;
  std::vector<LoadMembers> members;  // ascending by rank
  PassedOverPtr passed_over = nullptr;
};
// Loader -> Loader: send these chunks (actors/messages/chunk.h), in this order, as soon as they are
// available.
struct ChunkRequest {
  LoadId id;
  std::vector<uint64_t> chunks;
};
struct ChunkData {
  LoadId id;
  uint64_t number = 0;
  ChunkPtr chunk;
};
struct ChunksUnavailable {  // the sender does not have these chunks; the receiver reads them itself
  LoadId id;
  std::vector<uint64_t> chunks;
};
struct ChunksCancelled {  // the sender reads these chunks itself; the receiver need not keep them for it
  LoadId id;
  std::vector<uint64_t> chunks;
};
// The sender has received requests for these chunks and does not have them yet. It reads them, or waits for
// other hosts.
struct ChunksPending {
  LoadId id;
  std::vector<uint64_t> chunks;
  std::optional<uint32_t> host =
      std::nullopt;  // number of the sender in the roster of the load, if it knows it
};

}  // namespace wire

using WireBody =
    std::variant<wire::JoinRanks, wire::LayoutRequest, wire::Layouts, wire::RosterUpdate, wire::JoinRejected,
                 wire::ShardsWritten, wire::SaveFailed, wire::Pending, wire::Decided, wire::Superseded,
                 wire::Undecided, wire::LayoutsStaged, wire::AttemptRoster, wire::RanksEnded,
                 wire::LocalPlans, wire::GlobalPlan, wire::PlanGathering, wire::JoinLoad, wire::LoadRoster,
                 wire::ChunkRequest, wire::ChunkData, wire::ChunksUnavailable, wire::ChunksCancelled,
                 wire::ChunksPending, wire::SaveProgress, wire::ManifestsPublished>;

// The four roles. The numbers are on the wire: only append.
enum class RoleKind : uint8_t { coordinator = 0, planner = 1, shard_writer = 2, loader = 3 };
inline constexpr size_t kRoleCount = 4;
std::string_view role_name(RoleKind role);

struct WireMessage {
  RoleKind from = RoleKind::planner;
  RoleKind to = RoleKind::coordinator;
  std::shared_ptr<const WireBody> body;
};

inline constexpr size_t kMaxRanksPerNode = 4096;
inline constexpr size_t kMaxSavesInFlight = 256;  // of one node, all ranks together
inline constexpr size_t kMaxChunksPerMessage = 1024;
inline constexpr size_t kMaxEndBytes = 256;  // of the text that describes how a trainer ended

Bytes encode_wire(const WireMessage& message);
Result<WireMessage> decode_wire(ByteView bytes);  // accepts untrusted bytes: bounded memory, no crash

std::string describe(
    const WireBody& body);  // one line for transcripts and logs: names, keys, counts; no times, no ids

}  // namespace shoal::actors
