// What a role does when one of its operations completes, a timer fires or a message has left: a function,
// kept beside the request. Ids count up from 1, so that the same events give the same ids on every host.
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "actors/effect_writer.h"

namespace shoal::actors {

// Functions by ids that count up. Few are pending at a time, so a sorted vector holds them.
template <class Then>
class Pending {
 public:
  // Precondition: id is greater than all ids before it.
  void add(uint64_t id, Then then) { pending_.emplace_back(id, std::move(then)); }
  std::optional<Then> take(uint64_t id) {
    const auto found =
        std::lower_bound(pending_.begin(), pending_.end(), id,
                         [](const auto& each, uint64_t wanted) { return each.first < wanted; });
    if (found == pending_.end() || found->first != id) return std::nullopt;
    std::optional<Then> then = std::move(found->second);
    pending_.erase(found);
    return then;
  }
  bool empty() const { return pending_.empty(); }

 private:
  std::vector<std::pair<uint64_t, Then>> pending_;
};

// The value of an operation's result, or the error that prevented it. Precondition: the result holds a T; a
// result of another type is a fault of the host.
template <class T>
Result<T> result_as(Result<OperationResult> result) {
  if (!result.ok()) return result.status();
  SHOAL_CHECK(std::holds_alternative<T>(*result));
  return std::get<T>(std::move(*result));
}

class PendingOperations {
 public:
  // `then` takes the Answer of this operation, or the error: (TimeNs now, Result<Answer>, EffectWriter&).
  // `started` may be a std::variant of operations that have the same Answer.
  template <class Started, std::invocable<TimeNs, Result<AnswerOf<Started>>, EffectWriter&> Then>
  void start(Started started, EffectWriter& out, Then then) {
    const OperationId id = ++last_;
    pending_.add(id, [then = std::move(then)](TimeNs now, Result<OperationResult> result,
                                              EffectWriter& then_out) mutable {
      then(now, result_as<AnswerOf<Started>>(std::move(result)), then_out);
    });
    out.start(id, as_operation(std::move(started)));
  }
  void done(TimeNs now, const event::OperationDone& event, EffectWriter& out) {
    if (std::optional<Opened> opened = pending_.take(event.operation)) (*opened)(now, event.result, out);
  }
  bool empty() const { return pending_.empty(); }

 private:
  using Opened = std::function<void(TimeNs now, Result<OperationResult> result, EffectWriter& out)>;

  OperationId last_ = 0;
  Pending<Opened> pending_;
};

class PendingTimers {
 public:
  using Then = std::function<void(TimeNs now, EffectWriter& out)>;

  TimerId set(TimeNs at, EffectWriter& out, Then then) {
    const TimerId id = ++last_;
    pending_.add(id, std::move(then));
    out.set_timer(id, at);
    return id;
  }
  // Cancels *timer and sets it to 0. If *timer is 0, there is no timer, and this does nothing.
  void cancel(TimerId* timer, EffectWriter& out) {
    if (*timer != 0 && pending_.take(*timer)) out.cancel_timer(*timer);
    *timer = 0;
  }
  void fired(TimeNs now, const event::TimerFired& event, EffectWriter& out) {
    if (std::optional<Then> then = pending_.take(event.timer)) (*then)(now, out);
  }

 private:
  TimerId last_ = 0;
  Pending<Then> pending_;
};

class PendingSends {
 public:
  using Then = std::function<void(TimeNs now, EffectWriter& out)>;

  void send(NodeId to, RoleKind role, WireBody body, EffectWriter& out, Then then) {
    const SendId id = ++last_;
    pending_.add(id, std::move(then));
    out.send_with_id(id, to, role, std::move(body));
  }
  void done(TimeNs now, const event::SendDone& event, EffectWriter& out) {
    if (std::optional<Then> then = pending_.take(event.send)) (*then)(now, out);
  }

 private:
  SendId last_ = 0;
  Pending<Then> pending_;
};

}  // namespace shoal::actors
