// The engine that carries out the effects of a role directly, in the order given.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

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

  void carry_out(actors::RoleKind role, actors::Effect& each) {
    if (auto* message = std::get_if<actors::effect::Send>(&each)) {
      world_.send(message->to, message->message, message->id);
    } else if (auto* to = std::get_if<actors::effect::SendTo>(&each)) {
      world_.send_to(to->address, to->message);
    } else if (auto* to_role = std::get_if<actors::effect::ToRole>(&each)) {
      later(delays_.local_ns, to_role->to, std::move(to_role->event));
    } else if (auto* answer = std::get_if<actors::effect::ToClient>(&each)) {
      world_.to_client(answer->client, answer->message);
    } else if (auto* forget = std::get_if<actors::effect::ForgetClient>(&each)) {
      world_.forget_client(forget->client);
    } else if (auto* set = std::get_if<actors::effect::SetTimer>(&each)) {
      set_timer(role, *set);
    } else if (auto* cancel = std::get_if<actors::effect::CancelTimer>(&each)) {
      timers_.erase({role, cancel->timer});
    } else if (auto* start = std::get_if<actors::effect::Start>(&each)) {
      // An operation runs at once and its result arrives later. So the operations of a node run in the order
      // in which they were started.
      Result<actors::OperationResult> result = world_.run(start->operation);
      later(delays_.operation_ns, role, actors::event::OperationDone{start->id, std::move(result)});
    } else if (const auto* redirect = std::get_if<actors::effect::Redirect>(&each)) {
      world_.redirect(*redirect);
    } else if (const auto* end = std::get_if<actors::effect::EndSession>(&each)) {
      world_.end_session(end->node);
    } else if (const auto* retire = std::get_if<actors::effect::Retire>(&each)) {
      world_.retired(retire->by);
    } else if (std::get_if<actors::effect::Drained>(&each)) {
      world_.drained(role);
    }
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
