// Real nodes in child processes and real clients: the saves and loads of one job, and nodes that start and
// end.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "local/socket/socket.h"
#include "local/status/node_query.h"
#include "tests/process/node_child.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(NodeProcess, SavesAndLoadsForTheTrainersOfOneHost) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2"});
  ASSERT_NE(node.address(), "");
  Trainer first(scratch, "a", 0, 2), second(scratch, "a", 1, 2);
  ASSERT_TRUE(first.opened.ok()) << first.opened.status().to_string();
  ASSERT_TRUE(second.opened.ok()) << second.opened.status().to_string();
  for (uint64_t step = 1; step <= 3; ++step) {
    auto one = first.save(step), other = second.save(step);
    ASSERT_TRUE(one.ok() && other.ok()) << one.status().to_string() << other.status().to_string();
    auto committed = one->wait_committed(kPatience);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
    EXPECT_EQ(committed->key.step, step);
    EXPECT_TRUE(other->wait_committed(kPatience).ok());
  }
  first.forget();
  second.forget();
  std::thread elsewhere([&] { EXPECT_TRUE(second.checkpointer().load(second.state).ok()); });
  auto loaded = first.checkpointer().load(first.state);
  elsewhere.join();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->metadata.key.step, 3u);
  EXPECT_TRUE(first.holds(3) && second.holds(3));
}

TEST(NodeProcess, CommitsASaveOfTwoNodesAndCountsWhatCrossed) {
  Scratch scratch;
  NodeChild coordinator(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2", "name=a",
                                            "stats=" + scratch.file("a.stats")});
  std::string address = coordinator.address();
  ASSERT_NE(address, "");
  NodeChild other(scratch.host("b"),
                  {"root=" + scratch.root(), "job=job-1", "world=2", "name=b", "coordinator=" + address,
                   "stats=" + scratch.file("b.stats"), "protocol=" + scratch.file("b.protocol")});
  ASSERT_THAT(other.first_line(), StartsWith("ready"));
  Trainer first(scratch, "a", 0, 2), second(scratch, "b", 1, 2);
  ASSERT_TRUE(first.opened.ok() && second.opened.ok());
  for (uint64_t step = 1; step <= 2; ++step) {
    auto one = first.save(step), two = second.save(step);
    ASSERT_TRUE(one.ok() && two.ok());
    auto committed = two->wait_committed(kPatience);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
    EXPECT_TRUE(one->wait_committed(kPatience).ok());
  }
  other.signal(SIGTERM);
  EXPECT_EQ(other.wait(), 0);
  coordinator.signal(SIGTERM);
  EXPECT_EQ(coordinator.wait(), 0);
  std::string stats = read_file(scratch.file("a.stats"));
  EXPECT_THAT(stats, HasSubstr("saves_committed=2\n"));
  EXPECT_THAT(stats, HasSubstr("transport.tls.frames="));
  EXPECT_THAT(stats, Not(HasSubstr("transport_frames_received=0\n")));
  EXPECT_THAT(read_file(scratch.file("b.stats")), Not(HasSubstr("transport_frames_sent=0\n")));
  std::istringstream protocol(read_file(scratch.file("b.protocol")));
  std::vector<std::string> of_saves;
  for (std::string line; std::getline(protocol, line);) {
    const std::string message = line.substr(line.find(' ') + 1);
    const bool reports = message.rfind("to coordinator: ShardsWritten ", 0) == 0;
    if (reports || message.rfind("from coordinator: Decided ", 0) == 0) of_saves.push_back(message);
  }
  EXPECT_THAT(of_saves, ElementsAre("to coordinator: ShardsWritten step 1 (g1a1): 1 rank, 1 file",
                                    "from coordinator: Decided step 1 (g1a1): committed",
                                    "to coordinator: ShardsWritten step 2 (g1a1): 1 rank, 1 file",
                                    "from coordinator: Decided step 2 (g1a1): committed"));
}

TEST(NodeProcess, RefusesToBeTheSecondOneOfItsHostAndNamesTheFirst) {
  Scratch scratch;
  std::vector<std::string> arguments = {"root=" + scratch.root(), "job=job-1"};
  NodeChild first(scratch.host("a"), arguments);
  ASSERT_NE(first.address(), "");
  NodeChild second(scratch.host("a"), arguments);
  EXPECT_THAT(second.first_line(), HasSubstr(fmt::format("pid {}", first.pid())));
  EXPECT_EQ(second.wait(), 1);
}

TEST(NodeProcess, RefusesARootWhereAnotherJobIsLiveUntilThatOneIsGone) {
  Scratch scratch;
  NodeChild live(scratch.host("a"), {"root=" + scratch.root(), "job=job-1"});
  ASSERT_NE(live.address(), "");
  NodeChild another(scratch.host("b"), {"root=" + scratch.root(), "job=job-2"});
  EXPECT_THAT(another.first_line(), HasSubstr("job 'job-1' is running"));
  live.signal(SIGKILL);
  live.wait();
  NodeChild later(scratch.host("b"), {"root=" + scratch.root(), "job=job-2"});
  EXPECT_NE(later.address(), "");
}

TEST(NodeProcess, FinishesWhatIsStagedBeforeItStops) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=1"});
  ASSERT_NE(node.address(), "");
  Trainer trainer(scratch, "a", 0, 1);
  ASSERT_TRUE(trainer.opened.ok());
  auto saved = trainer.save(5);
  ASSERT_TRUE(saved.ok());
  node.signal(SIGTERM);
  EXPECT_EQ(node.wait(), 0);
  auto decision = decision_of(scratch.root(), saved->key());
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_TRUE(decision->committed());
}

TEST(NodeProcess, RefusesWhoComesWhileItStopsAtOnceAlsoOneThatMayStartANode) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2"});
  ASSERT_NE(node.address(), "");
  Trainer first(scratch, "a", 0, 2, "job-1", [](CheckpointerOptions& options) {
    options.attach_timeout = kShortPatience;  // for the next node, which does not come
  });
  ASSERT_TRUE(first.opened.ok());
  ASSERT_TRUE(first.save(1).ok());  // half of a save: the node waits for its decision
  node.signal(SIGTERM);
  auto begun = std::chrono::steady_clock::now();
  Status refused;
  do {  // until the signal has arrived: rank 0 is there already
    refused = Trainer(scratch, "a", 0, 2, "job-1", [](auto& options) {
                options.start_node = true;
              }).opened.status();
  } while (refused.code() == Code::already_exists);
  EXPECT_EQ(refused.code(), Code::aborted);
  EXPECT_THAT(refused.message(),
              HasSubstr(fmt::format("received a request to stop and is stopping (pid {})", node.pid())));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
  node.signal(SIGTERM);
  EXPECT_EQ(node.wait(), 0);
}

TEST(NodeProcess, NamesTheRankThatDidNotStageAtOnce) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2"});
  ASSERT_NE(node.address(), "");
  Trainer first(scratch, "a", 0, 2);
  Trainer second(scratch, "a", 1, 2, "job-1", [](CheckpointerOptions& options) {
    options.staging_bytes_max = 1;  // it has no room for any save
  });
  ASSERT_TRUE(first.opened.ok() && second.opened.ok());
  EXPECT_EQ(second.save(1).status().code(), Code::no_space);
  auto saved = first.save(1);
  ASSERT_TRUE(saved.ok());
  Status aborted = saved->wait_committed(kPatience).status();  // well before the attempt's deadline
  EXPECT_EQ(aborted.code(), Code::aborted);
  EXPECT_THAT(aborted.message(), HasSubstr("rank 1 (host "));
  EXPECT_THAT(aborted.message(), HasSubstr("staging_bytes_max"));
}

TEST(NodeProcess, IsNamedByTheClientWhereItIsStopped) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2"});
  ASSERT_NE(node.address(), "");
  Trainer trainer(scratch, "a", 0, 2, "job-1", [](CheckpointerOptions& options) {
    options.node_silence = std::chrono::milliseconds(600);
  });
  ASSERT_TRUE(trainer.opened.ok());
  auto saved = trainer.save(1);
  ASSERT_TRUE(saved.ok());
  node.signal(SIGSTOP);
  Status stopped = saved->wait_committed(kPatience).status();
  EXPECT_THAT(stopped.message(), HasSubstr(fmt::format("pid {}", node.pid())));
  EXPECT_THAT(stopped.message(), HasSubstr("sent nothing for"));
}

TEST(NodeProcess, LosesNothingOfATrainerThatDiedAfterStaging) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=1"});
  ASSERT_NE(node.address(), "");
  pid_t child = fork();
  if (child == 0) {
    Trainer trainer(scratch, "a", 0, 1);
    if (!trainer.opened.ok() || !trainer.save(7).ok()) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  node.signal(SIGTERM);
  EXPECT_EQ(node.wait(), 0);
  auto decision = decision_of(scratch.root(), {1, 7, 1});
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_TRUE(decision->committed());
}

TEST(NodeProcess, EndsByItselfOnceNobodyNeedsIt) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=1", "idle_ms=1500"});
  ASSERT_NE(node.address(), "");
  {
    Trainer trainer(scratch, "a", 0, 1);
    ASSERT_TRUE(trainer.opened.ok());
    auto saved = trainer.save(1);
    ASSERT_TRUE(saved.ok());
    EXPECT_TRUE(saved->wait_committed(kPatience).ok());
  }
  EXPECT_EQ(node.wait(), 0);
}

TEST(NodeProcess, MakesWayForTheNextJobOnceItsOwnTrainersHaveLeft) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=1", "idle_ms=3600000"});
  ASSERT_NE(node.address(), "");
  std::optional<Trainer> first(std::in_place, scratch, "a", 0, 1, "job-1");
  ASSERT_TRUE(first->opened.ok());
  auto outcome = [&] { return Trainer(scratch, "a", 0, 1, "job-2").opened.status(); };
  EXPECT_EQ(outcome().code(), Code::unavailable) << "so that a client tries again";
  EXPECT_THAT(outcome().message(), HasSubstr("this node serves job 'job-1'"));
  auto saved = first->save(1);
  EXPECT_TRUE(saved.ok() && saved->wait_committed(kPatience).ok()) << "it goes on until it is done";
  first.reset();
  EXPECT_EQ(node.wait(), 0);
}

TEST(NodeProcess, FindsACoordinatorThatCameBackAndCommitsWhatWasStagedMeanwhile) {
  Scratch scratch;
  std::vector<std::string> arguments = {"root=" + scratch.root(), "job=job-1", "world=1", "name=a"};
  auto coordinator = std::make_unique<NodeChild>(scratch.host("a"), arguments);
  std::string address = coordinator->address();
  NodeChild node(scratch.host("b"),
                 {"root=" + scratch.root(), "job=job-1", "world=1", "name=b", "coordinator=" + address});
  ASSERT_THAT(node.first_line(), StartsWith("ready"));
  Trainer trainer(scratch, "b", 0, 1);
  ASSERT_TRUE(trainer.opened.ok());
  auto first = trainer.save(1);
  ASSERT_TRUE(first.ok() && first->wait_committed(kPatience).ok());
  coordinator->signal(SIGKILL);
  EXPECT_EQ(coordinator->wait(), 128 + SIGKILL);
  auto second = trainer.save(2);
  ASSERT_TRUE(second.ok());
  arguments.insert(arguments.end(), {"listen=" + address, "rejoin=1"});
  coordinator = std::make_unique<NodeChild>(scratch.host("a"), arguments);
  ASSERT_EQ(coordinator->address(), address);
  auto committed = second->wait_committed(kPatience);
  EXPECT_TRUE(committed.ok()) << committed.status().to_string();
}

TEST(NodeProcess, BeginsItsCatalogAfreshWhereThatIsDamaged) {
  Scratch scratch;
  std::vector<std::string> arguments = {"root=" + scratch.root(), "job=job-1", "world=1"};
  {
    NodeChild node(scratch.host("a"), arguments);
    ASSERT_NE(node.address(), "");
    Trainer trainer(scratch, "a", 0, 1);
    auto saved = trainer.save(1);
    ASSERT_TRUE(saved.ok() && saved->wait_committed(kPatience).ok());
    node.signal(SIGTERM);
    EXPECT_EQ(node.wait(), 0);
  }
  int damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.host("a"))) {
    bool is_manifest = entry.path().filename().string().rfind("MANIFEST-", 0) == 0;
    if (!is_manifest) continue;
    std::ofstream(entry.path(), std::ios::trunc) << "no manifest at all";
    ++damaged;
  }
  ASSERT_GT(damaged, 0);
  NodeChild again(scratch.host("a"), arguments);
  EXPECT_NE(again.address(), "");
  Trainer trainer(scratch, "a", 0, 1);
  ASSERT_TRUE(trainer.opened.ok());
  auto saved = trainer.save(2);
  EXPECT_TRUE(saved.ok() && saved->wait_committed(kPatience).ok());
}

TEST(NodeProcess, SaysThatItCannotReachItsCoordinatorAndWhereItLooks) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "coordinator=127.0.0.1:1",
                                     "find_ms=5000", "log=" + scratch.file("log")});
  EXPECT_THAT(node.first_line(), HasSubstr("127.0.0.1:1"));
  EXPECT_EQ(node.wait(), 1);
  EXPECT_THAT(read_file(scratch.file("log")),
              HasSubstr("cannot reach the coordinator at 127.0.0.1:1 for 2 s: "));
}

TEST(NodeProcess, ShowsThatItHasLostItsCoordinatorInItsStatus) {
  Scratch scratch;
  NodeChild coordinator(scratch.host("a"), {"root=" + scratch.root(), "job=job-1"});
  NodeChild node(scratch.host("b"),
                 {"root=" + scratch.root(), "job=job-1", "name=b", "coordinator=" + coordinator.address()});
  ASSERT_THAT(node.first_line(), StartsWith("ready"));
  coordinator.signal(SIGKILL);
  ASSERT_EQ(coordinator.wait(), 128 + SIGKILL);
  setenv("SHOAL_RUNTIME_DIR", scratch.host("b").c_str(), 1);
  const auto paths = local::node_paths(scratch.root());
  ASSERT_TRUE(paths.ok());
  const std::string expected = "cannot reach the coordinator at " + coordinator.address();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::string shown;
  while (shown.find(expected) == std::string::npos && std::chrono::steady_clock::now() < deadline) {
    const auto status = local::ask_node(paths->socket_file);
    ASSERT_TRUE(status.ok()) << status.status().to_string();
    for (const local::ErrorStatus& error : status->errors) shown += error.line + "\n";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(shown, HasSubstr(expected));
}

TEST(NodeProcess, RefusesAFollowerWithoutTheToken) {
  Scratch scratch;
  NodeChild coordinator(scratch.host("a"), {"root=" + scratch.root(), "job=job-1"});
  NodeChild stranger(scratch.host("b"), {"root=" + scratch.root(), "job=job-1", "token=guess",
                                         "coordinator=" + coordinator.address()});
  EXPECT_THAT(stranger.first_line(), HasSubstr("token"));
  EXPECT_EQ(stranger.wait(), 1);
}

TEST(NodeProcess, RefusesAJobForWhichItHasTooFewDescriptors) {
  Scratch scratch;
  std::vector<std::string> arguments = {"root=" + scratch.root(), "job=job-1", "world=4000", "ranks_here=4",
                                        "nofile=1000"};
  NodeChild node(scratch.host("a"), arguments);
  EXPECT_THAT(node.first_line(), AllOf(HasSubstr("needs "), HasSubstr("999 other nodes at 2"),
                                       HasSubstr("may have only 1000; ulimit -n, or LimitNOFILE=")));
  EXPECT_EQ(node.wait(), 1);
  arguments[2] = "world=400";
  NodeChild smaller(scratch.host("a"), arguments);
  EXPECT_NE(smaller.address(), "") << "100 hosts are few enough";
}

// With one direct node, which has one child, a coordinator reaches two other hosts; a third one joins.
TEST(NodeProcess, RefusesTheRosterOfMoreHostsThanItReaches) {
  Scratch scratch;
  NodeChild node(scratch.host("a"),
                 {"root=" + scratch.root(), "job=job-1", "world=64", "ranks_here=32", "max_direct_nodes=1"});
  ASSERT_NE(node.address(), "");
  std::vector<std::unique_ptr<NodeChild>> others;
  std::vector<std::unique_ptr<Trainer>> trainers;
  std::optional<Result<SaveHandle>> saved;
  for (const char* host : {"b", "c"}) {
    others.push_back(std::make_unique<NodeChild>(
        scratch.host(host),
        std::vector<std::string>{"root=" + scratch.root(), "job=job-1", "world=64",
                                 std::string("name=") + host, "coordinator=" + node.address()}));
    ASSERT_THAT(others.back()->first_line(), StartsWith("ready"));
    trainers.push_back(std::make_unique<Trainer>(scratch, host, 32 + static_cast<Rank>(trainers.size()), 64));
    ASSERT_TRUE(trainers.back()->opened.ok()) << trainers.back()->opened.status().to_string();
    saved = trainers.back()->save(1);
  }
  // The save fails at once if the node of c knows by then.
  const Status ended = saved->ok() ? (*saved)->wait_committed(kPatience).status() : saved->status();
  EXPECT_THAT(ended.message(),
              AllOf(HasSubstr("with 1 direct nodes reaches only 2"), HasSubstr("--max-direct-nodes")));
}

TEST(NodeProcess, SaysWhyItCannotRun) {
  Scratch scratch;
  NodeChild absent(scratch.host("a"), {"root=" + scratch.file("absent"), "job=job-1"});
  EXPECT_THAT(absent.first_line(), HasSubstr("absent"));
  EXPECT_EQ(absent.wait(), 1);
}

}  // namespace
}  // namespace shoal::testing
