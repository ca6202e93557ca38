// Child processes of `shoal launch`: started so that they do not outlive it.
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
  std::vector<std::string> arguments;  // the first is looked for in PATH
  Environment environment;
  int death_signal = 0;  // what the child gets when this process dies
  int stdout_fd = -1;    // -1: ours
  int stderr_fd = -1;
  std::vector<int> keep_fds;  // stay open in the child under their own numbers
};

// Starts a process in a process group of its own (so that a terminal's Ctrl-C reaches it once, through us),
// with /dev/null as input and no signal blocked. Call from the main thread: death_signal follows the thread.
// Code::not_found or refused where the program cannot be run.
Result<pid_t> spawn(const SpawnOptions& options);

// Whether spawn would find the program, and may run it, by name or in PATH: Code::not_found or refused.
Status check_program(const std::string& program);

// As a shell has it: 128 + n where signal n ended it.
int exit_status_of(int wait_status);
std::string describe_end(int wait_status);  // "exit status 3", "signal 9 (Killed)"

}  // namespace shoal::cli
