// CountedLoads: plays the clients of a job that starts again, each of whose ranks loads the latest
// checkpoint. What a rank wants is what its layout says it holds; its node's Loader works out what to read of
// it. The bytes that come are counted.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sim/cluster/virtual_cluster.h"

namespace shoal::sim {

// A client's window, unless it wants less (include/shoal/checkpointer.h, load_window_bytes).
inline constexpr uint64_t kSimulatedWindowBytes = uint64_t{16} << 20;
inline constexpr uint64_t kMilestonesPerLoad = 2;  // of a rank: it knows the checkpoint, it has its bytes

class CountedLoads {
 public:
  struct Job {
    std::vector<LayoutPtr> layouts;  // of the pipeline stages
    uint32_t ranks = 0;
    uint32_t ranks_per_host = 1;
    LoadWay way = LoadWay::automatic;
    const LayoutPtr& layout_of(Rank rank) const { return layouts[uint64_t{rank} * layouts.size() / ranks]; }
  };
  // All ranks load as soon as they have attached.
  CountedLoads(EventHeap& events, VirtualCluster& cluster, const Profile& profile, Job job);

  void start();
  bool done() const { return loaded_count_ == job_.ranks; }
  const Status& failure() const { return failure_; }  // the first of any rank; it ends all
  // By rank, from the start; negative: it never came to that.
  const std::vector<actors::TimeNs>& found() const {
    return found_;
  }  // it knows which checkpoint, and what to read
  const std::vector<actors::TimeNs>& loaded() const { return loaded_; }  // its bytes lie where it wants them
  uint64_t bytes_wanted() const { return bytes_wanted_; }                // of all ranks
  uint64_t bytes_passed() const { return bytes_passed_; }  // through their windows: whole digest blocks
  uint64_t milestones() const { return milestones_; }

 private:
  void listen(actors::ClientId client, const local::LocalMessage& message);
  struct Wanted {
    local::LoadTargets targets;
    uint64_t bytes = 0;
  };
  const Wanted& wanted_by(Rank rank);
  const Wanted& work_out(Rank rank);
  // What of a layout's meshes tells the shards of one rank from those of another.
  struct Sharded {
    bool by_meshes_alone = true;         // by nothing else
    std::vector<uint64_t> dims_of_mesh;  // that shard something, one bit each
  };
  const Sharded& sharded_by(const Layout& layout);
  size_t node_of(Rank rank) const { return rank / job_.ranks_per_host; }

  EventHeap& events_;
  VirtualCluster& cluster_;
  const TrainerCosts costs_;
  const Job job_;
  std::unordered_map<Hash128, Wanted> wanted_;  // ranks that want the same share it
  std::unordered_map<const Layout*, Sharded> sharded_;
  std::unordered_map<Hash128, const Wanted*> by_place_;  // the same, by layout and place in its meshes
  std::vector<actors::TimeNs> found_, loaded_, copies_until_;
  uint32_t loaded_count_ = 0;
  uint64_t bytes_wanted_ = 0, bytes_passed_ = 0, milestones_ = 0;
  Status failure_;
};

}  // namespace shoal::sim
