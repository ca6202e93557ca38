// LoadGathering: the coordinator's part of loads. Makes one choice for all nodes that join a load, and sends
// each the addresses of the hosts that joined in time. docs/reference/protocol.md, "A shared load".
//
// A node that joins after the answer receives only the choice. Bounded: the answers of kMaxLoadsGathered
// loads are kept, and a JoinLoad for an older load starts a new one.
#pragma once

#include <map>
#include <optional>

#include "actors/loader/load_choice.h"

namespace shoal::actors {

inline constexpr size_t kMaxLoadsGathered = 64;

class LoadGathering {
 public:
  LoadGathering(PendingOperations& operations, PendingTimers& timers, const NodeConfig& config)
      : timers_(timers), config_(config), chooser_(operations, timers, config) {}

  void join(TimeNs now, NodeId from, const wire::JoinLoad& message, EffectWriter& out);
  void forget(NodeId node);  // the session of this node has ended

 private:
  struct Load {
    uint64_t number = 0;  // in the order of loads
    std::map<NodeId, wire::JoinLoad> members;
    uint64_t ranks = 0;     // of the members that share
    uint32_t quiet_ms = 0;  // the longest that a sharing member requests
    TimeNs first = 0, last = 0;
    TimerId timer = 0;
    std::optional<Result<LoadChooser::Chosen>> choice;
    bool is_gathered = false;
    std::map<NodeId, std::shared_ptr<const WireBody>> answers;
  };

  void choose(const wire::LoadId& id, EffectWriter& out);
  void count_members(Load& load) const;
  void wait(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void answer(const wire::LoadId& id, Load& load, EffectWriter& out);
  void forget_oldest(EffectWriter& out);
  static wire::LoadRoster bare(const wire::LoadId& id, const Result<LoadChooser::Chosen>& choice);

  PendingTimers& timers_;
  const NodeConfig& config_;
  LoadChooser chooser_;
  std::map<wire::LoadId, Load> loads_;
  uint64_t begun_ = 0;
};

}  // namespace shoal::actors
