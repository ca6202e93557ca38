// Coordinator: one a run. Makes the roster of a generation, decides attempts, and sends the decisions.
// docs/reference/protocol.md. Its states: docs/reference/states.md.
//
// Its memory is a cache: what it forgets when it dies is in the root. The first file under the decision name
// of an attempt is the decision, no matter which node wrote it.
//
// What it follows, each in a class with a header that states its contract:
//
// - attempt.h: an attempt, its states and the commit condition; plan_gather.h: its plan gather
// - term.h: the states of the coordinator's own term
// - rank_presence.h: which ranks nodes have reported, and which are gone or lost
// - roster_gathering.h, rosters.h, layout_requests.h, expected_plans.h: rosters and their layouts
// - published_manifests.h: what nodes report about rank-local saves
// - sweeps.h, retention_duty.h, load_gathering.h: other duties
//
// What it does with them:
//
// - coordinator.cpp: events, epochs, joining, what earlier coordinators left
// - attempts.cpp: attempts, from the first message until the decision is sent
// - collective.cpp: collective saves, and the plan gather before them
// - rank_local.cpp: rank-local saves, which need no coordinator and are faster with one
// - lost_ranks.cpp: aborts what ranks that are gone or lost never report
// - shutdown.cpp: stopping, draining, handing over
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/attempt_watch.h"
#include "actors/coordinator/attempt.h"
#include "actors/coordinator/crossed_answers.h"
#include "actors/coordinator/layout_requests.h"
#include "actors/coordinator/load_gathering.h"
#include "actors/coordinator/published_manifests.h"
#include "actors/coordinator/rank_presence.h"
#include "actors/coordinator/retention_duty.h"
#include "actors/coordinator/roster_gathering.h"
#include "actors/coordinator/rosters.h"
#include "actors/coordinator/sweeps.h"
#include "actors/coordinator/term.h"
#include "actors/recent_map.h"

namespace shoal::actors {

inline constexpr size_t kMaxAttemptsInFlight = 256;
inline constexpr size_t kMaxDecisionsRemembered = 1024;
inline constexpr size_t kMaxOverdueRemembered = 4;  // each with the ranks that have sent something

class Coordinator final : public Role {
 public:
  explicit Coordinator(const NodeConfig& config)
      : config_(config),
        watch_(operations_, timers_, config.timeouts.poll_ms * kMillisecond),
        retention_(operations_, timers_, config_,
                   [this](EffectWriter& out, auto act) { if_not_superseded(out, std::move(act)); }),
        loads_(operations_, timers_, config_),
        sweeps_(operations_, timers_, config_),
        presence_(config.timeouts.host_lost_ms * kMillisecond),
        roster_sent_(config.timeouts),
        plans_sent_(config.timeouts),
        first_roster_backoff_(config.timeouts) {}

  RoleKind kind() const override { return RoleKind::coordinator; }
  void handle(TimeNs now, const Event& event, Effects& effects) override;
  std::vector<TransitionsTaken> transitions() const override;
  uint64_t memory_bytes() const;  // actors/coordinator/memory.h

 private:
  struct Collective {  // mode collective: what hosts stated about the job
    uint32_t world_size = 0;
    SaveOptions options;
    std::string first_host;
    base::PagedMap<Rank, std::string> host_of;
  };
  struct Outcome {
    bool committed = false;
    std::string cause;              // as in wire::Decided
    std::optional<GiveUp> give_up;  // as in wire::Decided
    Status undecided;               // not OK: no decision could be published
  };
  struct Passed {  // rank-local: progress that was passed on to all nodes
    TimeNs at = 0;
    uint64_t times = 0;
  };
  struct Overdue {
    TimeNs at = 0;
    std::vector<Rank> missing;  // that had sent nothing, ascending
  };
  struct Opened {
    Attempt* attempt = nullptr;  // null: it is of another generation, or too many attempts are open
    bool is_new = false;         // this message is the first about it
  };

  void on_start(TimeNs now, EffectWriter& out);
  void on_peer_lost(TimeNs now, NodeId node, const Status& why, EffectWriter& out);

  // --- what earlier coordinators left ---
  void recover(EffectWriter& out);
  void clean_up(TimeNs now, const storage::AttemptList& list, EffectWriter& out);
  // Decides an attempt of an earlier generation once nobody writes to it any more.
  void decide_earlier(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void list_attempts(EffectWriter& out);
  void look_later(TimeNs now, EffectWriter& out, PendingTimers::Then look);

  // --- epochs ---
  bool is_superseded() const { return term_.is(TermState::superseded); }
  void watch_epoch(TimeNs now, EffectWriter& out);
  // Reads the highest epoch from the root, and calls `act` unless it is higher than this coordinator's. If
  // the read fails, calls `act` all the same: the first decision file counts.
  void if_not_superseded(EffectWriter& out, std::function<void(TimeNs now, EffectWriter& out)> act);
  void retire(const storage::EpochRecord& by, EffectWriter& out);
  void send_superseded(NodeId to, EffectWriter& out);

  // --- messages and joining ---
  void on_message(TimeNs now, NodeId from, const WireBody& body, EffectWriter& out);
  void on_layouts(const wire::Layouts& layouts, EffectWriter& out);
  void on_join(NodeId from, const wire::JoinRanks& join, EffectWriter& out);
  bool is_refused() const { return first_roster_.is(FirstRosterState::refused); }
  bool gathers_layouts() const {  // for the first roster
    return first_roster_.is_one_of(FirstRosterState::gathering, FirstRosterState::contradicted);
  }
  void on_first_roster(FirstRosterTrigger trigger);  // does nothing where the table has no such transition
  void consider_first_roster(EffectWriter& out);
  void publish_first_roster(storage::RosterRecord record, EffectWriter& out);
  // The first roster of the generation is in the root.
  void adopt_first_roster(TimeNs now, const storage::RosterRecord& record, EffectWriter& out);
  // When a node has reported under a roster, and now and then while an attempt waits. An earlier coordinator
  // may have published the first roster after this one had looked for it, or the root could not be read then.
  // Nodes that have a roster do not join.
  void look_again_for_first_roster(EffectWriter& out);
  // Nodes of rank-local ranks send no layouts: with nodes that do, the roster would wait for ever.
  void refuse_mixed_modes(EffectWriter& out);
  Status mixed_modes(const std::string& host, SaveMode mode) const;
  void refuse_all(Status why, EffectWriter& out);
  // Makes this the newest roster, and sends it to all nodes.
  void make_newest(const std::shared_ptr<ExpectedPlans>& roster, EffectWriter& out);
  uint32_t world_size() const;         // 0: not known yet
  const SaveOptions& options() const;  // precondition: world_size() is not 0

  // --- attempts (attempts.cpp) ---
  // Every continuation finds its attempt so: it may be closed by now. Then `act` is not called.
  template <class Act>
  void with_attempt(const AttemptId& id, Act&& act) {
    auto found = attempts_.find(id.key);
    if (found != attempts_.end() && found->second.id().number == id.number) act(found->second);
  }
  // Warns of `why`, and calls `again` later. Returns false if another try would fail likewise, or if the
  // first failure is too old.
  template <class Again>
  bool try_again(TimeNs now, const AttemptId& id, PublishRetries& retries, const Status& why,
                 EffectWriter& out, Again&& again) {
    const TimeNs again_at = retries.next_at(now, why);
    if (again_at == 0) return false;
    again_later(again_at, id, why, out, std::forward<Again>(again));
    return true;
  }
  template <class Again>
  void again_later(TimeNs again_at, const AttemptId& id, const Status& why, EffectWriter& out,
                   Again&& again) {
    out.warning(to_string(id.key) + ": " + why.to_string());
    timers_.set(again_at, out,
                [this, id, retry = std::forward<Again>(again)](TimeNs, EffectWriter& then_out) {
                  with_attempt(id, [&](Attempt& attempt) { retry(attempt, then_out); });
                });
  }
  // Sends the decision if it is in memory. Returns false if this coordinator knows none.
  bool answer_decided(NodeId to, const AttemptKey& key, EffectWriter& out);
  Opened open(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void await_news(TimeNs now, Attempt& attempt, EffectWriter& out);
  void no_news(TimeNs now, Attempt& attempt, EffectWriter& out);
  void look_into_root(Attempt& attempt, EffectWriter& out);
  // Half the deadline is over.
  void warn_of_wait(TimeNs now, Attempt& attempt, EffectWriter& out);
  Missing what_is_missing(TimeNs now, const Attempt& attempt) const;
  // Ranks may save different steps. Names one of these ranks that has reported another attempt lately.
  std::string reported_elsewhere(TimeNs now, const AttemptKey& but, const std::vector<Rank>& ranks) const;
  // A handler of a message about an attempt takes these steps in this order (on_progress, which names no
  // ranks, and on_failed, which aborts at once, each leave one out). It notes the sender
  // (nodes_, presence_). If the attempt is decided, it answers. Otherwise it opens the attempt and takes the
  // message. If the attempt is new, it looks for ended ranks. A message with news of the attempt moves
  // last_news, and with it the deadline.
  void on_report(TimeNs now, NodeId from, const wire::ShardsWritten& report, EffectWriter& out);
  void take(TimeNs now, NodeId from, const wire::ShardsWritten& report, Attempt& attempt, EffectWriter& out);
  void take_early(TimeNs now, Attempt& attempt, EffectWriter& out);
  void on_failed(TimeNs now, NodeId from, const wire::SaveFailed& failed, EffectWriter& out);
  // For the tombstone. If all ranks, or all of a host, were rejected, the first one to fail is not the cause.
  std::string cause_of(const wire::SaveFailed& failed) const;
  void on_progress(TimeNs now, NodeId from, const wire::SaveProgress& progress, EffectWriter& out);
  // Answers a report. For an attempt that takes long, also with the news of it, which move the deadline of
  // the node.
  void send_pending(TimeNs now, NodeId to, const Attempt& attempt, EffectWriter& out);
  // Continues an attempt whose commit condition may be met now (Attempt::next).
  void consider(Attempt& attempt, EffectWriter& out);
  void commit(Attempt& attempt, const ExpectedPlans& under, EffectWriter& out);
  // Commits the attempt if its files exist as they were reported. Tries again while the root cannot be read.
  void check_files(const AttemptId& id, std::shared_ptr<const storage::DecisionBody> made, EffectWriter& out);
  void files_not_checked(TimeNs now, Attempt& attempt, const Status& why,
                         const std::shared_ptr<const storage::DecisionBody>& made, EffectWriter& out);
  // Compares what the ranks digested for replica_check. False: replicas differ, and the attempt is aborted.
  bool compare_replicas(Attempt& attempt, const ExpectedPlans& under, EffectWriter& out);
  // Gives an attempt up if it is open: publishes a tombstone. If something did not come and the root proves
  // the attempt complete, publishes its manifest instead (actors/giving_up.h).
  void abort(Attempt& attempt, GiveUp why, const std::string& cause, EffectWriter& out);
  void publish_abort(Attempt& attempt, GiveUp why, const std::string& cause, EffectWriter& out);
  void publish(const AttemptId& id, const operation::PublishDecision& made, EffectWriter& out);
  void publish_failed(TimeNs now, Attempt& attempt, const operation::PublishDecision& made, const Status& why,
                      EffectWriter& out);
  void leave_undecided(TimeNs now, Attempt& attempt, const Status& why, EffectWriter& out);
  // A decision exists. This or another node published it.
  void decided(Attempt& attempt, const std::shared_ptr<const storage::Decision>& decision, EffectWriter& out);
  // The attempt ends here. Destroys it.
  void close(Attempt& attempt, AttemptTrigger how, EffectWriter& out);
  static wire::Decided decided_message(const AttemptKey& key, const Outcome& outcome);
  void send_outcome(const AttemptKey& key, const Outcome& outcome, EffectWriter& out);

  // --- the attempt's own roster (attempts.cpp) ---
  // For a roster that a report names and that is not in memory: reads it from the root.
  void read_roster(const RosterId& id, EffectWriter& out);
  void on_layouts_staged(TimeNs now, NodeId from, const wire::LayoutsStaged& staged, EffectWriter& out);
  LayoutPtr find_layout(const Attempt& attempt, const LayoutId& id) const;
  // Requests layouts that are missing; returns false if there are any.
  bool has_layouts(const Attempt& attempt, EffectWriter& out);
  void forget_layouts();  // those that no attempt waits with
  // The host number of each rank: from the newest roster, else from what hosts stated.
  std::vector<uint32_t> hosts() const;
  // The world of the layouts with which the ranks saved, on the hosts that ranks have in this generation.
  Result<std::shared_ptr<const World>> world_of(const Attempt& attempt) const;
  void make_roster(Attempt& attempt, EffectWriter& out);
  void publish_roster(const AttemptId& id, const operation::PublishRoster& made, EffectWriter& out);
  void roster_published(TimeNs now, Attempt& attempt, const operation::PublishRoster& made,
                        const Result<storage::RosterRecord>& published, EffectWriter& out);
  // The attempt's roster is in the root. Checks that ranks which have reported wrote their part of it, and
  // sends it to the nodes of ranks that wait.
  void adopt_roster(Attempt& attempt, const std::shared_ptr<ExpectedPlans>& roster, EffectWriter& out);

  // --- collective saves (collective.cpp) ---
  struct Sender {
    NodeId node = 0;
    std::string host;
    uint32_t world_size = 0;
    SaveOptions options;
    bool follows_planner = false;
    std::vector<Rank> ranks;  // ranks that the message is about
  };
  void on_local_plans(TimeNs now, NodeId from, const wire::LocalPlans& message, EffectWriter& out);
  // Opens the attempt that a host names before its ranks stage. null: this function has answered the host.
  Opened open_collective(TimeNs now, const Sender& sender, const AttemptKey& key, EffectWriter& out);
  // Why this host cannot belong to this job.
  Status check_host(const Sender& sender) const;
  // Sends the plans of those ranks of the node that wait for them.
  void send_global_plan(Attempt& attempt, NodeId to, EffectWriter& out);
  void on_plan_gather(TimeNs now, NodeId from, const wire::PlanGathering& message, EffectWriter& out);
  void send_gathered_plans(Attempt& attempt, plan::GatherStage stage, NodeId to, EffectWriter& out);

  // --- rank-local: hints, which spare nodes their polls, and progress (rank_local.cpp) ---
  // Of a coordinator that replaces another: closes the attempts that it found in the root before it knew the
  // mode. Nodes decide them, and send nothing that would move their deadlines here.
  void leave_to_nodes(EffectWriter& out);
  // Answers the node whose report completes the set: it merges the set at once.
  void on_manifests_published(NodeId from, const wire::ManifestsPublished& published, EffectWriter& out);
  // A node has made progress with its writes: all nodes hear of it, and move their deadlines.
  void pass_progress(TimeNs now, const AttemptKey& key, EffectWriter& out);
  // A node has found its rank-local save committed.
  void on_found_committed(NodeId from, const wire::Decided& decided, EffectWriter& out);

  // --- ranks that are gone or lost (lost_ranks.cpp) ---
  void on_ranks_ended(TimeNs now, NodeId from, const wire::RanksEnded& message, EffectWriter& out);
  // For a coordinator that replaces another, when the root has a roster: after host_lost_ms, ranks that no
  // node has reported count as lost since it began.
  void await_all(TimeNs now, EffectWriter& out);
  // Sets a timer for the moment when the next lost rank has been lost for host_lost_ms.
  void await_lost(TimeNs now, EffectWriter& out);
  void abort_lost(TimeNs now, EffectWriter& out);
  std::string why_lost(const std::vector<Rank>& ranks) const;  // precondition: they are lost
  // Rank-local: nodes decide saves, so the ShardWriter here receives which hosts are lost.
  void send_lost(TimeNs now, EffectWriter& out);
  // Rank-local: a node that loses this one must know whose manifests may never come.
  void send_own_ranks(NodeId to, EffectWriter& out);
  // Why this attempt never gets the reports of lost hosts; nullopt: it may, or needs none of them.
  std::optional<std::string> why_host_never_reports(TimeNs now, const Attempt& attempt) const;
  // Why this rank never takes part in this attempt; nullopt: it may.
  std::optional<std::string> why_rank_never_stages(TimeNs now, const Attempt& attempt, Rank rank,
                                                   const RankPresence::Gone& gone) const;
  std::string why_ended(Rank rank, const RankPresence::Gone& gone) const;
  // Aborts the attempt if a rank that it needs is gone or lost. Called for the first message about an
  // attempt, and when what is gone or lost may have changed.
  void look_for_ended(TimeNs now, Attempt& attempt, EffectWriter& out);
  void look_for_all_ended(TimeNs now, EffectWriter& out);
  // How long to wait for a node that replaces the one which is stopping.
  TimeNs return_patience(const RankPresence::Gone& gone) const;
  void await_return(TimeNs now, EffectWriter& out);

  // --- stopping, draining, handing over (shutdown.cpp) ---
  void on_stopping(TimeNs now, const event::Stopping& stopping, EffectWriter& out);
  void on_drain(TimeNs now, const event::Drain& drain, EffectWriter& out);
  void on_shutdown(TimeNs now, ShutdownTrigger trigger) { shutdown_.on(now, trigger, shutdown_counts_); }
  // Whether the reports that would complete the attempt cannot come, as far as this node knows.
  bool is_hopeless(const Attempt& attempt) const;
  // Called after every event.
  void consider_shutdown(TimeNs now, EffectWriter& out);
  // All is decided, but a host whose session has just ended may not know. Its next node asks, so the
  // coordinator stays until the ranks of that host have ended too, or are lost, and at most
  // drain_patience_ms.
  bool awaits_lost_hosts(TimeNs now, EffectWriter& out);
  // Aborts attempts that have been hopeless for drain_patience_ms. Returns when the next one will have been.
  std::optional<TimeNs> abort_hopeless(TimeNs now, EffectWriter& out);
  // This host has no ranks, and those of other hosts continue: another coordinator will be started.
  bool others_continue() const;
  // Leaves everything that it has not begun to publish undecided, for the coordinator that replaces it.
  void hand_over(TimeNs now, EffectWriter& out);
  void await_shutdown(TimeNs until, EffectWriter& out);

  const NodeConfig config_;
  PendingOperations operations_;
  PendingTimers timers_;
  AttemptWatch watch_;
  RetentionDuty retention_;
  LoadGathering loads_;
  Sweeps sweeps_;
  // The nodes that take part in saves: each handler of a message about ranks or attempts inserts its sender.
  // These nodes receive rosters, rejections, decisions and the end of this epoch. A lost node is erased.
  base::PagedSet<NodeId> nodes_;
  RankPresence presence_;

  TermMachine term_{TermState::starting};
  std::optional<storage::EpochRecord> superseded_by_;
  FirstRosterMachine first_roster_{FirstRosterState::reading};
  Shutdown shutdown_;
  TermMachine::Counts term_counts_;
  FirstRosterMachine::Counts first_roster_counts_;
  ShutdownMachine::Counts shutdown_counts_;
  AttemptMachine::Counts attempt_counts_;
  PlanGatherMachine::Counts plan_gather_counts_;

  RosterGathering gathering_;
  bool is_reading_first_roster_ = false;           // again, while it gathers layouts
  std::map<NodeId, wire::JoinRanks> early_joins_;  // came before the roster in the root had been read
  std::optional<Collective> collective_;
  CrossedAnswers<NodeId> roster_sent_;
  CrossedAnswers<std::pair<AttemptKey, NodeId>> plans_sent_;  // collective
  Backoff first_roster_backoff_;
  Status first_roster_failure_;  // why the first roster is not published yet
  Status refused_;               // why no roster can be made
  Rosters rosters_;
  std::set<RosterId> reading_rosters_;
  LayoutRequests layouts_;

  std::map<AttemptKey, Attempt> attempts_;  // in flight
  uint64_t attempts_opened_ = 0;
  uint64_t newest_made_by_ = 0;  // the number of the attempt whose layouts made the newest roster; 0: none
  size_t early_bytes_ = 0;       // of the early reports of all attempts
  RecentMap<AttemptKey, Outcome> decided_{kMaxDecisionsRemembered};
  size_t outcomes_to_send_ = 0;  // decided, and the decision is not sent yet
  RecentMap<AttemptKey, Overdue> overdue_{kMaxOverdueRemembered};  // attempts aborted at their deadline

  bool rank_local_ = false;                 // as nodes stated
  PublishedManifests manifests_published_;  // rank-local
  RecentMap<AttemptKey, Passed> progress_passed_{kMaxSetsCounted};
  std::string rank_local_host_;  // the first host that stated ranks of that mode
  event::RanksLost lost_sent_;   // rank-local: last sent to the ShardWriter here
  TimerId lost_timer_ = 0;
  TimerId return_timer_ = 0;
  TimeNs return_at_ = 0;  // when it fires
  TimerId shutdown_timer_ = 0;
  TimeNs shutdown_at_ = 0;  // when it fires
  std::set<Rank> may_ask_;  // ranks for which a draining coordinator stays
};

}  // namespace shoal::actors
