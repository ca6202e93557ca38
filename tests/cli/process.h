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
  // Set in the environment, which is the test's own otherwise, without any SHOAL_ or SLURM_ variable.
  std::vector<std::pair<std::string, std::string>> environment;
  bool unprivileged = false;  // where the test runs as root, the program runs as nobody
};

struct ProcessEnd {
  int status = 0;  // 128 + n where signal n ended it
  std::string out, err;
};

// A program that runs. Killed when destroyed.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Waits until what it has written to stdout holds `text`; false when it ended or 60 s passed without.
  bool wait_for_output(const std::string& text);
  bool wait_for_errors(const std::string& text, int times = 1);  // the same of stderr
  void send_signal(int number) const;
  const std::string& errors() const { return err_; }  // what came of stderr so far
  ProcessEnd wait();                                  // for its end; after 60 s it is killed

 private:
  bool wait_for(const std::string& written, const std::string& text, int times);
  bool read_some(std::chrono::steady_clock::time_point deadline);  // false: both pipes ended, or the deadline

  pid_t pid_ = -1;
  int out_fd_ = -1, err_fd_ = -1;
  std::string out_, err_;
};

// The child of a process that runs `shoal COMMAND`, another than `not_this`; waits for one, 0 after 60 s.
pid_t wait_for_child(pid_t parent, const std::string& command, pid_t not_this = 0);

ProcessEnd run_process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
// The same with the `shoal` of this build as the program.
ProcessEnd run_shoal(std::vector<std::string> arguments, const ProcessOptions& options = {});

}  // namespace shoal::cli
