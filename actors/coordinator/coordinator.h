// Coordinator: one a run. Makes the roster of a generation, decides attempts, and sends the decisions.
// docs/reference/protocol.md.
//
// Its memory is a cache: what it forgets when it dies is in the root. The first file under the decision name
// of an attempt is the decision, whoever wrote it.
//
// - coordinator.cpp: events, epochs, joining, what earlier coordinators left
// - attempts.cpp: attempts
// - rosters.cpp: rosters after the first
// - collective.cpp: collective saves
// - plan_exchange.cpp: the plan gather that may precede a collective save
// - lost_ranks.cpp: ranks that are gone, hosts that are lost, and the drain
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/attempt_watch.h"
#include "actors/coordinator/crossed_answers.h"
#include "actors/coordinator/expected_plans.h"
#include "actors/coordinator/load_gathering.h"
#include "actors/coordinator/retention_duty.h"
#include "actors/coordinator/roster_gathering.h"
#include "actors/publishing.h"
#include "actors/recent_map.h"
#include "base/paged_map.h"

namespace shoal::actors {

inline constexpr size_t kMaxAttemptsInFlight = 256;
inline constexpr size_t kMaxDecisionsRemembered = 1024;
// Bound of the reports, of all attempts together, that came before the roster or before the root had been
// asked for a decision. A report that does not fit is dropped; its node sends it again.
inline constexpr size_t kMaxEarlyReportBytes = size_t{64} << 20;
inline constexpr size_t kMaxRosters = 8;       // in memory; a forgotten roster is read from the root again
inline constexpr size_t kMaxLateSweeps = 256;  // waiting for their time; the next coordinator sweeps the rest

class Coordinator final : public Role {
 public:
  explicit Coordinator(const NodeFacts& facts)
      : facts_(facts),
        watch_(operations_, timers_, facts.times.poll_ms * kMillisecond),
        retention_(operations_, timers_, facts_),
        loads_(operations_, timers_, facts_),
        told_roster_(facts.times),
        told_plans_(facts.times),
        roster_retries_(facts.times) {}

  RoleKind kind() const override { return RoleKind::coordinator; }
  void handle(TimeNs now, const Event& event, Effects& effects) override;
  uint64_t memory_bytes() const;  // actors/coordinator/memory.h

 private:
  enum class Phase { asking, gathering, publishing };
  struct Reported {
    std::shared_ptr<ExpectedPlans> under;
    std::vector<wire::WrittenFile> files;
  };
  struct Waiting {
    NodeId node = 0;
    LayoutId layout_id;
    bool has_staged = true;  // all that it holds; false (collective): nothing yet, it waits for its plan
    PlanId known;            // collective: share_id_of the plan that the rank has; zero: none
    friend bool operator==(const Waiting&, const Waiting&) = default;
  };
  struct Collective {  // mode collective: what hosts stated about the job
    uint32_t world_size = 0;
    SaveOptions options;
    std::string first_host;
    base::PagedMap<Rank, std::string> host_of;
  };
  struct Exchange {  // the plan gather of planners that make a global plan
    Rank coordinator_rank = 0;
    std::map<Rank, plan::PlannerPlan> offers;
    std::map<Rank, NodeId> nodes;            // that sent the offers
    std::map<Rank, plan::PlannerPlan> made;  // by the planner of coordinator_rank
    size_t bytes = 0;                        // of offers and made plans
  };
  struct Attempt {
    Phase phase = Phase::asking;
    std::optional<Exchange> exchange;
    std::optional<std::pair<bool, std::string>> follows_planner;  // and the first host that stated it
    std::optional<std::pair<Rank, UserMetadataPtr>> user;         // and the first rank that stated it
    base::PagedMap<Rank, Reported> reported;
    base::PagedMap<Rank, Waiting> waiting;  // for the attempt's roster; not all have staged (collective)
    std::shared_ptr<ExpectedPlans> named;   // the roster that its layouts make, once it is in the root
    bool naming = false;                    // that roster is being published
    bool looked_for_gone = false;           // look_for_gone runs once, at the first message about the attempt
    // The newest report of each node under each roster, kept until reports can be checked.
    std::map<std::pair<NodeId, RosterId>, wire::ShardsWritten> early;
    TimerId deadline = 0;
    TimeNs last_news = 0;  // the first message about it, or the first from a further rank
    PublishRetries retries;
    Attempt(TimeNs now, const RoleTimes& times) : last_news(now), retries(times) {}
  };
  struct Gone {  // a rank that stages nothing more
    NodeId node = 0;
    std::string end;                                     // how its trainer ended; "": its node is stopping
    TimeNs since = 0;                                    // when a node first reported it
    bool may_return = false;                             // trainers of its host live: another node may come
    std::shared_ptr<const std::set<AttemptKey>> staged;  // but its node still reports these attempts itself
  };
  struct Outcome {
    bool committed = false;
    std::string cause;
    Status undecided;  // not OK: no decision could be published
  };

  // --- what earlier coordinators left ---
  void recover(EffectWriter& out);
  void clean_up(TimeNs now, const storage::AttemptList& list, EffectWriter& out);
  // Runs one sweep at a time for each attempt. If called during a sweep, sweeps once more afterwards.
  void sweep(const AttemptKey& key, EffectWriter& out);
  void sweep_later(TimeNs now, const AttemptKey& key, EffectWriter& out);

  // --- epochs ---
  void watch_epoch(TimeNs now, EffectWriter& out);
  // Reads the highest epoch from the root, and calls `act` unless it is higher than this coordinator's. If
  // the read fails, calls `act` all the same: the first decision file counts, whoever wrote it.
  void if_in_office(EffectWriter& out, std::function<void(TimeNs now, EffectWriter& out)> act);
  void retire(const storage::EpochRecord& by, EffectWriter& out);
  void send_superseded(NodeId to, EffectWriter& out);

  // --- joining ---
  void on_message(TimeNs now, NodeId from, const WireBody& body, EffectWriter& out);
  void on_join(NodeId from, const wire::JoinRanks& join, EffectWriter& out);
  // Returns those of the missing layouts that this node should send: another node may have been asked for the
  // rest.
  std::vector<LayoutId> to_ask(NodeId node, std::vector<LayoutId> missing);
  void consider_roster(EffectWriter& out);
  void publish_roster(storage::RosterRecord record, EffectWriter& out);
  void roster_stands(TimeNs now, const storage::RosterRecord& record, EffectWriter& out);
  void refuse_all(Status why, EffectWriter& out);

  // --- rosters after the first (rosters.cpp) ---
  std::shared_ptr<ExpectedPlans> find_roster(const RosterId& id) const;
  // Makes this the newest roster, and sends it to all nodes.
  void prefer(std::shared_ptr<ExpectedPlans> plans, EffectWriter& out);
  // For a roster that a report names and that is not in memory: reads it from the root.
  void read_roster(const RosterId& id, EffectWriter& out);
  void take_staged_layout(const LayoutPtr& layout);
  void forget_staged_layouts();
  LayoutPtr find_layout(const Attempt& attempt, const LayoutId& id) const;
  void on_layouts_staged(TimeNs now, NodeId from, const wire::LayoutsStaged& staged, EffectWriter& out);
  // Continues an attempt if all ranks have reported, or if its layouts are known and make a roster.
  void consider_complete(const AttemptKey& key, EffectWriter& out);
  // Requests layouts that are missing; returns false if there are any.
  bool has_layouts(const Attempt& attempt, EffectWriter& out);
  // Forgets which layouts this node was asked for, because the request may be lost.
  void ask_again(NodeId node);
  // The world of the layouts with which the ranks saved, on the hosts that ranks have in this generation.
  Result<std::shared_ptr<const World>> world_of(const Attempt& attempt) const;
  void make_roster(const AttemptKey& key, Attempt& attempt, EffectWriter& out);
  // The attempt's roster is in the root. Checks that ranks which have reported wrote their share of it, and
  // sends it to the nodes of ranks that wait.
  void roster_named(const AttemptKey& key, std::shared_ptr<ExpectedPlans> plans, EffectWriter& out);
  static Status check_share(const ExpectedPlans& named, const Reported& reported, Rank rank);
  uint32_t world_size() const;         // 0: not known yet
  const SaveOptions& options() const;  // precondition: world_size() is not 0
  // The host number of each rank: from the newest roster, else from what hosts stated.
  std::vector<uint32_t> hosts() const;

  // --- collective (collective.cpp) ---
  void on_local_plans(TimeNs now, NodeId from, const wire::LocalPlans& said, EffectWriter& out);
  struct Speaker {
    NodeId node = 0;
    std::string host;
    uint32_t world_size = 0;
    SaveOptions options;
    bool follows_planner = false;
    std::vector<Rank> ranks;  // ranks that the message is about
  };
  // Opens the attempt that a host names before its ranks stage. nullptr: this function has answered the host.
  Attempt* hear(TimeNs now, const Speaker& said, const AttemptKey& key, EffectWriter& out);
  // Why this host cannot belong to this job.
  Status check_host(const Speaker& said) const;
  // Sends the plans of those ranks of the node that wait for them.
  void send_global_plan(const AttemptKey& key, NodeId to, EffectWriter& out);
  // plan_exchange.cpp
  void on_plan_exchange(TimeNs now, NodeId from, const wire::PlanExchange& said, EffectWriter& out);
  void take_offers(NodeId from, const wire::PlanExchange& said, Attempt& attempt, EffectWriter& out);
  void take_made(NodeId from, const wire::PlanExchange& said, Attempt& attempt, EffectWriter& out);
  void send_plans(const AttemptKey& key, const Exchange& exchange, plan::ExchangeStage stage, NodeId to,
                  EffectWriter& out);
  std::string what_planners_lack(const Attempt& attempt) const;

  // --- attempts ---
  // Sends the decision if it is in memory. Returns false if this coordinator knows none.
  bool answer_decided(NodeId to, const AttemptKey& key, EffectWriter& out);
  // Opens the attempt if necessary. nullptr: it is of another generation, or too many attempts are open.
  Attempt* open_attempt(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void on_written(TimeNs now, NodeId from, const wire::ShardsWritten& report, EffectWriter& out);
  void keep_early(TimeNs now, Attempt& attempt, NodeId from, const wire::ShardsWritten& report);
  void forget_early(Attempt& attempt);
  void take_early(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void take(TimeNs now, NodeId from, const wire::ShardsWritten& report, EffectWriter& out);
  static Status take_user(Attempt& attempt, const wire::ShardsWritten& report);
  std::vector<AttemptKey> open_keys() const;
  void commit(const AttemptKey& key, Attempt& attempt, const ExpectedPlans& under, EffectWriter& out);
  // Publishes a tombstone. If something did not come and the root proves the attempt complete, publishes its
  // manifest instead (actors/giving_up.h).
  void abort(const AttemptKey& key, GiveUp why, const std::string& cause, EffectWriter& out);
  void publish(const operation::PublishDecision& made, EffectWriter& out);
  void publish_failed(TimeNs now, const operation::PublishDecision& made, const Status& why,
                      EffectWriter& out);
  void leave_undecided(const AttemptKey& key, const Status& why, EffectWriter& out);
  void on_failed(TimeNs now, NodeId from, const wire::SaveFailed& failed, EffectWriter& out);
  void await_news(const AttemptKey& key, Attempt& attempt, EffectWriter& out);
  void deadline_passed(TimeNs now, const AttemptKey& key, EffectWriter& out);
  std::string what_is_missing(const Attempt& attempt) const;
  void close_attempt(const AttemptKey& key, EffectWriter& out);
  // A decision exists, whoever published it.
  void decided(const AttemptKey& key, const std::shared_ptr<const storage::Decision>& decision,
               EffectWriter& out);
  void tell(const AttemptKey& key, const Outcome& outcome, EffectWriter& out);

  // --- ranks that are gone (lost_ranks.cpp) ---
  static bool has_reported(const Attempt& attempt, Rank rank);  // its files are durable, as its node reported
  static bool has_spoken(const Attempt& attempt, Rank rank);
  // Records that this node reports these ranks. A rank that was gone with another node has come back. `host`:
  // the node's host, if the message names it.
  void heard_of(NodeId node, const std::vector<Rank>& ranks, const std::string& host = "");
  void lose_ranks_of(TimeNs now, NodeId node, EffectWriter& out);
  // For a coordinator that replaces another, when the root has a roster: after host_lost_ms, ranks that no
  // node has reported count as lost since it began.
  void await_all(TimeNs now, EffectWriter& out);
  // Sets a timer for the moment when the next lost rank has been lost for host_lost_ms.
  void await_lost(TimeNs now, EffectWriter& out);
  void abort_lost(TimeNs now, EffectWriter& out);
  // Ranks of the world that at time `by` have been lost for host_lost_ms, ascending.
  std::vector<Rank> lost_by(TimeNs by) const;
  std::string why_lost(const std::vector<Rank>& ranks) const;  // precondition: they are in lost_ranks_
  // Rank-local: nodes decide saves, so the ShardWriter here receives which hosts are lost.
  void tell_lost(TimeNs now, EffectWriter& out);
  // Rank-local: a node that loses this one must know whose manifests may never come.
  void name_own_ranks(NodeId to, EffectWriter& out);
  // Why this attempt never gets the reports of lost hosts; nullopt: it may, or needs none of them.
  std::optional<std::string> never_comes_back(TimeNs now, const Attempt& attempt) const;
  void on_ranks_gone(TimeNs now, NodeId from, const wire::RanksGone& said, EffectWriter& out);
  // Why this rank never takes part in this attempt; nullopt: it may.
  std::optional<std::string> never_comes(TimeNs now, const AttemptKey& key, const Attempt& attempt, Rank rank,
                                         const Gone& gone) const;
  // Called for the first message about an attempt.
  void look_for_gone(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void look_for_all_gone(TimeNs now, EffectWriter& out);
  // How long to wait for a node that replaces the one which is stopping.
  TimeNs return_patience(const Gone& gone) const;
  void await_return(TimeNs now, EffectWriter& out);

  // --- draining ---
  // While stopping: whether the reports that would complete the attempt cannot come, as far as this node
  // knows.
  bool is_hopeless(const Attempt& attempt) const;
  void consider_drain(TimeNs now, EffectWriter& out);
  // This host has no ranks, and those of other hosts continue: another coordinator will be started.
  bool others_go_on() const;
  // Leaves everything that it has not begun to publish undecided, for the coordinator that replaces it.
  void hand_over(TimeNs now, EffectWriter& out);

  const NodeFacts facts_;
  PendingOperations operations_;
  PendingTimers timers_;
  AttemptWatch watch_;
  RetentionDuty retention_;
  LoadGathering loads_;
  base::PagedSet<NodeId> nodes_;  // that have sent a message in this epoch and are not lost
  RosterGathering gathering_;
  bool roster_asked_ = false;
  std::optional<Collective> collective_;
  std::map<NodeId, wire::JoinRanks> early_joins_;  // came before the roster in the root had been read
  bool publishing_roster_ = false;
  CrossedAnswers<NodeId> told_roster_;
  CrossedAnswers<std::pair<AttemptKey, NodeId>> told_plans_;  // collective
  PublishRetries roster_retries_;
  Status refused_;
  std::shared_ptr<ExpectedPlans> plans_;                // of the newest roster
  std::deque<std::shared_ptr<ExpectedPlans>> rosters_;  // the newest kMaxRosters; the newest is last
  std::set<RosterId> reading_rosters_;
  std::map<LayoutId, LayoutPtr> staged_layouts_;  // of ranks that wait; null: requested
  std::map<LayoutId, NodeId> layouts_asked_;      // from which node
  std::map<AttemptKey, Attempt> attempts_;        // in flight
  size_t early_bytes_ = 0;                        // of the early reports of all attempts
  RecentMap<AttemptKey, Outcome> decided_{kMaxDecisionsRemembered};
  std::map<AttemptKey, bool> sweeps_;  // in progress; true: sweep once more
  size_t late_sweeps_ = 0;
  size_t telling_ = 0;  // decided, and the decision is not sent yet
  // The record of the epoch that replaced this one. Then this role only sends Superseded.
  std::optional<storage::EpochRecord> superseded_;
  std::map<Rank, Gone> gone_;
  base::PagedMap<NodeId, std::vector<Rank>> ranks_of_;  // as nodes reported them; ascending
  size_t ranks_heard_ = 0;                              // total number of ranks in ranks_of_
  base::PagedMap<NodeId, std::string> host_of_;         // of nodes that named their host
  struct Lost {
    TimeNs since = 0;
    std::string host;  // "": not known
  };
  std::map<Rank, Lost> lost_ranks_;  // reported by a node that is lost, or by none, and by no node since
  bool rank_local_ = false;          // as nodes stated
  std::vector<Rank> told_lost_;      // rank-local: last sent to the ShardWriter here
  TimerId lost_timer_ = 0;
  TimerId return_timer_ = 0;
  bool stopping_ = false, draining_ = false;
  // Requested to stop while trainers of its host live: another coordinator replaces it.
  bool hands_over_ = false;
  TimeNs stopping_since_ = 0;
  std::map<AttemptKey, TimeNs> hopeless_since_;
  TimerId drain_timer_ = 0;
};

}  // namespace shoal::actors
