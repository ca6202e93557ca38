// Role: a state machine that takes an event and the time and returns effects. Read this first.
//
// A role does no I/O, reads no clock, draws no random number and iterates no unordered container, so that the
// same objects run live under CAF (actors/caf/) and on virtual time (sim/). Effects of one list are
// independent: what must follow an operation is returned in answer to its completion event. Effects are
// carried out in the order given; each may fail, and the failure comes back as an event (operations) or not
// at all (sends: roles resend).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/messages.h"
#include "actors/operation.h"
#include "actors/plan_source.h"
#include "local/messages.h"
#include "transport/transport.h"

namespace shoal {

using TimeNs = int64_t;  // monotonic, from an arbitrary start
inline constexpr TimeNs kMillisecond = 1'000'000;

// A node as roles see it: a session. 0 is this node; the coordinator's node has a name of its own, wherever
// it is.
using NodeId = uint64_t;
inline constexpr NodeId kThisNode = 0;
inline constexpr NodeId kCoordinatorNode = 1;
inline constexpr NodeId kFirstPeerNode = 16;  // hosts map sessions to ids from here on, never used twice
inline constexpr NodeId kFirstSharer = NodeId{1} << 40;  // likewise, of nodes that came by effect::SendTo

using TimerId = uint64_t;      // chosen by the role; setting one again moves it
using OperationId = uint64_t;  // chosen by the role, never used twice
using SendId = uint64_t;       // likewise, from 1 on

namespace event {
struct Started {};  // once, before any other
struct Received {   // from another node, or from a role of this one
  NodeId from = kThisNode;
  WireMessage message;
};
struct FromClient {
  ClientId client = 0;
  std::shared_ptr<const LocalMessage> message;
};
struct ClientLost {  // its connection ended; after local::Detach, cleanly
  ClientId client = 0;
};
struct WorldKnown {  // Planner -> ShardWriter and Loader, on this node
  std::shared_ptr<const World> world;
  SaveOptions options;
  std::optional<Rank> alone;  // rank-local: what this rank knows by itself (rank_local_world)
};
struct CommittedAlone {};  // ShardWriter -> Coordinator of this node, if it is here: a rank-local save is
struct RanksLost {  // Coordinator -> ShardWriter of this node, in mode rank-local. Takes the place of the
                    // one before
  std::vector<Rank> ranks;  // ascending: of hosts that are lost. Empty: all have come back
  std::string cause;
};
struct PlanningFailed {  // Planner -> ShardWriter, on this node: no roster will come
  Status why;
};
struct TimerFired {
  TimerId timer = 0;
};
struct OperationDone {
  OperationId operation = 0;
  Result<OperationResult> result;
};
struct PeerUp {  // only of kCoordinatorNode: a session with it stands, the first or another one
  NodeId node = kThisNode;
};
struct CoordinatorGone {  // Planner -> ShardWriter, on this node: none of this job will be heard any more
  Status why;
};
struct PeerLost {
  NodeId node = kThisNode;
  Status why;
};
struct TrainerEnded {  // to the ShardWriter: whoever started this rank says so; it will not attach again
  Rank rank = 0;
  std::string how;  // "exit status 1"
};
// To the Coordinator: its node was told to stop; Drain follows. trainers_live: trainers of its host are still
// attached, so that another node will take its place and the job goes on.
struct Stopping {
  bool trainers_live = false;
};
struct Drain {                 // finish what is staged, then answer effect::Drained
  bool told = true;            // the node was told to stop: its ranks are gone. Else nobody needed it
  bool trainers_live = false;  // as of Stopping, for the Coordinator; the ShardWriter knows its clients
};
struct SendDone {  // of an effect::Send with an id: nothing of its message is held here any more. It has
                   // left, or was dropped
  SendId send = 0;
};
}  // namespace event
using Event =
    std::variant<event::Started, event::Received, event::FromClient, event::ClientLost, event::WorldKnown,
                 event::PlanningFailed, event::TimerFired, event::OperationDone, event::PeerUp,
                 event::CoordinatorGone, event::PeerLost, event::TrainerEnded, event::Stopping, event::Drain,
                 event::CommittedAlone, event::RanksLost, event::SendDone>;

namespace effect {
struct Send {  // to a role of another node, or of this one (kThisNode, or kCoordinatorNode if that is here)
  NodeId to = kThisNode;
  WireMessage message;
  SendId id = 0;  // not 0, to a node that came by SendTo: SendDone follows, once, at the latest when its
                  // session has ended
};
struct SendTo {  // to a role of the node that listens there (operation::ListenToPeers); answers come from a
                 // NodeId, to which one is sent as to any other
  std::string address;
  WireMessage message;
};
struct Tell {  // to a role of this node, what never leaves it
  RoleKind to = RoleKind::shard_writer;
  Event event;
};
struct ToClient {
  ClientId client = 0;
  std::shared_ptr<const LocalMessage> message;
};
struct ForgetClient {  // its slabs are needed no more
  ClientId client = 0;
};
struct SetTimer {
  TimerId timer = 0;
  TimeNs at = 0;
};
struct CancelTimer {
  TimerId timer = 0;
};
struct Start {
  OperationId id = 0;
  Operation operation;
};
struct Redirect {  // Planner: kCoordinatorNode is the coordinator of this epoch, at this address, if it is
                   // later
  uint32_t epoch = 0;
  std::string address;
};
struct Retire {  // Coordinator, last of all: a later epoch stands; this role answers with it and does no more
  EpochRecord by;
};
struct Drained {};
struct EndSession {  // with a node that came by SendTo: what is for it and has not left is dropped
  NodeId node = kThisNode;
  Status why;
};
struct Log {  // for people: one line
  enum class Level : uint8_t { info, warning } level = Level::info;
  std::string line;
};
}  // namespace effect
using Effect =
    std::variant<effect::Send, effect::SendTo, effect::Tell, effect::ToClient, effect::ForgetClient,
                 effect::SetTimer, effect::CancelTimer, effect::Start, effect::Redirect, effect::Retire,
                 effect::Drained, effect::Log, effect::EndSession>;
using Effects = std::vector<Effect>;

class Role {
 public:
  virtual ~Role() = default;
  virtual RoleKind kind() const = 0;
  virtual void handle(TimeNs now, const Event& event, Effects& effects) = 0;
};

// Deadlines and intervals of all roles; one set a run.
struct RoleTimes {
  uint32_t join_gather_ms = 5;       // local ranks that attach together are reported together
  uint32_t resend_first_ms = 500;    // doubled after each resend ...
  uint32_t resend_most_ms = 10'000;  // ... up to this; at once that long after a Pending
  uint32_t resend_host_us = 500;     // at least so long for each host of the job, and eight times as long
  uint32_t report_partial_after_ms = 2'000;  // after the first local rank has written
  uint32_t attempt_deadline_ms = 120'000;    // coordinator: from the last news of an attempt to its abort
  uint32_t node_deadline_ms =
      300'000;  // node: from staged to its own tombstone, without a coordinator's word
  uint32_t abandoned_after_ms =
      10'000;              // an undecided attempt of an earlier generation, unchanged for that long
  uint32_t poll_ms = 100;  // how often an undecided attempt is looked at
  uint32_t drain_patience_ms = 5'000;  // a drain: for a save that nobody here can complete any more
  // From the end of a host's session with the coordinator, for its node or its trainers to come back; then
  // saves that wait for its ranks are aborted. Likewise for a node that has lost its coordinator.
  uint32_t host_lost_ms = 15'000;
  uint32_t find_coordinator_ms = 60'000;  // a node that starts: for its coordinator; then it ends
  uint32_t epoch_check_ms = 5'000;  // how often a coordinator, or who lost it, asks the root for the epoch
  uint32_t lease_renew_ms = 5'000;  // how often a load moves the counter of its pin
  uint32_t lease_ttl_ms = 60'000;   // a pin whose counter has not moved for that long has ended
  uint32_t load_gather_quiet_ms = 200;      // a load's roster is made when nobody has come for that long; or
  uint32_t load_gather_longest_ms = 3'000;  // for longer, as its nodes say, but no longer than that ...
  uint32_t load_gather_most_ms = 10'000;    // ... or that long after the first, or fifteen times the former
  uint32_t load_join_patience_ms = 25'000;  // for the coordinator's answer; then a node loads by itself
  // Likewise of a load that may fall back: whoever chooses reads all of a checkpoint first.
  uint32_t load_verify_patience_ms = 1'800'000;
  uint32_t chunk_deadline_ms = 5'000;  // who has sent nothing for that long is asked no more
};

// What the loads of a node take together: windows of clients, and chunks that are passed on.
inline constexpr uint64_t kDefaultLoadMemoryBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMinLoadMemoryBytes = uint64_t{16} << 20;
inline constexpr uint64_t kMaxLoadMemoryBytes = uint64_t{1} << 40;

struct NodeFacts {  // what a node's roles know from the start
  uint32_t generation = 0;
  uint32_t epoch = 0;
  // The job only reads the root, beside another that trains. Then generation is its number under readers/.
  bool read_only = false;
  std::string job_id;                                    // the generation's token
  std::string host;                                      // of this node, distinct in the job
  int32_t pid = 0;                                       // told to clients
  uint32_t world_size = 0;                               // 0: from the first client
  std::vector<Rank> expected_ranks;                      // of this host, where known; else those that attach
  size_t message_bytes_max = kMaxMessageBytes;           // of one message to another node
  uint64_t load_memory_bytes = kDefaultLoadMemoryBytes;  // at most, of all loads here (window_budget.h)
  bool grants_staging = false;  // clients are told so: the node answers StagingWanted
  RoleTimes times;
  RetentionPolicy retention;                                           // the coordinator's
  std::shared_ptr<PlanSource> plans = std::make_shared<PlanSource>();  // never null
};

std::unique_ptr<Role> make_planner(const NodeFacts& facts);
std::unique_ptr<Role> make_shard_writer(const NodeFacts& facts);
std::unique_ptr<Role> make_loader(const NodeFacts& facts);
std::unique_ptr<Role> make_coordinator(const NodeFacts& facts);

}  // namespace shoal
