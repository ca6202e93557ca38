// PinLeases: the pin leases of a node's loads. One pin for each checkpoint, however many clients of this node
// load it. docs/explanation/retention.md, "A load".
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/continuations.h"

namespace shoal::actors {

class PinLeases {
 public:
  using Then = std::function<void(TimeNs now, const Status& status, EffectWriter& out)>;
  using Lost = std::function<void(const AttemptKey& key, const Status& why, EffectWriter& out)>;

  // `lost` is called for a pin that another node has ended because this node did not renew it in time.
  PinLeases(PendingOperations& operations, PendingTimers& timers, const NodeConfig& config, Lost lost)
      : operations_(operations), timers_(timers), config_(config), lost_(std::move(lost)) {}

  // Adds a user. Calls `then` when the pin is durable, or when it could not be created; the user does not
  // count then. If storage has no space for a pin, the load continues without one.
  void hold(TimeNs now, const AttemptKey& key, EffectWriter& out, Then then);
  // Removes a user. The release of the last user removes the pin.
  void release(const AttemptKey& key, EffectWriter& out);

 private:
  struct HeldPin {
    uint64_t users = 0;
    bool exists = false;
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
  const NodeConfig& config_;
  const Lost lost_;
  std::map<AttemptKey, HeldPin> held_;
};

}  // namespace shoal::actors
