// ShardWriter: one a node. Writes what local ranks staged, reports it to the coordinator, and passes the
// decision to the clients. docs/reference/protocol.md, "A save".
//
// - shard_writer.cpp: messages of clients, planning, writing
// - reports.cpp: reports and decisions
// - drain.cpp: ranks that are gone, and the drain
// - rank_local.cpp: rank-local saves
// - collective.cpp: collective saves
// - plan_gathering.cpp: the plan gather that may precede a collective save
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/continuations.h"
#include "actors/planner/known_worlds.h"
#include "actors/publishing.h"
#include "actors/recent_map.h"
#include "actors/role.h"
#include "base/flat_map.h"

namespace shoal::actors {

inline constexpr size_t kMaxOutcomesRemembered = 1024;
// How often a node repeats RanksEnded after each new session with a coordinator, because a message may be
// lost.
inline constexpr uint32_t kDrainMessages = 4;

class ShardWriter final : public Role {
 public:
  explicit ShardWriter(const NodeConfig& config) : config_(config), ended_backoff_(config.timeouts) {}

  RoleKind kind() const override { return RoleKind::shard_writer; }

  void handle(TimeNs now, const Event& event, Effects& effects) override;

 private:
  struct Share {          // the share of one rank in one save
    ClientId client = 0;  // the client whose slab holds the bytes
    uint32_t slab_id = 0;
    // The client that receives SlabFree and Decided: a later connection of the rank, if that offered the save
    // again.
    ClientId listener = 0;
    uint32_t listener_slab_id = 0;
    std::shared_ptr<const local::LocalMessage> message;  // Staged or Written, until it is planned
    bool offered_again = false;                          // an earlier node may have reported it
    bool asking = false;  // the node first reads from the root whether the attempt is decided
    bool planned = false;
    std::optional<LayoutId> waits;  // staged with this layout, and waits for the roster of the attempt
    // Collective: the client has requested its plan and staged nothing yet. `waits` is set until the plan
    // comes.
    bool asked = false;
    SavePlanPtr notified;
    PlanId client_knows;         // assignment_id_of the plan that the client has
    plan::PlannerPlan offer;     // what its planner offers, until the rank receives its plan; null: nothing
    bool is_offer_sent = false;  // the node has sent the offer to the coordinator
    bool follows_planner = false;
    bool slab_in_use = true;
    size_t files_writing = 0;
    RosterId roster_id;
    PlanId plan_id;
    std::vector<wire::WrittenFile> files;
    UserMetadataPtr user;
    bool written = false;
    bool write_failed = false;
    // Committed while its files were being written: the listener is informed after the writes.
    bool is_committed = false;
    bool published = false;  // rank-local: its manifest is in the root
  };
  struct Exchange {  // the plan gather of planners that make a global plan
    Rank coordinator_rank = 0;
    SaveOptions options;
    std::map<Rank, plan::PlannerPlan> gathered;  // for the planner here, until all have come
    bool is_planning = false;                    // the planner here has received them
    std::vector<plan::PlannerPlan> made;         // by the planner here, in the order of ranks
    bool is_made_sent = false;                   // the node has sent them to the coordinator
    bool resends = false;                        // send all of it again: some may be lost
  };
  struct Save {
    base::FlatMap<Rank, Share> shares;
    std::optional<Exchange> exchange;
    std::set<ClientId> without_assignment;  // clients that sent NotStaged; they receive the decision too
    Status failure;                         // the first on this host
    Rank failed_rank = 0;
    Status undecided;  // why the coordinator could record no decision
    bool deciding = false;
    // Clients that were informed that no decision is possible. They receive nothing more about this save.
    std::set<ClientId> notified_undecided;
    // Counts in the last report: ranks that have written, ranks that wait.
    std::pair<size_t, size_t> reported;
    RosterId roster_id;        // roster for the ranks that wait (AttemptRoster); zero: not received yet
    bool partial_due = false;  // the next report may leave out ranks that are not ready
    bool asks_root = false;
    bool is_announced = false;  // LayoutsStaged was sent before this node had a roster
    TimerId resend = 0, partial = 0, deadline = 0, announce = 0;
    TimeNs begun = 0;
    Backoff backoff;
    Backoff partials;  // until the ranks that are ready are reported without the others
    PublishRetries retries;
    TimeNs set_pace = 0;         // rank-local: interval to the next look at the set of manifests
    uint32_t set_polls = 0;      // looks at the set since something was published here
    bool set_looking = false;    // a look is in progress
    std::string set_missing;     // what the set lacked at the last look
    bool lists_missing = false;  // the missing manifests are being listed because a host is lost
    explicit Save(const Timeouts& timeouts)
        : backoff(timeouts),
          partials(timeouts.report_partial_after_ms * kMillisecond, timeouts.resend_most_ms * kMillisecond),
          retries(timeouts) {}
  };
  struct Collective {  // what the node knows of a rank that saves in mode collective
    SaveOptions options;
    RecentMap<LayoutId, LayoutPtr> layouts{KnownWorlds::kMost};  // that it has declared
    SavePlanPtr notified;                                        // the newest
  };
  struct Failure {
    Rank rank = 0;
    Status why;
  };
  enum class Fate : uint8_t {
    committed,  // a manifest exists, or existed
    aborted,    // the tombstone of an abort exists
    // This node stopped trying before a decision existed; a decision may exist by now.
    unknown,
  };
  struct Outcome {  // what this node knows of a save that it has closed
    Fate fate = Fate::unknown;
    Status late;  // the answer to a client that stages the save only now; never OK
  };

  // --- clients ---
  void on_client(TimeNs now, ClientId client, const std::shared_ptr<const local::LocalMessage>& message,
                 EffectWriter& out);
  void on_staged(TimeNs now, ClientId client, std::shared_ptr<const local::LocalMessage> message,
                 const local::Staged& staged, EffectWriter& out);
  void on_offered_again(TimeNs now, const AttemptKey& key, Rank rank, Share offered, EffectWriter& out);
  void on_not_staged(TimeNs now, ClientId client, const local::NotStaged& received, EffectWriter& out);
  void ask_root(const AttemptKey& key, Rank rank, EffectWriter& out);
  static Status too_many_saves();
  static Status staged_before(const AttemptKey& key, Rank rank);
  std::map<AttemptKey, Save>::iterator open_save(TimeNs now, const AttemptKey& key, EffectWriter& out);
  std::string no_decision(const Save& save) const;  // the cause when its deadline ends it
  void on_client_lost(TimeNs now, ClientId client, EffectWriter& out);
  // A client that is gone keeps its slabs until they are written or dropped.
  void forget_if_unused(ClientId client, EffectWriter& out);
  void free_slab(const AttemptKey& key, Share& share, EffectWriter& out);
  void notify_free(const AttemptKey& key, const Share& share, uint32_t slab_id, EffectWriter& out);

  // --- planning and writing ---
  void on_world(TimeNs now, const event::WorldKnown& known, EffectWriter& out);
  void fail_unplanned(TimeNs now, EffectWriter& out);
  template <class Act>
  void for_each_unplanned(Act&& act) {
    std::vector<std::pair<AttemptKey, Rank>> unplanned;
    for (const auto& [key, save] : saves_) {
      for (const auto& [rank, share] : save.shares) {
        if (!share.planned && !share.asking && !share.asked) unplanned.emplace_back(key, rank);
      }
    }
    for (const auto& [key, rank] : unplanned) {
      if (saves_.contains(key)) act(key, rank);
    }
  }

  Result<SavePlanPtr> plan_of(KnownWorlds::Known& known, Rank rank);
  // The roster by which this share is planned: the one that its client used; else the attempt's, if the
  // coordinator has sent AttemptRoster; else the newest, if it has the layout with which the rank staged.
  // nullopt: none of these yet.
  std::optional<RosterId> roster_of(const Save& save, Rank rank, const Share& share);
  KnownWorlds& worlds_of(Rank rank) { return rank_local_ ? rank_local_worlds_[rank] : worlds_; }
  // For a roster that this node does not know. Shares that were planned by it continue when it is read, or
  // fail.
  void read_roster(const RosterId& id, EffectWriter& out);
  void on_plan_by(TimeNs now, const wire::AttemptRoster& received, EffectWriter& out);
  void take_plan(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);
  // Whether the user metadata of this rank equals that of the other ranks here.
  static Status check_user(const Save& save, Rank rank);
  void plan_rank(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);
  void write_rank(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan, const Layout& layout,
                  EffectWriter& out);
  void take_written(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan, EffectWriter& out);
  void record_staged(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan, EffectWriter& out);
  void file_written(TimeNs now, const AttemptKey& key, Rank rank, uint32_t file,
                    Result<storage::WrittenShard> written, EffectWriter& out);
  void write_ended(TimeNs now, const AttemptKey& key, Rank rank, const Status& written, EffectWriter& out);
  // Handles a write that ended after its save was decided. Informs the client if the save was committed
  // meanwhile.
  void release_late(const AttemptKey& key, Rank rank, bool failed, EffectWriter& out);
  void notify_late_writer(const AttemptKey& key, Rank rank, const Share& share, EffectWriter& out);
  void rank_written(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);
  void wait_for_roster(TimeNs now, const AttemptKey& key, Share& share, EffectWriter& out);

  // --- reporting ---
  // Whether every rank of this host that may take part has written, or waits for a roster.
  bool all_here_ready(const Save& save) const;
  void report_soon(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out);
  // For a save that has no roster for a while: sends LayoutsStaged. From then on the coordinator's deadline
  // applies to the save, and the coordinator checks it against the ranks that are gone.
  void announce(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void consider_report(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void send_report(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out);
  void resend_later(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out);
  void resend_all(TimeNs now, EffectWriter& out);
  void fail(TimeNs now, const AttemptKey& key, Rank rank, Status why, EffectWriter& out);

  // --- the decision ---
  void on_message(TimeNs now, const WireBody& body, EffectWriter& out);
  // For a lost coordinator, which may have decided the save: reads the root, and obeys a decision that
  // exists.
  void ask_root(const AttemptKey& key, Save& save, EffectWriter& out);
  // This node publishes the tombstone itself, or commits what the root proves complete (giving_up.h). Then it
  // obeys the decision that exists. `why` and `cause` apply if no rank here has failed.
  void give_up(const AttemptKey& key, GiveUp why, const std::string& cause, EffectWriter& out);
  void publish_tombstone(const operation::PublishDecision& made, EffectWriter& out);
  // Informs the clients, and tries again while that may help.
  void publish_failed(TimeNs now, const operation::PublishDecision& made, const Status& why,
                      EffectWriter& out);
  static Status not_decided(const Save& save, const Status& why);
  // For a root in which no decision can be published. Informs the clients that the fate of the save is
  // unknown; they receive nothing more about it.
  void undecidable(const AttemptKey& key, const Status& why, EffectWriter& out);
  void on_undecided(const AttemptKey& key, const Status& why, EffectWriter& out);
  void settle(const AttemptKey& key, bool committed, const std::string& cause, EffectWriter& out);
  // Answers a client whose rank staged a save that this node has closed since.
  void notify_closed(const AttemptKey& key, const Outcome& known, ClientId client, EffectWriter& out);
  // Reads the decision and sends it to the clients. `known` is what the clients receive if no decision can be
  // read; it never turns a save of unknown fate into a committed or aborted one. `failures` counts failed
  // reads.
  void read_and_notify(const AttemptKey& key, std::vector<ClientId> notified, Outcome known,
                       EffectWriter& out, uint32_t failures = 0);
  // Clients of a committed save whose rank did not take part from here: nothing of theirs was written, so
  // another process of their rank has saved it. A write in progress may be of the bytes that are committed:
  // `writing` are clients that are informed after their writes.
  struct WithoutPart {
    std::set<ClientId> strangers, writing;
  };
  static WithoutPart without_part(Save& save);
  void refuse_stranger(ClientId client, const AttemptKey& key, EffectWriter& out);
  // Removes the save from those in flight. Returns the clients that must receive the outcome.
  std::vector<ClientId> close_save(const AttemptKey& key, Outcome outcome, EffectWriter& out);
  void notify_outcome(ClientId client, const AttemptKey& key, const Status& outcome, EffectWriter& out);

  // Gives up saves that have waited for a lost coordinator for host_lost_ms. Sets a timer for the next such
  // save.
  void give_up_without_coordinator(TimeNs now, EffectWriter& out);

  // No coordinator of this job will decide any more: this node decides all its saves at once.
  void on_coordinator_superseded(const Status& why, EffectWriter& out);

  // --- rank-local ---
  // After the files of a rank are durable: publishes its manifest, then polls for the complete set.
  void publish_rank_local(const AttemptKey& key, Rank rank, EffectWriter& out);
  void published_rank_local(TimeNs now, const AttemptKey& key, Rank rank, const Status& outcome,
                            EffectWriter& out);
  void look_at_set(TimeNs began, const AttemptKey& key, EffectWriter& out);
  void looked_at_set(TimeNs now, const AttemptKey& key, bool was_merged, TimeNs took,
                     Result<std::shared_ptr<const storage::Decision>> decision, EffectWriter& out);
  bool all_published(const Save& save) const;
  bool has_turn(const Save& save) const;   // whether this look may examine the whole set
  uint64_t turns(const Save& save) const;  // number of nodes that take turns at this
  void on_ranks_lost(TimeNs now, const event::RanksLost& received, EffectWriter& out);
  // Gives up the save if it lacks a manifest of a host that is lost, or only those of the lost coordinator's
  // host.
  void look_for_lost(TimeNs now, const AttemptKey& key, EffectWriter& out);
  std::optional<std::string> why_hopeless(const std::vector<uint64_t>& missing, bool is_without_coordinator);
  bool has_missed_coordinator(TimeNs now, const Save& save) const;  // for host_lost_ms
  void sweep_rank_local(const AttemptKey& key, EffectWriter& out);
  // The node stops. What it has published counts once the other ranks have published.
  void leave_rank_local(const AttemptKey& key, EffectWriter& out);
  // Closes the save here without a decision, and sends its clients `why`.
  void close_unknown(const AttemptKey& key, const Status& why, EffectWriter& out);

  // --- collective ---
  bool is_collective() const { return !collective_.empty(); }
  void on_layout(TimeNs now, ClientId client, const local::LayoutUpdate& received, EffectWriter& out);
  void on_plan_request(TimeNs now, ClientId client, const local::PlanRequest& received, EffectWriter& out);
  void send_local_plans(const AttemptKey& key, const Save& save, EffectWriter& out);
  void on_global_plan(TimeNs now, const wire::GlobalPlan& received, EffectWriter& out);
  void send_plan(const AttemptKey& key, const Share& share, EffectWriter& out);
  // Returns the share of a client that sends a request before it stages. nullptr: the client has its answer.
  Share* asking_rank(TimeNs now, ClientId client, const AttemptKey& key, EffectWriter& out);
  // Either all ranks have a planner that makes a global plan, or none.
  static Status check_alike(const Save& save, Rank rank, bool follows_planner);
  void on_plan_exchange(TimeNs now, ClientId client, const local::PlanGathering& received, EffectWriter& out);
  void send_exchange(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out);
  void send_plans(TimeNs now, wire::PlanGathering received, EffectWriter& out);
  void on_plans(const wire::PlanGathering& received, EffectWriter& out);
  uint32_t world_size() const { return config_.world_size != 0 ? config_.world_size : world_size_; }
  void plan_from_coordinator(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);

  // --- ranks that are gone ---
  // Whether the rank has staged, or its files are durable already.
  static bool has_staged(const Save& save, Rank rank) {
    auto share = save.shares.find(rank);
    return share != save.shares.end() && !share->second.asked;
  }
  Status trainer_ended(Rank rank) const;
  void on_trainer_ended(TimeNs now, const event::TrainerEnded& received, EffectWriter& out);
  void lose_rank(TimeNs now, Rank rank, EffectWriter& out);
  void send_ended(EffectWriter& out);
  void send_ended_at(TimeNs at, EffectWriter& out);  // repeats with back-off
  // Sends RanksEnded kDrainMessages times, from `first` on, so that the coordinator knows the ranks of
  // this node.
  void speak_for_ranks(TimeNs first, EffectWriter& out);

  // --- draining ---
  void begin_drain(TimeNs now, const event::Drain& drain, EffectWriter& out);
  void end_drain(EffectWriter& out);
  // The node was requested to stop while trainers are attached: another node will serve them, and receives
  // from them what is undecided.
  bool hands_over() const;
  bool is_writing() const;
  // Why no rank here can complete this save any more; nullopt: one may.
  std::optional<Failure> hopeless(const Save& save) const;
  void consider_drain(TimeNs now, EffectWriter& out);
  void drain_patience_over(TimeNs now, EffectWriter& out);

  const NodeConfig config_;
  PendingOperations operations_;
  PendingTimers timers_;
  base::FlatMap<ClientId, Rank> clients_;  // attached now
  base::FlatMap<Rank, ClientId> attached_;
  std::set<Rank> lost_;                // were attached and are gone, or will never attach
  std::map<Rank, std::string> ended_;  // how their trainers ended, as the launcher reported
  std::set<ClientId> gone_;            // clients that are gone and whose slabs are still in use
  KnownWorlds worlds_;
  bool rank_local_ = false;  // the ranks here save in mode rank-local
  base::FlatMap<Rank, KnownWorlds> rank_local_worlds_;
  base::FlatMap<Rank, Collective> collective_;
  std::set<Rank> introduced_;  // ranks of modes without JoinRanks that this node has reported as its own
  uint32_t world_size_ = 0;    // as clients stated
  std::set<RosterId> reading_rosters_;
  Status planning_failed_;
  Status coordinator_superseded_;                      // not OK: another job has the root
  std::map<AttemptKey, Save> saves_;                   // in flight
  std::map<std::pair<AttemptKey, Rank>, Share> late_;  // decided while a file was still being written
  RecentMap<AttemptKey, Outcome> decided_{kMaxOutcomesRemembered};
  event::RanksLost ranks_lost_;    // rank-local: from the coordinator of this node
  wire::RanksEnded coordinators_;  // rank-local: host and ranks of the coordinator's node
  size_t reading_ = 0;             // manifests being read for clients
  bool coordinator_lost_ = false;  // and no message of it since
  TimeNs coordinator_lost_at_ = 0;
  std::string why_coordinator_lost_;
  bool draining_ = false, is_node_stopping_ = false;
  bool leaving_ = false;  // no rank of this host stages anything more
  bool has_sent_ended_ = false;
  bool is_patience_over_ = false;  // of a drain
  uint32_t drain_messages_ = 0;    // repetitions of RanksEnded still to send
  Backoff ended_backoff_;
  TimerId drain_timer_ = 0, leave_timer_ = 0, ended_timer_ = 0, away_timer_ = 0;
};

}  // namespace shoal::actors
