// The live host with toy roles: order of effects, timers, operations, bounds; and the same on virtual time.
#include "actors/caf/caf_host.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{20};

std::string name_of(const Event& event) {
  static constexpr const char* kNames[] = {
      "started", "received", "client",    "client-lost", "world",    "failed", "timer",          "operation",
      "peer-up", "gone",     "peer-lost", "ended",       "stopping", "drain",  "committed-alone"};
  std::string name = kNames[event.index()];
  if (auto* timer = std::get_if<event::TimerFired>(&event)) name += fmt::format(" {}", timer->timer);
  if (auto* lost = std::get_if<event::ClientLost>(&event)) name += fmt::format(" {}", lost->client);
  return name;
}

// A role that does what the test says and reports what it heard.
class ToyRole final : public Role {
 public:
  using Handler = std::function<void(TimeNs, const Event&, Effects&)>;
  ToyRole(RoleKind kind, Handler handler) : kind_(kind), handler_(std::move(handler)) {}
  RoleKind kind() const override { return kind_; }
  void handle(TimeNs now, const Event& event, Effects& effects) override { handler_(now, event, effects); }

 private:
  RoleKind kind_;
  Handler handler_;
};

// Services that write down, in order, what reaches them.
class Recorder final : public HostServices {
 public:
  TimeNs now() override {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  void send(NodeId to, const WireMessage&, SendId) override { add("send " + std::to_string(to)); }
  void end_session(NodeId node, const Status&) override { add("end session " + std::to_string(node)); }
  void send_to(const std::string& address, const WireMessage&) override { add("send to " + address); }
  void to_client(ClientId client, const std::shared_ptr<const LocalMessage>&) override {
    add("to client " + std::to_string(client));
  }
  void forget_client(ClientId client) override { add("forget " + std::to_string(client)); }
  Result<OperationResult> run(const Operation& operation) override {
    if (std::holds_alternative<operation::ListAttempts>(operation)) return Status(Code::io, "disk is gone");
    return OperationResult(operation::Done{});
  }
  void redirect(const effect::Redirect& to) override { add("redirect to " + to.address); }
  void retired(const EpochRecord& by) override { add("superseded by " + by.address); }
  void drained(RoleKind) override { add("drained"); }
  void log(RoleKind, const effect::Log& log) override { add(log.line); }

  void add(std::string line) {
    {
      std::lock_guard lock(mutex_);
      lines_.push_back(std::move(line));
    }
    changed_.notify_all();
  }
  std::vector<std::string> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }
  bool wait_for(const std::string& line) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience,
                             [&] { return std::find(lines_.begin(), lines_.end(), line) != lines_.end(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

effect::Log log_line(std::string line) {
  return {.line = std::move(line)};
}

WireMessage pending(RoleKind from, RoleKind to) {
  return {from, to, std::make_shared<WireBody>(wire::Pending{})};
}

std::vector<std::unique_ptr<Role>> roles_of(std::map<RoleKind, ToyRole::Handler> handlers) {
  std::vector<std::unique_ptr<Role>> roles;
  for (auto& [kind, handler] : handlers) roles.push_back(std::make_unique<ToyRole>(kind, handler));
  return roles;
}

// It used to end with the roles still at work: one of them then set a timer where there was none any more.
TEST(CafHost, EndsWhileItsRolesAreAtWork) {
  for (int round = 0; round < 200; ++round) {
    Recorder recorder;
    auto id = std::make_shared<uint64_t>(0);
    auto at_work = [id](TimeNs now, const Event&, Effects& effects) {
      effects.push_back(effect::Start{++*id, operation::ListAttempts{}});
      effects.push_back(effect::SetTimer{*id, now});
      if (*id == 20) effects.push_back(log_line("at work"));
    };
    CafHost host({}, roles_of({{RoleKind::loader, at_work}}), recorder);
    ASSERT_TRUE(recorder.wait_for("at work"));
  }
}

TEST(CafHost, CarriesOutEffectsInTheirOrder) {
  Recorder recorder;
  CafHost host(
      {},
      roles_of({{RoleKind::planner,
                 [](TimeNs, const Event& event, Effects& effects) {
                   if (!std::holds_alternative<event::ClientLost>(event)) return;
                   effects.push_back(log_line("first"));
                   effects.push_back(effect::Send{17, pending(RoleKind::planner, RoleKind::planner)});
                   effects.push_back(effect::ToClient{3, nullptr});
                   effects.push_back(effect::ForgetClient{3});
                   effects.push_back(effect::Drained{});
                   effects.push_back(log_line("last"));
                 }}}),
      recorder);
  host.post(RoleKind::planner, event::ClientLost{3});
  ASSERT_TRUE(recorder.wait_for("last"));
  EXPECT_THAT(recorder.lines(),
              ElementsAre("first", "send 17", "to client 3", "forget 3", "drained", "last"));
}

TEST(CafHost, HandsEachRoleStartedFirstAndThenEventsInTheOrderPosted) {
  Recorder recorder;
  CafHost host(
      {},
      roles_of({{RoleKind::loader, [](TimeNs, const Event& event,
                                      Effects& effects) { effects.push_back(log_line(name_of(event))); }}}),
      recorder);
  for (ClientId client = 1; client <= 100; ++client) host.post(RoleKind::loader, event::ClientLost{client});
  host.post(RoleKind::loader, event::Drain{});
  ASSERT_TRUE(recorder.wait_for("drain"));
  std::vector<std::string> expected = {"started"};
  for (int client = 1; client <= 100; ++client) expected.push_back("client-lost " + std::to_string(client));
  expected.push_back("drain");
  EXPECT_EQ(recorder.lines(), expected);
}

TEST(CafHost, SendsToACoordinatorElsewhereOnceItsOwnHasRetired) {
  Recorder recorder;
  auto coordinator = [](TimeNs, const Event& event, Effects& effects) {
    if (std::holds_alternative<event::Drain>(event)) effects.push_back(effect::Retire{{2, "b:1", "job", {}}});
  };
  auto planner = [](TimeNs, const Event& event, Effects& effects) {
    if (!std::holds_alternative<event::Drain>(event)) return;
    effects.push_back(effect::Redirect{2, "b:1"});
    effects.push_back(effect::Send{kCoordinatorNode,
                                   {RoleKind::planner, RoleKind::coordinator,
                                    std::make_shared<const WireBody>(wire::JoinRefused{"any message"})}});
  };
  CafHostOptions options;
  options.coordinator_is_here = true;
  CafHost host(options, roles_of({{RoleKind::coordinator, coordinator}, {RoleKind::planner, planner}}),
               recorder);
  host.post(RoleKind::coordinator, event::Drain{});
  ASSERT_TRUE(recorder.wait_for("superseded by b:1"));
  host.post(RoleKind::planner, event::Drain{});
  EXPECT_TRUE(recorder.wait_for("redirect to b:1"));
  EXPECT_TRUE(recorder.wait_for("send 1"));
}

TEST(CafHost, DeliversTellsAndSendsToThisNodeAndToItsOwnCoordinatorHere) {
  Recorder recorder;
  auto report = [](const char* who) {
    return [who](TimeNs, const Event& event, Effects& effects) {
      const auto* received = std::get_if<event::Received>(&event);
      if (received != nullptr) {
        effects.push_back(log_line(std::string(who) + " heard node " + std::to_string(received->from)));
      }
      if (std::holds_alternative<event::Drain>(event))
        effects.push_back(log_line(std::string(who) + " drains"));
    };
  };
  CafHost host(
      {.coordinator_is_here = true},
      roles_of(
          {{RoleKind::planner,
            [](TimeNs, const Event& event, Effects& effects) {
              if (!std::holds_alternative<event::Started>(event)) return;
              effects.push_back(
                  effect::Send{kCoordinatorNode, pending(RoleKind::planner, RoleKind::coordinator)});
              effects.push_back(effect::Send{kThisNode, pending(RoleKind::planner, RoleKind::shard_writer)});
              effects.push_back(effect::Tell{RoleKind::loader, event::Drain{}});
            }},
           {RoleKind::coordinator, report("coordinator")},
           {RoleKind::shard_writer, report("shard writer")},
           {RoleKind::loader, report("loader")}}),
      recorder);
  EXPECT_TRUE(recorder.wait_for("coordinator heard node 0"));
  EXPECT_TRUE(recorder.wait_for("shard writer heard node 0"));
  EXPECT_TRUE(recorder.wait_for("loader drains"));
}

TEST(CafHost, SendsToACoordinatorElsewhereGoOut) {
  Recorder recorder;
  CafHost host({},
               roles_of({{RoleKind::planner,
                          [](TimeNs, const Event&, Effects& effects) {
                            effects.push_back(effect::Send{
                                kCoordinatorNode, pending(RoleKind::planner, RoleKind::coordinator)});
                          }}}),
               recorder);
  EXPECT_TRUE(recorder.wait_for("send 1"));
}

TEST(CafHost, FiresTimersInTheOrderOfTheirTimesAndNotTheCancelledOnes) {
  Recorder recorder;
  CafHost host({},
               roles_of({{RoleKind::planner,
                          [](TimeNs now, const Event& event, Effects& effects) {
                            if (std::holds_alternative<event::Started>(event)) {
                              effects.push_back(effect::SetTimer{1, now + 40 * kMillisecond});
                              effects.push_back(effect::SetTimer{2, now + 10 * kMillisecond});
                              effects.push_back(effect::SetTimer{3, now + 5 * kMillisecond});
                              effects.push_back(effect::SetTimer{4, now - 1});
                              effects.push_back(effect::SetTimer{4, now + 20 * kMillisecond});
                              effects.push_back(effect::CancelTimer{3});
                            }
                            effects.push_back(log_line(name_of(event)));
                          }}}),
               recorder);
  ASSERT_TRUE(recorder.wait_for("timer 1"));
  EXPECT_THAT(recorder.lines(), ElementsAre("started", "timer 2", "timer 4", "timer 1"));
}

TEST(CafHost, TellsTheRoleWhatBecameOfItsOperations) {
  Recorder recorder;
  CafHost host({},
               roles_of({{RoleKind::coordinator,
                          [](TimeNs, const Event& event, Effects& effects) {
                            if (std::holds_alternative<event::Started>(event)) {
                              effects.push_back(effect::Start{7, operation::ListAttempts{}});
                              effects.push_back(effect::Start{8, operation::CheckFiles{}});
                            }
                            const auto* done = std::get_if<event::OperationDone>(&event);
                            if (done == nullptr) return;
                            effects.push_back(log_line(std::to_string(done->operation) + " " +
                                                       done->result.status().to_string()));
                          }}}),
               recorder);
  EXPECT_TRUE(recorder.wait_for("7 " + Status(Code::io, "disk is gone").to_string()));
  EXPECT_TRUE(recorder.wait_for("8 " + Status().to_string()));
}

TEST(CafHost, DropsMessagesOfPeersBeyondItsBoundAndLetsReadersOfClientsWait) {
  Recorder recorder;
  std::mutex gate;
  std::unique_lock closed(gate);
  CafHost host({.queued_events_max = 4, .queued_wire_bytes_max = 1000},
               roles_of({{RoleKind::planner,
                          [&gate](TimeNs, const Event& event, Effects& effects) {
                            std::lock_guard open(gate);
                            effects.push_back(log_line(name_of(event)));
                          }}}),
               recorder);
  EXPECT_FALSE(host.post_received(20, pending(RoleKind::coordinator, RoleKind::planner), 1001));
  int accepted = 0;
  while (host.post_received(20, pending(RoleKind::coordinator, RoleKind::planner), 100)) ++accepted;
  EXPECT_EQ(accepted, 3) << "Started waits too";
  EXPECT_FALSE(host.wait_for_room(RoleKind::planner, 1));
  EXPECT_EQ(host.stats().wire_dropped, 2u);
  host.post(RoleKind::planner, event::Drain{});
  closed.unlock();
  EXPECT_TRUE(host.wait_for_room(RoleKind::planner, 20'000));
  EXPECT_TRUE(recorder.wait_for("drain")) << "what clients and the node say is never dropped";
}

TEST(CafHost, CountsWhatIsMeantForARoleThatIsNotHere) {
  Recorder recorder;
  CafHost host({}, {}, recorder);
  EXPECT_TRUE(host.post_received(20, pending(RoleKind::planner, RoleKind::coordinator), 8));
  EXPECT_EQ(host.stats().messages_to_none, 1u);
}

// Virtual time for several hosts: the order is that of (time, when it was scheduled).
class Queue final : public VirtualTime {
 public:
  TimeNs now() override { return now_; }
  void schedule(TimeNs at, std::function<void()> action) override {
    actions_.emplace(std::pair(at, sequence_++), std::move(action));
  }
  void run_until(TimeNs end) {
    while (!actions_.empty() && actions_.begin()->first.first <= end) {
      auto node = actions_.extract(actions_.begin());
      now_ = node.key().first;
      node.mapped()();
    }
    now_ = end;
  }

 private:
  TimeNs now_ = 0;
  uint64_t sequence_ = 0;
  std::map<std::pair<TimeNs, uint64_t>, std::function<void()>> actions_;
};

TEST(CafHostOnVirtualTime, RunsEventsTimersAndOperationsInOneOrderOnEveryRun) {
  auto run = [] {
    Queue queue;
    Recorder recorder;
    auto handler = [](const char* who, RoleKind other) {
      return [who, other](TimeNs now, const Event& event, Effects& effects) {
        effects.push_back(log_line(std::to_string(now) + " " + who + " " + name_of(event)));
        if (std::holds_alternative<event::Started>(event)) {
          effects.push_back(effect::SetTimer{1, now + 10});
          effects.push_back(effect::SetTimer{2, now + 10});
          effects.push_back(effect::SetTimer{3, now + 5});
          effects.push_back(effect::Start{1, operation::CheckFiles{}});
          effects.push_back(effect::Tell{other, event::Drain{}});
        }
        if (auto* timer = std::get_if<event::TimerFired>(&event); timer != nullptr && timer->timer == 3) {
          effects.push_back(effect::CancelTimer{2});
        }
      };
    };
    CafHost host({.virtual_time = &queue},
                 roles_of({{RoleKind::planner, handler("planner", RoleKind::loader)},
                           {RoleKind::loader, handler("loader", RoleKind::planner)}}),
                 recorder);
    queue.run_until(20);
    return recorder.lines();
  };
  std::vector<std::string> first = run();
  EXPECT_THAT(first,
              ElementsAre("0 planner started", "0 loader started", "0 planner operation", "0 loader drain",
                          "0 loader operation", "0 planner drain", "5 planner timer 3", "5 loader timer 3",
                          "10 planner timer 1", "10 loader timer 1"));
  EXPECT_EQ(run(), first);
}

TEST(CafHostOnVirtualTime, MayEndWhileEventsAreScheduled) {
  Queue queue;
  Recorder recorder;
  {
    CafHost host({.virtual_time = &queue},
                 roles_of({{RoleKind::planner,
                            [](TimeNs, const Event&, Effects& effects) {
                              effects.push_back(effect::SetTimer{1, 100});
                            }}}),
                 recorder);
    queue.run_until(50);
  }
  queue.run_until(200);
  EXPECT_TRUE(recorder.lines().empty());
}

}  // namespace
}  // namespace shoal::testing
