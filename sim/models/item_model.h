// ItemModel: the cost of plans that are lists of items, one per tensor of a rank, as in PyTorch DCP. Ranks
// make these plans in Python and pickle them to rank 0, which computes the global plan and pickles the parts
// back. Ranks return as many write results, and receive the metadata. The protocol is that of mode
// collective, whose messages name layouts. This model adds the cost of such lists, by the numbers of a
// profile's table [items].
//
// It counts each rank once per save, however often messages are repeated. Ranks of one host work in parallel.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "actors/role.h"
#include "sim/models/profile.h"

namespace shoal::sim {

class ItemModel {
 public:
  explicit ItemModel(const ItemCosts& costs) : costs_(costs) {}

  // Sets the number of items of each rank, before items are left to other ranks.
  void set_items(std::vector<uint32_t> of_rank);
  // Costs in addition to those of the message itself. For a message that a role sends: its bytes and the
  // sender's time. For a message that arrives: the receiver's time.
  struct Extra {
    uint64_t bytes = 0;
    actors::TimeNs takes = 0;
  };
  Extra to_send(const actors::WireMessage& message);
  actors::TimeNs to_take(size_t node, const actors::WireMessage& message);
  // Extra cost of the manifest, which the coordinator makes: it represents the .metadata file of DCP.
  Extra to_commit(const actors::operation::PublishDecision& publish) const;

 private:
  using Handled = std::set<std::pair<uint64_t, Rank>>;  // by step and rank
  bool is_kept(Rank rank) const { return costs_.kept != 0 && planned_.contains(rank); }
  bool is_new(Handled& handled, uint64_t step, Rank rank) { return handled.insert({step, rank}).second; }
  Extra local_plans(const actors::wire::LocalPlans& plans);
  Extra global_plan(const actors::wire::GlobalPlan& plans);
  Extra results(const actors::wire::ShardsWritten& report);

  const ItemCosts costs_;
  std::vector<uint32_t> items_;    // by rank
  std::vector<uint32_t> written_;  // by rank: number of items that it writes
  uint64_t all_written_ = 0;
  std::set<Rank> planned_;  // ranks whose plan the coordinator has kept, so that it is not sent again
  Handled offered_, gathered_, planned_for_, notified_, reported_, received_;  // by step and rank
  Handled decided_;                                                            // by step and node
};

}  // namespace shoal::sim
