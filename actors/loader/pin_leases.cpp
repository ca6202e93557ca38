#include "actors/loader/pin_leases.h"

#include <utility>

namespace shoal::actors {

void PinLeases::hold(TimeNs now, const AttemptKey& key, EffectWriter& out, Then then) {
  auto [found, fresh] = held_.try_emplace(key);
  HeldPin& held = found->second;
  ++held.users;
  if (held.exists) return then(now, ok_status(), out);
  held.waiting.push_back(std::move(then));
  if (!fresh) return;
  operations_.start(
      operation::PinAttempt{key, "a load on " + config_.host}, out,
      [this, key](TimeNs then_now, Result<std::shared_ptr<const storage::Mark>> result,
                  EffectWriter& then_out) { made(then_now, key, std::move(result), then_out); });
}

void PinLeases::made(TimeNs now, const AttemptKey& key, Result<std::shared_ptr<const storage::Mark>> pin,
                     EffectWriter& out) {
  auto found = held_.find(key);
  if (found == held_.end()) return;
  HeldPin& held = found->second;
  std::vector<Then> waiting = std::exchange(held.waiting, {});
  Status status = pin.status();
  if (status.code() == Code::no_space && held.users != 0) {
    // The load matters more. Retention is unlikely to delete the checkpoint meanwhile, because that needs
    // space too.
    out.warning(to_string(key) + " is loaded without a pin: " + std::exchange(status, ok_status()).message());
    held.exists = true;
  } else if (pin.ok() && held.users != 0) {
    held.exists = true;
    held.pin = **pin;
    renew_later(now, key, out);
  } else {
    if (pin.ok()) remove((*pin)->name, key, out);
    held_.erase(found);
  }
  for (Then& then : waiting) then(now, status, out);
}

void PinLeases::renew_later(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  held_.at(key).renewal = timers_.set(now + config_.timeouts.lease_renew_ms * kMillisecond, out,
                                      [this, key](TimeNs, EffectWriter& then_out) { renew(key, then_out); });
}

void PinLeases::renew(const AttemptKey& key, EffectWriter& out) {
  auto found = held_.find(key);
  if (found == held_.end()) return;
  found->second.renewal = 0;
  ++found->second.pin.counter;
  operations_.start(operation::RenewPin{std::make_shared<const storage::Mark>(found->second.pin)}, out,
                    [this, key, name = found->second.pin.name](TimeNs now, Result<operation::Done> result,
                                                               EffectWriter& then_out) {
                      auto held = held_.find(key);
                      if (held == held_.end() || held->second.pin.name != name) {
                        // The pin was released meanwhile, and this renewal may have created it again.
                        return remove(name, std::nullopt, then_out);
                      }
                      if (result.status().code() == Code::not_found) {
                        held_.erase(held);
                        return lost_(key, result.status(), then_out);
                      }
                      if (!result.ok())
                        then_out.warning("cannot renew pin " + name + ": " + result.status().to_string());
                      renew_later(now, key, then_out);
                    });
}

void PinLeases::release(const AttemptKey& key, EffectWriter& out) {
  auto found = held_.find(key);
  if (found == held_.end() || found->second.users == 0) return;
  // made() removes a pin that is being created.
  if (--found->second.users != 0 || !found->second.exists) return;
  if (found->second.renewal != 0) timers_.cancel(&found->second.renewal, out);
  const std::string name = found->second.pin.name;
  const AttemptKey unused = key;
  held_.erase(found);
  remove(name, unused, out);
}

void PinLeases::remove(const std::string& name, const std::optional<AttemptKey>& unused, EffectWriter& out) {
  operations_.start(operation::RemovePin{name, unused}, out,
                    [name](TimeNs, Result<operation::Done> result, EffectWriter& then_out) {
                      if (result.ok()) return;
                      then_out.warning("cannot remove pin " + name +
                                       ", which stays until its lease ends: " + result.status().to_string());
                    });
}

}  // namespace shoal::actors
