// A rank of bench/modes: saves a small state repeatedly, waits for each save, and prints the times:
//
//   modes_rank --mode collective --saves 20 --tensors 200 --bytes 65536
//
// One line: rank, median seconds until `save` returned, and until the decision arrived. With --each, one line
// per save: rank, step and both times. The first saves, before a plan is known, do not count. With
// --interval-ms all ranks begin a save together, at multiples of it on the host's clock. Root, rank and job
// come from the environment (`shoal launch`).
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/timing.h"
#include "shoal/checkpointer.h"

namespace shoal::bench {
namespace {

constexpr uint32_t kWarmUp = 3;

struct Flags {
  SaveMode mode = SaveMode::collective_free;
  uint32_t saves = 20, tensors = 200, interval_ms = 0;
  uint64_t bytes = 65536;
  bool each = false;
};

void wait_for_the_next(std::chrono::milliseconds interval) {
  if (interval.count() == 0) return;
  const auto now = std::chrono::system_clock::now();
  std::this_thread::sleep_until(now + interval - now.time_since_epoch() % interval);
}

Status save_again_and_again(const Flags& flags) {
  SHOAL_ASSIGN_OR_RETURN(CheckpointerOptions options, CheckpointerOptions::from_environment());
  options.save.mode = flags.mode;
  const Rank rank = options.rank;
  const uint32_t ranks = options.world_size;
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Checkpointer> checkpointer, Checkpointer::open(std::move(options)));
  const uint64_t elements = std::max<uint64_t>(1, flags.bytes / flags.tensors / sizeof(float));
  std::vector<float> memory(elements * flags.tensors, static_cast<float>(rank));
  StateDict state;
  const Mesh mesh = Mesh::contiguous({ranks});
  for (uint32_t i = 0; i < flags.tensors; ++i) {
    state.add_tensor(fmt::format("layers.{}.weight", i), DType::f32, {elements * ranks}, mesh,
                     {Placement::shard(0)}, memory.data() + i * elements);
  }
  std::vector<double> staged, decided;
  for (uint32_t step = 1; step <= flags.saves; ++step) {
    wait_for_the_next(std::chrono::milliseconds(flags.interval_ms));
    SHOAL_ASSIGN_OR_RETURN(SaveHandle saved, checkpointer->save(step, state));
    SHOAL_RETURN_IF_ERROR(saved.wait_committed().status());
    if (step <= kWarmUp) continue;
    staged.push_back(saved.stats().seconds_blocked);
    decided.push_back(saved.seconds_to_decision());
    if (flags.each) fmt::print("{} {} {:.6f} {:.6f}\n", rank, step, staged.back(), decided.back());
  }
  if (flags.each) return ok_status();
  fmt::print("{} {:.6f} {:.6f}\n", rank, median(std::move(staged)), median(std::move(decided)));
  return ok_status();
}

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) {
  CLI::App app("A rank of bench/modes.");
  shoal::bench::Flags flags;
  std::string mode = "collective-free";
  app.add_option("--mode", mode)->check([](const std::string& name) {
    return shoal::mode_of_name(name) ? std::string() : "there is no mode '" + name + "'";
  });
  app.add_option("--saves", flags.saves)->check(CLI::Range(1u, 100000u));
  app.add_option("--tensors", flags.tensors)->check(CLI::Range(1u, 100000u));
  app.add_option("--bytes", flags.bytes, "Bytes of this rank");
  app.add_option("--interval-ms", flags.interval_ms);
  app.add_flag("--each", flags.each);
  CLI11_PARSE(app, argc, argv);
  flags.mode = *shoal::mode_of_name(mode);
  const shoal::Status status = shoal::bench::save_again_and_again(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "modes_rank: {}\n", status.to_string());
  return 1;
}
