// LoadGathering: the coordinator's side of loads that nodes ask it about. Makes the choice once for all of
// them, and tells those who came in time of each other. docs/reference/protocol.md, "A shared load".
//
// Whoever comes after the answer was given is told the checkpoint alone. Bounded: of kMaxLoadsGathered loads
// the answer is known, an older one counts as new.
#pragma once

#include <map>
#include <optional>

#include "actors/loader/load_choice.h"

namespace shoal::actors {

inline constexpr size_t kMaxLoadsGathered = 64;

class LoadGathering {
 public:
  LoadGathering(PendingOperations& operations, PendingTimers& timers, const NodeFacts& facts)
      : timers_(timers), facts_(facts), chooser_(operations, timers, facts) {}

  void join(TimeNs now, NodeId from, const wire::JoinLoad& said, EffectWriter& out);
  void forget(NodeId node);  // its session has ended

 private:
  struct Load {
    uint64_t number = 0;  // counts loads
    std::map<NodeId, wire::JoinLoad> members;
    uint64_t ranks = 0;     // of those that share
    uint32_t quiet_ms = 0;  // as the most patient of these says
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
  const NodeFacts& facts_;
  LoadChooser chooser_;
  std::map<wire::LoadId, Load> loads_;
  uint64_t begun_ = 0;
};

}  // namespace shoal::actors
