// ShardWriter: one a node. Persists what local ranks staged, reports it, and tells the clients what was
// decided. docs/reference/protocol.md, "A save". What clients say and what is written: shard_writer.cpp;
// reports and decisions: shard_report.cpp; ranks that are gone, and the drain: shard_leaving.cpp; rank-local
// saves, of which nobody is told: shard_alone.cpp; collective saves, of which ranks are told what to write:
// shard_collective.cpp; what their planners pass on before: shard_exchange.cpp.
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
// How often a node says for whom it speaks, after each new session with a coordinator: one may be lost.
inline constexpr uint32_t kWordsAfterSession = 4;

class ShardWriter final : public Role {
 public:
  explicit ShardWriter(const NodeFacts& facts) : facts_(facts), gone_backoff_(facts.times) {}

  RoleKind kind() const override { return RoleKind::shard_writer; }

  void handle(TimeNs now, const Event& event, Effects& effects) override;

 private:
  struct Share {          // of one rank in one save
    ClientId client = 0;  // whose slab holds the bytes
    uint32_t slab_id = 0;
    ClientId listener = 0;  // who is told; a later connection of the rank, if it offered the same again
    uint32_t listener_slab_id = 0;
    std::shared_ptr<const local::LocalMessage> message;  // Staged or Written, until it is planned
    bool offered_again = false;                          // an earlier node may have reported it
    bool asking = false;  // the root is asked first whether the attempt is decided
    bool planned = false;
    std::optional<LayoutId> waits;  // for the roster of this attempt, having staged with this layout
    // Collective: the client has asked what it is to write, and staged nothing yet. `waits` until it is told.
    bool asked = false;
    SavePlanPtr told;
    PlanId client_knows;         // share_id_of the plan that the client has
    plan::PlannerPlan offer;     // what its planner offers, until it is told its part; null: nothing
    bool is_offer_said = false;  // and the coordinator has been told
    bool follows_planner = false;
    bool slab_in_use = true;
    size_t files_writing = 0;
    RosterId roster_id;
    PlanId plan_id;
    std::vector<wire::WrittenFile> files;
    UserMetadataPtr user;
    bool written = false;
    bool write_failed = false;
    bool is_committed = false;  // while its files were being written: the listener hears once they are
    bool published = false;     // rank-local: its manifest stands
  };
  struct Exchange {  // of the plans of planners with a global plan of their own
    Rank coordinator_rank = 0;
    SaveOptions options;
    std::map<Rank, plan::PlannerPlan> gathered;  // for the planner here, until all have come
    bool is_planning = false;                    // it has them
    std::vector<plan::PlannerPlan> made;         // by it, by rank
    bool is_made_said = false;                   // and the coordinator has been told
    bool says_again = false;                     // all of it: some may not have arrived
  };
  struct Save {
    base::FlatMap<Rank, Share> shares;
    std::optional<Exchange> exchange;
    std::set<ClientId> without_share;  // said NotStaged, and are told too
    Status failure;                    // the first here
    Rank failed_rank = 0;
    Status undecided;  // why the coordinator could record no decision
    bool deciding = false;
    std::set<ClientId> told_undecided;   // have heard that nothing can be decided, and hear nothing more
    std::pair<size_t, size_t> reported;  // in the last report: ranks that have written, and that wait
    RosterId roster_id;                  // by which those that wait share it; zero: not heard yet
    bool partial_due = false;            // the next report may be one
    bool asks_root = false;
    bool is_announced = false;  // before there was a roster
    TimerId resend = 0, partial = 0, deadline = 0, announce = 0;
    TimeNs begun = 0;
    Backoff backoff;
    Backoff partials;  // until what is ready is reported without the rest
    PublishRetries retries;
    TimeNs set_pace = 0;         // rank-local: until the set is looked at again
    uint32_t set_polls = 0;      // how often it was, since something was published here
    bool set_looking = false;    // it is being looked at now
    std::string set_missing;     // what it lacked when last seen
    bool lists_missing = false;  // its manifests are being listed, since a host is lost
    explicit Save(const RoleTimes& times)
        : backoff(times),
          partials(times.report_partial_after_ms * kMillisecond, times.resend_most_ms * kMillisecond),
          retries(times) {}
  };
  struct Collective {  // what is known of a rank that saves so
    SaveOptions options;
    RecentMap<LayoutId, LayoutPtr> layouts{KnownWorlds::kMost};  // that it has said
    SavePlanPtr told;                                            // the newest
  };
  struct Failure {
    Rank rank = 0;
    Status why;
  };
  enum class Fate : uint8_t {
    committed,  // a manifest stands, or stood
    aborted,    // an abort's tombstone stands
    unknown,    // this node stopped asking before any decision stood; one may stand by now
  };
  struct Outcome {  // what this node knows of a save that it has closed
    Fate fate = Fate::unknown;
    Status late;  // the answer to a client that stages the save only now. Never OK
  };

  // --- clients ---
  void on_client(TimeNs now, ClientId client, const std::shared_ptr<const local::LocalMessage>& message,
                 EffectWriter& out);
  void on_staged(TimeNs now, ClientId client, std::shared_ptr<const local::LocalMessage> message,
                 const local::Staged& staged, EffectWriter& out);
  void on_offered_again(TimeNs now, const AttemptKey& key, Rank rank, Share offered, EffectWriter& out);
  void on_not_staged(TimeNs now, ClientId client, const local::NotStaged& said, EffectWriter& out);
  void ask_root(const AttemptKey& key, Rank rank, EffectWriter& out);
  static Status too_many_saves();
  static Status staged_before(const AttemptKey& key, Rank rank);
  std::map<AttemptKey, Save>::iterator open_save(TimeNs now, const AttemptKey& key, EffectWriter& out);
  std::string no_decision(const Save& save) const;  // why its deadline ends it
  void on_client_lost(TimeNs now, ClientId client, EffectWriter& out);
  // A client that is gone keeps its slabs until they are written or dropped.
  void forget_if_unused(ClientId client, EffectWriter& out);
  void free_slab(const AttemptKey& key, Share& share, EffectWriter& out);
  void tell_free(const AttemptKey& key, const Share& share, uint32_t slab_id, EffectWriter& out);

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
  // The roster by which this share is planned: that which its client planned by; else that of the attempt,
  // where the coordinator has said it; else the newest, if it gives the rank the layout that was staged.
  std::optional<RosterId> roster_of(const Save& save, Rank rank, const Share& share);
  KnownWorlds& worlds_of(Rank rank) { return rank_local_ ? alone_[rank] : worlds_; }
  // Of one that this node has not heard of: the shares that were planned by it go on, or fail.
  void read_roster(const RosterId& id, EffectWriter& out);
  void on_plan_by(TimeNs now, const wire::PlanBy& said, EffectWriter& out);
  void take_share(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);
  // Whether this rank's user metadata is that of the others here.
  static Status check_user(const Save& save, Rank rank);
  void plan_share(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);
  void write_share(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan, const Layout& layout,
                   EffectWriter& out);
  void take_written(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan, EffectWriter& out);
  void record_staged(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan, EffectWriter& out);
  void file_written(TimeNs now, const AttemptKey& key, Rank rank, uint32_t file,
                    Result<storage::WrittenShard> written, EffectWriter& out);
  void write_ended(TimeNs now, const AttemptKey& key, Rank rank, const Status& written, EffectWriter& out);
  // A write that ended after its save had been decided. Whose save was committed meanwhile hears of it now.
  void release_late(const AttemptKey& key, Rank rank, bool failed, EffectWriter& out);
  void tell_late_writer(const AttemptKey& key, Rank rank, const Share& share, EffectWriter& out);
  void share_written(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);
  void wait_for_roster(TimeNs now, const AttemptKey& key, Share& share, EffectWriter& out);

  // --- reporting ---
  // Every rank of this host that may take part has written, or waits for a roster.
  bool all_here_ready(const Save& save) const;
  void report_soon(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out);
  // A save that finds no roster for a while: the coordinator hears of it all the same, so that its deadline
  // holds for it, and what it knows of ranks that are gone.
  void announce(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void consider_report(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void send_report(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out);
  void resend_later(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out);
  void resend_all(TimeNs now, EffectWriter& out);
  void fail(TimeNs now, const AttemptKey& key, Rank rank, Status why, EffectWriter& out);

  // --- the decision ---
  void on_message(TimeNs now, const WireBody& body, EffectWriter& out);
  // The coordinator is lost, and may have decided before it was: what stands in the root is obeyed.
  void ask_root(const AttemptKey& key, Save& save, EffectWriter& out);
  // This node publishes the tombstone itself, or commits what the root proves complete (giving_up.h), and
  // obeys whatever stands. `why`, `cause`: where nothing failed here.
  void give_up(const AttemptKey& key, GiveUp why, const std::string& cause, EffectWriter& out);
  void publish_tombstone(const operation::PublishDecision& made, EffectWriter& out);
  // Tells the clients, and tries again while that may help.
  void publish_failed(TimeNs now, const operation::PublishDecision& made, const Status& why,
                      EffectWriter& out);
  static Status not_decided(const Save& save, const Status& why);
  // The root takes no decision: clients wait for one no longer, and hear nothing more of this attempt. What
  // stands is unknown.
  void undecidable(const AttemptKey& key, const Status& why, EffectWriter& out);
  void on_undecided(const AttemptKey& key, const Status& why, EffectWriter& out);
  void settle(const AttemptKey& key, bool committed, const std::string& cause, EffectWriter& out);
  // Answers a client whose rank staged a closed save before this node closed it.
  void tell_closed(const AttemptKey& key, const Outcome& known, ClientId client, EffectWriter& out);
  // Reads the decision that stands and tells it. `known`: what to say where none can be found: it never makes
  // a save of unknown fate a committed or aborted one. `failures`: how often reading failed already.
  void read_and_tell(const AttemptKey& key, std::vector<ClientId> told, Outcome known, EffectWriter& out,
                     uint32_t failures = 0);
  // Of a save that is committed: those who staged it now, and whose rank has had no part in it, for nothing
  // of theirs was written yet. Another process of their rank has had it. What is being written may be what
  // is committed: `writing` are those who hear of it when their writes have ended.
  struct WithoutPart {
    std::set<ClientId> strangers, writing;
  };
  static WithoutPart without_part(Save& save);
  void tell_stranger(ClientId client, const AttemptKey& key, EffectWriter& out);
  // Takes the save out of those in flight. Returns the clients that are to be told.
  std::vector<ClientId> close_save(const AttemptKey& key, Outcome outcome, EffectWriter& out);
  void tell_outcome(ClientId client, const AttemptKey& key, const Status& outcome, EffectWriter& out);

  // Ends saves that have waited for a lost coordinator for host_lost_ms; looks again when the next one has.
  void give_up_without_coordinator(TimeNs now, EffectWriter& out);

  // None of this job will decide any more: this node does, at once.
  void on_coordinator_gone(const Status& why, EffectWriter& out);

  // --- rank-local ---
  // Its files are durable: so is its manifest next, then the set is awaited.
  void publish_alone(const AttemptKey& key, Rank rank, EffectWriter& out);
  void published_alone(TimeNs now, const AttemptKey& key, Rank rank, const Status& outcome,
                       EffectWriter& out);
  void look_at_set(TimeNs began, const AttemptKey& key, EffectWriter& out);
  void looked_at_set(TimeNs now, const AttemptKey& key, bool was_merged, TimeNs took,
                     Result<std::shared_ptr<const storage::Decision>> decision, EffectWriter& out);
  bool all_published(const Save& save) const;
  bool has_turn(const Save& save) const;   // to look at the whole set, this time
  uint64_t turns(const Save& save) const;  // how many nodes share the looking
  void on_ranks_lost(TimeNs now, const event::RanksLost& said, EffectWriter& out);
  // Ends the save if it waits for the manifest of a host that is lost, or of the lost coordinator's alone.
  void look_for_lost(TimeNs now, const AttemptKey& key, EffectWriter& out);
  std::optional<std::string> why_hopeless(const std::vector<uint64_t>& missing, bool is_without_coordinator);
  bool has_missed_coordinator(TimeNs now, const Save& save) const;  // for host_lost_ms
  void sweep_alone(const AttemptKey& key, EffectWriter& out);
  // The node stops. What it has published counts as soon as the others have.
  void leave_set(const AttemptKey& key, EffectWriter& out);
  // Ends the save here without a decision, and tells its clients why.
  void close_unknown(const AttemptKey& key, const Status& why, EffectWriter& out);

  // --- collective ---
  bool is_collective() const { return !collective_.empty(); }
  void on_layout(TimeNs now, ClientId client, const local::LayoutIs& said, EffectWriter& out);
  void on_plan_wanted(TimeNs now, ClientId client, const local::PlanWanted& said, EffectWriter& out);
  void send_local_plans(const AttemptKey& key, const Save& save, EffectWriter& out);
  void on_global_plan(TimeNs now, const wire::GlobalPlan& said, EffectWriter& out);
  void tell_plan(const AttemptKey& key, const Share& share, EffectWriter& out);
  // The share of a client that asks before it stages; null: it has been answered.
  Share* asking_share(TimeNs now, ClientId client, const AttemptKey& key, EffectWriter& out);
  // All ranks have a planner with a global plan of its own, or none.
  static Status check_alike(const Save& save, Rank rank, bool follows_planner);
  void on_plan_exchange(TimeNs now, ClientId client, const local::PlanExchange& said, EffectWriter& out);
  void send_exchange(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out);
  void send_plans(TimeNs now, wire::PlanExchange said, EffectWriter& out);
  void on_plans(const wire::PlanExchange& said, EffectWriter& out);
  uint32_t world_size() const { return facts_.world_size != 0 ? facts_.world_size : world_size_; }
  void plan_told_share(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out);

  // --- ranks that are gone ---
  // Staged, or durable already.
  static bool has_staged(const Save& save, Rank rank) {
    auto share = save.shares.find(rank);
    return share != save.shares.end() && !share->second.asked;
  }
  Status trainer_ended(Rank rank) const;
  void on_trainer_ended(TimeNs now, const event::TrainerEnded& said, EffectWriter& out);
  void lose_rank(TimeNs now, Rank rank, EffectWriter& out);
  void say_gone(EffectWriter& out);
  void say_gone_at(TimeNs at, EffectWriter& out);  // and again with back-off
  // Says, kWordsAfterSession times from `first` on, for which ranks this node speaks.
  void speak_for_ranks(TimeNs first, EffectWriter& out);

  // --- draining ---
  void begin_drain(TimeNs now, const event::Drain& drain, EffectWriter& out);
  void end_drain(EffectWriter& out);
  // Told to stop while trainers are attached: another node will serve them, and hears of what is undecided.
  bool hands_over() const;
  bool is_writing() const;
  // Why nobody here can complete this save any more; nothing: somebody may.
  std::optional<Failure> hopeless(const Save& save) const;
  void consider_drain(TimeNs now, EffectWriter& out);
  void drain_patience_over(TimeNs now, EffectWriter& out);

  const NodeFacts facts_;
  PendingOperations operations_;
  PendingTimers timers_;
  base::FlatMap<ClientId, Rank> clients_;  // attached now
  base::FlatMap<Rank, ClientId> attached_;
  std::set<Rank> lost_;                // were attached and are gone, or never will be
  std::map<Rank, std::string> ended_;  // how their trainers did, by the word of who started them
  std::set<ClientId> gone_;            // lost clients whose slabs are still kept
  KnownWorlds worlds_;
  bool rank_local_ = false;  // the ranks here save rank-local
  base::FlatMap<Rank, KnownWorlds> alone_;
  base::FlatMap<Rank, Collective> collective_;
  std::set<Rank> introduced_;  // ranks of modes without JoinRanks, for which this node has begun to speak
  uint32_t world_size_ = 0;    // as clients said
  std::set<RosterId> reading_rosters_;
  Status planning_failed_;
  Status coordinator_gone_;                            // not OK: another job has the root
  std::map<AttemptKey, Save> saves_;                   // in flight
  std::map<std::pair<AttemptKey, Rank>, Share> late_;  // decided while a file was still being written
  RecentMap<AttemptKey, Outcome> decided_{kMaxOutcomesRemembered};
  event::RanksLost ranks_lost_;    // rank-local, as the coordinator of this node says
  wire::RanksGone coordinators_;   // rank-local: host and ranks of the coordinator's node
  size_t reading_ = 0;             // manifests being read for clients
  bool coordinator_lost_ = false;  // and nothing heard of it since
  TimeNs coordinator_lost_at_ = 0;
  std::string why_coordinator_lost_;
  bool draining_ = false, is_told_to_stop_ = false;
  bool leaving_ = false;  // no rank of this host stages anything more
  bool has_said_gone_ = false;
  bool is_patience_over_ = false;     // of a drain
  uint32_t words_after_session_ = 0;  // that are still to be said: of whom this node speaks for
  Backoff gone_backoff_;
  TimerId drain_timer_ = 0, leave_timer_ = 0, gone_timer_ = 0, away_timer_ = 0;
};

}  // namespace shoal::actors
