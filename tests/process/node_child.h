// A node as a child process, and a root to run it on.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace shoal::testing {

class NodeChild {
 public:
  // `runtime_dir`: of this "host". `arguments`: KEY=VALUE of tests/process/node_program.cpp.
  NodeChild(const std::string& runtime_dir, std::vector<std::string> arguments);
  ~NodeChild();  // SIGKILL where it still runs

  // The first line it says: "ready ADDRESS", or why it cannot run; "" if it ends, or after a long time.
  std::string first_line();
  std::string address();  // waits until it is ready; "" if it will not be
  void signal(int number);
  // Its exit status, 128 + signal; nullopt if it does not end in time.
  std::optional<int> wait();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::string line_;
  std::optional<int> ended_;
};

// A folder of its own, removed at the end: a root and a runtime folder for each "host".
class Scratch {
 public:
  Scratch();
  ~Scratch();
  std::string root() const { return folder_ + "/root"; }
  std::string host(const std::string& name) const;  // made if it is not there
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

std::string read_file(const std::string& path);  // "" if it is not there

}  // namespace shoal::testing
