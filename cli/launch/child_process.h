// Child processes of `shoal launch`. They do not outlive it.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "shoal/status.h"

namespace shoal::cli {

using Environment = std::map<std::string, std::string>;
Environment own_environment();

struct SpawnOptions {
  std::vector<std::string> arguments;  // the first is the program, searched in PATH
  Environment environment;
  int death_signal = 0;  // signal to the child when this process dies
  int stdout_fd = -1;    // -1: that of this process
  int stderr_fd = -1;
  std::vector<int> keep_fds;  // stay open in the child, with the same numbers
};

// Starts a process in a new process group, with /dev/null as input and no blocked signals. The new group
// makes Ctrl-C in a terminal reach the child once, through this process. Call it from the main thread,
// because death_signal applies when the calling thread ends. Code::not_found or Code::refused if the program
// cannot be run.
Result<pid_t> spawn(const SpawnOptions& options);

// Checks that spawn can find and run the program, by name or in PATH. Code::not_found or Code::refused.
Status check_program(const std::string& program);

// The exit status as in a shell: 128 + n if signal n ended the process.
int exit_status_of(int wait_status);
std::string describe_end(int wait_status);  // "exit status 3", "signal 9 (Killed)"

}  // namespace shoal::cli
