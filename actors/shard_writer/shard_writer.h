// ShardWriter: one a node. Writes what local ranks staged, reports it to the coordinator, and passes the
// decision to the clients. docs/reference/protocol.md, "A save".
//
// Its states, each with a table of transitions in its header and in docs/reference/states.md:
// - rank_save.h: the part of one rank in one save
// - node_save.h: a save at this node, and the plan gather before a collective one
// - node_drain.h: whether the node finishes what it has
//
// Its sources:
// - shard_writer.cpp: events, and messages of clients
// - writing.cpp: planning and writing
// - progress.cpp: the deadline of a save, and what moves it
// - reports.cpp: reports to the coordinator
// - decisions.cpp: decisions, and what clients receive
// - drain.cpp: ranks that are gone, and the drain
// - rank_local.cpp, collective.cpp, plan_gathering.cpp: what these modes add
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/continuations.h"
#include "actors/planner/known_worlds.h"
#include "actors/recent_map.h"
#include "actors/role.h"
#include "actors/shard_writer/node_drain.h"
#include "actors/shard_writer/node_save.h"
#include "actors/shard_writer/rank_save.h"
#include "base/flat_map.h"

namespace shoal::actors {

inline constexpr size_t kMaxOutcomesRemembered = 1024;
// How often a node repeats RanksEnded after each new session with a coordinator, because a message may be
// lost.
inline constexpr uint32_t kRanksEndedRepeats = 4;

class ShardWriter final : public Role {
 public:
  explicit ShardWriter(const NodeConfig& config) : config_(config), ended_backoff_(config.timeouts) {}

  RoleKind kind() const override { return RoleKind::shard_writer; }
  void handle(TimeNs now, const Event& event, Effects& effects) override;
  std::vector<TransitionsTaken> transitions() const override;

 private:
  struct Collective {  // what the node knows of a rank that saves in mode collective
    SaveOptions options;
    RecentMap<LayoutId, LayoutPtr> layouts{KnownWorlds::kMost};  // that it has declared
    SavePlanPtr plan;                                            // the newest
  };
  struct Failure {
    Rank rank = 0;
    Status why;
  };
  struct Outcome {                                // what this node knows of a save that it has closed
    NodeSaveState fate = NodeSaveState::unknown;  // committed, aborted or unknown
    Status late;               // the answer to a client that stages the save only now; never OK
    std::string warning = {};  // of the coordinator, about a committed save
  };
  // A save that was closed while a rank still writes its files.
  using LateWrites = std::map<std::pair<AttemptKey, Rank>, RankSave>;
  using Saves = std::map<AttemptKey, NodeSave>;

  // --- events ---
  void on_message(TimeNs now, const event::Received& received, EffectWriter& out);
  void on_peer_up(TimeNs now, NodeId node, EffectWriter& out);
  void on_peer_lost(TimeNs now, const event::PeerLost& lost, EffectWriter& out);
  void on_pending(TimeNs now, const AttemptKey& key, EffectWriter& out);

  // --- clients ---
  void on_client(TimeNs now, ClientId client, const std::shared_ptr<const local::LocalMessage>& message,
                 EffectWriter& out);
  void on_attach(TimeNs now, ClientId client, const local::Attach& attach, EffectWriter& out);
  void on_staged(TimeNs now, ClientId client, std::shared_ptr<const local::LocalMessage> message,
                 const local::Staged& staged, EffectWriter& out);
  void on_written(TimeNs now, ClientId client, std::shared_ptr<const local::LocalMessage> message,
                  const local::Written& written, EffectWriter& out);
  // What a client offers again: a slab, or files that are durable.
  struct Offered {
    ClientId client = 0;
    std::optional<uint32_t> slab_id;  // nullopt: durable files
    std::shared_ptr<const local::LocalMessage> message;
    UserMetadataPtr user;
    plan::ReplicaDigestsPtr replicas;
  };
  void on_offered_again(TimeNs now, const AttemptKey& key, Rank rank, Offered offered, EffectWriter& out);
  void on_not_staged(TimeNs now, ClientId client, const local::NotStaged& message, EffectWriter& out);
  void replace_listener(const AttemptKey& key, NodeSave& save, RankSave& rank_save, ClientId client,
                        std::optional<uint32_t> slab_id, EffectWriter& out);
  // For a rank that is offered again: reads whether the attempt has a decision.
  void ask_root(const AttemptKey& key, Rank rank, EffectWriter& out);
  static Status too_many_saves();
  static Status staged_before(const AttemptKey& key, Rank rank);
  // Returns the save in flight, or opens one. end(): there are too many.
  Saves::iterator find_or_open(TimeNs now, const AttemptKey& key, EffectWriter& out);
  Saves::iterator open_save(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void on_client_lost(TimeNs now, const event::ClientLost& lost, EffectWriter& out);
  // A client that is gone keeps its slabs until they are written or dropped.
  void forget_if_unused(ClientId client, EffectWriter& out);
  void free_slab(const AttemptKey& key, RankSave& rank_save, EffectWriter& out);
  void notify_free(const AttemptKey& key, const RankSave& rank_save, uint32_t slab_id, EffectWriter& out);

  // --- planning and writing ---
  void on_world(TimeNs now, const event::WorldKnown& known, EffectWriter& out);
  void on_planning_failed(TimeNs now, const Status& why, EffectWriter& out);
  template <class Act>
  void for_each_unplanned(Act&& act) {
    std::vector<std::pair<AttemptKey, Rank>> unplanned;
    for (const auto& [key, save] : saves_) {
      for (const auto& [rank, rank_save] : save.ranks) {
        if (rank_save.is_unplanned()) unplanned.emplace_back(key, rank);
      }
    }
    for (const auto& [key, rank] : unplanned) {
      if (saves_.contains(key)) act(key, rank);
    }
  }

  Result<SavePlanPtr> plan_of(KnownWorlds::Known& known, Rank rank);
  // The roster by which this rank is planned: the one that its client used; else the attempt's, if the
  // coordinator has sent AttemptRoster; else the newest, if it has the layout with which the rank staged.
  // nullopt: none of these yet.
  std::optional<RosterId> roster_of(const NodeSave& save, Rank rank, const RankSave& rank_save);
  KnownWorlds& worlds_of(Rank rank) { return rank_local_ ? rank_local_worlds_[rank] : worlds_; }
  // For a roster that this node does not know. Ranks that are planned by it continue when it is read, or
  // fail.
  void read_roster(const RosterId& id, EffectWriter& out);
  bool reads_roster_again(TimeNs now, const RosterId& id, const Status& why, EffectWriter& out);
  void on_attempt_roster(TimeNs now, const wire::AttemptRoster& message, EffectWriter& out);
  void take_plan(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);
  void plan_rank(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);
  void fail_planning(TimeNs now, const AttemptKey& key, Rank rank, Status why, EffectWriter& out);
  void write_rank(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan, const Layout& layout,
                  EffectWriter& out);
  void take_written(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan, EffectWriter& out);
  void record_staged(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan, EffectWriter& out);
  void file_written(TimeNs now, const AttemptKey& key, Rank rank, uint32_t file,
                    Result<storage::WrittenShard> written, EffectWriter& out);
  void write_ended(TimeNs now, const AttemptKey& key, Rank rank, const Status& written, EffectWriter& out);
  void count_write(TimeNs now, const AttemptKey& key, Rank rank, const Status& written, EffectWriter& out);
  // Handles a write that ended after its save was decided. Informs the client if the save was committed
  // meanwhile.
  void release_late(const AttemptKey& key, Rank rank, bool failed, EffectWriter& out);
  void notify_late_writer(const AttemptKey& key, Rank rank, const RankSave& rank_save, EffectWriter& out);
  void rank_written(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);
  void wait_for_roster(TimeNs now, const AttemptKey& key, RankSave& rank_save, EffectWriter& out);

  // --- progress ---
  // Looks at the save again before its deadline, or at it.
  void await_progress(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out);
  void look_for_progress(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void measure_writes(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out);
  void measured(const AttemptKey& key, uint64_t bytes, TimeNs looked_before, EffectWriter& out);
  // The coordinator knows of progress of the save, here or on other hosts.
  void on_progress_elsewhere(TimeNs now, const wire::SaveProgress& progress, EffectWriter& out);
  // The deadline of the save counts from `since`. Its clients wait as much longer.
  void extend(const AttemptKey& key, NodeSave& save, TimeNs since, EffectWriter& out);
  TimeNs deadline_of(const NodeSave& save) const;
  std::string no_decision(const NodeSave& save) const;  // the cause when its deadline ends it

  // --- reporting ---
  // Whether every rank of this host that may take part has written, or waits for the coordinator.
  bool all_here_ready(const NodeSave& save) const;
  bool all_here_staged(const NodeSave& save) const;
  void report_soon(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out);
  void await_others(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out);
  // For a save that has no roster for a while: sends LayoutsStaged. From then on the coordinator's deadline
  // applies to the save, and the coordinator checks it against the ranks that are gone.
  void announce(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void consider_report(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void send_report(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out);
  void send_shards_and_layouts(const AttemptKey& key, const NodeSave& save, EffectWriter& out);
  void resend_later(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out);
  void resend_all(TimeNs now, EffectWriter& out);
  // nullopt: all ranks of this host (NodeSave::fail).
  void fail(TimeNs now, const AttemptKey& key, std::optional<Rank> rank, Status why, EffectWriter& out);

  // --- the decision ---
  // For a lost coordinator, which may have decided the save: reads the root, and obeys a decision that
  // exists.
  void ask_root(const AttemptKey& key, NodeSave& save, EffectWriter& out);
  // This node publishes the tombstone itself, or commits what the root proves complete (giving_up.h). Then it
  // obeys the decision that exists. `why` and `cause` apply if no rank here has failed.
  void give_up(const AttemptKey& key, GiveUp why, const std::string& cause, EffectWriter& out);
  // For the tombstone. nullopt: all ranks of this host.
  std::string cause_of(std::optional<Rank> rank, const Status& failure) const;
  void publish_tombstone(const operation::PublishDecision& made, EffectWriter& out);
  // Informs the clients, and tries again while that may help.
  void publish_failed(TimeNs now, const operation::PublishDecision& made, const Status& why,
                      EffectWriter& out);
  static Status not_decided(const NodeSave& save, const Status& why);
  static Status not_decided(const Status& why);
  // For a root in which no decision can be published. Informs the clients, once, that the fate of the save is
  // unknown; they receive nothing more about it.
  void notify_undecidable(const AttemptKey& key, NodeSave& save, const Status& why, EffectWriter& out);
  void on_undecided(const wire::Undecided& message, EffectWriter& out);
  // Obeys a decision of the root.
  void obey(const AttemptKey& key, const storage::Decision& decision, EffectWriter& out);
  void on_decided(NodeId from, const wire::Decided& decided, EffectWriter& out);
  // `cause`: as in wire::Decided.
  void settle(const AttemptKey& key, bool committed, const std::string& cause, EffectWriter& out);
  // Names ranks here whose part of an aborted save was missing. They may be the cause only if the save is
  // overdue: then this is a warning.
  void name_missing_here(const AttemptKey& key, bool is_overdue, EffectWriter& out) const;
  std::string trainers_of(const std::vector<Rank>& ranks) const;  // attached ones, with their process ids
  // Answers a client whose rank staged a save that this node has closed since.
  void notify_closed(const AttemptKey& key, const Outcome& known, ClientId client, EffectWriter& out);
  // Reads the decision and sends it to the clients. If it cannot be read, they receive what is `known`: of a
  // save of unknown fate the error, never that it is committed or aborted.
  void read_and_notify(const AttemptKey& key, std::vector<ClientId> clients, Outcome known,
                       EffectWriter& out);
  // Reads again after an error that may pass; `failures` counts these.
  using DecisionRead = std::function<void(const Result<std::shared_ptr<const storage::Decision>>& decision,
                                          EffectWriter& out)>;
  void read_decision(const AttemptKey& key, EffectWriter& out, DecisionRead then, uint32_t failures = 0);
  void notify_as_read(const AttemptKey& key, const std::vector<ClientId>& clients, const Outcome& known,
                      const Result<std::shared_ptr<const storage::Decision>>& decision, EffectWriter& out);
  // Clients of a committed save whose rank did not take part from here: nothing of theirs was written, so
  // another process of their rank has saved it. A write in progress may be of the bytes that are committed:
  // `writing` are clients that are informed after their writes.
  struct Others {
    std::set<ClientId> strangers, writing;
  };
  static Others others_of_committed(NodeSave& save);
  void refuse_stranger(ClientId client, const AttemptKey& key, EffectWriter& out);
  // Removes the save from those in flight: committed, aborted, or left. Returns the clients that must receive
  // the outcome.
  std::vector<ClientId> close_save(const AttemptKey& key, NodeSaveTrigger trigger, const Status& late,
                                   EffectWriter& out, const std::string& warning = "");
  bool is_closed_by_abort(const AttemptKey& key) const;
  // Closes the save here without a decision, and sends its clients `why`.
  void close_unknown(const AttemptKey& key, const Status& why, EffectWriter& out);
  void notify_outcome(ClientId client, const AttemptKey& key, const Status& outcome, EffectWriter& out);
  // Gives up saves that have waited for a lost coordinator for host_lost_ms. Sets a timer for the next such
  // save.
  void give_up_without_coordinator(TimeNs now, EffectWriter& out);
  // No coordinator of this job will decide any more: this node decides all its saves at once.
  void on_coordinator_superseded(const Status& why, EffectWriter& out);

  // --- rank-local ---
  // A rank does not stage a save that this node has no room to follow. Publishes a tombstone, once, and sends
  // the client what the root then has.
  void abort_unopened(const AttemptKey& key, Rank rank, ClientId client, const Status& why,
                      EffectWriter& out);
  // The manifest of a rank that will write, without its files.
  static std::shared_ptr<storage::RankManifest> begin_manifest(const AttemptKey& key, Rank rank,
                                                               const KnownWorlds::Known& planned_by);
  // After the files of a rank are durable: publishes its manifest, then polls for the complete set.
  void publish_rank_local(const AttemptKey& key, Rank rank, EffectWriter& out);
  void published_rank_local(TimeNs now, const AttemptKey& key, Rank rank, const Status& outcome,
                            EffectWriter& out);
  // After an operation failed: obeys the tombstone if the root has one, then calls `act`. Another node may
  // have aborted the save and swept its folder, and then that abort is the cause.
  void obey_abort_then(const AttemptKey& key, EffectWriter& out,
                       std::function<void(TimeNs now, EffectWriter& out)> act);
  void look_at_set(TimeNs began, const AttemptKey& key, EffectWriter& out);
  void look_at_set_now(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out);
  void looked_at_set(TimeNs now, const AttemptKey& key, bool was_merged, TimeNs took,
                     Result<std::shared_ptr<const storage::Decision>> decision, EffectWriter& out);
  void look_at_set_again(TimeNs now, const AttemptKey& key, NodeSave& save, TimeNs took, EffectWriter& out);
  // Tells the coordinator once the manifests of all ranks here are published.
  void report_published(const AttemptKey& key, const NodeSave& save, EffectWriter& out);
  void on_manifests_published(TimeNs now, const wire::ManifestsPublished& published, EffectWriter& out);
  bool has_turn(const NodeSave& save) const;   // whether this look may examine the whole set
  uint64_t turns(const NodeSave& save) const;  // number of nodes that take turns at this
  void on_ranks_lost(TimeNs now, const event::RanksLost& received, EffectWriter& out);
  // Gives up the save if it lacks a manifest of a host that is lost, or of a rank that has ended before it
  // staged the save, or only those of the lost coordinator's host.
  void look_for_lost(TimeNs now, const AttemptKey& key, EffectWriter& out);
  std::optional<std::string> why_ended(const AttemptKey& key, const std::vector<uint64_t>& missing) const;
  std::optional<std::string> why_hopeless(const std::vector<uint64_t>& missing, bool is_without_coordinator);
  bool has_missed_coordinator(TimeNs now, const NodeSave& save) const;  // for host_lost_ms
  void sweep_rank_local(const AttemptKey& key, EffectWriter& out);
  // The folder in which ranks here have published is gone, so that the root cannot tell what became of the
  // save. The coordinator may: it informs the nodes before it deletes a checkpoint. So `retry` is called
  // after a poll interval. The second time the save is closed, and its outcome is not known.
  void on_folder_gone(TimeNs now, const AttemptKey& key, PendingTimers::Then retry, EffectWriter& out);
  // The node stops. What it has published counts once the other ranks have published.
  void leave_after_last_look(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void leave_rank_local(const AttemptKey& key, EffectWriter& out);

  // --- collective ---
  bool is_collective() const { return !collective_.empty(); }
  void on_layout(TimeNs now, ClientId client, const local::LayoutUpdate& message, EffectWriter& out);
  void on_plan_request(TimeNs now, ClientId client, const local::PlanRequest& message, EffectWriter& out);
  void send_local_plans(const AttemptKey& key, const NodeSave& save, EffectWriter& out);
  void on_global_plan(TimeNs now, const wire::GlobalPlan& message, EffectWriter& out);
  void send_plan(const AttemptKey& key, const RankSave& rank_save, EffectWriter& out);
  // The rank of a client that sends a request before it stages. nullptr: the client has its answer.
  RankSave* planning_rank(TimeNs now, ClientId client, const AttemptKey& key, EffectWriter& out);
  void on_plan_gathering(TimeNs now, ClientId client, const local::PlanGathering& message, EffectWriter& out);
  void send_gather(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out);
  void send_plans(TimeNs now, wire::PlanGathering plans, EffectWriter& out);
  void on_plans(const wire::PlanGathering& message, EffectWriter& out);
  uint32_t world_size() const { return config_.world_size != 0 ? config_.world_size : world_size_; }
  void plan_from_coordinator(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);

  // --- ranks that are gone ---
  enum class Departure : uint8_t {
    closed,        // the trainer closed its Checkpointer
    disconnected,  // its connection ended without that: it was killed, has ended, or will attach again
    ended,         // the launcher reported its end, or it did not come back in time
  };
  Status never_stages(Rank rank, Departure how) const;
  void on_trainer_ended(TimeNs now, const event::TrainerEnded& message, EffectWriter& out);
  void on_next_run(TimeNs now, EffectWriter& out);
  // The process of this rank that is or was attached here saves nothing: another process of the rank saves by
  // the node of another host. Nobody waits for it here, and saves do not fail when it ends.
  bool saves_elsewhere(Rank rank) const;
  bool awaits_attached(const NodeSave& save) const;  // whether a rank that is attached and saves here lacks
  void lose_rank(TimeNs now, Rank rank, Departure how, EffectWriter& out);
  // A trainer may attach again within host_lost_ms, unless the next run starts here. After that it counts as
  // ended if it vanished; if it closed its Checkpointer, saves that lack this rank fail.
  void await_return(TimeNs now, Rank rank, Departure how, EffectWriter& out);
  void send_ended(EffectWriter& out);
  void send_ended_at(TimeNs at, EffectWriter& out);  // repeats with back-off
  // Sends RanksEnded kRanksEndedRepeats times, from `first` on, so that the coordinator knows the ranks of
  // this node.
  void report_ranks(TimeNs first, EffectWriter& out);

  // --- draining ---
  void begin_drain(TimeNs now, const event::Drain& drain, EffectWriter& out);
  void end_drain(EffectWriter& out);
  // The node was requested to stop while trainers are attached: another node will serve them, and receives
  // from them what is undecided.
  bool hands_over() const;
  bool is_writing() const;
  // Why no rank here can complete this save any more; nullopt: one may.
  std::optional<Failure> hopeless(const NodeSave& save) const;
  void consider_drain(TimeNs now, EffectWriter& out);
  void drain_patience_over(TimeNs now, EffectWriter& out);

  const NodeConfig config_;
  PendingOperations operations_;
  PendingTimers timers_;
  base::FlatMap<ClientId, Rank> clients_;  // attached now
  base::FlatMap<Rank, ClientId> attached_;
  base::FlatMap<Rank, int32_t> pids_;  // of the trainers that attached last, as far as they are known
  std::map<Rank, Departure> lost_;     // were attached and are gone, or will never attach
  std::map<Rank, std::string> ended_;  // how their trainers ended, as the launcher or the connection shows
  struct Awaited {
    Departure how;
    TimerId until;
  };
  std::map<Rank, Awaited> awaited_;  // ranks that are not attached and may attach again
  bool next_run_starts_ = false;
  std::set<Rank> staged_here_;    // ranks that have offered bytes to this node
  bool has_seen_commit_ = false;  // of a save of this run; each rank has staged it somewhere
  std::set<ClientId> detached_;   // clients that end cleanly; their ClientLost follows
  std::set<ClientId> gone_;       // clients that are gone and whose slabs are still in use
  KnownWorlds worlds_;
  bool rank_local_ = false;  // the ranks here save in mode rank-local
  base::FlatMap<Rank, KnownWorlds> rank_local_worlds_;
  base::FlatMap<Rank, Collective> collective_;
  std::set<Rank> introduced_;  // ranks of modes without JoinRanks that this node has reported as its own
  uint32_t world_size_ = 0;    // as clients stated
  std::set<RosterId> reading_rosters_;
  std::map<RosterId, PublishRetries> roster_retries_;  // of those that could not be read
  Status planning_failed_;
  Status superseded_;  // not OK: another job has the root
  SaveCounts save_counts_;
  Saves saves_;  // in flight
  LateWrites late_;
  RecentMap<AttemptKey, Outcome> decided_{kMaxOutcomesRemembered};
  event::RanksLost ranks_lost_;    // rank-local: from the coordinator of this node
  wire::RanksEnded coordinators_;  // rank-local: the coordinator's node, its ranks, and those that ended
  size_t reading_ = 0;             // manifests being read for clients
  bool coordinator_lost_ = false;  // and no message of it since
  TimeNs coordinator_lost_at_ = 0;
  std::string why_coordinator_lost_;
  NodeDrain drain_;
  bool is_node_stopping_ = false;  // as the last event::Drain stated
  bool has_sent_ended_ = false;    // the last RanksEnded named ranks
  uint32_t ranks_ended_left_ = 0;  // repetitions of RanksEnded still to send
  Backoff ended_backoff_;
  TimerId drain_timer_ = 0, patience_timer_ = 0, ended_timer_ = 0, away_timer_ = 0;
};

}  // namespace shoal::actors
