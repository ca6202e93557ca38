// A job of four ranks on two hosts whose layouts change while it runs, with a coordinator that can be killed,
// and a check of its committed saves.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

#include "tests/sim/support/virtual_trainer.h"

namespace shoal::sim {

// The values of one rank: "w" sharded over all ranks, "n" replicated over all ranks, and these:
struct Holding {
  bool momentum = false;  // "w.momentum" sharded over all ranks: all ranks have it, or none
  bool lazy = false;      // "lazy.rank3", which only this rank has
  bool shared = false;    // "shared", equal on all ranks that have it; they divide it
  friend bool operator==(const Holding&, const Holding&) = default;
};
LayoutPtr layout_of(Rank rank, const Holding& holding);

class ChangingJob {
 public:
  static constexpr uint32_t kRanks = 4;
  static constexpr actors::TimeNs kPatience = 2'000 * actors::kMillisecond;

  // Node 0 only coordinates; nodes 1 and 2 have two ranks each. `holdings`: what the ranks declare at first,
  // those below `declaring` at once, the others with their first save.
  explicit ChangingJob(const std::array<Holding, kRanks>& holdings = {}, uint32_t declaring = kRanks);

  VirtualTrainer& trainer(Rank rank) { return *trainers_[rank]; }
  // Stages these values, and remembers what is saved at a step for expect_loadable.
  void save(Rank rank, uint64_t step, const Holding& holding);
  void save_all(uint64_t step, const Holding& holding);
  void save_all(uint64_t step, const std::array<Holding, kRanks>& holdings);
  void run_for(actors::TimeNs duration);
  void kill_coordinator() { host.kill_node(coordinator_); }
  void start_coordinator();
  void kill_node_of(Rank rank);       // and starts another node, to which its trainers connect
  Code outcome(uint64_t step) const;  // equal on all ranks; Code::unavailable: some ranks have received none
  std::string cause(uint64_t step) const;
  // Loads the step on three ranks of another job, each of which wants all values, and compares every element.
  // The other job takes the root over, so call this after the last save.
  void expect_loadable(uint64_t step);
  size_t later_rosters();  // number of their files in the root

  VirtualHost host;

 private:
  actors::NodeConfig facts(uint32_t generation) const;
  size_t add_node(uint32_t of_host);

  size_t coordinator_ = 0;
  std::array<size_t, 2> nodes_{};
  std::array<std::unique_ptr<VirtualTrainer>, kRanks> trainers_;
  std::array<Holding, kRanks> holding_{};
  std::array<bool, kRanks> has_declared_{};
  std::map<uint64_t, std::array<Holding, kRanks>> saved_;
  uint32_t generation_ = 1;
};

}  // namespace shoal::sim
