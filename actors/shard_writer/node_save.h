// NodeSave: one save at its node, from the first message about it until its decision. It holds what the ranks
// of the node did (RankSave), and what the node does with it: report it, or decide it. It does no I/O.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/publishing.h"
#include "actors/shard_writer/rank_save.h"
#include "base/flat_map.h"

namespace shoal::actors {

enum class NodeSaveState : uint8_t {
  open,         // Ranks stage and write. The node reports what is durable, or looks for the decision.
  failed,       // A rank failed. The coordinator is to abort the save; in mode rank-local this node is.
  deciding,     // This node publishes a tombstone, or commits what the root proves complete.
  undecidable,  // The root took no decision so far, and the clients were informed. The node tries again.
  committed,    // The root has a manifest, or had one. The save is closed.
  aborted,      // The root has the tombstone of an abort. The save is closed.
  unknown,  // The node stopped trying before a decision existed; one may exist by now. The save is closed.
};
enum class NodeSaveTrigger : uint8_t {
  rank_failed,        // a rank of this node failed, or it cannot stage the save any more
  given_up,           // nobody else decides: why is in giving_up.h
  publishing_failed,  // the root took no decision
  committed,          // the root has a manifest
  aborted,            // the root has a tombstone
  left,               // the node stops trying
};

inline constexpr auto kNodeSaveTransitions = [] {
  using S = NodeSaveState;
  using T = NodeSaveTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::open, T::rank_failed, S::failed},
      {S::open, T::given_up, S::deciding},
      {S::open, T::committed, S::committed},
      {S::open, T::aborted, S::aborted},
      {S::open, T::left, S::unknown},
      {S::failed, T::given_up, S::deciding},
      {S::failed, T::committed, S::committed},
      {S::failed, T::aborted, S::aborted},
      {S::failed, T::left, S::unknown},
      {S::deciding, T::publishing_failed, S::undecidable},
      {S::deciding, T::committed, S::committed},
      {S::deciding, T::aborted, S::aborted},
      {S::deciding, T::left, S::unknown},
      {S::undecidable, T::publishing_failed, S::undecidable},
      {S::undecidable, T::committed, S::committed},
      {S::undecidable, T::aborted, S::aborted},
      {S::undecidable, T::left, S::unknown},
  });
}();
using NodeSaveMachine = base::StateMachine<kNodeSaveTransitions>;

// The plan gather at one node: planners that make a global plan, before a collective save. The coordinator
// has a state of its own for it (actors/coordinator/plan_gather.h).
enum class LocalGatherState : uint8_t {
  gathering,  // The ranks here offer their plans. Those of all ranks come if coordinator_rank is here.
  planning,   // The planner of coordinator_rank, which is here, has the offers of all ranks.
  made,       // That planner has made the plans of all ranks. The node sends them to the coordinator.
};
enum class LocalGatherTrigger : uint8_t {
  all_gathered,   // the offers of all ranks have come
  made,           // the planner here has made the plans
  offered_again,  // the client of coordinator_rank begins again
};

inline constexpr auto kLocalGatherTransitions = [] {
  using S = LocalGatherState;
  using T = LocalGatherTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::gathering, T::all_gathered, S::planning},
      {S::gathering, T::made, S::made},
      {S::gathering, T::offered_again, S::gathering},
      {S::planning, T::made, S::made},
      {S::planning, T::offered_again, S::gathering},
      {S::made, T::made, S::made},
      {S::made, T::offered_again, S::gathering},
  });
}();
using LocalGatherMachine = base::StateMachine<kLocalGatherTransitions>;

struct LocalGather {
  Rank coordinator_rank = 0;
  SaveOptions options;
  LocalGatherMachine state{LocalGatherState::gathering};
  std::map<Rank, plan::PlannerPlan> gathered;  // in gathering, until all have come
  std::vector<plan::PlannerPlan> made;         // in made: in the order of ranks
  bool is_made_sent = false;                   // the node has sent them to the coordinator
  bool resends = false;                        // send all of it again: some may be lost
};

// Counters of every state that the ShardWriter keeps, for tests and the coverage of failure campaigns.
struct SaveCounts {
  RankSaveMachine::Counts ranks;
  NodeSaveMachine::Counts saves;
  LocalGatherMachine::Counts gathers;
};

class NodeSave {
 public:
  NodeSave(TimeNs now, const Timeouts& timeouts, SaveCounts& counts)
      : last_progress(now),
        last_look(now),
        begun(now),
        backoff(timeouts),
        partials(timeouts.report_partial_after_ms * kMillisecond, timeouts.resend_most_ms * kMillisecond),
        retries(timeouts),
        counts_(&counts) {}

  // --- the state ---
  NodeSaveState state() const { return state_.state(); }
  void on(NodeSaveTrigger trigger) { state_.on(trigger, counts_->saves); }
  bool is_undecidable() const { return state_.is(NodeSaveState::undecidable); }
  // This node decides the save. Nothing is reported any more.
  bool is_deciding() const { return state_.is_one_of(NodeSaveState::deciding, NodeSaveState::undecidable); }

  // --- failures of this node's ranks ---
  // Keeps the first one. Returns whether this is the first. nullopt: all ranks of this host fail, and none of
  // them is the cause.
  bool fail(std::optional<Rank> rank, Status why);
  bool has_failed() const { return !failure_.ok(); }
  const Status& failure() const { return failure_; }
  std::optional<Rank> failed_rank() const { return failed_rank_; }

  // --- ranks ---
  // Precondition: the rank has no entry.
  RankSave& add(Rank rank, RankSaveState initial) {
    return ranks.try_emplace(rank, initial, counts_->ranks).first->second;
  }
  bool has_staged(Rank rank) const {
    auto found = ranks.find(rank);
    return found != ranks.end() && found->second.has_staged();
  }
  // Whether a rank has staged here what it had offered to no node before. All ranks of this host that had not
  // been told of a decision by then have staged here too, if the save is committed.
  bool began_here() const;
  bool has_unpublished() const;  // mode rank-local: a rank's files are durable, its manifest is not
  bool all_published() const;    // mode rank-local: every rank of this node that takes part
  bool has_folder() const;       // one of them has durable files or a manifest in the folder of the attempt
  // Whether the user metadata of this rank equals that of the other ranks here.
  Status check_user(Rank rank) const;
  // Either all ranks have a planner that makes a global plan, or none.
  Status check_planners(Rank rank, bool follows_planner) const;
  base::FlatMap<Rank, RankSave> ranks;
  std::set<ClientId> without_part;  // clients that sent NotStaged; they receive the decision too

  // --- the plan gather ---
  LocalGather& begin_gather(Rank coordinator_rank, const SaveOptions& options);
  void on(LocalGatherTrigger trigger) { gather->state.on(trigger, counts_->gathers); }
  std::optional<LocalGather> gather;

  // --- reports ---
  using Ready = std::pair<size_t, size_t>;  // ranks that have written, ranks that wait for the coordinator
  Ready ready() const;
  Ready reported;             // as the last report stated
  Ready ready_before;         // when the timer `partial` was set
  RosterId roster_id;         // roster for the ranks that wait (AttemptRoster); zero: not received yet
  bool partial_due = false;   // the next report may leave out ranks that are not ready
  bool is_announced = false;  // LayoutsStaged was sent before this node had a roster

  // --- the decision ---
  Status undecided;         // why the coordinator could record no decision
  bool is_overdue = false;  // this node gave it up because something did not come in time
  // In undecidable: clients that were informed, and of what. They receive nothing more about this save.
  std::set<ClientId> notified_undecided;
  Status undecidable;

  bool is_writing() const;  // a rank's files are being written

  // --- progress: what moves the deadline ---
  TimeNs last_progress;         // when the last progress was known, at first when the save was opened
  TimeNs last_look;             // when the writes were last measured
  uint64_t measured = 0;        // the last answer of MeasureWrites
  uint64_t times_moved = 0;     // how often the writes here have moved the deadline
  uint64_t news_elsewhere = 0;  // the last amount that the coordinator sent
  bool is_measuring = false;

  // --- timers and operations in progress ---
  TimeNs begun;
  TimerId resend = 0, partial = 0, deadline = 0, announce = 0;
  Backoff backoff;
  Backoff partials;  // until the ranks that are ready are reported without the others
  PublishRetries retries;
  bool is_reading_decision = false;

  // --- mode rank-local: looks at the set of manifests ---
  struct SetLooks {
    TimeNs pace = 0;               // interval to the next look
    uint32_t polls = 0;            // since something was published here
    std::string missing;           // what the set lacked at the last look
    bool is_looking = false;       // a look is in progress
    bool is_complete = false;      // according to the coordinator
    bool must_look_again = false;  // it said so while a look was in progress
    bool is_gone = false;          // the last look found no folder
    bool is_last = false;  // the node stops: it leaves the save undecided if this look does not decide
    bool is_listing_lost = false;  // the missing manifests are being listed because a host is lost
  } set;

 private:
  NodeSaveMachine state_{NodeSaveState::open};
  SaveCounts* counts_;
  Status failure_;
  std::optional<Rank> failed_rank_;
};

}  // namespace shoal::actors
