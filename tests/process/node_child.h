// A node as a child process, and a root to run it on.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace shoal::testing {

class NodeChild {
 public:
  // `runtime_dir`: the runtime folder of this "host". `arguments`: KEY=VALUE for
  // tests/process/node_program.cpp.
  NodeChild(const std::string& runtime_dir, std::vector<std::string> arguments);
  ~NodeChild();  // sends SIGKILL if it still runs

  // Its first line of output: "ready ADDRESS", or an error; "" if it ends, or after a long time.
  std::string first_line();
  std::string address();  // waits until it is ready; "" if it fails
  void signal(int number);
  // Its exit status, or 128 + signal; nullopt if it does not end in time.
  std::optional<int> wait();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::string line_;
  std::optional<int> ended_;
};

// A temporary folder, removed at the end, with a root and a runtime folder for each "host".
class Scratch {
 public:
  Scratch();
  ~Scratch();
  std::string root() const { return folder_ + "/root"; }
  std::string host(const std::string& name) const;  // created if missing
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

std::string read_file(const std::string& path);  // "" if missing

}  // namespace shoal::testing
