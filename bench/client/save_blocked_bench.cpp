// How long save() blocks a trainer, compared with a memcpy of the same bytes in the same run. The node is a
// thread that frees each slab at once, so the benchmark measures only the client, in its steady state. The
// time beyond the copy is that of planning: the client recognizes the state dict and reuses layout, plan and
// list of pieces. One part uses the same StateDict for all saves; the other makes a new one for each save. A
// second run compares replicas too (SaveOptions::replica_check), all of whose tensors two ranks hold.
//
//   save_blocked_bench [MIB_TOTAL [TENSORS [ROUNDS]]]      default: 512 2000 15
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "bench/timing.h"
#include "local/socket/socket.h"
#include "shoal/checkpointer.h"

namespace shoal::bench {
namespace {

using Clock = std::chrono::steady_clock;

void serve(local::LocalListener& listener) {
  local::LocalSocket socket(std::move(**listener.accept(-1)));
  while (true) {
    auto received = socket.receive(-1);
    if (!received.ok()) return;
    const local::LocalMessage& message = (**received).message;
    if (std::holds_alternative<local::Attach>(message)) (void)socket.send(local::Attached{1, 1});
    if (const auto* staged = std::get_if<local::Staged>(&message)) {
      (void)socket.send(local::SlabFree{staged->slab_id});
      (void)socket.send(local::Decided{staged->step, staged->attempt, ok_status(), {}});
    }
  }
}

int run(size_t total_bytes, size_t tensors, size_t rounds, ReplicaCheck replica_check) {
  char folder[] = "/tmp/shoal-bench-XXXXXX";
  if (!::mkdtemp(folder)) return 1;
  ::setenv("SHOAL_RUNTIME_DIR", (std::string(folder) + "/run").c_str(), 1);
  auto listener = local::LocalListener::listen(local::node_paths(folder).value().socket_file).value();
  std::thread node([&] { serve(*listener); });

  const size_t each = total_bytes / tensors / 64 * 64;
  std::vector<std::vector<std::byte>> memory(tensors, std::vector<std::byte>(each, std::byte{1}));
  std::vector<std::vector<std::byte>> copies[2];  // as many as slabs; faulted in and reused in the same way
  for (auto& copy : copies) copy.assign(tensors, std::vector<std::byte>(each, std::byte{2}));
  const bool compares = replica_check != ReplicaCheck::off;
  auto make_state = [&] {
    StateDict made;
    for (size_t i = 0; i < tensors; ++i) {
      made.add_value(fmt::format("t{}", i), DType::u8, {each}, memory[i].data(),
                     compares ? Mesh::contiguous({2}) : Mesh::single(0), compares);
    }
    return made;
  };
  const StateDict state = make_state();
  CheckpointerOptions options;
  options.root = folder;
  options.start_node = false;
  options.save.replica_check = replica_check;
  if (compares) options.world_size = 2;
  options.job_id = "job";
  options.on_save_warning = [](const AttemptKey&, const std::string&) {};
  {
    auto checkpointer = Checkpointer::open(options).value();
    if (Status status = checkpointer->prepare(state); !status.ok()) {
      fmt::print(stderr, "{}\n", status.to_string());
      std::exit(1);
    }
    std::vector<double> blocked, overhead, overhead_rebuilt, plain, comparing;
    auto save = [&](size_t step, const StateDict& given) {
      SaveHandle saved = checkpointer->save(step, given).value();
      (void)saved.wait_committed();
      return saved.stats();
    };
    auto not_copying = [](const SaveStats& stats) {
      return stats.seconds_blocked - stats.seconds_copying - stats.seconds_waited;
    };
    for (size_t round = 0; round < rounds + 2; ++round) {
      const SaveStats stats = save(2 * round, state);
      const Clock::time_point begun = Clock::now();
      for (size_t i = 0; i < tensors; ++i) std::memcpy(copies[round % 2][i].data(), memory[i].data(), each);
      if (round < 2) continue;  // warm-up: each slab once
      plain.push_back(seconds_since(begun));
      blocked.push_back(stats.seconds_blocked);
      overhead.push_back(not_copying(stats));
      comparing.push_back(stats.seconds_comparing);
      const StateDict rebuilt = make_state();
      overhead_rebuilt.push_back(not_copying(save(2 * round + 1, rebuilt)));
    }
    fmt::print(
        "{:4} tensors, {:3.0f} MiB: save {:6.2f} ms, memcpy {:6.2f} ms, x{:.2f}; {:.3f} ms do not copy, "
        "{:.3f} ms with a new state dict\n",
        tensors, static_cast<double>(each * tensors) / (1 << 20), median(blocked) * 1e3, median(plain) * 1e3,
        median(blocked) / median(plain), median(overhead) * 1e3, median(overhead_rebuilt) * 1e3);
    if (compares) {
      fmt::print("with replica_check: {:.3f} ms of these compare replicas, x{:.3f} of the memcpy\n",
                 median(comparing) * 1e3, median(comparing) / median(plain));
    }
  }
  node.join();
  listener.reset();
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) {
  const auto number = [&](int at, size_t otherwise) {
    return argc > at ? static_cast<size_t>(std::max(1L, std::atol(argv[at]))) : otherwise;
  };
  using shoal::ReplicaCheck;
  for (ReplicaCheck check : {ReplicaCheck::off, ReplicaCheck::warn}) {
    const int status = shoal::bench::run(number(1, 512) << 20, number(2, 2000), number(3, 15), check);
    if (status != 0) return status;
  }
  return 0;
}
