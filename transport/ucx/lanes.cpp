#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

#include "transport/ucx/worker.h"

namespace shoal::transport {

namespace {
// "lane[1]:  3:posix/memory.0 md[2]  -> ..." gives "posix"; the connection manager's lane ("lane[0]: cm tcp")
// carries no frames.
std::string transport_of(const std::string& line) {
  size_t lane = line.find("lane[");
  size_t slash = line.find('/');
  if (lane == std::string::npos || slash == std::string::npos) return "";
  size_t colon = line.rfind(':', slash);
  if (colon == std::string::npos || colon < lane) return "";
  return line.substr(colon + 1, slash - colon - 1);
}
}  // namespace

std::string UcxWorker::lanes(ucp_ep_h endpoint) {
  // UCX 1.13 has no query for the lanes; its printed description is the only source.
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return "?";
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  std::istringstream lines(std::string(text, bytes));
  std::free(text);
  std::set<std::string> transports;
  for (std::string line; std::getline(lines, line);) {
    if (std::string transport = transport_of(line); !transport.empty()) transports.insert(transport);
  }
  std::string joined;
  for (const std::string& transport : transports) joined += (joined.empty() ? "" : "+") + transport;
  return joined.empty() ? "?" : joined;
}

}  // namespace shoal::transport
