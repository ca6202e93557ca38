// HeldPins: the leases by which a node's loads keep what they read. One pin a checkpoint, however many
// clients of this node load it. docs/explanation/retention.md, "A load".
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/continuations.h"

namespace shoal::actors {

class HeldPins {
 public:
  using Then = std::function<void(TimeNs now, const Status& status, EffectWriter& out)>;
  using Lost = std::function<void(const AttemptKey& key, const Status& why, EffectWriter& out)>;

  // `lost` hears of a pin that others have ended, since this node stood still for too long.
  HeldPins(PendingOperations& operations, PendingTimers& timers, const NodeFacts& facts, Lost lost)
      : operations_(operations), timers_(timers), facts_(facts), lost_(std::move(lost)) {}

  // One user more. `then` is called once the pin stands, durably, or could not be made (the user is none
  // then). Where storage has no room for one, the load goes on without.
  void hold(TimeNs now, const AttemptKey& key, EffectWriter& out, Then then);
  // One user less. The last one's release removes the pin.
  void release(const AttemptKey& key, EffectWriter& out);

 private:
  struct Held {
    uint64_t users = 0;
    bool stands = false;
    storage::Mark pin;
    TimerId renewal = 0;
    std::vector<Then> waiting;
  };
  void made(TimeNs now, const AttemptKey& key, Result<std::shared_ptr<const storage::Mark>> pin,
            EffectWriter& out);
  void renew_later(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void renew(const AttemptKey& key, EffectWriter& out);
  void remove(const std::string& name, const std::optional<AttemptKey>& unused, EffectWriter& out);

  PendingOperations& operations_;
  PendingTimers& timers_;
  const NodeFacts& facts_;
  const Lost lost_;
  std::map<AttemptKey, Held> held_;
};

}  // namespace shoal::actors
