// Finds the node of this host and run, starts one, and attaches to it.
#pragma once

#include <chrono>
#include <ios>
#include <memory>
#include <string>
#include <vector>

#include "local/socket/socket.h"
#include "shoal/checkpointer.h"

namespace shoal::client {

// How often a thread that waits calls CheckpointerOptions::keep_waiting.
inline constexpr std::chrono::milliseconds kInterruptionCheck{50};

// $SHOAL_SOCKET, else the path in `paths`.
Result<std::string> socket_of(const CheckpointerOptions& options, const local::NodePaths& paths);

// Starts a node that outlives this process. It is in its own process session, and appends standard output and
// error to `log_file`. Several processes may start candidates; the lock file lets one of them serve, so that
// this one may end again. `generation`: the generation that the node continues; 0: a new run.
// Code::not_found names the program that cannot be run.
Status start_node(const CheckpointerOptions& options, const std::string& log_file, uint32_t generation = 0);

// The command of start_node. Code::not_found: there is no program to start.
Result<std::vector<std::string>> node_command(const CheckpointerOptions& options, uint32_t generation = 0);

// Looks for the node of this host with repeated tries. If no node listens, it starts a candidate. If
// candidates end before they serve, it starts further ones at increasing intervals.
class NodeFinder {
 public:
  // Takes the path of the node's socket from the environment, once.
  static Result<NodeFinder> make(const CheckpointerOptions& options);
  // Code::unavailable: no node listens yet. The message names the socket, the pid of the process that holds
  // the lock, if there is one, and the log with its last line.
  Result<std::unique_ptr<local::LocalSocket>> try_once(bool may_start);
  // A node that was killed has left its socket behind. The program that supervises it, such as shoal launch,
  // starts the next one.
  bool has_died() const;
  const std::string& socket_file() const { return socket_file_; }
  void found() { candidate_pause_ = {}; }  // the next search starts with the shortest interval
  // A node has served this client in that generation: candidates continue it.
  void rejoin(uint32_t generation) { generation_ = generation; }

 private:
  NodeFinder() = default;

  CheckpointerOptions options_;
  local::NodePaths paths_;
  std::string socket_file_;
  std::streamoff log_begin_ = 0;  // what an earlier run has logged ends here
  uint32_t generation_ = 0;
  std::chrono::steady_clock::time_point next_candidate_{};
  std::chrono::milliseconds candidate_pause_{0};
};

// A connection to a node that accepted this client.
struct NodeLink {
  std::unique_ptr<local::LocalSocket> socket;
  local::Attached attached;
};

// Finds or starts a node and attaches to it, within options.attach_timeout.
Result<NodeLink> attach_to_node(NodeFinder& finder, const CheckpointerOptions& options);
local::Attach attach_message(const CheckpointerOptions& options);
// A random number of this process. A forked child has another one.
Nonce process_nonce();
Status silent_at_attach(const local::LocalSocket& socket, const CheckpointerOptions& options);

}  // namespace shoal::client
