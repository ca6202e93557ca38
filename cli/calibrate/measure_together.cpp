#include "cli/calibrate/measure_together.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "base/owned_fd.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

using LoadClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLoadPoll{5};
constexpr size_t kLoadStreams = 4;  // as measure_storage
constexpr size_t kLoadBlockBytes = size_t{4} << 20;

enum class LoadPhase : uint8_t { warm_up, count, go_on, stop };

Status cannot_load(const std::string& path) {
  return Status(errno == ENOSPC || errno == EDQUOT ? Code::no_space : Code::io,
                fmt::format("{}: {}", path, std::strerror(errno)));
}

// Threads that load the storage until the gate lets them stop.
class LoadThreads {
 public:
  // work(thread, phase) is called again and again, and adds to what it has counted.
  LoadThreads(size_t threads, std::function<Status(size_t, const std::atomic<LoadPhase>&)> work)
      : done_(threads) {
    for (size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i, work] {
        while (phase_ != LoadPhase::stop) {
          const Status status = work(i, phase_);
          if (!status.ok()) return note(status);
          ++done_[i];
        }
      });
    }
  }
  ~LoadThreads() { stop(); }

  // has_counted(seconds since the count began): whether it may end. Returns how long it took.
  Result<double> run(const LoadGate& gate, const std::function<bool(double)>& has_counted) {
    SHOAL_RETURN_IF_ERROR(wait(gate, [&] {
      return std::all_of(done_.begin(), done_.end(), [](const auto& each) { return each > 0; });
    }));
    SHOAL_RETURN_IF_ERROR(gate.loads());
    const LoadClock::time_point begun = LoadClock::now();
    phase_ = LoadPhase::count;
    SHOAL_RETURN_IF_ERROR(wait(gate, [&] { return has_counted(seconds_since(begun)); }));
    phase_ = LoadPhase::go_on;
    const double seconds = seconds_since(begun);
    SHOAL_RETURN_IF_ERROR(gate.counted());
    stop();
    SHOAL_RETURN_IF_ERROR(first_error());
    return seconds;
  }

 private:
  Status wait(const LoadGate& gate, const std::function<bool()>& is_over) {
    while (!is_over()) {
      SHOAL_RETURN_IF_ERROR(first_error());
      SHOAL_RETURN_IF_ERROR(gate.check());
      std::this_thread::sleep_for(kLoadPoll);
    }
    return ok_status();
  }
  Status first_error() {
    std::lock_guard lock(mutex_);
    return first_error_;
  }
  void note(const Status& status) {
    std::lock_guard lock(mutex_);
    if (first_error_.ok()) first_error_ = status;
  }
  void stop() {
    phase_ = LoadPhase::stop;
    for (std::thread& each : threads_) {
      if (each.joinable()) each.join();
    }
  }

  std::atomic<LoadPhase> phase_{LoadPhase::warm_up};
  std::vector<std::atomic<uint64_t>> done_;
  std::mutex mutex_;
  Status first_error_;
  std::vector<std::thread> threads_;
};

// Writes, syncs and removes a file. Stops early if the load ends.
Status write_and_remove(const std::string& path, ByteView block, uint64_t bytes,
                        const std::atomic<LoadPhase>& phase) {
  const base::OwnedFd file(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  if (file.get() < 0) return cannot_load(path);
  Status status;
  for (uint64_t done = 0; status.ok() && done < bytes && phase != LoadPhase::stop;) {
    const ssize_t wrote = ::write(file.get(), block.data(), std::min<uint64_t>(block.size(), bytes - done));
    if (wrote >= 0) {
      done += static_cast<uint64_t>(wrote);
    } else if (errno != EINTR) {
      status = cannot_load(path);
    }
  }
  if (status.ok() && phase != LoadPhase::stop && ::fsync(file.get()) != 0) status = cannot_load(path);
  if (::unlink(path.c_str()) != 0 && status.ok()) status = cannot_load(path);
  return status;
}

}  // namespace

LoadGate no_gate(std::function<Status()> check, double seconds) {
  return {[] { return ok_status(); }, [] { return ok_status(); }, std::move(check), seconds};
}

Result<ChangeSpeed> measure_changes(const std::string& folder, const std::string& name, size_t threads,
                                    const LoadGate& gate) {
  struct Own {
    uint64_t made = 0;
    std::atomic<uint64_t> changes{0};
    std::vector<double> creates;
  };
  std::vector<Own> own(threads);
  double seconds = 0;
  {
    LoadThreads load(threads, [&](size_t i, const std::atomic<LoadPhase>& phase) {
      Own& mine = own[i];
      const std::string path = fmt::format("{}/{}-{}-{}", folder, name, i, mine.made++);
      const bool counts = phase == LoadPhase::count;
      const LoadClock::time_point begun = LoadClock::now();
      const base::OwnedFd file(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
      if (file.get() < 0) return cannot_load(path);
      if (counts) mine.creates.push_back(seconds_since(begun));
      if (phase == LoadPhase::count) ++mine.changes;
      if (::unlink(path.c_str()) != 0) return cannot_load(path);
      if (phase == LoadPhase::count) ++mine.changes;
      return ok_status();
    });
    SHOAL_ASSIGN_OR_RETURN(seconds, load.run(gate, [&](double so_far) {
      return so_far >= gate.seconds &&
             std::all_of(own.begin(), own.end(), [](const Own& each) { return each.changes >= 2; });
    }));
  }
  ChangeSpeed out;
  std::vector<double> creates;
  for (Own& each : own) {
    out.changes_per_s += static_cast<double>(each.changes) / seconds;
    creates.insert(creates.end(), each.creates.begin(), each.creates.end());
  }
  if (creates.empty()) return Status(Code::io, folder + ": no file was created in time");
  std::sort(creates.begin(), creates.end());
  out.create_p50_s = quantile_of(creates, 0.5);
  out.create_p99_s = quantile_of(creates, 0.99);
  return out;
}

Result<double> measure_writes(const std::string& folder, const std::string& name, uint64_t bytes,
                              const LoadGate& gate) {
  // Whole files only: a stream counts from the begin of one to the end of another.
  struct Stream {
    uint64_t bytes = 0;
    double seconds = 0;
    LoadClock::time_point begun;
    bool has_begun = false;
    std::atomic<bool> has_counted{false};
  };
  std::vector<Stream> streams(kLoadStreams);
  const Bytes block(kLoadBlockBytes, std::byte{0x5a});
  const uint64_t file_bytes = std::max<uint64_t>(bytes / kLoadStreams, kLoadBlockBytes);
  LoadThreads load(kLoadStreams, [&](size_t i, const std::atomic<LoadPhase>& phase) {
    Stream& mine = streams[i];
    if (phase == LoadPhase::count && !mine.has_begun) {
      mine.has_begun = true;
      mine.begun = LoadClock::now();
    }
    const bool counts = mine.has_begun && !mine.has_counted;
    SHOAL_RETURN_IF_ERROR(
        write_and_remove(fmt::format("{}/{}-{}", folder, name, i), block, file_bytes, phase));
    if (!counts) return ok_status();
    mine.bytes += file_bytes;
    mine.seconds = seconds_since(mine.begun);
    mine.has_counted = mine.seconds >= gate.seconds;
    return ok_status();
  });
  const auto counted = load.run(gate, [&](double) {
    return std::all_of(streams.begin(), streams.end(),
                       [](const Stream& each) { return each.has_counted.load(); });
  });
  if (!counted.ok()) return counted.status();
  double rate = 0;
  for (const Stream& each : streams) rate += static_cast<double>(each.bytes) / each.seconds;
  return rate;
}

}  // namespace shoal::cli
