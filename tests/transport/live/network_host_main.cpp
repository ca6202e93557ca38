// A host in its own network namespace. Reads commands from standard input, one per line, and answers each
// with a line:
//
//   enter                  creates the namespace: "ok", or an error
//   ip ARGUMENTS           runs `ip` in it: "ok" or "failed"
//   running INTERFACE      waits until the interface is usable: "ok"
//   node NAME [HOST:PORT]  starts the node, listening there: its address, "ok" if it has none, or an error
//   connect HOST:PORT      "up PEER", or "lost: " and the cause
//   send PEER BYTES        sends a message: "ok", or an error
//   receive COUNT          waits for this number of messages in total: "ok", or how many arrived
//   disconnect PEER        "ok" when the peer is disconnected
//   state PEER             "up", or "lost: " and the cause
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>

#include "tests/transport/live/recording_handler.h"

namespace shoal::testing {
namespace {

// UCX reads /sys, which shows the interfaces of the namespace it was mounted in.
std::string enter_namespace() {
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) {
    return std::string("no network namespace: ") + std::strerror(errno);
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("sysfs", "/sys", "sysfs", 0, nullptr) != 0) {
    return std::string("no /sys of its own: ") + std::strerror(errno);
  }
  return std::system("ip link set lo up >/dev/null 2>&1") == 0 ? "ok" : "`ip` cannot be used";
}

// The kernel says so some time after it was set up.
std::string wait_until_running(const std::string& interface) {
  auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < give_up) {
    std::string state;
    std::ifstream("/sys/class/net/" + interface + "/operstate") >> state;
    if (state == "up") return "ok";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return "it never was";
}

class Host {
 public:
  std::string carry_out(const std::string& line) {
    std::istringstream words(line);
    std::string command, first, second;
    words >> command >> first >> second;
    if (command == "enter") return enter_namespace();
    if (command == "ip") return std::system(("exec " + line).c_str()) == 0 ? "ok" : "failed";
    if (command == "running") return wait_until_running(first);
    if (command == "node") return start(first, second);
    if (command == "connect") return state(node_->transport->connect(first));
    transport::PeerId peer = std::stoull(first);
    if (command == "send") return send(peer, std::stoull(second));
    if (command == "receive") return receive(std::stoull(first));
    if (command == "disconnect") {
      node_->transport->disconnect(peer, Status());
      return node_->handler.wait_lost(peer).ok() ? "still up" : "ok";
    }
    return command == "state" ? state(peer) : "what?";
  }

 private:
  std::string start(const std::string& name, const std::string& listen) {
    transport::TransportOptions options = make_options(false, name);
    options.listen = listen;
    if (!listen.empty()) options.network.transport = transport::TransportKind::ucx;
    node_.emplace(std::move(options));
    Status started = node_->start();
    if (!started.ok()) return started.to_string();
    return listen.empty() ? "ok" : node_->address();
  }
  std::string state(transport::PeerId peer) {
    bool is_up = node_->handler.wait_up(peer);
    auto lost = node_->handler.record(peer).lost;
    if (!lost.empty()) return "lost: " + lost.front().to_string();
    return is_up ? "up " + std::to_string(peer) : "neither up nor lost";
  }
  std::string send(transport::PeerId peer, size_t bytes) {
    Status sent = node_->transport->send(peer, make_message(bytes, bytes));
    return sent.ok() ? "ok" : sent.to_string();
  }
  std::string receive(size_t count) {
    size_t there = 0;
    node_->handler.wait([&](auto& self) { return (there = self.messages()) >= count; });
    return there == count ? "ok" : std::to_string(there);
  }

  std::optional<Node> node_;
};

}  // namespace
}  // namespace shoal::testing

int main() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  shoal::testing::Host host;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << host.carry_out(line) << std::endl;
  }
  _exit(0);
}
