// NodeLog: the node's log lines, on standard error.
#pragma once

#include <memory>
#include <string>

namespace shoal::actors {

class NodeLog {  // any thread
 public:
  explicit NodeLog(const std::string& name);
  ~NodeLog();
  void info(const std::string& line);
  void warning(const std::string& line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::actors
