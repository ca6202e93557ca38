#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "client/launch/environment.h"
#include "client/launch/own_address.h"
#include "client/session/node_process.h"
#include "local/status/node_query.h"
#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CheckpointerOptions options_in(const TemporaryRoot& root) {
  CheckpointerOptions options;
  options.root = root.path();
  options.job_id = "job";
  options.attach_timeout = std::chrono::milliseconds(20'000);
  return options;
}

TEST(Open, NamesTheSocketAndTheLogWhereNobodyListens) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.start_node = false;
  Status status = Checkpointer::open(options).status();
  EXPECT_EQ(status.code(), Code::unavailable);
  const local::NodePaths paths = local::node_paths(root.path()).value();
  EXPECT_THAT(status.message(), HasSubstr(paths.socket_file));
  EXPECT_THAT(status.message(), HasSubstr(paths.log_file));
  EXPECT_THAT(status.message(), HasSubstr("no process holds"));
  std::ofstream(paths.lock_file) << ::getpid() << "\n";
  EXPECT_THAT(Checkpointer::open(options).status().message(),
              HasSubstr("process " + std::to_string(::getpid())));
}

// shoal launch, or systemd, starts it again.
TEST(Open, WaitsForTheNextNodeWhereOneDied) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.start_node = false;
  const std::string socket = local::node_paths(root.path()).value().socket_file;
  {
    FakeNode died(root.path());
    std::filesystem::create_hard_link(socket, socket + ".kept");
  }
  std::filesystem::rename(socket + ".kept", socket);
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options); });
  EXPECT_EQ(opening.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  std::filesystem::remove(socket);
  FakeNode node(root.path());
  node.accept();
  node.expect<local::Attach>();
  node.send(local::Attached{1, FakeNode::kPid});
  auto opened = opening.get();
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
}

TEST(Open, StartsANodeThatWritesItsLog) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  // This "node" records its command line; the test then answers in its place.
  options.node_program = root.folder() + "/program";
  std::ofstream(options.node_program)
      << "#!/bin/sh\necho \"$@\"\necho done > " << root.folder() << "/started\n";
  ASSERT_EQ(::chmod(options.node_program.c_str(), 0700), 0);
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options); });
  while (!std::filesystem::exists(root.folder() + "/started")) std::this_thread::yield();
  FakeNode node(root.path());
  node.accept();
  EXPECT_EQ(node.expect<local::Attach>().job_id, "job");
  node.send(local::Attached{1, FakeNode::kPid});
  auto opened = opening.get();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ((*opened)->generation(), 1u);
  std::ifstream log(local::node_paths(root.path()).value().log_file);
  std::string received;
  std::getline(log, received);
  EXPECT_EQ(received, "node --root " + root.path() +
                          " --job-id job --world-size 1 --settings-sources none --idle-exit --started-by " +
                          std::to_string(::getpid()));
}

TEST(Open, SaysWhatANodeLoggedThatDidNotServe) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.attach_timeout =
      std::chrono::milliseconds(2'000);  // in which the program runs, on a busy machine too
  std::ofstream(local::node_paths(root.path())->log_file) << "a line of an earlier run\n";
  options.node_program = root.folder() + "/program";
  std::ofstream(options.node_program)
      << "#!/bin/sh\necho 'first line'\necho 'it needs a token' >&2\nexit 2\n";
  ASSERT_EQ(::chmod(options.node_program.c_str(), 0700), 0);
  Status status = Checkpointer::open(options).status();
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_THAT(status.message(), HasSubstr("ends with \"it needs a token\""));
  options.start_node = false;
  options.attach_timeout = std::chrono::milliseconds(500);
  EXPECT_THAT(Checkpointer::open(options).status().message(), HasSubstr("has no new line"));
}

// Regression: the error named the job of a node that had ended, and not why the next one did not start.
TEST(Open, SaysWhatTheNextNodeLoggedWhereTheOneOfAnotherRunHasEnded) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.attach_timeout = std::chrono::milliseconds(1'000);
  options.node_program = root.folder() + "/program";
  std::ofstream(options.node_program) << "#!/bin/sh\necho no space left\n";
  ASSERT_EQ(::chmod(options.node_program.c_str(), 0700), 0);
  std::optional<FakeNode> node(std::in_place, root.path());
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options); });
  node->accept();
  node->expect<local::Attach>();
  node->send(local::Failed{Status(Code::unavailable, "this node serves job 'other'")});
  node.reset();
  const Status status = opening.get().status();
  EXPECT_THAT(status.message(), HasSubstr("found no node on this host"));
  EXPECT_THAT(status.message(), HasSubstr("no space left"));
}

// Regression: a trainer whose runtime folder somebody had cleaned up, as /tmp is, got no other node.
TEST(Open, StartsTheNextNodeInARuntimeFolderThatWasRemoved) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.node_program = "/bin/true";
  NodeFinder finder = NodeFinder::make(options).value();
  const local::NodePaths paths = local::node_paths(root.path()).value();
  std::filesystem::remove_all(local::runtime_folder());
  EXPECT_EQ(finder.try_once(true).status().code(), Code::unavailable);
  EXPECT_TRUE(std::filesystem::exists(paths.log_file));
  EXPECT_EQ(std::filesystem::status(local::runtime_folder()).permissions(),
            std::filesystem::perms::owner_all);
}

TEST(Open, NamesAProgramThatCannotRun) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.node_program = root.folder() + "/absent";
  EXPECT_THAT(Checkpointer::open(options).status().message(), HasSubstr("/absent: No such file"));
}

TEST(Open, PassesOnWhyTheNodeRefuses) {
  TemporaryRoot root;
  FakeNode node(root.path());
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options_in(root)); });
  node.accept();
  (void)node.expect<local::Attach>();
  node.send(local::Failed{Status(Code::refused, "this node serves another job")});
  EXPECT_THAT(opening.get().status().to_string(), HasSubstr("this node serves another job"));
}

// Regression: only the pauses between two tries could be interrupted.
TEST(Open, IsInterruptedWhileItsNodeDoesNotAnswer) {
  TemporaryRoot root;
  FakeNode node(root.path());
  CheckpointerOptions options = options_of_two_ranks(root.path());
  std::atomic<bool> goes_on = true;
  options.keep_waiting = [&] { return goes_on.load(); };
  options.attach_timeout = std::chrono::milliseconds(5'000);
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options).status(); });
  node.accept();
  (void)node.expect<local::Attach>();
  goes_on = false;
  EXPECT_EQ(opening.get().code(), Code::busy);
}

// Regression: a trainer that was suspended between its connection and its Attach failed to open.
TEST(Open, TriesAgainWhereANodeWaitedForItsAttachInVain) {
  TemporaryRoot root;
  FakeNode node(root.path());
  const CheckpointerOptions options = options_of_two_ranks(root.path());
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options).status(); });
  node.accept();
  (void)node.expect<local::Attach>();
  node.send(local::Failed{Status(Code::deadline_exceeded, "the client sent no Attach in time")});
  node.accept();
  (void)node.expect<local::Attach>();
  node.send(local::Attached{3, FakeNode::kPid});
  const Status opened = opening.get();
  EXPECT_TRUE(opened.ok()) << opened.to_string();
}

TEST(Open, TriesAgainWhereANodeWasJustEnding) {
  TemporaryRoot root;
  FakeNode node(root.path());
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options_in(root)); });
  node.accept();
  node.die();
  node.accept();
  (void)node.expect<local::Attach>();
  node.send(local::Attached{1, FakeNode::kPid});
  EXPECT_TRUE(opening.get().ok());
}

TEST(Open, RefusesOptionsThatMakeNoSense) {
  TemporaryRoot root;
  auto code_of = [&](auto change) {
    CheckpointerOptions options = options_in(root);
    options.start_node = false;
    change(options);
    return Checkpointer::open(options).status().code();
  };
  EXPECT_EQ(code_of([](auto& o) { o.rank = 1; }), Code::invalid_argument);
  EXPECT_EQ(code_of([](auto& o) { o.max_in_flight = 0; }), Code::invalid_argument);
  EXPECT_EQ(code_of([](auto& o) { o.load_window_bytes = 1; }), Code::invalid_argument);
  EXPECT_EQ(code_of([](auto& o) { o.world_size = 2, o.job_id = ""; }), Code::invalid_argument);
  EXPECT_EQ(code_of([](auto& o) { o.root += "/absent"; }), Code::not_found);
}

TEST(NodeCommand, NamesACoordinatorThatIsElsewhere) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.node_program = "/bin/shoal";
  options.coordinator = "host:1";
  EXPECT_THAT(node_command(options).value(),
              ElementsAre("/bin/shoal", "node", "--root", root.path(), "--job-id", "job", "--world-size", "1",
                          "--coordinator", "host:1", "--idle-exit"));
}

TEST(NodeCommand, OfAClientThatWasServedBeforeGoesOnWithItsGeneration) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.node_program = "/bin/shoal";
  EXPECT_THAT(node_command(options, 3).value(),
              ElementsAre("/bin/shoal", "node", "--root", root.path(), "--job-id", "job", "--world-size", "1",
                          "--rejoin", "3", "--idle-exit"));
}

TEST(NodeCommand, OfAJobThatOnlyReadsSaysSo) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.node_program = "/bin/shoal";
  options.read_only = true;
  EXPECT_THAT(node_command(options).value(), ::testing::Contains("--read-only"));
}

TEST(NodeCommand, CoordinatesWhereTheJobIsToldToAndSaysItsName) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  options.node_program = "/bin/shoal";
  options.coordinator = "n1:7070";
  options.coordinate_at = "10.0.0.1:7070";
  options.node_name = "n1";
  EXPECT_THAT(node_command(options).value(),
              ElementsAre("/bin/shoal", "node", "--root", root.path(), "--job-id", "job", "--world-size", "1",
                          "--coordinate", "--listen", "10.0.0.1:7070", "--name", "n1", "--idle-exit"));
}

// job_environment_test.cpp tests the meaning of the variables.
class Environment : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) ::unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static constexpr const char* kNames[] = {
      "SHOAL_ROOT",   "SHOAL_JOB_ID", "SHOAL_COORDINATOR", "RANK",          "WORLD_SIZE",
      "GROUP_RANK",   "NODE_RANK",    "LOCAL_WORLD_SIZE",  "MASTER_ADDR",   "TORCHELASTIC_RUN_ID",
      "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID",      "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK"};
};

TEST_F(Environment, NeedsARootAndIsOneRankWithoutALauncher) {
  EXPECT_THAT(CheckpointerOptions::from_environment().status().message(), HasSubstr("SHOAL_ROOT"));
  ::setenv("SHOAL_ROOT", "/r", 1);
  EXPECT_EQ(CheckpointerOptions::from_environment().value().world_size, 1u);
  ::setenv("RANK", "3", 1);
  ::setenv("WORLD_SIZE", "4x", 1);
  EXPECT_THAT(CheckpointerOptions::from_environment().status().message(), HasSubstr("'4x'"));
}

TEST_F(Environment, TakesValuesInsteadOfThoseOfVariables) {
  ::setenv("SHOAL_ROOT", "/r", 1);
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "4", 1);
  std::map<std::string, std::string> given{{"SHOAL_ROOT", "/other"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}};
  const Variables variables = [&](const char* name) -> std::optional<std::string> {
    const auto found = given.find(name);
    return found == given.end() ? std::nullopt : std::optional(found->second);
  };
  EXPECT_THAT(options_from(variables).status().message(), HasSubstr("SHOAL_JOB_ID"));
  given["SHOAL_JOB_ID"] = "mine";
  auto options = options_from(variables);
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->root, "/other");
  EXPECT_EQ(options->rank, 0u);
  EXPECT_EQ(options->world_size, 2u);
  EXPECT_EQ(options->job_id, "mine");
}

TEST_F(Environment, MakesTheFirstHostsNodeTheCoordinator) {
  ::setenv("SHOAL_ROOT", "/r", 1);
  ::setenv("SHOAL_JOB_ID", "job", 1);
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "4", 1);
  ::setenv("SHOAL_COORDINATOR", "127.0.0.1:7070", 1);
  auto options = CheckpointerOptions::from_environment();
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->coordinator, "127.0.0.1:7070");
  EXPECT_EQ(options->coordinate_at, "127.0.0.1:7070") << "the address is this host's";
  ::setenv("NODE_RANK", "1", 1);
  EXPECT_EQ(CheckpointerOptions::from_environment().value().coordinate_at, "") << "this is the second host";
  ::setenv("SHOAL_COORDINATOR", "127.0.0.1:99999", 1);
  EXPECT_THAT(CheckpointerOptions::from_environment().status().message(), HasSubstr("99999"));
}

TEST_F(Environment, OfTorchrunOnSeveralHostsAsksRank0OnTheNextPort) {
  ::setenv("SHOAL_ROOT", "/r", 1);
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "4", 1);
  ::setenv("LOCAL_WORLD_SIZE", "2", 1);
  ::setenv("GROUP_RANK", "0", 1);
  ::setenv("MASTER_ADDR", "203.0.113.77", 1);
  ::setenv("TORCHELASTIC_RUN_ID", "run7", 1);
  auto options = CheckpointerOptions::from_environment();
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  ASSERT_TRUE(options->job_id_exchange.has_value());
  EXPECT_EQ(options->job_id_exchange->address, "203.0.113.77:7071");
  EXPECT_EQ(options->job_id_exchange->run, "run7");
  EXPECT_EQ(options->coordinate_at, address_to_serve_at("203.0.113.77").value() + ":7070")
      << "first host by torchrun's word, by whatever address";
  for (const char* coordinator : {":0", ":65535"}) {  // the exchange needs the next port
    ::setenv("SHOAL_COORDINATOR", coordinator, 1);
    EXPECT_EQ(CheckpointerOptions::from_environment().status().code(), Code::invalid_argument);
  }
  ::unsetenv("SHOAL_COORDINATOR");
  ::setenv("LOCAL_WORLD_SIZE", "4", 1);
  EXPECT_EQ(CheckpointerOptions::from_environment().value().job_id_exchange->address, "") << "one host";
}

}  // namespace
}  // namespace shoal::client
