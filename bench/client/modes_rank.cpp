// A rank of bench/modes: saves a small state again and again, each save awaited, and prints what they took
// it:
//
//   modes_rank --mode collective --saves 20 --tensors 200 --bytes 65536
//
// One line: rank, median seconds until `save` returned, and until the decision was heard. The first saves,
// before which no plan was known, do not count. Root, rank and job come from the environment (`shoal
// launch`).
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "client/checkpointer.h"

namespace shoal {
namespace {

constexpr uint32_t kWarmUp = 3;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Status save_again_and_again(SaveMode mode, uint32_t saves, uint32_t tensors, uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(CheckpointerOptions options, CheckpointerOptions::from_environment());
  options.save.mode = mode;
  const Rank rank = options.rank;
  const uint32_t ranks = options.world_size;
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Checkpointer> checkpointer, Checkpointer::open(std::move(options)));
  const uint64_t elements = std::max<uint64_t>(1, bytes / tensors / sizeof(float));
  std::vector<float> memory(elements * tensors, static_cast<float>(rank));
  StateDict state;
  const Mesh mesh = Mesh::contiguous({ranks});
  for (uint32_t i = 0; i < tensors; ++i) {
    state.add_tensor(fmt::format("layers.{}.weight", i), DType::f32, {elements * ranks}, mesh,
                     {Placement::shard(0)}, memory.data() + i * elements);
  }
  std::vector<double> staged, decided;
  for (uint32_t step = 1; step <= saves; ++step) {
    SHOAL_ASSIGN_OR_RETURN(SaveHandle saved, checkpointer->save(step, state));
    SHOAL_RETURN_IF_ERROR(saved.wait_committed().status());
    if (step <= kWarmUp) continue;
    staged.push_back(saved.stats().seconds_blocked);
    decided.push_back(saved.seconds_to_decision());
  }
  fmt::print("{} {:.6f} {:.6f}\n", rank, median(std::move(staged)), median(std::move(decided)));
  return ok_status();
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  CLI::App app("A rank of bench/modes.");
  std::string mode = "collective-free";
  uint32_t saves = 20, tensors = 200;
  uint64_t bytes = 65536;
  app.add_option("--mode", mode)->check([](const std::string& name) {
    return shoal::mode_of_name(name) ? std::string() : "no mode is called '" + name + "'";
  });
  app.add_option("--saves", saves)->check(CLI::Range(1u, 100000u));
  app.add_option("--tensors", tensors)->check(CLI::Range(1u, 100000u));
  app.add_option("--bytes", bytes, "of this rank");
  CLI11_PARSE(app, argc, argv);
  const shoal::Status status = shoal::save_again_and_again(*shoal::mode_of_name(mode), saves, tensors, bytes);
  if (status.ok()) return 0;
  fmt::print(stderr, "modes_rank: {}\n", status.to_string());
  return 1;
}
