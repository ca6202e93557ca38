// The memory that a load needs in addition to its destination, for any sizes of tensors and files. It is the
// peak resident size of client and node during one load, minus their size before it, with the destination
// faulted in.
//
//   load_memory_bench --root FOLDER [--size 2g] [--window 16m]
//
// The state is saved as 2 huge tensors, then as tensors of 1 MiB, then as tensors of 16 KiB. Each time a new
// client and a new node load it. The window is shared memory of both and is counted once. The total,
// including metadata of the tensors, is compared with the memory that a node may use for loads (the aim is
// 256 MiB). The part outside the window is compared with the number of tensors. Linux only: VmHWM of /proc.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/timing.h"
#include "shoal/checkpointer.h"

namespace shoal::bench {
namespace {

constexpr uint64_t kBudget = uint64_t{256} << 20;  // the most that a node should use

struct BenchOptions {
  std::string root, node_program;
  uint64_t size = uint64_t{2} << 30;
  uint64_t window = CheckpointerOptions().load_window_bytes;
};

// In bytes, from /proc/PID/status.
uint64_t memory_of(pid_t pid, const std::string& field) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoull(line.substr(field.size() + 1)) * 1024;
  }
  fail(fmt::format("process {} has no {}", pid, field));
}
void forget_peak(pid_t pid) {
  std::ofstream(fmt::format("/proc/{}/clear_refs", pid)) << "5";
}

class NodeProcess {
 public:
  NodeProcess(const BenchOptions& options, const std::string& job) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execl(options.node_program.c_str(), options.node_program.c_str(), "node", "--root",
              options.root.c_str(), "--job-id", job.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~NodeProcess() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// One rank with `tensors` tensors of 16 KiB rows, all in one allocation.
struct Trainer {
  Trainer(const BenchOptions& options, uint64_t tensors, const std::string& job) {
    const uint64_t rows = options.size / tensors / kRowBytes;
    memory.resize(tensors * rows * kRowBytes / sizeof(uint64_t));
    for (uint64_t i = 0; i < tensors; ++i) {
      state.add_tensor(fmt::format("layers.{}.weight", i), DType::f32, {rows, kRowBytes / 4}, Mesh::single(0),
                       {Placement::replicate()}, memory.data() + i * rows * kRowBytes / sizeof(uint64_t));
    }
    CheckpointerOptions with;
    with.root = options.root;
    with.job_id = job;
    with.start_node = false;
    with.load_window_bytes = options.window;
    auto opened = Checkpointer::open(with);
    if (!opened.ok()) fail(opened.status().to_string());
    checkpointer = std::move(*opened);
  }
  static constexpr uint64_t kRowBytes = 16384;
  std::vector<uint64_t> memory;  // touched
  StateDict state;
  std::unique_ptr<Checkpointer> checkpointer;
};

// Each runs in a new process, so that no memory freed by one is left for the next.
template <class Body>
void in_a_child(Body body) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) fail("a process of the benchmark failed");
}

uint64_t value_at(uint64_t i) {
  return (i + 1) * 0x9E3779B97F4A7C15u;
}

void save(const BenchOptions& options, uint64_t tensors) {
  const std::string job = fmt::format("save-{}-{}", ::getppid(), tensors);
  NodeProcess node(options, job);
  Trainer trainer(options, tensors, job);
  for (uint64_t i = 0; i < trainer.memory.size(); ++i) trainer.memory[i] = value_at(i);
  auto saved = trainer.checkpointer->save(tensors, trainer.state);
  if (!saved.ok()) fail(saved.status().to_string());
  if (auto committed = saved->wait_committed(); !committed.ok()) fail(committed.status().to_string());
  trainer.checkpointer.reset();
}

void load(const BenchOptions& options, uint64_t tensors) {
  const std::string job = fmt::format("load-{}-{}", ::getppid(), tensors);
  NodeProcess node(options, job);
  Trainer trainer(options, tensors, job);
  const uint64_t client_before = memory_of(::getpid(), "VmRSS"), node_before = memory_of(node.pid(), "VmRSS");
  forget_peak(::getpid());
  forget_peak(node.pid());
  LoadOptions of_step;
  of_step.step = tensors;
  auto loaded = trainer.checkpointer->load(trainer.state, of_step);
  if (!loaded.ok()) fail(loaded.status().to_string());
  const uint64_t client = memory_of(::getpid(), "VmHWM") - client_before;
  const uint64_t at_node = memory_of(node.pid(), "VmHWM") - node_before;
  for (uint64_t i = 0; i < trainer.memory.size(); ++i) {
    if (trainer.memory[i] != value_at(i)) fail("the loaded bytes differ");
  }
  const double mib = 1048576.0, window = static_cast<double>(options.window);
  const double both = static_cast<double>(client) + static_cast<double>(at_node) - window;
  fmt::print(
      "{:>6} tensors of {:>7.2f} MiB: client {:>6.1f} MiB, node {:>6.1f} MiB, both {:>6.1f} MiB, x{:.2f} of "
      "{} MiB; "
      "{:.2f} KB a tensor beside the window\n",
      tensors, static_cast<double>(options.size / tensors) / mib, static_cast<double>(client) / mib,
      static_cast<double>(at_node) / mib, both / mib, both / static_cast<double>(kBudget), kBudget >> 20,
      std::max(0.0, both - window) / static_cast<double>(tensors) / 1e3);
  trainer.checkpointer.reset();
}

}  // namespace
}  // namespace shoal::bench

int main(int count, char** arguments) {
  using namespace shoal;
  using namespace shoal::bench;
  BenchOptions options;
  CLI::App app{"Peak memory of a load beyond its destination."};
  app.add_option("--root", options.root, "An empty folder, best on tmpfs")->required();
  app.add_option("--size", options.size, "Bytes of the state")->transform(CLI::AsSizeValue(false));
  app.add_option("--window", options.window, "Bytes of the load window")->transform(CLI::AsSizeValue(false));
  CLI11_PARSE(app, count, arguments);
  const char* program = std::getenv("SHOAL_NODE_PROGRAM");
  options.node_program = program ? program : "shoal";
  std::filesystem::create_directories(options.root);
  for (uint64_t bytes_each : {options.size / 2, uint64_t{1} << 20, uint64_t{16} << 10}) {
    const uint64_t tensors = options.size / bytes_each;
    in_a_child([&] { save(options, tensors); });
    in_a_child([&] { load(options, tensors); });
    std::error_code ignored;
    std::filesystem::remove_all(fmt::format("{}/step-{:08}", options.root, tensors), ignored);
  }
  return 0;
}
