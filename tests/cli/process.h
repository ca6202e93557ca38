// Runs programs as a user would: takes arguments, returns exit status and output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shoal::cli {

struct ProcessOptions {
  // Variables added to the environment. It otherwise equals that of the test, without SHOAL_ and SLURM_
  // variables.
  std::vector<std::pair<std::string, std::string>> environment;
  bool unprivileged = false;  // if the test runs as root, the program runs as user nobody
};

struct ProcessEnd {
  int status = 0;  // 128 + n if signal n ended it
  std::string out, err;
};

// A running program. The destructor kills it.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Waits until its stdout contains `text`. False if it ended or 60 s passed without that.
  bool wait_for_output(const std::string& text);
  bool wait_for_errors(const std::string& text, int times = 1);  // the same for stderr
  void send_signal(int number) const;                            // nothing, once wait() has returned
  const std::string& errors() const { return err_; }             // stderr so far
  ProcessEnd wait();                                             // waits for its end; kills it after 60 s

 private:
  bool wait_for(const std::string& written, const std::string& text, int times);
  // false: both pipes ended, or the deadline passed
  bool read_some(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  int out_fd_ = -1, err_fd_ = -1;
  std::string out_, err_;
};

// Waits for a child of a process that runs `shoal COMMAND` and is not `not_this`. 0 after 60 s.
pid_t wait_for_child(pid_t parent, const std::string& command, pid_t not_this = 0);

ProcessEnd run_process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
// The same with the `shoal` of this build as the program.
ProcessEnd run_shoal(std::vector<std::string> arguments, const ProcessOptions& options = {});

}  // namespace shoal::cli
