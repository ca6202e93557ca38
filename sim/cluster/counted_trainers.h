// CountedTrainers: simulates the clients of all ranks of a VirtualCluster. Each rank declares its layout and
// stages its assignment at every save. plan_save determines it; the simulation counts its bytes.
//
// The ranks train in step. The next save begins `interval` after the last rank returned from the previous
// one, and each rank calls save up to `skew` later. A rank has as many slabs as saves may be in flight, and
// uses the first free one. A save that finds all in use waits, as it does in a real client.
//
// A save that has more bytes than a slab is staged in parts: the trainer copies what its node requests, and
// save returns when everything is durable (docs/reference/client-node.md, "In parts").
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/flat_map.h"
#include "sim/basics/random.h"
#include "sim/cluster/replica_memory.h"
#include "sim/cluster/virtual_cluster.h"
#include "sim/jobs/scenario.h"

namespace shoal::sim {

inline constexpr actors::TimeNs kAttachTimeoutNs =
    30'000 * actors::kMillisecond;  // CheckpointerOptions::attach_timeout
// Per rank: save() returned; its bytes are durable; it received the decision.
inline constexpr uint64_t kMilestonesPerSave = 3;

// Times of one save, by rank, from the rank's call of save. Negative if the rank never reached that point.
struct TrainerTimings {
  actors::TimeNs began = 0;            // on the clock of the simulation: when the first rank may call save
  std::vector<actors::TimeNs> called;  // on that clock
  std::vector<actors::TimeNs> plan_received, blocked, written, committed;
  actors::TimeNs notified_at = -1;  // when the first rank sent its node a message about this save
  uint32_t ranks_staged = 0;
  uint64_t bytes_staged = 0;  // of all ranks
  uint32_t aborted_ranks = 0;
  std::string cause;  // cause of an abort
  // By rank: tensors in which a flipped bit was digested.
  std::map<Rank, std::vector<std::string>> differing;
};

class CountedTrainers {
 public:
  struct Job {
    std::vector<LayoutPtr> layouts;  // one per pipeline stage
    // If not null, it states the layout of each rank, and `layouts` are indexed by it.
    std::shared_ptr<const World> world;
    uint32_t ranks = 0;
    uint32_t ranks_per_host = 1;
    SaveOptions options;
    uint32_t generation = kSimulatedGeneration;
    uint32_t saves = 1;
    uint32_t max_in_flight = kDefaultSavesInFlight;  // the slabs of a rank
    uint64_t slab_bytes = 0;         // a rank stages a save with more bytes in parts; 0: no rank does
    uint32_t parts_permille = 1000;  // of such saves; the others are staged whole nevertheless
    uint64_t parts_slab_bytes = 0;   // of the slab through which parts pass
    // Training time before each save. In mode collective-free, unless keeps_offers, the first save also waits
    // until all ranks know a roster.
    actors::TimeNs interval_ns = 0;
    actors::TimeNs skew_ns = 0;
    uint64_t seed = 0;
    std::vector<uint32_t> copy_permille;  // by host: factor on the time of a copy; empty: 1000 for every host
    bool keeps_offers = false;  // nodes may restart: trainers offer undecided saves to the new processes
    // start(): each trainer attaches up to this much later, and calls no save before. Needs keeps_offers.
    actors::TimeNs attach_skew_ns = 0;
    StoredPayload* payload = nullptr;  // if not null, it stores the bytes that are staged
    // From this save on, ranks hold their parts by these layouts, one per pipeline stage; 0: never.
    uint32_t later_from = 0;
    std::vector<LayoutPtr> later_layouts;
    uint32_t later_stages = 0;         // only the ranks of the first so many stages do so; 0: all
    bool closes_when_written = false;  // trainers close as soon as all that they staged is written
    bool is_disturbed = false;         // there are failures because of which nodes may leave saves undecided
    // Mode collective: the planner of this rank makes a global plan, before each rank asks for its own.
    std::optional<Rank> planner_rank;
  };
  // Calls save_begins with the number of each save, from 1, before any rank calls save.
  CountedTrainers(EventHeap& events, VirtualCluster& cluster, const Profile& profile, Job job,
                  std::function<void(uint32_t save)> save_begins);

  void start();
  // Like start, but the trainers load first, so that they save only after train_now(). `also` hears every
  // message of a node to a trainer as well.
  void start_with_load(VirtualCluster::ToClient also);
  void train_now();
  // Called when a trainer has attached to another process of its node.
  void on_attached(std::function<void(Rank)> listener) { on_attached_ = std::move(listener); }
  // Called when a trainer receives the decision of a save.
  using DecisionListener = std::function<void(Rank, const local::Decided&)>;
  void on_decision(DecisionListener listener) { on_decision_ = std::move(listener); }
  using SlabListener = std::function<void(Rank, uint32_t in_use)>;
  void on_slab(SlabListener listener) { slab_freed_ = std::move(listener); }

  // A trainer has ended, so that the others wait for it in a step: none begins another save.
  void stop_training() { trains_ = false; }
  void lose_host(size_t node);  // its trainers die; the other hosts go on saving
  // Its trainer ends; how is "": its node does not learn how.
  void lose_rank(Rank rank, const std::string& how);
  // Another process serves this host. Each trainer finds it at a random time, attaches, and offers its
  // undecided saves. Precondition: keeps_offers.
  void trainers_return(size_t node);
  // The connection of this trainer to its node breaks. It attaches again so much later (0: at a random time),
  // and offers its undecided saves. Does nothing if no node serves its host. Precondition: keeps_offers.
  void reconnect(Rank rank, actors::TimeNs after);
  // This trainer closes its Checkpointer as soon as it has heard the outcome of its saves, and opens another
  // one so much later. Until then it calls no save. Precondition: keeps_offers.
  void reopen(Rank rank, actors::TimeNs after);
  // This trainer reads a checkpoint until end_read, and closes its Checkpointer only after it. If it waits
  // for the read, it calls no save meanwhile; precondition: is_between_saves.
  void begin_read(Rank rank, bool waits) {
    trainers_[rank].reads = true;
    trainers_[rank].waits_for_read = waits;
  }
  void end_read(Rank rank);
  // It has heard the outcome of every save that it called, and is in no other call.
  bool is_between_saves(Rank rank) const;
  uint32_t last_save(Rank rank) const { return trainers_[rank].let_continue_after; }  // 0: it called none
  // Each living trainer closes its Checkpointer, in the end of the job, and attaches to no node any more. It
  // hears of undecided saves from the root.
  void close_all();
  // Called when a trainer has closed its Checkpointer in the end of the job.
  void on_closed(std::function<void(Rank)> listener) { on_closed_ = std::move(listener); }
  bool has_closed(Rank rank) const { return trainers_[rank].has_closed; }
  // Another process of this rank attaches to the node of another host, declares its state, and ends so much
  // later. It hears nothing and saves nothing. Does nothing where that node rejects it: on the rank's own
  // host, and if a launcher told the node its ranks. Does nothing before the first save is decided either: a
  // job whose first roster is contradictory cannot save at all.
  void attach_twin(Rank rank, size_t node, actors::TimeNs lasts);
  // A bit of this trainer's memory flips (Failure::Kind::flips).
  void flip(Rank rank) { replicas_.flip(rank, mix64(job_.seed ^ rank)); }
  // No node serves this host. The client of each trainer that has waited for kAttachTimeoutNs reports an
  // error. What the trainer staged stays offered. Precondition: keeps_offers.
  void give_up(size_t node);
  bool alive(Rank rank) const { return trainers_[rank].alive; }
  bool is_attached(Rank rank) const { return trainers_[rank].is_attached; }
  uint32_t ranks() const { return job_.ranks; }
  bool has_living(size_t node) const;  // trainers that live and have not closed their Checkpointers
  // Every living rank has received the decision of every save.
  bool done() const { return decided_ == uint64_t{living_} * job_.saves; }
  // The number of saves, counted from the first one, whose decision every living rank has received.
  uint32_t saves_decided() const;
  uint64_t milestones() const { return milestones_; }  // of all ranks and saves so far
  bool waits_for_slab(Rank rank) const { return trainers_[rank].waits_for_slab; }
  // The slabs in use of living trainers that a node serves.
  uint64_t slabs_in_use() const;
  uint32_t saves_begun() const { return saves_begun_; }
  actors::TimeNs newest_save_began() const { return saves_begun_ == 0 ? 0 : times_[saves_begun_ - 1].began; }
  const Status& failure() const { return failure_; }  // it ends the simulation: no further save is possible
  const std::vector<TrainerTimings>& times() const { return times_; }  // by save

 private:
  using Pieces = SharedVector<local::StagedPiece>;
  struct Assignment {  // what a rank stages under one plan
    RosterId roster_id;
    PlanId plan_id, assignment_id;
    Pieces pieces;
    uint64_t bytes = 0;
    plan::ReplicaDigestsPtr replicas = nullptr;  // of the save that stages it
  };
  struct Offer {  // what a client remembers of an undecided save
    Assignment assignment;
    uint32_t slab = 0;
    bool in_parts = false;
    bool is_freed = false;
    // What the slab became, as the node reported it; none: dropped.
    std::optional<local::DurableAssignment> durable;
    // Its call of save failed, or ended before all parts were copied, because no node served this host.
    bool was_never_staged = false;
  };
  struct InParts {  // a save that a trainer stages in parts, from Staged until save() returns
    uint32_t slab = 0;
    actors::TimeNs copies_until = 0;  // it copies one part after the other
  };
  struct UsedSlab {
    uint32_t slab = 0;
    uint32_t save = 0;
  };
  struct Trainer {
    std::optional<Assignment> assignment;  // under the newest plan that the rank knows
    bool has_planned = false;              // it has planned that, so planning costs nothing more
    uint32_t slabs_in_use = 0;
    uint32_t save = 0;  // the save that it is in, from the call until save() returns; 0: it trains
    bool waits_for_slab = false;
    bool asks = false;                    // mode collective: it asks for a plan
    bool has_gathered = false;            // it asks, and has its part of the planners' global plan
    std::vector<plan::PlannerPlan> made;  // it asks, and its planner has made the global plan
    bool is_attached = true;              // attached to the process that serves its host now
    bool has_opened = true;               // it has attached at least once
    bool reads = false;                   // it reads a checkpoint
    bool waits_for_read = false;          // in the thread that calls save
    bool calls_later = false;             // it calls the newest save when it has opened, and loads nothing
    uint32_t returns = 0;                 // how often it had to find another process
    actors::TimeNs reopens_after = 0;     // it closes its Checkpointer soon, and opens another one then
    base::FlatMap<uint32_t, Offer> undecided;  // by save; empty unless keeps_offers
    std::vector<UsedSlab> staged;              // slabs that it has staged and no node freed
    std::optional<InParts> in_parts;           // of the save that it is in
    uint32_t let_continue_after = 0;           // the newest save that returned
    uint32_t called = 1;                       // the newest save that it called; at first the one that comes
    uint32_t decided = 0;                      // number of saves whose decision it received
    bool alive = true;
    bool has_closed = false;  // in the end of the job
  };

  void listen(actors::ClientId client, const local::LocalMessage& message);
  bool knows_enough() const;
  void begin_save();
  void call_save(Rank rank);
  void change_layout(Rank rank);
  void declare_layouts(Rank rank);
  void ask_or_stage(Rank rank);
  void stage(Rank rank, const Assignment& assignment, actors::TimeNs planning);
  void staged(Rank rank, const Assignment& assignment);
  void ask(Rank rank);
  void offer_plan(Rank rank);
  void notify_node(Rank rank, uint32_t save, local::LocalMessage message, actors::TimeNs takes = 0);
  plan::ReplicaDigestsPtr digest_replicas(Rank rank, uint32_t save);
  void send_staged(Rank rank, uint32_t save, const Offer& offer, bool again);
  static uint32_t free_slab(const Trainer& trainer);
  void drop_decided_slabs(Rank rank);
  // `is_freed`: by the node. Else it may still read the slab, which the client has replaced by another one.
  void slab_is_free(Rank rank, UsedSlab slab, bool is_freed);
  void on_part_request(Rank rank, const local::PartRequest& wanted);
  void answer_part(Rank rank, local::PartStaged answer);
  void end_parts(Rank rank);
  void give_up_parts(Rank rank);
  bool is_in_parts(Rank rank, const Assignment& assignment) const;  // the save that the rank is in
  actors::TimeNs copy_time(Rank rank, uint64_t bytes) const;
  void let_continue(Rank rank);
  void go_on();  // if every living rank has returned from the save
  void forget_rank(Rank rank);
  actors::TimeNs search_time();  // until a client finds its node again
  void find_node(Rank rank);
  void attach_later(Rank rank, actors::TimeNs later);
  void close_if_wanted(Rank rank);
  void attach_again(Rank rank);
  void close_if_written(Rank rank);
  void close(Rank rank);
  void read_outcomes();  // of saves whose trainers have closed
  void on_slab_free(Rank rank, const local::SlabFree& free);
  void on_decided(Rank rank, const local::Decided& decided);
  // From the node, from its own client, or what it finds in the root. is_decided: the root has the decision.
  void receive(Rank rank, const local::Decided& decided, bool is_decided = true);
  void on_roster(Rank rank, const local::RosterUpdate& roster);
  void on_plan(Rank rank, const local::PlanUpdate& received);
  void on_gathering(Rank rank, const local::PlanGathering& received);
  Assignment assignment_of(const SavePlan& plan, const Layout& layout);
  // Fills in the pieces that a plan stages, and their bytes.
  void lay_out(const SavePlan& plan, const Layout& layout, Assignment& assignment);
  Assignment whole_assignment(Rank rank);
  const LayoutPtr& layout_in(Rank rank, uint32_t save) const {
    const auto stages = job_.later_layouts.size();
    const bool changes = job_.later_stages == 0 || uint64_t{rank} * stages / job_.ranks < job_.later_stages;
    const bool is_later = job_.later_from != 0 && save >= job_.later_from && changes;
    const std::vector<LayoutPtr>& all = is_later ? job_.later_layouts : job_.layouts;
    return all[job_.world ? job_.world->roster.layout_of(rank) : uint64_t{rank} * all.size() / job_.ranks];
  }
  // As the rank declared it last.
  const LayoutPtr& layout_now(Rank rank) const { return layout_in(rank, trainers_[rank].called); }
  size_t node_of(Rank rank) const { return rank / job_.ranks_per_host; }

  EventHeap& events_;
  VirtualCluster& cluster_;
  const TrainerCosts costs_;
  const CpuCosts cpu_;
  const Job job_;
  std::function<void(uint32_t)> save_begins_;
  DecisionListener on_decision_;
  SlabListener slab_freed_;
  std::function<void(Rank)> on_attached_, on_closed_;
  Random random_;
  Random returns_;
  ReplicaMemory replicas_;
  std::vector<Trainer> trainers_;
  std::vector<TrainerTimings> times_;
  std::map<uint64_t, Pieces> known_pieces_;  // by hash: most ranks stage equal pieces
  // By the items of a plan. Ranks of one plan class share items.
  std::unordered_map<const WriteItem*, std::pair<SharedVector<WriteItem>, Assignment>> assignments_;
  bool trains_ = true;
  bool reads_outcomes_ = false;
  bool is_first_due_ = false;  // the interval before the first save has passed
  uint32_t know_roster_ = 0;   // ranks that have an assignment under a roster
  uint32_t saves_begun_ = 0;
  uint32_t living_ = 0;
  uint32_t continued_ = 0;  // living ranks that have returned from the newest save
  uint64_t decided_ = 0;
  uint64_t milestones_ = 0;
  uint32_t twins_ = 0;
  Status failure_;
};

}  // namespace shoal::sim
