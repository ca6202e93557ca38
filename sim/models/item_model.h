// ItemModel: what plans cost where they are lists of items, one a tensor of a rank, as in PyTorch DCP: made
// in Python, pickled to rank 0, planned there and pickled back; then the results of writing, as many, and the
// metadata, which every rank is sent. The protocol is that of mode collective, whose own messages name
// layouts; this adds what such lists would take on top of it, by the numbers of a profile's [items].
//
// Added once for each rank and save, whatever is said again. Ranks of a host work beside each other.
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

  // How many items each rank has, before any is left to another rank.
  void set_items(std::vector<uint32_t> of_rank);
  // More than the message itself takes: of what a role sends, its bytes and the sender's time; of what comes
  // in, the receiver's time.
  struct Extra {
    uint64_t bytes = 0;
    actors::TimeNs takes = 0;
  };
  Extra to_send(const actors::WireMessage& message);
  actors::TimeNs to_take(size_t node, const actors::WireMessage& message);
  // Of the manifest, which the coordinator makes: DCP's .metadata.
  Extra to_commit(const actors::operation::PublishDecision& publish) const;

 private:
  using Told = std::set<std::pair<uint64_t, Rank>>;  // by step
  bool is_kept(Rank rank) const { return costs_.kept != 0 && planned_.contains(rank); }
  bool is_new(Told& told, uint64_t step, Rank rank) { return told.insert({step, rank}).second; }
  Extra local_plans(const actors::wire::LocalPlans& said);
  Extra global_plan(const actors::wire::GlobalPlan& said);
  Extra results(const actors::wire::ShardsWritten& said);

  const ItemCosts costs_;
  std::vector<uint32_t> items_;    // by rank
  std::vector<uint32_t> written_;  // by rank: what is left to it
  uint64_t all_written_ = 0;
  std::set<Rank> planned_;  // whose plan stands, so that where plans are kept it is not said again
  Told offered_, gathered_, planned_for_, told_, reported_, heard_;  // by rank
  Told decided_;                                                     // by node
};

}  // namespace shoal::sim
