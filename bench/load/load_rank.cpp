// A rank of bench/load/replicas: saves tensors that every rank holds whole, or loads them with the others.
//
//   load_rank --bytes 256m --save
//   load_rank --bytes 256m --way two-stage --meet FOLDER
//
// To load, it creates FOLDER/ready-RANK, begins when FOLDER/go appears, and checks every element. One line:
// rank, begin and end of the load in seconds of the host's monotonic clock, and the bytes loaded. Root, rank
// and job come from the environment (`shoal launch`).
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include "shoal/checkpointer.h"

namespace shoal {
namespace {

constexpr uint64_t kStep = 1;
constexpr uint64_t kColumns = 1024;
constexpr std::chrono::minutes kMeetingPatience{2};

struct Flags {
  uint64_t bytes = uint64_t{256} << 20;
  uint32_t tensors = 16;
  bool saves = false;
  LoadMethod method = LoadMethod::automatic;
  std::string meet;
};

uint32_t element(uint64_t i) {
  return static_cast<uint32_t>((i * 0x9E3779B97F4A7C15u) >> 32);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Status meet(const std::string& folder, Rank rank) {
  std::ofstream(fmt::format("{}/ready-{}", folder, rank)) << "\n";
  const auto give_up = std::chrono::steady_clock::now() + kMeetingPatience;
  while (!std::filesystem::exists(folder + "/go")) {
    if (std::chrono::steady_clock::now() >= give_up)
      return Status(Code::deadline_exceeded, "the start signal never came");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ok_status();
}

Status save_or_load(const Flags& flags) {
  SHOAL_ASSIGN_OR_RETURN(CheckpointerOptions options, CheckpointerOptions::from_environment());
  const Rank rank = options.rank;
  const Mesh everybody = Mesh::contiguous({options.world_size});
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Checkpointer> checkpointer, Checkpointer::open(std::move(options)));
  const uint64_t rows = std::max<uint64_t>(1, flags.bytes / flags.tensors / kColumns / sizeof(uint32_t));
  const uint64_t each = rows * kColumns;
  std::vector<uint32_t> memory(each * flags.tensors);  // faults the pages in before the measurement
  StateDict state;
  for (uint32_t i = 0; i < flags.tensors; ++i) {
    state.add_tensor(fmt::format("layers.{}.weight", i), DType::i32, {rows, kColumns}, everybody,
                     {Placement::replicate()}, memory.data() + i * each);
  }
  if (flags.saves) {
    for (uint64_t i = 0; i < memory.size(); ++i) memory[i] = element(i);
    SHOAL_ASSIGN_OR_RETURN(SaveHandle saved, checkpointer->save(kStep, state));
    return saved.wait_committed().status();
  }
  SHOAL_RETURN_IF_ERROR(meet(flags.meet, rank));
  const double began = seconds_now();
  LoadOptions how;
  how.step = kStep;
  how.method = flags.method;
  SHOAL_ASSIGN_OR_RETURN(LoadResult loaded, checkpointer->load(state, how));
  const double ended = seconds_now();
  for (uint64_t i = 0; i < memory.size(); ++i) {
    if (memory[i] == element(i)) continue;
    return Status(Code::corrupt,
                  fmt::format("element {} is {}, but {} was expected", i, memory[i], element(i)));
  }
  fmt::print("{} {:.6f} {:.6f} {}\n", rank, began, ended, loaded.bytes_loaded);
  return ok_status();
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  CLI::App app("A rank of bench/load/replicas.");
  shoal::Flags flags;
  app.add_option("--bytes", flags.bytes)->transform(CLI::AsSizeValue(false));
  app.add_option("--tensors", flags.tensors)->check(CLI::Range(1u, 100000u));
  auto* saves = app.add_flag("--save", flags.saves);
  const std::map<std::string, shoal::LoadMethod> ways = {{"automatic", shoal::LoadMethod::automatic},
                                                         {"direct", shoal::LoadMethod::direct},
                                                         {"two-stage", shoal::LoadMethod::two_stage}};
  app.add_option("--way", flags.method)->transform(CLI::CheckedTransformer(ways));
  app.add_option("--meet", flags.meet)->excludes(saves);
  CLI11_PARSE(app, argc, argv);
  const shoal::Status status = shoal::save_or_load(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "load_rank: {}\n", status.to_string());
  return 1;
}
