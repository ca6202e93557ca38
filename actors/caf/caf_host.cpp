#include "actors/caf/caf_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/caf/operation_pool.h"
#include "actors/caf/timer_thread.h"
#include "actors/operation_traits.h"
#include "base/visit.h"
#include "shoal/check.h"

#if defined(SHOAL_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace shoal::actors {

// An element of a mailbox. CAF passes the pointer from thread to thread and never copies the element.
struct QueuedEvent {
  Event event;
  size_t wire_bytes = 0;  // of a message from another node
  uint64_t serial = 0;    // of a timer: names the setting that has fired
};
using QueuedEventPtr = std::shared_ptr<QueuedEvent>;

}  // namespace shoal::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(shoal::actors::QueuedEventPtr)

namespace shoal::actors {

class EventSink {  // receives the events of a role's actor
 public:
  virtual ~EventSink() = default;
  virtual void handle(const QueuedEvent& queued) noexcept = 0;
};

namespace {

using base::Overloaded;

// CAF's library is built without the thread sanitizer. These calls state the order in which CAF passes a
// message from thread to thread, so that the sanitizer can find races in Shoal itself. `mailbox` names the
// receiver.
#if defined(SHOAL_THREAD_SANITIZER)
void before_hand_over(void* mailbox) {
  __tsan_release(mailbox);
}
void after_hand_over(void* mailbox) {
  __tsan_acquire(mailbox);
}
#else
void before_hand_over(void*) {}
void after_hand_over(void*) {}
#endif

struct HandleQueued {  // a named type: tests/tsan.supp names it in stacks
  EventSink* sink;
  void operator()(const QueuedEventPtr& queued) const {
    after_hand_over(sink);
    sink->handle(*queued);
    before_hand_over(sink);  // to the thread that handles the next event
  }
};

class RoleActor : public caf::event_based_actor {
 public:
  RoleActor(caf::actor_config& config, EventSink* sink) : caf::event_based_actor(config), sink_(sink) {}
  caf::behavior make_behavior() override { return {HandleQueued{sink_}}; }

 private:
  EventSink* const sink_;
};

}  // namespace

struct CafHost::Impl {
  // One role with its mailbox. handle() runs on one thread at a time.
  class Seat final : public EventSink {
   public:
    Seat(Impl& host, std::unique_ptr<Role> role) : host_(host), kind_(role->kind()), role_(std::move(role)) {}
    void handle(const QueuedEvent& queued) noexcept override;

    caf::actor actor;
    std::atomic<size_t> queued{0};

   private:
    void carry_out(Effect& effect);
    void send(const effect::Send& send);
    void set_timer(const effect::SetTimer& set);
    void start(effect::Start& start);

    Impl& host_;
    const RoleKind kind_;
    const std::unique_ptr<Role> role_;
    std::map<TimerId, uint64_t> armed_;  // serial of the current setting of each timer
    uint64_t next_serial_ = 1;
    Effects effects_;
  };

  Impl(CafHostOptions options_in, HostServices& services_in)
      : options(options_in), services(services_in), system(configure(config, options)) {}

  static caf::actor_system_config& configure(caf::actor_system_config& config,
                                             const CafHostOptions& options) {
    // "sharing" sleeps when it is idle; "stealing", the default, polls.
    config.set("scheduler.policy",
               options.virtual_time != nullptr ? caf::atom("testing") : caf::atom("sharing"));
    config.set("scheduler.max-threads", options.workers);
    return config;
  }

  TimeNs now() { return options.virtual_time != nullptr ? options.virtual_time->now() : services.now(); }
  Seat* seat(RoleKind role) {
    auto index = static_cast<size_t>(role);
    return index < seats.size() ? seats[index].get() : nullptr;
  }
  void post(RoleKind role, QueuedEventPtr queued);
  void deliver(Seat& seat, QueuedEventPtr queued);
  void run_jobs();
  void schedule(TimeNs at, std::function<void()> action);
  void start_operation(RoleKind role, OperationId id, Operation operation);
  // An exception of a library below must not end the node.
  Result<OperationResult> run_guarded(const Operation& operation) {
    try {
      return services.run(operation);
    } catch (const std::exception& error) {
      return Status(Code::internal, fmt::format("{}: {}", traits_of(operation).name, error.what()));
    }
  }
  OperationPool& pool_of(ThreadClass threads) {
    switch (threads) {
      case ThreadClass::bulk:
        return *bulk;
      case ThreadClass::background:
        return *background;
      case ThreadClass::duty:
        break;
    }
    return *duty;
  }
  void stop();

  const CafHostOptions options;
  HostServices& services;
  std::array<std::unique_ptr<Seat>, kRoleCount> seats;
  std::atomic<bool> coordinator_is_here{options.coordinator_is_here};
  std::atomic<size_t> wire_bytes{0};
  std::atomic<uint64_t> events{0}, wire_dropped{0}, messages_to_none{0};
  std::mutex room_mutex;
  std::condition_variable room;
  std::atomic<size_t> room_waiters{0};
  // For actions on virtual time that outlive the host.
  const std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  std::optional<OperationPool> bulk, duty, background;
  std::optional<TimerThread> timers;
  caf::actor_system_config config;
  caf::actor_system system;  // last: its destructor waits for the actors, which use the members above
};

void CafHost::Impl::Seat::handle(const QueuedEvent& queued_event) noexcept {
  const auto* fired = std::get_if<event::TimerFired>(&queued_event.event);
  bool is_required = true;
  if (fired != nullptr) {
    auto it = armed_.find(fired->timer);
    is_required = it != armed_.end() && it->second == queued_event.serial;
    if (is_required) armed_.erase(it);
  }
  if (is_required) {
    effects_.clear();
    role_->handle(host_.now(), queued_event.event, effects_);
    for (Effect& effect : effects_) carry_out(effect);
    effects_.clear();
    host_.events.fetch_add(1, std::memory_order_relaxed);
  }
  host_.wire_bytes.fetch_sub(queued_event.wire_bytes);
  queued.fetch_sub(1);
  if (host_.room_waiters.load() > 0) {
    std::lock_guard lock(host_.room_mutex);
    host_.room.notify_all();
  }
}

void CafHost::Impl::Seat::carry_out(Effect& any) {
  std::visit(
      Overloaded{
          [&](const effect::Send& effect) { send(effect); },
          [&](const effect::SendTo& effect) { host_.services.send_to(effect.address, effect.message); },
          [&](effect::ToRole& effect) {
            host_.post(effect.to,
                       std::make_shared<QueuedEvent>(QueuedEvent{.event = std::move(effect.event)}));
          },
          [&](const effect::ToClient& effect) { host_.services.to_client(effect.client, effect.message); },
          [&](const effect::ForgetClient& effect) { host_.services.forget_client(effect.client); },
          [&](const effect::SetTimer& effect) { set_timer(effect); },
          [&](const effect::CancelTimer& effect) {
            armed_.erase(effect.timer);
            if (host_.timers) host_.timers->cancel(kind_, effect.timer);
          },
          [&](effect::Start& effect) { start(effect); },
          [&](const effect::Redirect& effect) { host_.services.redirect(effect); },
          [&](const effect::EndSession& effect) { host_.services.end_session(effect.node, effect.why); },
          [&](const effect::Retire& effect) {
            host_.coordinator_is_here = false;
            host_.services.retired(effect.by);
          },
          [&](const effect::Drained&) { host_.services.drained(kind_); },
          [&](const effect::Log& effect) { host_.services.log(kind_, effect); }},
      any);
}

void CafHost::Impl::Seat::send(const effect::Send& send) {
  bool is_local = send.to == kThisNode || (send.to == kCoordinatorNode && host_.coordinator_is_here.load());
  if (!is_local) return host_.services.send(send.to, send.message, send.id);
  event::Received received{.from = kThisNode, .message = send.message};
  host_.post(send.message.to, std::make_shared<QueuedEvent>(QueuedEvent{.event = std::move(received)}));
}

void CafHost::Impl::Seat::set_timer(const effect::SetTimer& set) {
  uint64_t serial = next_serial_++;
  armed_[set.timer] = serial;
  if (host_.timers) return host_.timers->set(kind_, set.timer, set.at, serial);
  host_.schedule(std::max(set.at, host_.now()), [this, timer = set.timer, serial] {
    auto it = armed_.find(timer);
    if (it == armed_.end() || it->second != serial) return;
    queued.fetch_add(1);
    host_.deliver(*this, std::make_shared<QueuedEvent>(
                             QueuedEvent{.event = event::TimerFired{timer}, .serial = serial}));
  });
}

void CafHost::Impl::Seat::start(effect::Start& start) {
  host_.start_operation(kind_, start.id, std::move(start.operation));
}

void CafHost::Impl::start_operation(RoleKind role, OperationId id, Operation operation) {
  auto finish = [this, role, id](Result<OperationResult> result) {
    event::OperationDone done{.operation = id, .result = std::move(result)};
    post(role, std::make_shared<QueuedEvent>(QueuedEvent{.event = std::move(done)}));
  };
  if (options.virtual_time != nullptr) return finish(services.run(operation));
  OperationPool& pool = pool_of(traits_of(operation).threads);
  auto job = [this, finish, shared = std::make_shared<Operation>(std::move(operation))] {
    finish(run_guarded(*shared));
  };
  if (!pool.start(std::move(job))) {
    finish(
        Status(Code::busy, fmt::format("{} operations are queued, which is the most that this node accepts",
                                       kMaxQueuedOperations)));
  }
}

void CafHost::Impl::schedule(TimeNs at, std::function<void()> action) {
  options.virtual_time->schedule(at, [is_alive = std::weak_ptr<bool>(alive), action = std::move(action)] {
    if (!is_alive.expired()) action();
  });
}

void CafHost::Impl::post(RoleKind role, QueuedEventPtr queued) {
  Seat* to = seat(role);
  if (to == nullptr) {
    wire_bytes.fetch_sub(queued->wire_bytes);
    messages_to_none.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  to->queued.fetch_add(1);
  if (options.virtual_time == nullptr) return deliver(*to, std::move(queued));
  schedule(now(), [this, to, queued = std::move(queued)] { deliver(*to, queued); });
}

void CafHost::Impl::deliver(Seat& seat, QueuedEventPtr queued) {
  before_hand_over(static_cast<EventSink*>(&seat));
  caf::anon_send(seat.actor, std::move(queued));
  if (options.virtual_time != nullptr) run_jobs();
}

// On virtual time events come one at a time, so that VirtualTime sets the order and not CAF's mailboxes.
void CafHost::Impl::run_jobs() {
  dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler()).run();
}

// Ends the roles first: a role that still handled an event would set timers and start operations, which must
// not happen any more. Results of running operations then go to actors that have ended, and are lost.
void CafHost::Impl::stop() {
  for (auto& each : seats) {
    if (each) caf::anon_send_exit(each->actor, caf::exit_reason::kill);
  }
  if (options.virtual_time != nullptr) run_jobs();
  system.await_all_actors_done();
  for (auto& each : seats) {
    if (each) after_hand_over(static_cast<EventSink*>(each.get()));
  }
  timers.reset();
  bulk.reset();
  duty.reset();
  background.reset();
  for (auto& each : seats) {
    if (each) each->actor = nullptr;
  }
}

CafHost::CafHost(CafHostOptions options, std::vector<std::unique_ptr<Role>> roles, HostServices& services)
    : impl_(std::make_unique<Impl>(options, services)) {
  Impl& impl = *impl_;
  if (options.virtual_time == nullptr) {
    impl.bulk.emplace(options.bulk_threads, kMaxQueuedOperations);
    impl.duty.emplace(options.duty_threads, kMaxQueuedOperations);
    impl.background.emplace(options.background_threads, kMaxQueuedOperations);
    impl.timers.emplace([&services] { return services.now(); },
                        [&impl](RoleKind role, TimerId timer, uint64_t serial) {
                          impl.post(role, std::make_shared<QueuedEvent>(QueuedEvent{
                                              .event = event::TimerFired{timer}, .serial = serial}));
                        });
  }
  for (std::unique_ptr<Role>& role : roles) {
    auto index = static_cast<size_t>(role->kind());
    SHOAL_CHECK(index < kRoleCount && !impl.seats[index]);
    impl.seats[index] = std::make_unique<Impl::Seat>(impl, std::move(role));
    impl.seats[index]->actor = impl.system.spawn<RoleActor>(impl.seats[index].get());
  }
  post_all(event::Started{});
}

CafHost::~CafHost() {
  impl_->stop();
}

void CafHost::post(RoleKind role, Event event) {
  impl_->post(role, std::make_shared<QueuedEvent>(QueuedEvent{.event = std::move(event)}));
}

void CafHost::post_all(const Event& event) {
  for (size_t i = 0; i < kRoleCount; ++i) {
    if (impl_->seats[i]) post(static_cast<RoleKind>(i), event);
  }
}

bool CafHost::post_received(NodeId from, WireMessage message, size_t encoded_bytes) {
  Impl& impl = *impl_;
  RoleKind role = message.to;
  const Impl::Seat* seat = impl.seat(role);
  bool is_full = seat != nullptr && seat->queued.load() >= impl.options.queued_events_max;
  if (is_full || impl.wire_bytes.load() + encoded_bytes > impl.options.queued_wire_bytes_max) {
    impl.wire_dropped.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  impl.wire_bytes.fetch_add(encoded_bytes);
  impl.post(role, std::make_shared<QueuedEvent>(
                      QueuedEvent{.event = event::Received{.from = from, .message = std::move(message)},
                                  .wire_bytes = encoded_bytes}));
  return true;
}

bool CafHost::wait_for_room(RoleKind role, int timeout_ms) {
  Impl& impl = *impl_;
  const Impl::Seat* seat = impl.seat(role);
  auto has_room = [&] { return seat == nullptr || seat->queued.load() < impl.options.queued_events_max; };
  if (has_room()) return true;
  std::unique_lock lock(impl.room_mutex);
  impl.room_waiters.fetch_add(1);
  bool has = impl.room.wait_for(lock, std::chrono::milliseconds(timeout_ms), has_room);
  impl.room_waiters.fetch_sub(1);
  return has;
}

CafHostStats CafHost::stats() const {
  return {impl_->events.load(), impl_->wire_dropped.load(), impl_->messages_to_none.load()};
}

}  // namespace shoal::actors
