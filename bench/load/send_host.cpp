// A host of bench/load/replicas: the sending stage of a shared load alone. Each host sends its part of the
// chunks, which lie in its memory, to all others, through the sessions that a node uses for that.
//
//   send_host --own-host 10.79.0.1 --host 0 --hosts 4 --bytes 256m --meet FOLDER
//
// Hosts learn each other's addresses by files FOLDER/address-HOST, and begin when FOLDER/go appears. One
// line: host, when it began and when it had all chunks of the others, in seconds of the monotonic clock.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "actors/node/links/sharing_links.h"

namespace shoal {
namespace {

constexpr std::chrono::minutes kPatience{2};

struct Flags {
  std::string own_host = "127.0.0.1", meet;
  uint32_t host = 0, hosts = 2;
  uint64_t bytes = uint64_t{256} << 20;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Until>
bool wait_until(Until until) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!until()) {
    if (std::chrono::steady_clock::now() >= give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void put(const std::string& file, const std::string& text) {
  std::ofstream(file + ".partial") << text;
  std::filesystem::rename(file + ".partial", file);
}

actors::WireMessage between_loaders(actors::WireBody body) {
  return {actors::RoleKind::loader, actors::RoleKind::loader,
          std::make_shared<const actors::WireBody>(std::move(body))};
}

// No host may end while another still fetches from it.
Status wait_for_others(const Flags& flags) {
  put(fmt::format("{}/done-{}", flags.meet, flags.host), "\n");
  for (uint32_t i = 0; i < flags.hosts; ++i) {
    const std::string file = fmt::format("{}/done-{}", flags.meet, i);
    if (!wait_until([&] { return std::filesystem::exists(file); })) {
      return Status(Code::deadline_exceeded, fmt::format("host {} did not finish", i));
    }
  }
  return ok_status();
}

Status send_and_receive(const Flags& flags) {
  std::atomic<uint64_t> received{0};
  std::mutex mutex;
  std::set<uint64_t> greeted_by;  // hosts
  actors::SharingLinks::Settings settings;
  settings.transport.identity.job_id = "send_host";
  settings.transport.identity.incarnation = random_128();
  settings.transport.identity.name = std::to_string(flags.host);
  settings.transport.token = Bytes(32, std::byte{7});
  settings.own_host = [&flags] { return Result<std::string>(flags.own_host); };
  settings.log = [](const std::string&) {};
  actors::SharingLinks links(std::move(settings), [&](actors::NodeId, actors::WireMessage message, size_t) {
    if (const auto* chunk = std::get_if<actors::wire::ChunkData>(message.body.get()))
      received += chunk->chunk->size;
    if (const auto* greeting = std::get_if<actors::wire::ChunkRequest>(message.body.get())) {
      std::lock_guard lock(mutex);
      greeted_by.insert(greeting->chunks.at(0));
    }
    return true;
  });
  SHOAL_ASSIGN_OR_RETURN(std::string address, links.listen());
  put(fmt::format("{}/address-{}", flags.meet, flags.host), address);

  std::vector<std::string> others;
  for (uint32_t i = 0; i < flags.hosts; ++i) {
    const std::string file = fmt::format("{}/address-{}", flags.meet, i);
    if (!wait_until([&] { return std::filesystem::exists(file); })) {
      return Status(Code::deadline_exceeded, fmt::format("host {} never connected", i));
    }
    std::string there;
    std::ifstream(file) >> there;
    if (i != flags.host) others.push_back(there);
  }
  auto chunk = std::make_shared<actors::Chunk>();
  chunk->size = actors::kChunkBytes;
  chunk->bytes.resize(actors::kChunkBytes, std::byte{3});
  const uint64_t chunks = flags.bytes / actors::kChunkBytes;
  // All sessions exist before the clock starts. A greeting may be lost if its session fails.
  auto next_greeting = std::chrono::steady_clock::now();
  bool is_ready = false;
  const bool begins = wait_until([&] {
    if (std::chrono::steady_clock::now() >= next_greeting) {
      next_greeting += std::chrono::seconds(1);
      for (const std::string& other : others)
        links.send_to(other, between_loaders(actors::wire::ChunkRequest{{}, {flags.host}}));
    }
    std::lock_guard lock(mutex);
    if (!is_ready && greeted_by.size() == others.size()) {
      is_ready = true;
      put(fmt::format("{}/ready-{}", flags.meet, flags.host), "\n");
    }
    return std::filesystem::exists(flags.meet + "/go");
  });
  if (!is_ready) return Status(Code::deadline_exceeded, "not all hosts connected to this one");
  if (!begins) return Status(Code::deadline_exceeded, "the start signal never came");

  const double began = seconds_now();
  uint64_t own = 0;
  for (uint64_t i = flags.host; i < chunks; i += flags.hosts) {
    ++own;
    for (const std::string& other : others)
      links.send_to(other, between_loaders(actors::wire::ChunkData{{}, i, chunk}));
  }
  if (!wait_until([&] { return received == (chunks - own) * actors::kChunkBytes; })) {
    return Status(Code::deadline_exceeded, fmt::format("{} bytes came", received.load()));
  }
  fmt::print("{} {:.6f} {:.6f}\n", flags.host, began, seconds_now());
  return wait_for_others(flags);
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  CLI::App app("A host of bench/load/replicas.");
  shoal::Flags flags;
  app.add_option("--own-host", flags.own_host);
  app.add_option("--host", flags.host);
  app.add_option("--hosts", flags.hosts)->check(CLI::Range(1u, 512u));
  app.add_option("--bytes", flags.bytes)->transform(CLI::AsSizeValue(false));
  app.add_option("--meet", flags.meet)->required();
  CLI11_PARSE(app, argc, argv);
  const shoal::Status status = shoal::send_and_receive(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "send_host: {}\n", status.to_string());
  return 1;
}
