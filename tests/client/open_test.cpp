#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "client/node_process_internal.h"
#include "tests/client/fake_node.h"

namespace shoal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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
  const NodePaths paths = node_paths(root.path()).value();
  EXPECT_THAT(status.message(), HasSubstr(paths.socket_file));
  EXPECT_THAT(status.message(), HasSubstr(paths.log_file));
  EXPECT_THAT(status.message(), HasSubstr("no process holds"));
  std::ofstream(paths.lock_file) << ::getpid() << "\n";
  EXPECT_THAT(Checkpointer::open(options).status().message(), HasSubstr("pid " + std::to_string(::getpid())));
}

TEST(Open, StartsANodeThatWritesItsLog) {
  TemporaryRoot root;
  CheckpointerOptions options = options_in(root);
  // This "node" says how it was called; the test then answers in its place.
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
  std::ifstream log(node_paths(root.path()).value().log_file);
  std::string said;
  std::getline(log, said);
  EXPECT_EQ(said, "node --root " + root.path() + " --job-id job --world-size 1 --idle-exit");
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

class Environment : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) ::unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static constexpr const char* kNames[] = {"SHOAL_ROOT",    "SHOAL_JOB_ID",         "RANK",
                                           "WORLD_SIZE",    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                           "SLURM_PROCID",  "SLURM_NTASKS",         "SLURM_JOB_ID",
                                           "SLURM_STEP_ID", "SLURM_RESTART_COUNT"};
};

TEST_F(Environment, OfTorchrunOpenMpiAndSlurmIsRead) {
  EXPECT_THAT(CheckpointerOptions::from_environment().status().message(), HasSubstr("SHOAL_ROOT"));
  ::setenv("SHOAL_ROOT", "/r", 1);
  EXPECT_EQ(CheckpointerOptions::from_environment().value().world_size, 1u);
  ::setenv("SLURM_PROCID", "5", 1);
  ::setenv("SLURM_NTASKS", "8", 1);
  EXPECT_THAT(CheckpointerOptions::from_environment().status().message(), HasSubstr("SHOAL_JOB_ID"));
  ::setenv("SLURM_JOB_ID", "77", 1);
  ::setenv("SLURM_RESTART_COUNT", "2", 1);
  EXPECT_EQ(CheckpointerOptions::from_environment().value().job_id, "slurm-77-0-2");
  ::setenv("OMPI_COMM_WORLD_RANK", "4", 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
  EXPECT_EQ(CheckpointerOptions::from_environment().value().rank, 4u);
  ::setenv("RANK", "3", 1);
  EXPECT_THAT(CheckpointerOptions::from_environment().status().message(), HasSubstr("WORLD_SIZE is not set"));
  ::setenv("WORLD_SIZE", "3", 1);
  EXPECT_THAT(CheckpointerOptions::from_environment().status().message(), HasSubstr("RANK is 3"));
  ::setenv("WORLD_SIZE", "4x", 1);
  EXPECT_THAT(CheckpointerOptions::from_environment().status().message(), HasSubstr("'4x'"));
}

}  // namespace
}  // namespace shoal
