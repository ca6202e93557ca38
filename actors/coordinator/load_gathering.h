// LoadGathering: the coordinator's part of loads. Makes one choice for all nodes that join a load, and sends
// each the addresses of the hosts that joined in time. docs/reference/protocol.md, "A shared load".
//
// A node that joins after the answer receives only the choice. Bounded: the answers of kMaxLoadsGathered
// loads are kept, and a JoinLoad for an older load starts a new one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/loader/load_choice.h"
#include "base/state_machine.h"

namespace shoal::actors {

inline constexpr size_t kMaxLoadsGathered = 64;

enum class GatheringState : uint8_t {
  gathering,  // Nodes join. The coordinator chooses the checkpoint meanwhile.
  chosen,     // The checkpoint is chosen. Nodes still join, or wait for others that share with them.
  gathered,   // No further node is awaited. The checkpoint is not chosen yet.
  answered,   // Every node that joined has its answer. A node that joins now receives only the choice.
};
enum class GatheringTrigger : uint8_t {
  chose,          // the checkpoint is chosen
  cannot_choose,  // there is none, or the root cannot be read
  all_joined,     // every rank has joined, or none has for a while
};

inline constexpr auto kGatheringTransitions = [] {
  using S = GatheringState;
  using T = GatheringTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::gathering, T::chose, S::chosen},
      {S::gathering, T::cannot_choose, S::answered},
      {S::gathering, T::all_joined, S::gathered},
      {S::chosen, T::all_joined, S::answered},
      {S::gathered, T::chose, S::answered},
      {S::gathered, T::cannot_choose, S::answered},
  });
}();
using GatheringMachine = base::StateMachine<kGatheringTransitions>;

class LoadGathering {
 public:
  LoadGathering(PendingOperations& operations, PendingTimers& timers, const NodeConfig& config)
      : timers_(timers), config_(config), chooser_(operations, timers, config) {}

  void join(TimeNs now, NodeId from, const wire::JoinLoad& message, EffectWriter& out);
  void forget(NodeId node);  // the session of this node has ended
  const GatheringMachine::Counts& counts() const { return counts_; }

 private:
  struct Load {
    uint64_t number = 0;  // in the order of loads
    std::map<NodeId, wire::JoinLoad> members;
    uint64_t ranks = 0;     // of the members, also of those that do not share
    uint64_t sharing = 0;   // of these, ranks of members that share
    uint32_t quiet_ms = 0;  // the longest that a sharing member requests
    TimeNs first = 0, last = 0;
    TimerId timer = 0;
    GatheringMachine state{GatheringState::gathering};
    std::optional<Result<LoadChooser::Chosen>> choice;
    bool takes_members() const { return state.is_one_of(GatheringState::gathering, GatheringState::chosen); }
    std::map<NodeId, std::shared_ptr<const WireBody>> answers;
  };

  struct Sharing {  // a rank of a member that shares
    Rank rank = 0;
    LayoutId group;
    const std::string* address = nullptr;
  };

  void choose(const wire::LoadId& id, EffectWriter& out);
  void count_members(Load& load) const;
  void count_member(Load& load, const wire::JoinLoad& member) const;
  void wait(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  // Makes the transition, and answers if it leads to `answered`.
  void on(GatheringTrigger trigger, const wire::LoadId& id, Load& load, EffectWriter& out);
  // was_chosen: the checkpoint was chosen before the last node joined.
  void answer(const wire::LoadId& id, Load& load, bool was_chosen, EffectWriter& out);
  static std::vector<Sharing> sharing_ranks(const Load& load);
  // Adds the ranks of these groups, and the addresses of their hosts.
  static void add_members(const std::vector<Sharing>& ranks, const std::set<LayoutId>& groups,
                          wire::LoadRoster* roster);
  void forget_oldest(EffectWriter& out);
  static wire::LoadRoster bare(const wire::LoadId& id, const Result<LoadChooser::Chosen>& choice);

  PendingTimers& timers_;
  const NodeConfig& config_;
  LoadChooser chooser_;
  std::map<wire::LoadId, Load> loads_;
  uint64_t begun_ = 0;
  GatheringMachine::Counts counts_;
};

}  // namespace shoal::actors
