// The cost of load(latest) with many committed checkpoints, right after a restart. The choice depends on the
// contents of the root in any order: after a rollback, higher steps of an older generation do not count. It
// is published before any rank reads.
//
//   attach   Checkpointer::open that starts a node of a new generation   against  a walk of the root by
//   latest   Checkpointer::latest, the first of that node                         readdir(3), step by step
//   load     Checkpointer::load of the latest, one tensor of 64 KiB
//   again    the same load a second time: the choice of that load exists
//
//   latest_bench --root FOLDER [--checkpoints 10000] [--rounds 5] [--node-program shoal]
//
// attach also waits until the idle node of the previous round has stopped, which is most of its time. The
// output has medians of times and of each round's ratio. All checkpoints but the last are copies of its
// manifest with other keys; no rank reads their shards.
#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "bench/timing.h"
#include "shoal/checkpointer.h"
#include "storage/decisions/decision.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "storage/root/run_root.h"

namespace shoal::bench {
namespace {

constexpr uint64_t kTensorBytes = uint64_t{64} << 10;

struct BenchOptions {
  std::string root, node_program;
  uint32_t checkpoints = 10'000, rounds = 5;
};

// Names of all attempts, in the order of readdir.
size_t walk(const std::string& root) {
  size_t attempts = 0;
  DIR* steps = ::opendir(root.c_str());
  if (!steps) fail("opendir");
  while (const dirent* step = ::readdir(steps)) {
    if (std::string_view(step->d_name).substr(0, 5) != "step-") continue;
    DIR* folder = ::opendir((root + "/" + step->d_name).c_str());
    if (!folder) fail("opendir");
    while (const dirent* attempt = ::readdir(folder)) attempts += attempt->d_name[0] == 'g';
    ::closedir(folder);
  }
  ::closedir(steps);
  return attempts;
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options), memory_(kTensorBytes) {
    state_.add_tensor("weight", DType::u8, {kTensorBytes}, Mesh::single(0), {Placement::shard(0)},
                      memory_.data());
  }

  void run() {
    fill();
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      std::unique_ptr<Checkpointer> checkpointer;
      attach_.push_back(timed([&] { checkpointer = attach(); }));
      latest_.push_back(timed([&] { expect_newest(need(checkpointer->latest())); }));
      load_.push_back(timed([&] { expect_newest(need(checkpointer->load(state_)).metadata); }));
      again_.push_back(timed([&] { expect_newest(need(checkpointer->load(state_)).metadata); }));
      walk_.push_back(timed([&] {
        if (walk(options_.root) != options_.checkpoints) fail("attempts are missing");
      }));
    }
    print("attach", attach_);
    print("latest", latest_);
    print("load", load_);
    print("again", again_);
  }

 private:
  // Each is a new run, so that its node is a new one.
  std::unique_ptr<Checkpointer> attach() {
    CheckpointerOptions options;
    options.root = options_.root;
    options.job_id = fmt::format("latest-bench-{}-{}", ::getpid(), runs_++);
    options.node_program = options_.node_program;
    return need(Checkpointer::open(options));
  }

  // The newest generation has the lowest step.
  void fill() {
    {
      auto first = attach();
      need(need(first->save(1, state_)).wait_committed());
      newest_ = need(first->latest()).key;
    }
    auto second = attach();
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i * 7);
    need(need(second->save(2, state_)).wait_committed());
    const AttemptKey older = newest_;
    newest_ = need(second->latest()).key;
    storage::PosixFileSystem files;
    auto storage = need(storage::LocalStorage::open(files, options_.root, random_128()));
    storage::Decision decision = need(storage::read_decision(*storage, older));
    for (uint32_t i = 2; i < options_.checkpoints; ++i) {
      decision.key.step = 1 + i;
      need(storage::publish_decision(*storage, decision));
    }
  }

  void expect_newest(const Metadata& found) const {
    if (found.key != newest_) fail(to_string(found.key) + " was chosen, not " + to_string(newest_));
  }

  void print(const char* what, const std::vector<double>& ours) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / walk_[i]);
    fmt::print("{:8} {:>6} checkpoints {:>9.3f} ms   walk {:>9.3f} ms   x{:.2f}\n", what,
               options_.checkpoints, median(ours) * 1e3, median(walk_) * 1e3, median(ratios));
  }

  const BenchOptions& options_;
  uint32_t runs_ = 0;
  Bytes memory_;
  StateDict state_;
  AttemptKey newest_;
  std::vector<double> attach_, latest_, load_, again_, walk_;
};

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) {
  shoal::bench::BenchOptions options;
  CLI::App app("load(latest) among many checkpoints");
  app.add_option("--root", options.root, "A folder to make the run in")->required();
  app.add_option("--node-program", options.node_program, "The shoal program");
  app.add_option("--checkpoints", options.checkpoints)->check(CLI::Range(2u, 1'000'000u));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1u, 1000u));
  CLI11_PARSE(app, argc, argv);
  options.root = fmt::format("{}/latest-bench-{}", options.root, ::getpid());
  std::filesystem::create_directories(options.root);
  shoal::bench::Bench(options).run();
  std::error_code ignored;
  std::filesystem::remove_all(options.root, ignored);
  return 0;
}
