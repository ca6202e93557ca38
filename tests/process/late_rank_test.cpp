// A rank is stopped while its node is killed and restarted, and while its save is aborted. When the rank
// resumes, it receives the same outcome of that save as the other ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/process/node_child.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::StartsWith;

// A child process, so that the test can stop it. Create it before this process has threads. The destructor
// kills it.
class TrainerProcess {
 public:
  // `run` is given where it writes lines.
  explicit TrainerProcess(const std::function<void(std::FILE*)>& run) {
    int lines[2], go[2];
    if (pipe(lines) != 0 || pipe(go) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(lines[0]);
      close(go[1]);
      char begins = 0;
      if (read(go[0], &begins, 1) != 1) _exit(1);
      std::FILE* out = fdopen(lines[1], "w");
      setvbuf(out, nullptr, _IOLBF, 0);
      run(out);
      _exit(0);
    }
    close(lines[1]);
    close(go[0]);
    lines_ = fdopen(lines[0], "r");
    go_ = go[1];
  }
  ~TrainerProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    std::fclose(lines_);
    close(go_);
  }
  TrainerProcess(const TrainerProcess&) = delete;

  void begin() { EXPECT_EQ(write(go_, "g", 1), 1); }
  std::string line() {  // "" where it has ended
    char text[4096] = {};
    return std::fgets(text, sizeof text, lines_) == nullptr ? "" : text;
  }
  void stop() {
    kill(pid_, SIGSTOP);
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void go_on() { kill(pid_, SIGCONT); }

 private:
  pid_t pid_ = -1;
  std::FILE* lines_ = nullptr;
  int go_ = -1;
};

TEST(ALateRank, HearsThatItsSaveWasAbortedWhileItWasStopped) {
  Scratch scratch;
  TrainerProcess late([&](std::FILE* out) {
    Trainer trainer(scratch, "a", 1, 3);
    if (!trainer.opened.ok()) std::fprintf(out, "%s\n", trainer.opened.status().to_string().c_str());
    auto first = trainer.save(1);
    std::fprintf(out, "first: %s\n", first->wait_committed(kPatience).status().to_string().c_str());
    auto second = trainer.save(2);
    std::fprintf(out, "staged\n");
    std::fprintf(out, "second: %s\n", second->wait_committed(kPatience).status().to_string().c_str());
  });
  NodeChild coordinator(scratch.host("b"), {"root=" + scratch.root(), "job=job-1", "world=3", "name=b",
                                            "host_lost_ms=3000", "attempt_deadline_ms=4000"});
  ASSERT_NE(coordinator.address(), "");
  const std::vector<std::string> arguments = {"root=" + scratch.root(), "job=job-1", "world=3", "name=a",
                                              "coordinator=" + coordinator.address()};
  auto node = std::make_unique<NodeChild>(scratch.host("a"), arguments);
  ASSERT_THAT(node->first_line(), StartsWith("ready"));
  late.begin();
  Trainer first(scratch, "a", 0, 3), third(scratch, "b", 2, 3);
  ASSERT_TRUE(first.opened.ok() && third.opened.ok());
  for (Trainer* each : {&first, &third}) ASSERT_TRUE(each->save(1).ok());
  ASSERT_EQ(late.line(), "first: ok\n");

  ASSERT_EQ(late.line(), "staged\n");
  late.stop();
  node->signal(SIGKILL);
  ASSERT_EQ(node->wait(), 128 + SIGKILL);
  std::vector<std::string> dies = arguments;
  dies.push_back("die_at=WriteShard:before:1");
  node = std::make_unique<NodeChild>(scratch.host("a"), dies);
  auto saved = first.save(2);
  ASSERT_TRUE(saved.ok());
  ASSERT_EQ(node->wait(), 128 + SIGKILL);
  ASSERT_TRUE(third.save(2).ok());  // from this the coordinator learns of the save
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  auto decision = decision_of(scratch.root(), {1, 2, 1});
  while (!decision.ok() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    decision = decision_of(scratch.root(), {1, 2, 1});
  }
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  ASSERT_FALSE(decision->was_committed()) << "its host was lost";

  // The new node knows only what the root has about this save, and its first rank requests before the other
  // one.
  node = std::make_unique<NodeChild>(scratch.host("a"), arguments);
  const Status outcome = saved->wait_committed(kPatience).status();
  const std::string cause = decision->tombstone().cause;
  EXPECT_EQ(outcome, Status(Code::aborted, "rank 0, step 2 (g1a1): " + cause));
  late.go_on();
  EXPECT_EQ(late.line(), "second: aborted: rank 1, step 2 (g1a1): " + cause + "\n");
}

}  // namespace
}  // namespace shoal::testing
