// Launcher: runs a node and the trainers of one host, from start to end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "cli/launch/child_process.h"
#include "cli/launch/restart_limit.h"
#include "cli/launch/save_outcomes.h"
#include "local/socket/socket.h"
#include "shoal/status.h"

namespace shoal::cli {

struct LaunchPlan {
  std::vector<std::string> node;  // command line; the launcher adds --ready-fd, and --rejoin at a restart
  Environment node_environment;
  std::vector<std::string> trainer;               // command line of each trainer
  std::vector<Environment> trainer_environments;  // one per local rank
  uint32_t first_rank = 0;                        // first local rank
  std::string root;                               // the root, from which the decisions of saves are read
  // Path of the FIFO through which trainers report their saves; the launcher creates it.
  std::string save_report;
  bool is_one_host = true;        // no node decides saves after this one has ended
  uint32_t max_failed_saves = 0;  // the limit of the trainers; used in messages only
  bool kill_on_failure = false;
  bool tag_output = false;
  // Command line of `shoal drain`, which runs beside the job; empty: none. The launcher adds --launcher-fd.
  std::vector<std::string> drain;
  std::string drain_to;                                 // for messages
  std::chrono::seconds drain_patience{600};             // from the end of the job to that of the drain
  std::chrono::milliseconds node_ready_within{90'000};  // the node may have to wait for the coordinator
};

// One thread. If this process dies, its trainers die (SIGKILL), and its node and its drain stop cleanly
// (SIGTERM).
class Launcher {
 public:
  // Blocks the signals that it forwards, for the rest of the process.
  explicit Launcher(LaunchPlan plan);
  ~Launcher();
  Launcher(const Launcher&) = delete;

  // Starts the node, waits until it is ready, and starts the trainers. Forwards signals to the trainers until
  // the last one has ended, then stops the node and waits for it. A node that ends before them is restarted
  // as RestartLimit allows, unless another job has taken over the root. Returns the worst status of the
  // trainers: at least 1 if the node failed for good; kExitSaveFailed if a save failed without any trainer
  // being notified, or if too many saves failed in a row; kExitNotDrained if the drain has not copied all
  // within its time. A drain that ends early is started again.
  Result<int> run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Output {  // output of a trainer, with --tag-output
    base::OwnedFd from;
    int to = 1;
    std::string tag, line;
  };
  struct Child {
    pid_t pid = 0;
    uint32_t rank = 0;
    std::optional<int> wait_status;  // set once it has ended
    bool ended_by_us = false;        // ended because another trainer failed; the status of that one counts
  };

  Status start_node();
  Status wait_for_node();
  bool read_node();
  Status ended_before_ready();
  Status start_trainers();
  Status start_trainer(uint32_t local_rank);
  void on_node_end();
  void restart_node();
  void stop_node();
  Status spawn_drain();
  void start_drain();
  void on_drain_end();
  // Waits until the drain has copied what the job has saved. Returns whether it has copied all.
  bool finish_drain();
  Status make_save_report();
  void read_saves();
  // Reports the failed saves of which no trainer was notified, and returns whether there are any.
  // `undecided_fail`: undecided saves count as failed, because no node decides them any more.
  bool report_failed_saves(bool undecided_fail);

  // Waits for signals, output and `extra_fd`, until the earlier of `deadline` and the time to kill. Returns
  // whether extra_fd is readable.
  bool handle_events(int extra_fd, std::optional<Clock::time_point> deadline);
  void handle_signals();
  void handle_signal(int number);
  void reap();
  void on_trainer_end(const Child& trainer);
  void report_end(const Child& trainer);
  void notify_node();
  void end_trainers();  // SIGTERM now, SIGKILL after kTrainerGrace
  void kill_trainers();
  void read_output(Output* output);
  void flush_output(Output* output, bool at_end);
  bool any_trainer() const;

  const LaunchPlan plan_;
  base::OwnedFd signals_;
  base::OwnedFd node_ready_;
  base::OwnedFd to_node_;
  std::string unreported_;  // lines that did not fit into the pipe to the node
  std::string node_line_;
  // Generation of the run that the first node began or joined; restarted nodes rejoin it.
  std::string generation_;
  Child node_;
  Child drain_;
  base::OwnedFd to_drain_;  // ends with the job
  Clock::time_point drain_began_;
  std::chrono::seconds drain_pause_{0};  // before the next start of a drain that has ended early
  std::optional<Clock::time_point> drain_again_at_;
  bool drain_is_finishing_ = false;
  std::vector<Child> trainers_;
  std::vector<Output> outputs_;
  base::OwnedFd save_report_;
  SaveOutcomes save_outcomes_;
  std::optional<Clock::time_point> kill_at_;
  int stop_signal_ = 0;        // the first SIGTERM, SIGINT or SIGHUP that arrived
  uint32_t stop_signals_ = 0;  // number of these signals
  bool is_ending_ = false;     // trainers were requested to end
  bool node_is_stopping_ = false;
  bool node_was_ready_ = false;
  RestartLimit restart_limit_;
  bool was_restarted_ = false;
  std::optional<Clock::time_point> restart_at_;  // when to restart a node that has ended
};

}  // namespace shoal::cli
