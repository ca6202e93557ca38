// EffectWriter: appends effects to a list, so that the code of a role reads as what the role does.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "actors/role.h"
#include "base/visit.h"

namespace shoal::actors {

class EffectWriter {
 public:
  EffectWriter(RoleKind self, Effects& out) : self_(self), out_(out) {}

  void send(NodeId to, RoleKind role, WireBody body) {
    send(to, role, std::make_shared<const WireBody>(std::move(body)));
  }
  // one body for several receivers
  void send(NodeId to, RoleKind role, std::shared_ptr<const WireBody> body) {
    out_.push_back(effect::Send{to, {self_, role, std::move(body)}});
  }
  // event::SendDone follows.
  void send_with_id(SendId id, NodeId to, RoleKind role, WireBody body) {
    out_.push_back(effect::Send{to, {self_, role, std::make_shared<const WireBody>(std::move(body))}, id});
  }
  void send_to(std::string address, RoleKind role, WireBody body) {
    out_.push_back(
        effect::SendTo{std::move(address), {self_, role, std::make_shared<const WireBody>(std::move(body))}});
  }
  void to_role(RoleKind role, Event event) { out_.push_back(effect::ToRole{role, std::move(event)}); }
  void to_client(ClientId client, local::LocalMessage message) {
    to_client(client, std::make_shared<const local::LocalMessage>(std::move(message)));
  }
  // one message for several
  void to_client(ClientId client, std::shared_ptr<const local::LocalMessage> message) {
    out_.push_back(effect::ToClient{client, std::move(message)});
  }
  void forget_client(ClientId client) { out_.push_back(effect::ForgetClient{client}); }
  void set_timer(TimerId timer, TimeNs at) { out_.push_back(effect::SetTimer{timer, at}); }
  void cancel_timer(TimerId timer) { out_.push_back(effect::CancelTimer{timer}); }
  void start(OperationId id, Operation operation) { out_.push_back(effect::Start{id, std::move(operation)}); }
  void redirect(uint32_t epoch, std::string address) {
    out_.push_back(effect::Redirect{epoch, std::move(address)});
  }
  void retire(storage::EpochRecord by) { out_.push_back(effect::Retire{std::move(by)}); }
  void end_session(NodeId node, Status why) { out_.push_back(effect::EndSession{node, std::move(why)}); }
  void drained() { out_.push_back(effect::Drained{}); }
  void info(std::string line) { out_.push_back(effect::Log{effect::Log::Level::info, std::move(line)}); }
  void warning(std::string line) {
    out_.push_back(effect::Log{effect::Log::Level::warning, std::move(line)});
  }

 private:
  RoleKind self_;
  Effects& out_;
};

// Intervals between resends: doubled after each one, up to a bound.
class Backoff {
 public:
  Backoff(TimeNs first, TimeNs most) : least_first_(first), least_most_(most), first_(first), most_(most) {}
  explicit Backoff(const Timeouts& timeouts)
      : Backoff(timeouts.resend_first_ms * kMillisecond, timeouts.resend_most_ms * kMillisecond) {}
  TimeNs next() {
    TimeNs wait = next_ == 0 ? first_ : next_;
    next_ = wait * 2 < most_ ? wait * 2 : most_;
    return wait;
  }
  // For a message that every host of a job sends to one node. Spreads the resends out, so that this node has
  // `resend_host_us` for each host: the first interval is that time for all hosts, the longest eight times
  // that time. `longest` bounds both, but neither falls below the bounds of the constructor. The number of
  // hosts is estimated from `ranks_here`.
  void spread_over(const Timeouts& timeouts, uint64_t world_size, uint64_t ranks_here, TimeNs longest) {
    const uint64_t hosts = world_size / std::max<uint64_t>(1, ranks_here);
    const auto all = static_cast<TimeNs>(hosts * timeouts.resend_host_us * 1000);
    first_ = std::max(least_first_, std::min(all, longest));
    most_ = std::max(least_most_, std::min(8 * all, longest));
  }
  void reset() { next_ = 0; }
  void slow_down() { next_ = most_; }

 private:
  TimeNs least_first_, least_most_;
  TimeNs first_, most_;
  TimeNs next_ = 0;
};

// For the events and messages that a role does not receive: `[](const OneOf<A, B> auto&) {}` names them
// (base/visit.h).
using base::OneOf;
using base::Overloaded;

}  // namespace shoal::actors
