// A node for tests: calls run_node with options from the command line, as KEY=VALUE. Prints "ready ADDRESS"
// to standard output.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "actors/node/node.h"

namespace {

std::atomic<int> stops{0};

void on_signal(int) {
  stops.store(stops.load() + 1);
}

// OPERATION:before|after:N: the node is killed, or stopped, at the N-th one, where it begins or when it is
// done.
std::function<void(std::string_view, bool)> signaller(const std::string& at, int number) {
  const size_t first = at.find(':'), second = at.rfind(':');
  auto left = std::make_shared<std::atomic<int>>(std::stoi(at.substr(second + 1)));
  return [operation = at.substr(0, first), is_done = at.substr(first + 1, second - first - 1) == "after",
          left, number](std::string_view name, bool done) {
    if (name == operation && done == is_done && --*left == 0) kill(getpid(), number);
  };
}

shoal::actors::NodeOptions parse(int count, char** arguments) {
  shoal::actors::NodeOptions options;
  shoal::ByteView token = shoal::as_view("secret");
  options.token.assign(token.begin(), token.end());
  options.listen = "127.0.0.1:0";
  for (int i = 1; i < count; ++i) {
    std::string text = arguments[i], key = text.substr(0, text.find('=')),
                value = text.substr(key.size() + 1);
    if (key == "root") options.root = value;
    if (key == "job") options.job_id = value;
    if (key == "name") options.name = value;
    if (key == "world") options.world_size = static_cast<uint32_t>(std::stoul(value));
    if (key == "coordinator") options.coordinator = value;
    if (key == "listen") options.listen = value;
    if (key == "interface") options.network.interface = value;
    if (key == "token") {
      token = shoal::as_view(value);
      options.token.assign(token.begin(), token.end());
    }
    if (key == "die_at") options.around_operation = signaller(value, SIGKILL);
    if (key == "stop_at") options.around_operation = signaller(value, SIGSTOP);
    if (key == "nofile") {  // the most file descriptors, hard and soft
      const rlimit few{std::stoul(value), std::stoul(value)};
      setrlimit(RLIMIT_NOFILE, &few);
    }
    if (key == "ranks_here") {
      for (shoal::Rank rank = 0; rank < std::stoul(value); ++rank) options.expected_ranks.push_back(rank);
    }
    if (key == "find_ms") options.timeouts.find_coordinator_ms = static_cast<uint32_t>(std::stoul(value));
    if (key == "staging_memory") options.staging_memory_bytes = std::stoull(value);
    if (key == "load_memory") options.load_memory_bytes = std::stoull(value);
    if (key == "max_direct_nodes") options.max_direct_nodes = static_cast<uint32_t>(std::stoul(value));
    if (key == "take_over") options.take_over = true;
    if (key == "read_only") options.read_only = true;
    if (key == "keep_last") options.retention.keep_last = static_cast<uint32_t>(std::stoul(value));
    if (key == "rejoin") options.rejoin = static_cast<uint32_t>(std::stoul(value));
    if (key == "stats") options.stats_file = value;
    if (key == "protocol") options.protocol_log = value;
    if (key == "idle_ms") {
      options.idle_exit = true;
      options.idle_exit_after_ms = static_cast<uint32_t>(std::stoul(value));
    }
    if (key == "started_by") options.started_by = std::stoi(value);
    if (key == "attempt_deadline_ms") {
      options.timeouts.attempt_deadline_ms = static_cast<uint32_t>(std::stoul(value));
    }
    if (key == "host_lost_ms") options.timeouts.host_lost_ms = static_cast<uint32_t>(std::stoul(value));
    if (key == "drain_patience_ms") {
      options.timeouts.drain_patience_ms = static_cast<uint32_t>(std::stoul(value));
    }
    if (key == "epoch_check_ms") {
      options.timeouts.epoch_check_ms = static_cast<uint32_t>(std::stoul(value));
    }
    if (key == "log" && std::freopen(value.c_str(), "a", stderr) == nullptr) std::abort();
    if (key == "abandoned_after_ms") {
      options.timeouts.abandoned_after_ms = static_cast<uint32_t>(std::stoul(value));
    }
    if (key == "node_deadline_ms") {
      options.timeouts.node_deadline_ms = static_cast<uint32_t>(std::stoul(value));
    }
  }
  options.coordinate = options.coordinator.empty();
  return options;
}

}  // namespace

int main(int count, char** arguments) {
  std::signal(SIGTERM, on_signal);
  shoal::Status status =
      shoal::actors::run_node(parse(count, arguments), stops, [](const std::string& address, uint32_t) {
        std::printf("ready %s\n", address.c_str());
        std::fflush(stdout);
      });
  if (status.ok()) return 0;
  std::printf("%s\n", status.to_string().c_str());
  return 1;
}
