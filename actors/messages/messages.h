// What roles on different nodes say to each other (schema/wire.capnp), as plain values.
// docs/reference/protocol.md says when.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/messages/chunk.h"
#include "plan/saving/plan_exchange.h"
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
struct LayoutsWanted {  // Coordinator -> Planner
  std::vector<LayoutId> ids;
};
struct Layouts {  // Planner -> Coordinator
  std::vector<LayoutPtr> layouts;
};
struct RosterIs {  // Coordinator -> Planner: in force from now on
  std::shared_ptr<const World> world;
  SaveOptions options;
  uint32_t rule_version = kRuleVersion;
};
struct JoinRefused {  // Coordinator -> Planner: no roster can come of this
  std::string cause;
};
struct RankPlan {
  Rank rank = 0;
  PlanId plan_id;
};
struct WrittenFile {
  Rank rank = 0;
  uint32_t index = 0;
  uint64_t size = 0;
  Hash128 header_digest;
  uint64_t payload_bytes = 0;
};
struct ShardsWritten {  // ShardWriter -> Coordinator; the same again changes nothing
  AttemptKey key;
  RosterId roster_id;
  std::vector<RankPlan> plans;     // the ranks this message answers for, ascending
  std::vector<WrittenFile> files;  // ascending by (rank, index)
  UserMetadataPtr user = nullptr;  // of all these ranks
};
struct SaveFailed {  // ShardWriter -> Coordinator: this attempt cannot be committed
  AttemptKey key;
  Rank rank = 0;
  Status why;
};
struct Pending {  // Coordinator -> ShardWriter: heard, undecided; resend slower
  AttemptKey key;
};
struct Decided {  // Coordinator -> ShardWriter: a decision stands, durably
  AttemptKey key;
  bool committed = false;
  std::string cause;  // of an abort
};
struct Undecided {  // Coordinator -> ShardWriter: no decision could be published, nor will be tried again
                    // here
  AttemptKey key;
  Status why;
};
struct LayoutsStaged {  // ShardWriter -> Coordinator: what these ranks hold is staged whole, and their
                        // layouts are not those of the newest roster: which one is this attempt's?
  AttemptKey key;
  std::vector<RankLayout> ranks;  // ascending
};
struct PlanBy {  // Coordinator -> ShardWriter: this one, which stands in the root
  AttemptKey key;
  RosterId roster_id;
};
struct Superseded {  // an old epoch's coordinator -> anyone
  uint32_t epoch = 0;
  std::string address;
};
struct GoneRank {
  Rank rank = 0;
  std::string end;  // of its trainer, such as "exit status 3"; "": its node is stopping
};
// ShardWriter -> Coordinator: these ranks of its host stage nothing more. Takes the place of what this node
// said so before. Coordinator -> ShardWriter, in mode rank-local: host and ranks of the Coordinator's node.
struct RanksGone {
  std::vector<GoneRank> ranks;     // ascending
  std::vector<AttemptKey> staged;  // ascending: undecided saves of which this node speaks by itself
  std::string host;                // its name
  std::vector<Rank> here;   // ascending: ranks whose trainers are attached, unless the node is stopping
  bool may_return = false;  // the node stops while trainers are attached: another may follow it
  bool rank_local = false;  // the ranks here save so
};

// Mode collective. What each rank holds is its local plan; LayoutIds stand for layouts, which are asked for
// where nobody has sent them yet (LayoutsWanted).
struct LocalPlans {  // ShardWriter -> Coordinator: these ranks wait to be told what they write
  AttemptKey key;
  std::string host;
  uint32_t world_size = 0;
  SaveOptions options;
  std::vector<RankLayout> ranks;  // ascending
  // Parallel to ranks: share_id_of the plan that each has for this layout; zero: none.
  std::vector<PlanId> known;
  bool follows_planner = false;  // these layouts follow from a PlanExchange
};
struct RankPart {
  Rank rank = 0;
  SavePlanPtr plan;  // null: the one that the rank has, as it said
};
// Coordinator -> ShardWriter: this roster, which stands in the root, and each rank's part.
struct GlobalPlan {
  AttemptKey key;
  RosterId roster_id;
  std::vector<RankPart> parts;  // ascending by rank
};
struct PlanOfRank {
  Rank rank = 0;
  plan::PlannerPlan bytes;
};
// Mode collective, where planners make the global plan; before LocalPlans. offered, made: ShardWriter ->
// Coordinator; gathered (to the node of coordinator_rank), told: Coordinator -> ShardWriter. gathered and
// made may come in several messages.
struct PlanExchange {
  AttemptKey key;
  plan::ExchangeStage stage = plan::ExchangeStage::offered;
  std::string host;  // empty from the Coordinator
  uint32_t world_size = 0;
  SaveOptions options;
  Rank coordinator_rank = 0;      // whose planner makes it
  std::vector<PlanOfRank> plans;  // ascending by rank
};

// A load of which several nodes hear: the same calls of `load` on all ranks have the same one.
struct LoadId {
  bool latest = true;
  uint64_t step = 0;     // where not latest
  uint32_t ordinal = 0;  // of load(latest): local::Load; of one that may_fall_back
  uint32_t round = 0;    // how many loads a rank of it began before
  friend auto operator<=>(const LoadId&, const LoadId&) = default;
};
// Loader -> Coordinator: these ranks of its host load. Answered by a LoadRoster; takes the place of what this
// node said so before.
struct JoinLoad {
  LoadId id;
  uint32_t world_size = 0;
  std::string address;  // where its Loader serves others; empty: it shares nothing, and asks which checkpoint
  // Ascending. Ranks that name the same id say the same of what they load: their layout, and who shares.
  std::vector<RankLayout> ranks;
  // How long it is worth waiting for the next to come; the coordinator waits as long as the most patient
  // would, load_gather_longest_ms at most.
  uint32_t quiet_ms = 0;
};
struct LoadMembers {  // ranks [first, first + count)
  Rank first = 0;
  uint32_t count = 0;
  uint32_t host = 0;   // into addresses
  uint32_t group = 0;  // into groups
  friend bool operator==(const LoadMembers&, const LoadMembers&) = default;
};
// Coordinator -> Loader: which checkpoint, and who has come in time among those that name an id which the
// receiver named; nobody where it came too late, or shares nothing.
struct LoadRoster {
  LoadId id;
  Status outcome;  // not OK: nothing can be loaded
  AttemptKey key;
  std::vector<LayoutId> groups;
  std::vector<std::string> addresses;
  std::vector<LoadMembers> members;  // ascending by rank
  PassedOverPtr passed_over = nullptr;
};
// Loader -> Loader: these chunks (actors/messages/chunk.h), in this order, as soon as they are there.
struct ChunksWanted {
  LoadId id;
  std::vector<uint64_t> chunks;
};
struct ChunkIs {
  LoadId id;
  uint64_t number = 0;
  ChunkPtr chunk;
};
struct ChunksNotHere {  // whoever wants them reads them
  LoadId id;
  std::vector<uint64_t> chunks;
};
struct ChunksNotWanted {  // the sender reads them itself: nobody has to keep them for it
  LoadId id;
  std::vector<uint64_t> chunks;
};
struct ChunksComing {  // wanted of the sender, who has not got them yet: he reads, or waits for others who do
  LoadId id;
  std::vector<uint64_t> chunks;
};

}  // namespace wire

using WireBody =
    std::variant<wire::JoinRanks, wire::LayoutsWanted, wire::Layouts, wire::RosterIs, wire::JoinRefused,
                 wire::ShardsWritten, wire::SaveFailed, wire::Pending, wire::Decided, wire::Superseded,
                 wire::Undecided, wire::LayoutsStaged, wire::PlanBy, wire::RanksGone, wire::LocalPlans,
                 wire::GlobalPlan, wire::PlanExchange, wire::JoinLoad, wire::LoadRoster, wire::ChunksWanted,
                 wire::ChunkIs, wire::ChunksNotHere, wire::ChunksNotWanted, wire::ChunksComing>;

// The four roles. Numbers are on the wire: only append.
enum class RoleKind : uint8_t { coordinator = 0, planner = 1, shard_writer = 2, loader = 3 };
inline constexpr size_t kRoleCount = 4;
std::string_view role_name(RoleKind role);

struct WireMessage {
  RoleKind from = RoleKind::planner;
  RoleKind to = RoleKind::coordinator;
  std::shared_ptr<const WireBody> body;
};

inline constexpr size_t kMaxRanksPerNode = 4096;
inline constexpr size_t kMaxSavesInFlight = 256;  // of a node, all ranks together
inline constexpr size_t kMaxChunksPerMessage = 1024;
inline constexpr size_t kMaxEndBytes = 256;  // of how a trainer ended

Bytes encode_wire(const WireMessage& message);
Result<WireMessage> decode_wire(ByteView bytes);  // untrusted bytes: bounded memory, no crash

std::string describe(
    const WireBody& body);  // one line for transcripts and logs: names, keys, counts; no times, no ids

}  // namespace shoal::actors
