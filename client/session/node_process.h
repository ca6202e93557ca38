// The node of this host and run: where its socket is, and how one is started.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "local/socket/socket.h"
#include "shoal/checkpointer.h"

namespace shoal::client {

// $SHOAL_SOCKET, else where node_paths puts it.
Result<std::string> socket_of(const CheckpointerOptions& options, const local::NodePaths& paths);

// Starts a node that outlives this process: a session of its own, standard output and error appended to
// `log_file`. Code::not_found names the program that cannot be run. That the node then serves is not said:
// several candidates may start, their lock elects one.
// `generation`: which the node is to go on with; 0: a run starts.
Status start_node(const CheckpointerOptions& options, const std::string& log_file, uint32_t generation = 0);

// The command of start_node. Code::not_found: there is no program to start.
Result<std::vector<std::string>> node_command(const CheckpointerOptions& options, uint32_t generation = 0);

// Looks for the node of this host, one try after the other. Where nobody listens, it starts a candidate now
// and then; candidates that die before they serve are followed by others, ever more seldom.
class NodeFinder {
 public:
  // Where a node listens is settled here, from the environment of this moment.
  static Result<NodeFinder> make(const CheckpointerOptions& options);
  // Code::unavailable: nobody listens yet; names the socket, the log and, if a process holds the lock, its
  // pid.
  Result<std::unique_ptr<local::LocalSocket>> try_once(bool may_start);
  void found() { candidate_pause_ = {}; }  // the next search begins afresh
  // This client has been served in that generation: candidates go on with it.
  void rejoin(uint32_t generation) { generation_ = generation; }

 private:
  NodeFinder() = default;

  CheckpointerOptions options_;
  local::NodePaths paths_;
  std::string socket_file_;
  uint32_t generation_ = 0;
  std::chrono::steady_clock::time_point next_candidate_{};
  std::chrono::milliseconds candidate_pause_{0};
};

// A node that took this client in.
struct NodeLink {
  std::unique_ptr<local::LocalSocket> socket;
  local::Attached said;
};

// Finds or starts a node and attaches to it, within options.attach_timeout.
Result<NodeLink> attach_to_node(NodeFinder& finder, const CheckpointerOptions& options);
local::Attach attach_message(const CheckpointerOptions& options);
// Of this process, drawn once; another one in a child that it forks.
Nonce process_nonce();
Status silent_at_attach(const local::LocalSocket& socket, const CheckpointerOptions& options);

}  // namespace shoal::client
