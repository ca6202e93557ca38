// The live host with toy roles: order of effects, timers, operations and bounds; and the same on virtual
// time.
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

std::string name_of(const actors::Event& event) {
  static constexpr const char* kNames[] = {
      "started",   "received", "client",    "client-lost", "world",
      "failed",    "timer",    "operation", "peer-up",     "gone",
      "peer-lost", "ended",    "stopping",  "drain",       "rank-local-committed"};
  std::string name = kNames[event.index()];
  if (auto* timer = std::get_if<actors::event::TimerFired>(&event)) name += fmt::format(" {}", timer->timer);
  if (auto* lost = std::get_if<actors::event::ClientLost>(&event)) name += fmt::format(" {}", lost->client);
  return name;
}

// A role that does what the test says and reports what it heard.
class ToyRole final : public actors::Role {
 public:
  using Handler = std::function<void(actors::TimeNs, const actors::Event&, actors::Effects&)>;
  ToyRole(actors::RoleKind kind, Handler handler) : kind_(kind), handler_(std::move(handler)) {}
  actors::RoleKind kind() const override { return kind_; }
  void handle(actors::TimeNs now, const actors::Event& event, actors::Effects& effects) override {
    handler_(now, event, effects);
  }

 private:
  actors::RoleKind kind_;
  Handler handler_;
};

// Services that write down, in order, what reaches them.
class Recorder final : public actors::HostServices {
 public:
  actors::TimeNs now() override {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  void send(actors::NodeId to, const actors::WireMessage&, actors::SendId) override {
    add("send " + std::to_string(to));
  }
  void end_session(actors::NodeId node, const Status&) override {
    add("end session " + std::to_string(node));
  }
  void send_to(const std::string& address, const actors::WireMessage&) override { add("send to " + address); }
  void to_client(actors::ClientId client, const std::shared_ptr<const local::LocalMessage>&) override {
    add("to client " + std::to_string(client));
  }
  void forget_client(actors::ClientId client) override { add("forget " + std::to_string(client)); }
  Result<actors::OperationResult> run(const actors::Operation& operation) override {
    if (std::holds_alternative<actors::operation::ListAttempts>(operation))
      return Status(Code::io, "disk is gone");
    return actors::OperationResult(actors::operation::Done{});
  }
  void redirect(const actors::effect::Redirect& to) override { add("redirect to " + to.address); }
  void retired(const storage::EpochRecord& by) override { add("superseded by " + by.address); }
  void drained(actors::RoleKind) override { add("drained"); }
  void log(actors::RoleKind, const actors::effect::Log& log) override { add(log.line); }

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

actors::effect::Log log_line(std::string line) {
  return {.line = std::move(line)};
}

actors::WireMessage pending(actors::RoleKind from, actors::RoleKind to) {
  return {from, to, std::make_shared<actors::WireBody>(actors::wire::Pending{})};
}

std::vector<std::unique_ptr<actors::Role>> roles_of(std::map<actors::RoleKind, ToyRole::Handler> handlers) {
  std::vector<std::unique_ptr<actors::Role>> roles;
  for (auto& [kind, handler] : handlers) roles.push_back(std::make_unique<ToyRole>(kind, handler));
  return roles;
}

// It used to end with the roles still at work: one of them then set a timer where there was none any more.
TEST(CafHost, EndsWhileItsRolesAreAtWork) {
  for (int round = 0; round < 200; ++round) {
    Recorder recorder;
    auto id = std::make_shared<uint64_t>(0);
    auto at_work = [id](actors::TimeNs now, const actors::Event&, actors::Effects& effects) {
      effects.push_back(actors::effect::Start{++*id, actors::operation::ListAttempts{}});
      effects.push_back(actors::effect::SetTimer{*id, now});
      if (*id == 20) effects.push_back(log_line("at work"));
    };
    actors::CafHost host({}, roles_of({{actors::RoleKind::loader, at_work}}), recorder);
    ASSERT_TRUE(recorder.wait_for("at work"));
  }
}

TEST(CafHost, CarriesOutEffectsInTheirOrder) {
  Recorder recorder;
  actors::CafHost host({},
                       roles_of({{actors::RoleKind::planner,
                                  [](actors::TimeNs, const actors::Event& event, actors::Effects& effects) {
                                    if (!std::holds_alternative<actors::event::ClientLost>(event)) return;
                                    effects.push_back(log_line("first"));
                                    effects.push_back(actors::effect::Send{
                                        17, pending(actors::RoleKind::planner, actors::RoleKind::planner)});
                                    effects.push_back(actors::effect::ToClient{3, nullptr});
                                    effects.push_back(actors::effect::ForgetClient{3});
                                    effects.push_back(actors::effect::Drained{});
                                    effects.push_back(log_line("last"));
                                  }}}),
                       recorder);
  host.post(actors::RoleKind::planner, actors::event::ClientLost{3});
  ASSERT_TRUE(recorder.wait_for("last"));
  EXPECT_THAT(recorder.lines(),
              ElementsAre("first", "send 17", "to client 3", "forget 3", "drained", "last"));
}

TEST(CafHost, HandsEachRoleStartedFirstAndThenEventsInTheOrderPosted) {
  Recorder recorder;
  actors::CafHost host({},
                       roles_of({{actors::RoleKind::loader,
                                  [](actors::TimeNs, const actors::Event& event, actors::Effects& effects) {
                                    effects.push_back(log_line(name_of(event)));
                                  }}}),
                       recorder);
  for (actors::ClientId client = 1; client <= 100; ++client)
    host.post(actors::RoleKind::loader, actors::event::ClientLost{client});
  host.post(actors::RoleKind::loader, actors::event::Drain{});
  ASSERT_TRUE(recorder.wait_for("drain"));
  std::vector<std::string> expected = {"started"};
  for (int client = 1; client <= 100; ++client) expected.push_back("client-lost " + std::to_string(client));
  expected.push_back("drain");
  EXPECT_EQ(recorder.lines(), expected);
}

TEST(CafHost, SendsToACoordinatorElsewhereOnceItsOwnHasRetired) {
  Recorder recorder;
  auto coordinator = [](actors::TimeNs, const actors::Event& event, actors::Effects& effects) {
    if (std::holds_alternative<actors::event::Drain>(event))
      effects.push_back(actors::effect::Retire{{2, "b:1", "job", {}}});
  };
  auto planner = [](actors::TimeNs, const actors::Event& event, actors::Effects& effects) {
    if (!std::holds_alternative<actors::event::Drain>(event)) return;
    effects.push_back(actors::effect::Redirect{2, "b:1"});
    effects.push_back(actors::effect::Send{
        actors::kCoordinatorNode,
        {actors::RoleKind::planner, actors::RoleKind::coordinator,
         std::make_shared<const actors::WireBody>(actors::wire::JoinRejected{"any message"})}});
  };
  actors::CafHostOptions options;
  options.coordinator_is_here = true;
  actors::CafHost host(
      options, roles_of({{actors::RoleKind::coordinator, coordinator}, {actors::RoleKind::planner, planner}}),
      recorder);
  host.post(actors::RoleKind::coordinator, actors::event::Drain{});
  ASSERT_TRUE(recorder.wait_for("superseded by b:1"));
  host.post(actors::RoleKind::planner, actors::event::Drain{});
  EXPECT_TRUE(recorder.wait_for("redirect to b:1"));
  EXPECT_TRUE(recorder.wait_for("send 1"));
}

TEST(CafHost, DeliversTellsAndSendsToThisNodeAndToItsOwnCoordinatorHere) {
  Recorder recorder;
  auto report = [](const char* who) {
    return [who](actors::TimeNs, const actors::Event& event, actors::Effects& effects) {
      const auto* received = std::get_if<actors::event::Received>(&event);
      if (received != nullptr) {
        effects.push_back(log_line(std::string(who) + " heard node " + std::to_string(received->from)));
      }
      if (std::holds_alternative<actors::event::Drain>(event))
        effects.push_back(log_line(std::string(who) + " drains"));
    };
  };
  actors::CafHost host(
      {.coordinator_is_here = true},
      roles_of(
          {{actors::RoleKind::planner,
            [](actors::TimeNs, const actors::Event& event, actors::Effects& effects) {
              if (!std::holds_alternative<actors::event::Started>(event)) return;
              effects.push_back(
                  actors::effect::Send{actors::kCoordinatorNode,
                                       pending(actors::RoleKind::planner, actors::RoleKind::coordinator)});
              effects.push_back(actors::effect::Send{
                  actors::kThisNode, pending(actors::RoleKind::planner, actors::RoleKind::shard_writer)});
              effects.push_back(actors::effect::ToRole{actors::RoleKind::loader, actors::event::Drain{}});
            }},
           {actors::RoleKind::coordinator, report("coordinator")},
           {actors::RoleKind::shard_writer, report("shard writer")},
           {actors::RoleKind::loader, report("loader")}}),
      recorder);
  EXPECT_TRUE(recorder.wait_for("coordinator heard node 0"));
  EXPECT_TRUE(recorder.wait_for("shard writer heard node 0"));
  EXPECT_TRUE(recorder.wait_for("loader drains"));
}

TEST(CafHost, SendsToACoordinatorElsewhereGoOut) {
  Recorder recorder;
  actors::CafHost host({},
                       roles_of({{actors::RoleKind::planner,
                                  [](actors::TimeNs, const actors::Event&, actors::Effects& effects) {
                                    effects.push_back(actors::effect::Send{
                                        actors::kCoordinatorNode,
                                        pending(actors::RoleKind::planner, actors::RoleKind::coordinator)});
                                  }}}),
                       recorder);
  EXPECT_TRUE(recorder.wait_for("send 1"));
}

TEST(CafHost, FiresTimersInTheOrderOfTheirTimesAndNotTheCancelledOnes) {
  Recorder recorder;
  actors::CafHost host(
      {},
      roles_of({{actors::RoleKind::planner,
                 [](actors::TimeNs now, const actors::Event& event, actors::Effects& effects) {
                   if (std::holds_alternative<actors::event::Started>(event)) {
                     effects.push_back(actors::effect::SetTimer{1, now + 40 * actors::kMillisecond});
                     effects.push_back(actors::effect::SetTimer{2, now + 10 * actors::kMillisecond});
                     effects.push_back(actors::effect::SetTimer{3, now + 5 * actors::kMillisecond});
                     effects.push_back(actors::effect::SetTimer{4, now - 1});
                     effects.push_back(actors::effect::SetTimer{4, now + 20 * actors::kMillisecond});
                     effects.push_back(actors::effect::CancelTimer{3});
                   }
                   effects.push_back(log_line(name_of(event)));
                 }}}),
      recorder);
  ASSERT_TRUE(recorder.wait_for("timer 1"));
  EXPECT_THAT(recorder.lines(), ElementsAre("started", "timer 2", "timer 4", "timer 1"));
}

TEST(CafHost, TellsTheRoleWhatBecameOfItsOperations) {
  Recorder recorder;
  actors::CafHost host(
      {},
      roles_of({{actors::RoleKind::coordinator,
                 [](actors::TimeNs, const actors::Event& event, actors::Effects& effects) {
                   if (std::holds_alternative<actors::event::Started>(event)) {
                     effects.push_back(actors::effect::Start{7, actors::operation::ListAttempts{}});
                     effects.push_back(actors::effect::Start{8, actors::operation::CheckFiles{}});
                   }
                   const auto* done = std::get_if<actors::event::OperationDone>(&event);
                   if (done == nullptr) return;
                   effects.push_back(
                       log_line(std::to_string(done->operation) + " " + done->result.status().to_string()));
                 }}}),
      recorder);
  EXPECT_TRUE(recorder.wait_for("7 " + Status(Code::io, "disk is gone").to_string()));
  EXPECT_TRUE(recorder.wait_for("8 " + Status().to_string()));
}

TEST(CafHost, DropsMessagesOfPeersBeyondItsBoundAndLetsReadersOfClientsWait) {
  Recorder recorder;
  std::mutex gate;
  std::unique_lock closed(gate);
  actors::CafHost host(
      {.queued_events_max = 4, .queued_wire_bytes_max = 1000},
      roles_of({{actors::RoleKind::planner,
                 [&gate](actors::TimeNs, const actors::Event& event, actors::Effects& effects) {
                   std::lock_guard open(gate);
                   effects.push_back(log_line(name_of(event)));
                 }}}),
      recorder);
  EXPECT_FALSE(
      host.post_received(20, pending(actors::RoleKind::coordinator, actors::RoleKind::planner), 1001));
  int accepted = 0;
  while (host.post_received(20, pending(actors::RoleKind::coordinator, actors::RoleKind::planner), 100))
    ++accepted;
  EXPECT_EQ(accepted, 3) << "Started waits too";
  EXPECT_FALSE(host.wait_for_room(actors::RoleKind::planner, 1));
  EXPECT_EQ(host.stats().wire_dropped, 2u);
  host.post(actors::RoleKind::planner, actors::event::Drain{});
  closed.unlock();
  EXPECT_TRUE(host.wait_for_room(actors::RoleKind::planner, 20'000));
  EXPECT_TRUE(recorder.wait_for("drain")) << "what clients and the node say is never dropped";
}

TEST(CafHost, CountsWhatIsMeantForARoleThatIsNotHere) {
  Recorder recorder;
  actors::CafHost host({}, {}, recorder);
  EXPECT_TRUE(host.post_received(20, pending(actors::RoleKind::planner, actors::RoleKind::coordinator), 8));
  EXPECT_EQ(host.stats().messages_to_none, 1u);
}

// Virtual time for several hosts: the order is that of (time, when it was scheduled).
class Queue final : public actors::VirtualTime {
 public:
  actors::TimeNs now() override { return now_; }
  void schedule(actors::TimeNs at, std::function<void()> action) override {
    actions_.emplace(std::pair(at, sequence_++), std::move(action));
  }
  void run_until(actors::TimeNs end) {
    while (!actions_.empty() && actions_.begin()->first.first <= end) {
      auto node = actions_.extract(actions_.begin());
      now_ = node.key().first;
      node.mapped()();
    }
    now_ = end;
  }

 private:
  actors::TimeNs now_ = 0;
  uint64_t sequence_ = 0;
  std::map<std::pair<actors::TimeNs, uint64_t>, std::function<void()>> actions_;
};

TEST(CafHostOnVirtualTime, RunsEventsTimersAndOperationsInOneOrderOnEveryRun) {
  auto run = [] {
    Queue queue;
    Recorder recorder;
    auto handler = [](const char* who, actors::RoleKind other) {
      return [who, other](actors::TimeNs now, const actors::Event& event, actors::Effects& effects) {
        effects.push_back(log_line(std::to_string(now) + " " + who + " " + name_of(event)));
        if (std::holds_alternative<actors::event::Started>(event)) {
          effects.push_back(actors::effect::SetTimer{1, now + 10});
          effects.push_back(actors::effect::SetTimer{2, now + 10});
          effects.push_back(actors::effect::SetTimer{3, now + 5});
          effects.push_back(actors::effect::Start{1, actors::operation::CheckFiles{}});
          effects.push_back(actors::effect::ToRole{other, actors::event::Drain{}});
        }
        if (auto* timer = std::get_if<actors::event::TimerFired>(&event);
            timer != nullptr && timer->timer == 3) {
          effects.push_back(actors::effect::CancelTimer{2});
        }
      };
    };
    actors::CafHost host({.virtual_time = &queue},
                         roles_of({{actors::RoleKind::planner, handler("planner", actors::RoleKind::loader)},
                                   {actors::RoleKind::loader, handler("loader", actors::RoleKind::planner)}}),
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
    actors::CafHost host({.virtual_time = &queue},
                         roles_of({{actors::RoleKind::planner,
                                    [](actors::TimeNs, const actors::Event&, actors::Effects& effects) {
                                      effects.push_back(actors::effect::SetTimer{1, 100});
                                    }}}),
                         recorder);
    queue.run_until(50);
  }
  queue.run_until(200);
  EXPECT_TRUE(recorder.lines().empty());
}

}  // namespace
}  // namespace shoal::testing
