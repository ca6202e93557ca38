#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>

#include "base/helper_threads.h"
#include "base/owned_fd.h"
#include "cli/calibrate/measure.h"
#include "cli/interrupt.h"
#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "storage/catalog/catalog.h"

namespace shoal::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFiles = 400;
constexpr size_t kThreads = 8;
constexpr size_t kSyncs = 40;
constexpr size_t kBlockBytes = size_t{4} << 20;
constexpr size_t kStreams = 4;           // files that one client writes at the same time
constexpr double kStorageSeconds = 4.0;  // seconds of each measurement

Status failed(const std::string& what) {
  return Status(Code::io, fmt::format("{}: {}", what, std::strerror(errno)));
}

// A temporary folder that is removed with its contents.
class Scratch {
 public:
  static Result<Scratch> make(const std::string& parent) {
    std::string path = parent + "/.shoal-calibrate-" + random_128().short_hex();
    if (::mkdir(path.c_str(), 0700) != 0) return failed(path);
    return Scratch(std::move(path));
  }
  Scratch(Scratch&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  std::string file(size_t i) const { return fmt::format("{}/file-{:06}", path_, i); }
  const std::string& path() const { return path_; }

 private:
  explicit Scratch(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Status check_signals() {
  if (Interrupts::signal_number() == 0) return ok_status();
  return Status(Code::aborted, "stopped by a signal");
}

Status make_file(const std::string& path) {
  base::OwnedFd file(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  return file.get() < 0 ? failed(path) : ok_status();
}

Status look_up(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) != 0 ? failed(path) : ok_status();
}

struct Times {
  std::vector<double> each;  // seconds, sorted
  double total = 0;          // from the first begin to the last end
  double quantile(double part) const { return quantile_of(each, part); }
};

// Runs `act` for 0 to count - 1, over this number of threads.
Result<Times> time_all(size_t count, size_t threads, const std::function<Status(size_t)>& act) {
  Times times;
  Status first;
  std::mutex mutex;
  std::atomic<size_t> next{0};
  const Clock::time_point begun = Clock::now();
  auto work = [&] {
    std::vector<double> own;
    for (size_t i; (i = next.fetch_add(1)) < count;) {
      const Clock::time_point one = Clock::now();
      Status status = act(i);
      if (status.ok()) status = check_signals();
      own.push_back(seconds_since(one));
      if (status.ok() && seconds_since(begun) < kStorageSeconds) continue;
      std::lock_guard lock(mutex);
      if (first.ok()) first = status;
      next = count;
    }
    std::lock_guard lock(mutex);
    times.each.insert(times.each.end(), own.begin(), own.end());
  };
  base::for_each_by_threads(threads, threads, [&](size_t) { work(); });
  times.total = seconds_since(begun);
  if (!first.ok()) return first;
  std::sort(times.each.begin(), times.each.end());
  return times;
}

Status write_all(int fd, ByteView bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return failed(path);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return ok_status();
}

Status write_synced(const std::string& path, ByteView block, uint64_t bytes) {
  base::OwnedFd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  if (file.get() < 0) return failed(path);
  for (uint64_t done = 0; done < bytes; done += block.size()) {
    SHOAL_RETURN_IF_ERROR(check_signals());
    SHOAL_RETURN_IF_ERROR(
        write_all(file.get(), block.first(std::min<uint64_t>(block.size(), bytes - done)), path));
  }
  return ::fsync(file.get()) != 0 ? failed(path) : ok_status();
}

Result<size_t> list_with_sizes(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return failed(path);
  size_t entries = 0;
  while (const dirent* entry = ::readdir(folder)) {
    struct stat info {};
    if (::fstatat(::dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0) ++entries;
  }
  ::closedir(folder);
  return entries;
}

// The sigma of the lognormal distribution with this median and 99th percentile.
int64_t tail_permille(const Times& times) {
  const double p50 = times.quantile(0.5), p99 = times.quantile(0.99);
  if (p50 <= 0 || p99 <= p50) return 0;
  return std::min<int64_t>(2000, static_cast<int64_t>(1000 * std::log(p99 / p50) / 2.326));
}

Result<double> catalog_seconds(const std::string& folder) {
  const RootId root_id = random_128();
  SHOAL_ASSIGN_OR_RETURN(const auto catalog, storage::open_rocksdb_catalog(folder + "/catalog", root_id));
  SHOAL_ASSIGN_OR_RETURN(
      const Times times, time_all(kSyncs, 1, [&](size_t i) {
        storage::Decision decision;
        decision.key = {1, i + 1, 1};
        decision.root_id = root_id;
        decision.body = storage::Tombstone{storage::Tombstone::Reason::aborted, "measured"};
        return catalog->record(decision);
      }));
  return times.quantile(0.5);
}

}  // namespace

Result<MeasuredNumbers> measure_storage(const std::string& folder, uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(const Scratch scratch, Scratch::make(folder));
  SHOAL_ASSIGN_OR_RETURN(const Times made,
                         time_all(kFiles, 1, [&](size_t i) { return make_file(scratch.file(i)); }));
  SHOAL_ASSIGN_OR_RETURN(const Times made_at_once, time_all(kFiles, kThreads, [&](size_t i) {
                           return make_file(scratch.file(kFiles + i));
                         }));
  SHOAL_ASSIGN_OR_RETURN(const Times looked,
                         time_all(kFiles, kThreads, [&](size_t i) { return look_up(scratch.file(i)); }));
  Clock::time_point begun = Clock::now();
  SHOAL_ASSIGN_OR_RETURN(const size_t entries, list_with_sizes(scratch.path()));
  const double entry = seconds_since(begun) / static_cast<double>(entries);

  const Bytes block(kBlockBytes, std::byte{0x5a});
  SHOAL_ASSIGN_OR_RETURN(const Times synced, time_all(kSyncs, 1, [&](size_t i) {
                           return write_synced(scratch.file(2 * kFiles + i), block, 4096);
                         }));
  const uint64_t each = std::max<uint64_t>(bytes / kStreams, kBlockBytes);
  begun = Clock::now();
  SHOAL_ASSIGN_OR_RETURN(const Times streamed, time_all(kStreams, kStreams, [&](size_t i) {
                           return write_synced(scratch.file(3 * kFiles + i), block, each);
                         }));
  const double rate = static_cast<double>(each * kStreams) / streamed.total;
  SHOAL_ASSIGN_OR_RETURN(const double catalog, catalog_seconds(scratch.path()));

  const double change = made_at_once.total / static_cast<double>(made_at_once.each.size());
  const double round_trip = std::max(made.quantile(0.5) - change, made.quantile(0.5) / 10);
  return MeasuredNumbers{
      {"storage.round_trip_ns", nanoseconds(round_trip), true,
       fmt::format("median of {} files made one after the other, less change_ns", made.each.size())},
      {"storage.change_ns", nanoseconds(change), true,
       fmt::format("{} files made by {} threads", made_at_once.each.size(), kThreads)},
      {"storage.look_ns", nanoseconds(looked.total / static_cast<double>(looked.each.size())), true,
       fmt::format("{} names looked up by {} threads, this client's cache warm", looked.each.size(),
                   kThreads)},
      {"storage.entry_ns", nanoseconds(entry), true,
       fmt::format("{} entries listed with their sizes", entries)},
      {"storage.entries_per_request", 64, false, "statahead, which asks for many sizes at once"},
      {"storage.sync_ns", nanoseconds(synced.quantile(0.5)), true,
       fmt::format("median of {} files of 4 KiB made, written and synced", synced.each.size())},
      {"storage.client_bytes_per_s", static_cast<int64_t>(rate), true,
       fmt::format("{} in {} files at once, synced", human_bytes(each * kStreams), kStreams)},
      {"storage.total_bytes_per_s", static_cast<int64_t>(rate), false,
       "client_bytes_per_s: one client cannot measure the total of all clients"},
      {"storage.request_tail_permille", tail_permille(made), true, "median and p99 of files made"},
      {"storage.stream_tail_permille", tail_permille(synced), true, "median and p99 of files synced"},
      {"storage.catalog_ns", nanoseconds(catalog), true,
       fmt::format("median of {} decisions recorded in a catalog there", kSyncs)},
  };
}

}  // namespace shoal::cli
