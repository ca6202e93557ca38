// CountedLoads: simulates the clients of a restarted job, in which each rank loads the latest checkpoint. A
// rank wants the values of its layout. The Loader of its node computes what to read of them. The simulation
// counts bytes and does not store them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/cluster/load_classes.h"
#include "sim/cluster/received_values.h"
#include "sim/cluster/virtual_cluster.h"

namespace shoal::sim {

// The size of a client's window, unless the client wants fewer bytes (include/shoal/checkpointer.h,
// load_window_bytes).
inline constexpr uint64_t kSimulatedWindowBytes = uint64_t{16} << 20;
inline constexpr actors::TimeNs kLoadAgainNs = 1000 * actors::kMillisecond;
inline constexpr uint64_t kMilestonesPerLoad = 2;  // per rank: it knows the checkpoint; it has its bytes

class CountedLoads {
 public:
  struct Job {
    std::vector<LayoutPtr> layouts;  // one per pipeline stage
    uint32_t ranks = 0;
    uint32_t ranks_per_host = 1;
    LoadMethod method = LoadMethod::automatic;
    bool falls_back = false;           // passes over a damaged checkpoint
    StoredPayload* payload = nullptr;  // if not null, loads are compared with what it has stored
    bool has_classes = true;           // false: each rank asks for what it wants itself
    const LayoutPtr& layout_of(Rank rank) const { return layouts[uint64_t{rank} * layouts.size() / ranks]; }
  };
  // Each rank loads as soon as it has attached. `events`, `cluster` and `profile` must outlive this object.
  CountedLoads(EventHeap& events, VirtualCluster& cluster, const Profile& profile, Job job);

  void start();
  bool done() const { return loaded_count_ == job_.ranks; }
  const Status& failure() const { return failure_; }  // the first failure of any rank; it ends the simulation

  // Code::internal: a load was reported as done before the rank had received everything. Needs a payload.
  const Status& incomplete() const { return incomplete_; }

  // For a job whose trainers also save (CountedTrainers::start_with_load): a rank whose load failed loads
  // again after kLoadAgainNs, and a root without a checkpoint is no failure.
  void load_with_retries();
  // For jobs that only read: whatever fails, the load of that rank is over.
  void ends_with_errors() { ends_with_errors_ = true; }
  void hear(actors::ClientId client, const local::LocalMessage& message) { listen(client, message); }
  // Its node is another process, so the load that was under way is gone.
  void load_again(Rank rank);
  // A trainer without a connection to a node asks for nothing. Empty: all are always connected.
  void ask_only_if(std::function<bool(Rank)> is_attached) { is_attached_ = std::move(is_attached); }
  // How a load that is over has ended, and the checkpoint that it found; none: it found none.
  const Status& outcome(Rank rank) const { return outcomes_[rank]; }
  std::optional<AttemptKey> found_by(Rank rank) const {
    return found_[rank] < 0 ? std::nullopt : std::optional(chosen_[rank]);
  }
  bool has_loaded(Rank rank) const { return loaded_[rank] >= 0; }
  // Times by rank, from the start; negative if the rank never reached that point.
  // Until the rank knows which checkpoint it loads, and what to read.
  const std::vector<actors::TimeNs>& found() const { return found_; }
  // Until the rank's bytes are in their destination.
  const std::vector<actors::TimeNs>& loaded() const { return loaded_; }
  uint64_t bytes_wanted() const { return bytes_wanted_; }  // of all ranks
  // Through the windows of all ranks: whole digest blocks.
  uint64_t bytes_passed() const { return bytes_passed_; }
  uint64_t milestones() const { return milestones_; }

 private:
  void listen(actors::ClientId client, const local::LocalMessage& message);
  void on_loaded(actors::ClientId client, const local::Loaded& loaded);
  void on_done(Rank rank, const Status& outcome);
  // A bit has flipped that explains why the load of this rank fails.
  bool is_damaged(Rank rank) const;
  void ask(Rank rank);
  void check(actors::ClientId client, const local::Loaded& loaded);
  Status check_all_received(Rank rank);
  struct Wanted {
    local::LoadTargets targets;
    uint64_t bytes = 0;
  };
  const Wanted& wanted_by(Rank rank);  // valid until forget_wanted
  const Wanted& work_out(Rank rank);
  void forget_wanted();
  void find_classes();
  // Which dimensions of a layout's meshes distinguish the shards of one rank from those of another rank.
  struct Sharded {
    bool by_meshes_only = true;          // nothing else distinguishes them
    std::vector<uint64_t> dims_of_mesh;  // bits of the dimensions over which some value is sharded
  };
  const Sharded& sharded_by(const Layout& layout);
  size_t node_of(Rank rank) const { return rank / job_.ranks_per_host; }

  EventHeap& events_;
  VirtualCluster& cluster_;
  const TrainerCosts costs_;
  const Job job_;
  std::unordered_map<Hash128, Wanted> wanted_;  // shared by ranks that want the same bytes
  std::unordered_map<const Layout*, Sharded> sharded_;
  std::unique_ptr<LoadClasses> classes_;                 // while all ranks ask; null: each asks for its own
  std::unordered_map<Hash128, const Wanted*> by_place_;  // the same, by layout and coordinates in its meshes
  std::vector<actors::TimeNs> found_, loaded_, copies_until_;
  std::vector<uint32_t> requests_;        // number of requests of each rank
  std::vector<AttemptKey> chosen_;        // by rank
  std::vector<Status> outcomes_;          // by rank
  std::vector<ReceivedValues> received_;  // by rank
  std::function<bool(Rank)> is_attached_;
  bool retries_ = false, ends_with_errors_ = false;
  Status incomplete_;
  uint32_t loaded_count_ = 0;
  uint64_t bytes_wanted_ = 0, bytes_passed_ = 0, milestones_ = 0;
  Status failure_;
};

}  // namespace shoal::sim
