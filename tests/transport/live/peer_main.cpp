// A node in a child process that tests stop and kill. It connects to ADDRESS and sends every message back.
// Exits with status 3 when it has lost its peer.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "tests/transport/live/recording_handler.h"

namespace {

class Echo : public shoal::transport::TransportHandler {
 public:
  void on_peer_up(shoal::transport::PeerId, const shoal::transport::Identity&) override {}
  void on_message(shoal::transport::PeerId peer, shoal::Bytes message) override {
    (void)transport->send(peer, std::move(message));
  }
  void on_peer_lost(shoal::transport::PeerId, const shoal::Status&) override { _exit(3); }

  shoal::transport::Transport* transport = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  shoal::transport::TransportOptions options = shoal::testing::make_options(false, "child");
  options.limits.peer_lost_after_ms = static_cast<uint32_t>(std::atoi(argv[2]));
  options.limits.heartbeat_interval_ms = options.limits.peer_lost_after_ms / 5;
  auto transport = shoal::transport::make_transport(std::move(options));
  Echo echo;
  echo.transport = transport.get();
  if (!transport->start(echo).ok()) return 2;
  transport->connect(argv[1]);
  while (true) pause();
}
