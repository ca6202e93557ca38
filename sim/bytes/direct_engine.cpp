// The engine that carries out the effects of a role directly, in the order given.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/visit.h"
#include "sim/bytes/virtual_host.h"

namespace shoal::sim {
namespace {

class DirectEngine final : public NodeEngine {
 public:
  DirectEngine(VirtualWorld& world, std::vector<std::unique_ptr<actors::Role>> roles,
               const VirtualDelays& delays)
      : world_(world), delays_(delays) {
    for (auto& role : roles) {
      const actors::RoleKind kind = role->kind();
      roles_[index_of(kind)] = std::move(role);
    }
    for (const auto& role : roles_) {
      if (role) deliver(role->kind(), actors::event::Started{});
    }
  }

  void deliver(actors::RoleKind role, actors::Event event) override {
    if (!roles_[index_of(role)]) return;
    actors::Effects effects;
    roles_[index_of(role)]->handle(world_.now(), event, effects);
    for (actors::Effect& each : effects) carry_out(role, each);
  }

 private:
  static size_t index_of(actors::RoleKind role) { return static_cast<size_t>(role); }

  void later(actors::TimeNs delay, actors::RoleKind role, actors::Event event) {
    world_.schedule(world_.now() + delay, [this, role, event = std::move(event)] { deliver(role, event); });
  }

  void carry_out(actors::RoleKind role, actors::Effect& any) {
    std::visit(
        base::Overloaded{
            [&](const actors::effect::Send& effect) { world_.send(effect.to, effect.message, effect.id); },
            [&](const actors::effect::SendTo& effect) { world_.send_to(effect.address, effect.message); },
            [&](actors::effect::ToRole& effect) {
              later(delays_.local_ns, effect.to, std::move(effect.event));
            },
            [&](const actors::effect::ToClient& effect) { world_.to_client(effect.client, effect.message); },
            [&](const actors::effect::ForgetClient& effect) { world_.forget_client(effect.client); },
            [&](const actors::effect::SetTimer& effect) { set_timer(role, effect); },
            [&](const actors::effect::CancelTimer& effect) {
              timers_.erase({role, effect.timer});
            },
            // An operation runs at once and its result arrives later. So the operations of a node run in the
            // order in which they were started.
            [&](const actors::effect::Start& effect) {
              Result<actors::OperationResult> result = world_.run(effect.operation);
              later(delays_.operation_ns, role, actors::event::OperationDone{effect.id, std::move(result)});
            },
            [&](const actors::effect::Redirect& effect) { world_.redirect(effect); },
            [&](const actors::effect::EndSession& effect) { world_.end_session(effect.node); },
            [&](const actors::effect::Retire& effect) { world_.retired(effect.by); },
            [&](const actors::effect::Drained&) { world_.drained(role); }, [](const actors::effect::Log&) {}},
        any);
  }

  void set_timer(actors::RoleKind role, const actors::effect::SetTimer& set) {
    const uint64_t setting = ++settings_;
    const auto key = std::pair(role, set.timer);
    timers_[key] = setting;
    world_.schedule(std::max(world_.now(), set.at), [this, key, setting] {
      auto found = timers_.find(key);
      if (found == timers_.end() || found->second != setting) return;  // moved or cancelled
      timers_.erase(found);
      deliver(key.first, actors::event::TimerFired{key.second});
    });
  }

  VirtualWorld& world_;
  const VirtualDelays delays_;
  std::array<std::unique_ptr<actors::Role>, actors::kRoleCount> roles_;
  std::map<std::pair<actors::RoleKind, actors::TimerId>, uint64_t>
      timers_;  // which setting of a timer is in force
  uint64_t settings_ = 0;
};

}  // namespace

std::unique_ptr<NodeEngine> make_direct_engine(VirtualWorld& world,
                                               std::vector<std::unique_ptr<actors::Role>> roles,
                                               const VirtualDelays& delays, bool /*coordinates*/) {
  return std::make_unique<DirectEngine>(world, std::move(roles), delays);
}

}  // namespace shoal::sim
