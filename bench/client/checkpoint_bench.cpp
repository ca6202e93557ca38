// A whole save and a whole load by real ranks and a real node. Each is compared with plain operations on the
// same bytes in the same round:
//
//   blocked  how long `save` blocks a trainer   against  memcpy of the bytes it stages
//   save     from the call to the commit        against  memcpy and write(2) of the same bytes; with
//                                                        --durable the faster of buffered write + fsync and
//                                                        O_DIRECT + fsync, without the memcpy
//   load     `load` of the newest checkpoint    against  read(2) of the same bytes and one digest pass
//
//   checkpoint_bench --root FOLDER [--ranks 2] [--size 256m] [--tensors 200] [--rounds 5] [--durable]
//                    [--window 16m] [--load-threads 4] [--json | --row NAME]
//
// Ranks are processes that begin each phase together; a phase takes as long as its slowest rank. The first
// rounds warm up slabs and page tables, and do not count. The output has medians of times and of each round's
// ratio.
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <vector>

#include "base/digest/digest.h"
#include "bench/timing.h"
#include "shoal/checkpointer.h"

namespace shoal::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr size_t kDirectAlignment = 4096;
constexpr uint32_t kWarmUpRounds = 2;  // the number of slabs
constexpr uint32_t kMaxRanks = 64, kMaxRounds = 64;
constexpr uint64_t kRowBytes = 4096;  // a tensor has rows of 1024 f32

enum Phase { kMemcpy, kBlocked, kSave, kBuffered, kDirect, kLoad, kRead, kPhases };

struct BenchOptions {
  std::string root, node_program;
  uint32_t ranks = 2, rounds = 5, tensors = 200;
  uint64_t size = uint64_t{256} << 20;  // bytes per rank
  uint64_t window = CheckpointerOptions().load_window_bytes;
  unsigned load_threads = CheckpointerOptions().load_threads;
  bool durable = false, json = false;
  std::string row;  // if not empty, the output is one row of a Markdown table with this name
};

// Memory shared by the processes. Times in seconds; negative: not measured.
struct Shared {
  pthread_barrier_t barrier;
  double seconds[kMaxRounds][kMaxRanks][kPhases];
  bool failed;
};

[[noreturn]] void fail(const std::string& why) {
  fmt::print(stderr, "checkpoint_bench: {}\n", why);
  std::fflush(stderr);
  ::_exit(1);  // the parent ends the other ranks
}

class BenchRank {
 public:
  BenchRank(const BenchOptions& options, Rank rank, Shared& shared)
      : options_(options), rank_(rank), shared_(shared) {
    const uint64_t rows = std::max<uint64_t>(1, options.size / options.tensors / kRowBytes);
    each_ = rows * kRowBytes;
    // One allocation, aligned for O_DIRECT.
    memory_ = allocate();
    copy_ = allocate();
    for (uint64_t i = 0; i < total(); i += 8) {
      const uint64_t value = (i + rank_) * 0x9E3779B97F4A7C15u;
      std::memcpy(memory_ + i, &value, sizeof value);
    }
    std::memset(copy_, 1, total());
    const Mesh mesh = Mesh::contiguous({options.ranks});
    for (uint32_t i = 0; i < options.tensors; ++i) {
      state_.add_tensor(fmt::format("layers.{}.weight", i), DType::f32, {rows * options.ranks, kRowBytes / 4},
                        mesh, {Placement::shard(0)}, memory_ + i * each_);
    }
  }

  void run() {
    CheckpointerOptions options;
    options.root = options_.root;
    options.rank = rank_;
    options.world_size = options_.ranks;
    options.job_id = fmt::format("checkpoint-bench-{}", ::getppid());
    options.node_program = options_.node_program;
    options.load_window_bytes = options_.window;
    options.load_threads = options_.load_threads;
    auto checkpointer = Checkpointer::open(options);
    if (!checkpointer.ok()) fail(checkpointer.status().to_string());
    if (Status status = (*checkpointer)->prepare(state_); !status.ok()) fail(status.to_string());
    for (uint32_t round = 0; round < options_.rounds + kWarmUpRounds; ++round) {
      auto seconds = round < kWarmUpRounds ? warm_up_ : shared_.seconds[round - kWarmUpRounds][rank_];
      one_round(**checkpointer, round, seconds);
    }
  }

  uint64_t total() const { return each_ * options_.tensors; }

 private:
  std::byte* allocate() const {
    void* memory = std::aligned_alloc(kDirectAlignment, total());
    if (!memory) fail("no memory");
    return static_cast<std::byte*>(memory);
  }

  void together() { pthread_barrier_wait(&shared_.barrier); }

  void one_round(Checkpointer& checkpointer, uint32_t round, double* seconds) {
    together();
    Clock::time_point begun = Clock::now();
    std::memcpy(copy_, memory_, total());
    seconds[kMemcpy] = seconds_since(begun);

    together();
    begun = Clock::now();
    auto saved = checkpointer.save(round, state_);
    if (!saved.ok()) fail(saved.status().to_string());
    seconds[kBlocked] = seconds_since(begun);
    auto committed = saved->wait_committed();
    if (!committed.ok()) fail(committed.status().to_string());
    seconds[kSave] = seconds_since(begun);

    const std::string file = fmt::format("{}/plain-{}", options_.root, rank_);
    together();
    begun = Clock::now();
    if (!options_.durable) std::memcpy(copy_, memory_, total());
    write_plainly(file, O_WRONLY | O_CREAT | O_TRUNC);
    seconds[kBuffered] = seconds_since(begun);
    seconds[kDirect] = -1;
    if (options_.durable) {
      together();
      begun = Clock::now();
      if (write_plainly(file + "-direct", O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT)) {
        seconds[kDirect] = seconds_since(begun);
      }
      ::unlink((file + "-direct").c_str());
    }

    if (options_.durable) {
      forget(file);
      if (rank_ == 0) forget_checkpoint(round);
    }
    together();
    begun = Clock::now();
    auto loaded = checkpointer.load(state_);
    if (!loaded.ok()) fail(loaded.status().to_string());
    if (loaded->metadata.key.step != round) fail("loaded another step");
    seconds[kLoad] = seconds_since(begun);
    if (round == 0 && std::memcmp(memory_, copy_, total()) != 0) fail("the loaded bytes differ");

    together();
    begun = Clock::now();
    read_plainly(file);
    seconds[kRead] = seconds_since(begun);
    ::unlink(file.c_str());

    together();
    if (rank_ == 0) {  // one checkpoint per round is kept
      std::error_code ignored;
      if (round > 0) std::filesystem::remove_all(committed_, ignored);
      committed_ = fmt::format("{}/step-{:08}", options_.root, round);
    }
  }

  static void forget(const std::string& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(file + ": " + std::strerror(errno));
    if (::fsync(fd) != 0 || ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
      fail(file + ": cannot drop it from the page cache");
    ::close(fd);
  }
  void forget_checkpoint(uint32_t round) const {
    const std::string folder = fmt::format("{}/step-{:08}", options_.root, round);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) forget(entry.path());
    }
  }

  // False if the file system does not support O_DIRECT.
  bool write_plainly(const std::string& file, int flags) {
    const int fd = ::open(file.c_str(), flags | O_CLOEXEC, 0644);
    if (fd < 0 && (flags & O_DIRECT) && errno == EINVAL) return false;
    if (fd < 0) fail(file + ": " + std::strerror(errno));
    for (uint64_t at = 0; at < total();) {
      const uint64_t bytes = std::min<uint64_t>(kChunkBytes, total() - at);
      const ssize_t wrote = ::write(fd, copy_ + at, bytes);
      if (wrote <= 0) fail(file + ": " + std::strerror(errno));
      at += static_cast<uint64_t>(wrote);
    }
    if (options_.durable && ::fsync(fd) != 0) fail(file + ": fsync: " + std::strerror(errno));
    ::close(fd);
    return true;
  }

  void read_plainly(const std::string& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(file + ": " + std::strerror(errno));
    digests_.clear();
    for (uint64_t at = 0; at < total();) {
      const uint64_t bytes = std::min<uint64_t>(kChunkBytes, total() - at);
      uint64_t got = 0;
      while (got < bytes) {
        const ssize_t read = ::read(fd, copy_ + at + got, bytes - got);
        if (read <= 0) fail(file + ": read");
        got += static_cast<uint64_t>(read);
      }
      base::digest_blocks(ByteView(copy_ + at, bytes), &digests_);
      at += bytes;
    }
    ::close(fd);
  }

  const BenchOptions& options_;
  const Rank rank_;
  Shared& shared_;
  uint64_t each_ = 0;  // bytes of this rank's shard of one tensor
  std::byte *memory_ = nullptr, *copy_ = nullptr;
  StateDict state_;
  std::vector<uint64_t> digests_;
  std::string committed_;
  double warm_up_[kPhases] = {};
};

class Report {
 public:
  Report(const BenchOptions& options, const Shared& shared) : options_(options), shared_(shared) {}

  void print() const {
    const Row rows[] = {
        measured("blocked", "memcpy", kBlocked, [&](uint32_t r) { return slowest(r, kMemcpy); }),
        measured("save", options_.durable ? "write + fsync" : "memcpy + write", kSave,
                 [&](uint32_t r) {
                   const double direct = slowest(r, kDirect), buffered = slowest(r, kBuffered);
                   return direct > 0 ? std::min(direct, buffered) : buffered;
                 }),
        measured("load", "read + digest", kLoad, [&](uint32_t r) { return slowest(r, kRead); })};
    if (!options_.row.empty()) {
      fmt::print("| {} |", options_.row);
      for (const Row& row : rows) fmt::print(" {:.2f} ms, ×{:.2f} |", row.seconds * 1e3, row.ratio);
      fmt::print("\n");
      return;
    }
    for (const Row& row : rows) options_.json ? print_json(row) : print_line(row);
  }

 private:
  struct Row {
    const char *what, *against;
    double seconds, against_seconds, ratio, ratio_least, ratio_most;  // medians except the last two
  };

  double slowest(uint32_t round, Phase phase) const {
    double most = 0;
    for (Rank rank = 0; rank < options_.ranks; ++rank) {
      if (shared_.seconds[round][rank][phase] < 0) return -1;
      most = std::max(most, shared_.seconds[round][rank][phase]);
    }
    return most;
  }

  template <class Against>
  Row measured(const char* what, const char* against, Phase phase, Against against_seconds) const {
    std::vector<double> ours, theirs, ratios;
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      ours.push_back(slowest(round, phase));
      theirs.push_back(against_seconds(round));
      ratios.push_back(ours.back() / theirs.back());
    }
    const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
    return {what, against, median(ours), median(theirs), median(ratios), *least, *most};
  }

  void print_line(const Row& row) const {
    const double bytes = static_cast<double>(options_.size) * options_.ranks;
    fmt::print("{:8} {:>9.2f} ms {:>7.2f} GB/s   {:15} {:>9.2f} ms   x{:.2f}  ({:.2f} to {:.2f})\n", row.what,
               row.seconds * 1e3, bytes / row.seconds / 1e9, row.against, row.against_seconds * 1e3,
               row.ratio, row.ratio_least, row.ratio_most);
  }
  void print_json(const Row& row) const {
    fmt::print(
        "{{\"what\":\"{}\",\"against\":\"{}\",\"durable\":{},\"ranks\":{},\"bytes_per_rank\":{},"
        "\"tensors\":{},\"seconds\":{:.6f},\"against_seconds\":{:.6f},\"ratio\":{:.3f},\"ratio_min\":{:.3f},"
        "\"ratio_max\":{:.3f}}}\n",
        row.what, row.against, options_.durable, options_.ranks, options_.size, options_.tensors, row.seconds,
        row.against_seconds, row.ratio, row.ratio_least, row.ratio_most);
  }

  const BenchOptions& options_;
  const Shared& shared_;
};

// Runs before any thread starts. Each rank is a process, as trainers are.
int run(const BenchOptions& options) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  auto* shared = new (memory) Shared();
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, options.ranks);
  std::vector<pid_t> children;
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) fail("fork");
    if (child == 0) {
      {
        BenchRank one(options, rank, *shared);
        one.run();
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  int worst = 0;
  for (size_t ended = 0; ended < children.size(); ++ended) {
    int status = 0;
    ::wait(&status);
    if (status == 0 || worst != 0) continue;
    worst = 1;
    for (pid_t child : children) ::kill(child, SIGTERM);
  }
  if (worst == 0) Report(options, *shared).print();
  return worst;
}

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) {
  shoal::bench::BenchOptions options;
  CLI::App app("A whole save and load, each beside what the machine needs for the same bytes.");
  app.add_option("--root", options.root,
                 "A folder of the file system to measure; the benchmark empties it afterwards")
      ->required();
  app.add_option("--node-program", options.node_program,
                 "The program `shoal`; default: the one that a trainer finds");
  app.add_option("--ranks", options.ranks)
      ->check(CLI::Range(1u, shoal::bench::kMaxRanks))
      ->capture_default_str();
  app.add_option("--size", options.size, "Bytes of a rank, such as 64k, 256m, 2g")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--tensors", options.tensors)->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--rounds", options.rounds)
      ->check(CLI::Range(1u, shoal::bench::kMaxRounds))
      ->capture_default_str();
  app.add_option("--window", options.window, "Bytes of a rank's load window")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--load-threads", options.load_threads,
                 "Threads with which a rank reads files itself; 0: its node reads them");
  app.add_flag("--durable", options.durable, "The root is on a disk: compare with a write and fsync");
  app.add_option("--row", options.row, "Print one row of a Markdown table, with this name");
  app.add_flag("--json", options.json, "Print a line of JSON for each row");
  CLI11_PARSE(app, argc, argv);
  options.tensors =
      static_cast<uint32_t>(std::clamp<uint64_t>(options.size / shoal::bench::kRowBytes, 1, options.tensors));
  options.size =
      options.size / options.tensors / shoal::bench::kRowBytes * shoal::bench::kRowBytes * options.tensors;
  if (options.size == 0) shoal::bench::fail("--size must be at least 4 KiB");
  std::string folder = options.root + "/checkpoint-bench-XXXXXX";
  if (!::mkdtemp(folder.data())) shoal::bench::fail(folder + ": " + std::strerror(errno));
  options.root = folder;
  const int status = shoal::bench::run(options);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return status;
}
