// CountedTrainers: plays the clients of all ranks of a VirtualCluster. Each says what it holds, and at every
// save stages its share: what that share is the rule says (plan_save), its bytes are counted.
//
// The ranks train in step: the next save begins `interval` after the last rank was let go by the one before,
// each rank up to `skew` later. A rank has two slabs; a save that finds both in use waits, as a client's
// does.
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
#include "sim/cluster/virtual_cluster.h"

namespace shoal::sim {

inline constexpr uint32_t kSimulatedSlabs = 2;
inline constexpr actors::TimeNs kAttachTimeoutNs =
    30'000 * actors::kMillisecond;  // CheckpointerOptions::attach_timeout
inline constexpr uint64_t kMilestonesPerSave =
    3;  // of a rank: it is let go, its bytes are durable, it is told

// Of one save; by rank, from its own call of save. Negative: it never came to that.
struct TrainerTimes {
  actors::TimeNs began = 0;            // on the clock of the simulation: when the first rank may call
  std::vector<actors::TimeNs> called;  // on that clock
  std::vector<actors::TimeNs> told, blocked, written, committed;
  actors::TimeNs heard_of = -1;  // when the first rank told its node of it
  uint64_t bytes_staged = 0;     // of all ranks
  uint32_t aborted_ranks = 0;
  std::string cause;  // of an abort
};

class CountedTrainers {
 public:
  struct Job {
    std::vector<LayoutPtr> layouts;      // of the pipeline stages
    std::shared_ptr<const World> world;  // else that of each rank, where it is said
    uint32_t ranks = 0;
    uint32_t ranks_per_host = 1;
    SaveOptions options;
    uint32_t saves = 1;
    actors::TimeNs interval_ns =
        0;  // collective-free, unless nodes may be lost: before the first, until all know a roster
    actors::TimeNs skew_ns = 0;
    uint64_t seed = 0;
    std::vector<uint32_t> copy_permille;  // by host: of the time that a copy takes; empty: 1000 everywhere
    bool keeps_offers = false;            // nodes may be started again: what is undecided is offered to these
    StoredPayload* payload = nullptr;     // where what is staged gets true bytes
    const LayoutPtr& layout_of(Rank rank) const {
      return layouts[world ? world->roster.layout_of(rank) : uint64_t{rank} * layouts.size() / ranks];
    }
  };
  // `save_begins` hears of each, before any rank calls it; numbered from 1.
  CountedTrainers(EventHeap& events, VirtualCluster& cluster, const Profile& profile, Job job,
                  std::function<void(uint32_t save)> save_begins);

  void start();
  // What trainers hear of their saves.
  using ToldListener = std::function<void(Rank, const local::Decided&)>;
  void on_told(ToldListener listener) { told_ = std::move(listener); }
  using SlabListener = std::function<void(Rank, uint32_t in_use)>;
  void on_slab(SlabListener listener) { slab_freed_ = std::move(listener); }

  void lose_host(size_t node);  // its trainers are gone; the others go on saving without them
  void lose_rank(Rank rank, const std::string& how);  // it ends; "": nobody tells its node how
  // Another process serves this host: each trainer finds it at an instant of its own, attaches, and offers
  // what is not decided. Precondition: keeps_offers.
  void come_back(size_t node);
  // No node serves this host: who has waited for one for kAttachTimeoutNs is told so by its client. What it
  // staged stays offered. Precondition: keeps_offers.
  void give_up(size_t node);
  bool alive(Rank rank) const { return trainers_[rank].alive; }
  bool has_living(size_t node) const;
  // Every rank that lives has heard of every save.
  bool done() const { return decided_ == uint64_t{living_} * job_.saves; }
  // Saves, from the first on, of which every rank that lives has heard.
  uint32_t saves_decided() const;
  uint64_t milestones() const { return milestones_; }  // of all ranks and saves so far
  actors::TimeNs newest_save_began() const { return saves_begun_ == 0 ? 0 : times_[saves_begun_ - 1].began; }
  const Status& failure() const { return failure_; }                 // that ends all: no save can come of it
  const std::vector<TrainerTimes>& times() const { return times_; }  // by save

 private:
  using Pieces = SharedVector<local::StagedPiece>;
  struct Share {  // what a rank stages by one plan
    RosterId roster_id;
    PlanId plan_id, share_id;
    Pieces pieces;
    uint64_t bytes = 0;
  };
  struct Offer {  // what a client remembers of a save that is not decided
    Share share;
    uint32_t slab = 0;
    bool is_freed = false;
    std::optional<local::DurableShare> durable;  // what its node has said that the slab became; none: dropped
  };
  struct Trainer {
    std::optional<Share> share;  // by the newest plan that it knows
    bool has_planned = false;    // that share, so that it costs nothing more
    uint32_t slabs_in_use = 0;
    uint32_t save = 0;  // that it is in, from the call until it is let go; 0: it trains
    bool waits_for_slab = false;
    bool asks = false;                         // collective: for a plan
    bool is_attached = true;                   // to the process that serves its host now
    uint32_t returns = 0;                      // how often it had to look for another one
    base::FlatMap<uint32_t, Offer> undecided;  // by save; where offers are kept
    uint32_t last_slab = 0;
    uint32_t let_go_of = 0;  // the newest save that it was let go by
    uint32_t decided = 0;    // saves
    bool alive = true;
  };

  void listen(actors::ClientId client, const local::LocalMessage& message);
  bool knows_enough() const;
  void begin_save();
  void call_save(Rank rank);
  void ask_or_stage(Rank rank);
  void stage(Rank rank, const Share& share, actors::TimeNs planning);
  void staged(Rank rank, const Share& share);
  void ask(Rank rank);
  void tell_node(Rank rank, uint32_t save, local::LocalMessage message, actors::TimeNs takes = 0);
  void say_staged(Rank rank, uint32_t save, const Share& share, uint32_t slab, bool again);
  void let_go(Rank rank);
  void go_on();  // where all were let go
  void forget_rank(Rank rank);
  void attach_again(Rank rank);
  void on_slab_free(Rank rank, const local::SlabFree& free);
  void on_decided(Rank rank, const local::Decided& decided);
  void hear(Rank rank, const local::Decided& decided);  // by the node, or by its own client
  void on_plan(Rank rank, const local::PlanIs& said);
  Share share_of(const SavePlan& plan, const Layout& layout);
  // What is staged by a plan: its pieces and their bytes.
  void lay_out(const SavePlan& plan, const Layout& layout, Share& share);
  Share whole_share(Rank rank);
  size_t node_of(Rank rank) const { return rank / job_.ranks_per_host; }

  EventHeap& events_;
  VirtualCluster& cluster_;
  const TrainerCosts costs_;
  const CpuCosts cpu_;
  const Job job_;
  std::function<void(uint32_t)> save_begins_;
  ToldListener told_;
  SlabListener slab_freed_;
  Random random_;
  Random returns_;
  std::vector<Trainer> trainers_;
  std::vector<TrainerTimes> times_;
  std::map<uint64_t, Pieces> known_pieces_;  // by their hash: most ranks stage alike
  // By the items of a plan, which ranks that write alike share.
  std::unordered_map<const WriteItem*, std::pair<SharedVector<WriteItem>, Share>> shares_;
  bool is_first_due_ = false;  // its interval has passed
  uint32_t know_roster_ = 0;   // ranks that have a share by a roster
  uint32_t saves_begun_ = 0;
  uint32_t living_ = 0;
  uint32_t let_go_ = 0;  // ranks that live, of the newest save
  uint64_t decided_ = 0;
  uint64_t milestones_ = 0;
  Status failure_;
};

}  // namespace shoal::sim
