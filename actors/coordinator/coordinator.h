// Coordinator: one a run. Makes the roster of a generation, decides attempts, and tells.
// docs/reference/protocol.md.
//
// Its memory is a cache: whatever it forgets when it dies, the root decides. The first file under an
// attempt's decision name stands, whoever wrote it. Events, joining and what earlier incarnations left:
// coordinator.cpp; attempts: coordinator_attempts.cpp; later rosters: coordinator_rosters.cpp; collective
// saves: coordinator_collective.cpp, and what their planners pass on before: coordinator_exchange.cpp; ranks
// that are gone, and the drain: coordinator_leaving.cpp.
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
// Of reports that came before the roster or the root's answer, all attempts together. What finds no room is
// sent again.
inline constexpr size_t kMaxEarlyReportBytes = size_t{64} << 20;
inline constexpr size_t kMaxRosters = 8;       // at hand; what is forgotten is read from the root again
inline constexpr size_t kMaxLateSweeps = 256;  // waiting for their time; more are left to the next start

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
    bool has_staged = true;  // all that it holds; collective: nothing yet, it waits to be told what
    PlanId known;            // collective: share_id_of the plan that it has; zero: none
    friend bool operator==(const Waiting&, const Waiting&) = default;
  };
  struct Collective {  // what hosts said of a job whose saves are
    uint32_t world_size = 0;
    SaveOptions options;
    std::string first_host;
    base::PagedMap<Rank, std::string> host_of;
  };
  struct Exchange {  // of the plans of planners with a global plan of their own
    Rank coordinator_rank = 0;
    std::map<Rank, plan::PlannerPlan> offers;
    std::map<Rank, NodeId> nodes;            // of who offered
    std::map<Rank, plan::PlannerPlan> made;  // by the planner of coordinator_rank
    size_t bytes = 0;                        // of offers and of what is made
  };
  struct Attempt {
    Phase phase = Phase::asking;
    std::optional<Exchange> exchange;
    std::optional<std::pair<bool, std::string>> follows_planner;  // and the host that said so first
    std::optional<std::pair<Rank, UserMetadataPtr>> user;         // and the rank that said so first
    base::PagedMap<Rank, Reported> reported;
    base::PagedMap<Rank, Waiting> waiting;  // for the attempt's roster, whatever they have staged
    std::shared_ptr<ExpectedPlans> named;   // the roster that its layouts make, once it stands in the root
    bool naming = false;                    // that one is being published
    bool looked_for_gone = false;           // when the first word of it came
    // The newest of each node under each roster, before reports can be judged.
    std::map<std::pair<NodeId, RosterId>, wire::ShardsWritten> early;
    TimerId deadline = 0;
    TimeNs last_news = 0;  // when it was first heard of, or of a rank the first time
    PublishRetries retries;
    Attempt(TimeNs now, const RoleTimes& times) : last_news(now), retries(times) {}
  };
  struct Gone {  // a rank that stages nothing more
    NodeId node = 0;
    std::string end;                                     // of its trainer; "": its node is stopping
    TimeNs since = 0;                                    // when that was first said
    bool may_return = false;                             // trainers of its host live: another node may come
    std::shared_ptr<const std::set<AttemptKey>> staged;  // but of these its node speaks by itself
  };
  struct Outcome {
    bool committed = false;
    std::string cause;
    Status undecided;  // not OK: no decision could be published
  };

  // --- what earlier incarnations left ---
  void recover(EffectWriter& out);
  void clean_up(TimeNs now, const storage::AttemptList& list, EffectWriter& out);
  // One at a time for each attempt; asked for meanwhile, once more afterwards.
  void sweep(const AttemptKey& key, EffectWriter& out);
  void sweep_later(TimeNs now, const AttemptKey& key, EffectWriter& out);

  // --- epochs ---
  void watch_epoch(TimeNs now, EffectWriter& out);
  // Asks the root for the highest epoch, and acts only if it is this one. An error hinders nobody: the first
  // file decides, whoever wrote it.
  void if_in_office(EffectWriter& out, std::function<void(TimeNs now, EffectWriter& out)> act);
  void retire(const storage::EpochRecord& by, EffectWriter& out);
  void send_superseded(NodeId to, EffectWriter& out);

  // --- joining ---
  void on_message(TimeNs now, NodeId from, const WireBody& body, EffectWriter& out);
  void on_join(NodeId from, const wire::JoinRanks& join, EffectWriter& out);
  // Those of a node's layouts that no other node is asked for.
  std::vector<LayoutId> to_ask(NodeId node, std::vector<LayoutId> missing);
  void consider_roster(EffectWriter& out);
  void publish_roster(storage::RosterRecord record, EffectWriter& out);
  void roster_stands(TimeNs now, const storage::RosterRecord& record, EffectWriter& out);
  void refuse_all(Status why, EffectWriter& out);

  // --- rosters after the first (coordinator_rosters.cpp) ---
  std::shared_ptr<ExpectedPlans> find_roster(const RosterId& id) const;
  // The newest one from now on, which all nodes hear of.
  void prefer(std::shared_ptr<ExpectedPlans> plans, EffectWriter& out);
  // One that a report names and that is not at hand: is it in the root?
  void read_roster(const RosterId& id, EffectWriter& out);
  void take_staged_layout(const LayoutPtr& layout);
  void forget_staged_layouts();
  LayoutPtr find_layout(const Attempt& attempt, const LayoutId& id) const;
  void on_layouts_staged(TimeNs now, NodeId from, const wire::LayoutsStaged& staged, EffectWriter& out);
  // Whether the attempt can go on: its layouts are known and make a roster, or all have reported.
  void consider_complete(const AttemptKey& key, EffectWriter& out);
  // Asks for layouts that are not there; false if there are any.
  bool has_layouts(const Attempt& attempt, EffectWriter& out);
  // What this node was asked for may have been lost.
  void ask_again(NodeId node);
  // The layout with which each rank saved, on the hosts that ranks have in this generation.
  Result<std::shared_ptr<const World>> world_of(const Attempt& attempt) const;
  void make_roster(const AttemptKey& key, Attempt& attempt, EffectWriter& out);
  // The attempt's roster stands: who has reported must have written that share, who waits hears of it.
  void roster_named(const AttemptKey& key, std::shared_ptr<ExpectedPlans> plans, EffectWriter& out);
  static Status check_share(const ExpectedPlans& named, const Reported& reported, Rank rank);
  uint32_t world_size() const;         // 0: not known yet
  const SaveOptions& options() const;  // precondition: it is
  // Numbers of the hosts of ranks: those of the newest roster, else as hosts said.
  std::vector<uint32_t> hosts() const;

  // --- collective (coordinator_collective.cpp) ---
  void on_local_plans(TimeNs now, NodeId from, const wire::LocalPlans& said, EffectWriter& out);
  struct Speaker {
    NodeId node = 0;
    std::string host;
    uint32_t world_size = 0;
    SaveOptions options;
    bool follows_planner = false;
    std::vector<Rank> ranks;  // for which it speaks
  };
  // The attempt of which this host speaks, before anything is staged; null: it has been answered.
  Attempt* hear(TimeNs now, const Speaker& said, const AttemptKey& key, EffectWriter& out);
  // Why this host cannot be of this job.
  Status check_host(const Speaker& said) const;
  // What those ranks of the node write that wait to be told.
  void send_global_plan(const AttemptKey& key, NodeId to, EffectWriter& out);
  // coordinator_exchange.cpp
  void on_plan_exchange(TimeNs now, NodeId from, const wire::PlanExchange& said, EffectWriter& out);
  void take_offers(NodeId from, const wire::PlanExchange& said, Attempt& attempt, EffectWriter& out);
  void take_made(NodeId from, const wire::PlanExchange& said, Attempt& attempt, EffectWriter& out);
  void send_plans(const AttemptKey& key, const Exchange& exchange, plan::ExchangeStage stage, NodeId to,
                  EffectWriter& out);
  std::string what_planners_lack(const Attempt& attempt) const;

  // --- attempts ---
  // Answers from memory; false if this attempt is not decided as far as is known here.
  bool answer_decided(NodeId to, const AttemptKey& key, EffectWriter& out);
  // The attempt, opened if need be; null where it is none of this generation's or there are too many.
  Attempt* open_attempt(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void on_written(TimeNs now, NodeId from, const wire::ShardsWritten& report, EffectWriter& out);
  void keep_early(TimeNs now, Attempt& attempt, NodeId from, const wire::ShardsWritten& report);
  void forget_early(Attempt& attempt);
  void take_early(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void take(TimeNs now, NodeId from, const wire::ShardsWritten& report, EffectWriter& out);
  static Status take_user(Attempt& attempt, const wire::ShardsWritten& report);
  std::vector<AttemptKey> open_keys() const;
  void commit(const AttemptKey& key, Attempt& attempt, const ExpectedPlans& under, EffectWriter& out);
  // Publishes a tombstone; or, where something did not come and the root proves the attempt complete, its
  // manifest (actors/giving_up.h).
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
  // A decision stands, whoever published it.
  void decided(const AttemptKey& key, const std::shared_ptr<const storage::Decision>& decision,
               EffectWriter& out);
  void tell(const AttemptKey& key, const Outcome& outcome, EffectWriter& out);

  // --- ranks that are gone (coordinator_leaving.cpp) ---
  static bool has_reported(const Attempt& attempt, Rank rank);  // its files are durable, as its node says
  static bool has_spoken(const Attempt& attempt, Rank rank);
  // This node speaks for these ranks: one that was gone with another node has come back.
  // `host`: its name, where the message says it.
  void heard_of(NodeId node, const std::vector<Rank>& ranks, const std::string& host = "");
  void lose_ranks_of(TimeNs now, NodeId node, EffectWriter& out);
  // A coordinator that takes another's place awaits every rank of the roster that stands: once, a while after
  // it began, those for which no node has spoken are lost.
  void await_all(TimeNs now, EffectWriter& out);
  // Looks for saves that wait for a lost rank, when the next one has been lost for host_lost_ms.
  void await_lost(TimeNs now, EffectWriter& out);
  void abort_lost(TimeNs now, EffectWriter& out);
  // Ranks of the world whose hosts are lost, or will be by then, ascending.
  std::vector<Rank> lost_by(TimeNs by) const;
  std::string why_lost(const std::vector<Rank>& ranks) const;  // precondition: they are in lost_ranks_
  // Rank-local: saves are decided by nodes, and the one here hears of hosts that are lost.
  void tell_lost(TimeNs now, EffectWriter& out);
  // Rank-local: nodes that lose this one must know of whom not to expect a manifest.
  void name_own_ranks(NodeId to, EffectWriter& out);
  // Why this attempt never gets what lost hosts were to report; nothing: it may, or needs nothing of theirs.
  std::optional<std::string> never_comes_back(TimeNs now, const Attempt& attempt) const;
  void on_ranks_gone(TimeNs now, NodeId from, const wire::RanksGone& said, EffectWriter& out);
  // Why this rank will never take part in this attempt; nothing: it may.
  std::optional<std::string> never_comes(TimeNs now, const AttemptKey& key, const Attempt& attempt, Rank rank,
                                         const Gone& gone) const;
  // With the first word of an attempt.
  void look_for_gone(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void look_for_all_gone(TimeNs now, EffectWriter& out);
  // How long another node may take to come in the place of the one that said so.
  TimeNs return_patience(const Gone& gone) const;
  void await_return(TimeNs now, EffectWriter& out);

  // --- draining ---
  // While stopping: that reports which complete it cannot come, as far as is known.
  bool is_hopeless(const Attempt& attempt) const;
  void consider_drain(TimeNs now, EffectWriter& out);
  // This host has no ranks, and those of others go on: somebody will start another coordinator.
  bool others_go_on() const;
  // Leaves what it has not begun to publish undecided, to the coordinator that comes in this one's place.
  void hand_over(TimeNs now, EffectWriter& out);

  const NodeFacts facts_;
  PendingOperations operations_;
  PendingTimers timers_;
  AttemptWatch watch_;
  RetentionDuty retention_;
  LoadGathering loads_;
  base::PagedSet<NodeId> nodes_;  // that have spoken in this epoch and are not lost
  RosterGathering gathering_;
  bool roster_asked_ = false;
  std::optional<Collective> collective_;
  std::map<NodeId, wire::JoinRanks> early_joins_;  // came before the root had been asked for its roster
  bool publishing_roster_ = false;
  CrossedAnswers<NodeId> told_roster_;
  CrossedAnswers<std::pair<AttemptKey, NodeId>> told_plans_;  // collective
  PublishRetries roster_retries_;
  Status refused_;
  std::shared_ptr<ExpectedPlans> plans_;                // of the newest roster
  std::deque<std::shared_ptr<ExpectedPlans>> rosters_;  // the newest kMaxRosters, that one last
  std::set<RosterId> reading_rosters_;
  std::map<LayoutId, LayoutPtr> staged_layouts_;  // of ranks that wait; null: asked for
  std::map<LayoutId, NodeId> layouts_asked_;      // of whom
  std::map<AttemptKey, Attempt> attempts_;        // in flight
  size_t early_bytes_ = 0;                        // of all attempts' early reports
  RecentMap<AttemptKey, Outcome> decided_{kMaxDecisionsRemembered};
  std::map<AttemptKey, bool> sweeps_;  // under way; true: once more
  size_t late_sweeps_ = 0;
  size_t telling_ = 0;                              // decided, not yet told
  std::optional<storage::EpochRecord> superseded_;  // by whom; nothing is done any more but to say so
  std::map<Rank, Gone> gone_;
  base::PagedMap<NodeId, std::vector<Rank>> ranks_of_;  // as far as they spoke; ascending
  size_t ranks_heard_ = 0;                              // all of these
  base::PagedMap<NodeId, std::string> host_of_;         // of those whose name was said
  struct Lost {
    TimeNs since = 0;
    std::string host;  // "": not known
  };
  std::map<Rank, Lost> lost_ranks_;  // spoke by a node that is lost, or never did, and by none since
  bool rank_local_ = false;          // as nodes said
  std::vector<Rank> told_lost_;      // rank-local: to the node here
  TimerId lost_timer_ = 0;
  TimerId return_timer_ = 0;
  bool stopping_ = false, draining_ = false;
  bool hands_over_ = false;  // told to stop, while trainers of its host live: another one takes its place
  TimeNs stopping_since_ = 0;
  std::map<AttemptKey, TimeNs> hopeless_since_;
  TimerId drain_timer_ = 0;
};

}  // namespace shoal::actors
