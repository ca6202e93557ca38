// Launcher: a node and the trainers of one host, from start to end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/child_process.h"
#include "cli/launch/restart_limit.h"
#include "cli/launch/save_outcomes.h"
#include "local/socket/socket.h"
#include "shoal/status.h"

namespace shoal::cli {

struct LaunchPlan {
  std::vector<std::string> node;  // command line; --ready-fd is added, and --rejoin where it is started again
  Environment node_environment;
  std::vector<std::string> trainer;               // command line of each
  std::vector<Environment> trainer_environments;  // one a local rank
  uint32_t first_rank = 0;                        // of the local ones
  std::string root;                               // where the decisions of saves are read back
  std::string save_report;                        // the FIFO by which trainers report their saves; made here
  bool is_one_host = true;                        // when this node has ended, nobody decides saves any more
  uint32_t max_failed_saves = 0;                  // as the trainers hear it; named in messages alone
  bool kill_on_failure = false;
  bool tag_output = false;
  std::chrono::milliseconds node_ready_within{90'000};  // it may have to wait for the coordinator
};

// One thread. Trainers die (SIGKILL) when this process does, the node then stops cleanly (SIGTERM).
class Launcher {
 public:
  // Blocks the signals that it forwards, for the rest of the process.
  explicit Launcher(LaunchPlan plan);
  ~Launcher();
  Launcher(const Launcher&) = delete;

  // Starts the node, waits until it is ready, starts the trainers, forwards signals to them until the last
  // has ended, then stops the node and waits for it. A node that ends before them is started again, as
  // RestartLimit allows, and not where another job has taken over the root. The worst status of the
  // trainers; at least 1 where the node failed in the end; kExitSaveFailed where a save failed and no trainer
  // was told of it, or too many in a row did.
  Result<int> run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Output {  // of a trainer, with --tag-output
    local::OwnedFd from;
    int to = 1;
    std::string tag, line;
  };
  struct Child {
    pid_t pid = 0;
    uint32_t rank = 0;
    std::optional<int> wait_status;  // once it has ended
    bool ended_by_us = false;        // because of another's failure, which is the one that counts
  };

  Status start_node();
  Status wait_for_node();
  bool hear_node();
  Status ended_before_ready();
  Status start_trainers();
  Status start_trainer(uint32_t local_rank);
  void on_node_end();
  void restart_node();
  void stop_node();
  Status make_save_report();
  void hear_saves();
  // Whether any failed that no trainer was told of. `undecided_fail`: nobody decides those any more.
  bool tell_failed_saves(bool undecided_fail);

  // Waits for signals, output and `extra_fd`, at most until the earlier of `deadline` and the time to kill.
  // Returns whether extra_fd can be read.
  bool handle_events(int extra_fd, std::optional<Clock::time_point> deadline);
  void handle_signals();
  void handle_signal(int number);
  void reap();
  void on_trainer_end(const Child& trainer);
  void tell_end(const Child& trainer);
  void tell_node();
  void end_trainers();  // SIGTERM now, SIGKILL after a while
  void kill_trainers();
  void read_output(Output* output);
  void flush_output(Output* output, bool at_end);
  bool any_trainer() const;

  const LaunchPlan plan_;
  local::OwnedFd signals_;
  local::OwnedFd node_ready_;
  local::OwnedFd to_node_;
  std::string untold_;  // lines for which the pipe has no room
  std::string node_line_;
  std::string generation_;  // of the run that the first node began or joined; the next ones go on with it
  Child node_;
  std::vector<Child> trainers_;
  std::vector<Output> outputs_;
  local::OwnedFd save_report_;
  SaveOutcomes save_outcomes_;
  std::optional<Clock::time_point> kill_at_;
  int stop_signal_ = 0;        // the first SIGTERM, SIGINT or SIGHUP that came
  uint32_t stop_signals_ = 0;  // how many
  bool is_ending_ = false;     // trainers were told to end
  bool node_is_stopping_ = false;
  bool node_was_ready_ = false;
  RestartLimit restart_limit_;
  bool was_restarted_ = false;
  std::optional<Clock::time_point> restart_at_;  // a node that has ended
};

}  // namespace shoal::cli
