#include "local/status/node_query.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <type_traits>

#include "local/messages/messages.h"
#include "local/socket/socket.h"

namespace shoal::local {

namespace {

// Sends a request as the first message of a connection, and returns the status in the answer.
template <class Report, class Request>
auto ask_for(const Request& request, const std::string& socket_file, int timeout_ms)
    -> Result<std::remove_const_t<typename decltype(Report::status)::element_type>> {
  SHOAL_ASSIGN_OR_RETURN(auto socket, LocalSocket::connect(socket_file));
  SHOAL_RETURN_IF_ERROR(socket->send(request).with_context(socket_file));
  auto answer_or = socket->receive(timeout_ms);
  if (!answer_or.ok()) return answer_or.status().with_context(socket_file);
  auto& answer = *answer_or;
  if (!answer) {
    return Status(Code::deadline_exceeded, fmt::format("{}: the node (pid {}) did not answer within {} ms",
                                                       socket_file, socket->peer_pid(), timeout_ms));
  }
  if (const auto* failed = std::get_if<local::Failed>(&answer->message)) return failed->why;
  const auto* is = std::get_if<Report>(&answer->message);
  if (is == nullptr)
    return Status(Code::corrupt,
                  fmt::format("{}: the node answered with something other than its status", socket_file));
  return *is->status;
}

}  // namespace

Result<NodeStatus> ask_node(const std::string& socket_file, int timeout_ms) {
  return ask_for<StatusReport>(StatusRequest{}, socket_file, timeout_ms);
}

Result<JobStatus> ask_job(const std::string& socket_file, int timeout_ms) {
  return ask_for<JobStatusReport>(JobStatusRequest{}, socket_file, timeout_ms);
}

std::vector<std::string> list_node_sockets() {
  std::vector<std::string> sockets;
  std::error_code error;
  for (std::filesystem::directory_iterator at(runtime_folder(), error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".sock") sockets.push_back(at->path());
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

}  // namespace shoal::local
