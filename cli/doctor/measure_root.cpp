// Measures the root by trial files, which it removes.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/measure_facts.h"
#include "shoal/hash.h"
#include "storage/files/local_storage.h"
#include "storage/root/run_root.h"

namespace shoal::cli {

namespace {

namespace fs = std::filesystem;

constexpr uint32_t kRacedNames = 16;
constexpr uint64_t kTrialBytes = uint64_t{8} << 20;
constexpr const char* kTrialPrefix = ".shoal-doctor-";  // not a component: the storage does not list it
constexpr int64_t kLeftoverNs = int64_t{3600} * 1'000'000'000;  // no check takes so long
constexpr int64_t kSecondNs = 1'000'000'000;

Status cannot(const char* what, const std::string& path, int number) {
  return Status(number == ENOENT || number == ENOTDIR ? Code::not_found : Code::refused,
                fmt::format("cannot {} {}: {}", what, path, std::strerror(number)));
}

int64_t nanoseconds_of(const timespec& time) {
  return int64_t{time.tv_sec} * kSecondNs + time.tv_nsec;
}

// A file's time comes from the kernel's coarse clock, which lags behind the precise one by up to a tick.
int64_t coarse_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return nanoseconds_of(now);
}

std::optional<SpaceFacts> space_of(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return SpaceFacts{uint64_t{info.f_bavail} * info.f_frsize, info.f_files, info.f_favail};
}

std::optional<MountFacts> mount_of(const std::string& folder) {
  std::error_code error;
  const std::string real = fs::canonical(folder, error).string();
  if (error) return std::nullopt;
  std::ifstream file("/proc/self/mountinfo");
  return find_mount(std::string(std::istreambuf_iterator<char>(file), {}), real);
}

// The folders in which a node creates files. Another user may have made them.
std::vector<std::string> closed_folders_of(const std::string& root) {
  std::vector<std::string> out;
  for (const char* name : {"probes", "epochs", "generations", "pins", "readers"}) {
    const std::string path = root + "/" + name;
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0 && errno != ENOENT) {
      out.emplace_back(name);
    }
  }
  return out;
}

std::vector<std::string> leftovers_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    struct stat info {};
    if (!name.starts_with(kTrialPrefix) || ::lstat(at->path().c_str(), &info) != 0) continue;
    if (base::unix_now_ns() - nanoseconds_of(info.st_mtim) > kLeftoverNs) out.push_back(name);
  }
  return out;
}

void read_identity(const std::string& root, storage::FileSystem& disk, RootFacts* facts) {
  auto opened = storage::LocalStorage::open(disk, root, random_128());
  if (!opened.ok()) {
    facts->identity = opened.status();
    return;
  }
  auto id = storage::open_root(**opened, false, RootId{});
  facts->identity = id.status();
  if (id.ok()) facts->run = id->to_hex();
}

RootFacts::Race race(storage::FileSystem& disk, const std::string& folder) {
  RootFacts::Race out;
  std::vector<std::unique_ptr<storage::LocalStorage>> storages;
  for (int i = 0; i < 2; ++i) {
    auto opened = storage::LocalStorage::open(disk, folder, random_128());
    if (!opened.ok()) {
      out.failed = opened.status();
      return out;
    }
    storages.push_back(std::move(*opened));
  }
  std::vector<std::vector<Result<bool>>> created(2, std::vector<Result<bool>>(kRacedNames, false));
  std::barrier together(2);
  auto create_all = [&](size_t self) {
    const Bytes content(16, std::byte{static_cast<unsigned char>(self)});
    for (uint32_t i = 0; i < kRacedNames; ++i) {
      together.arrive_and_wait();
      created[self][i] = storages[self]->create_exclusive(fmt::format("race-{}", i), content);
    }
  };
  std::thread other(create_all, 1);
  create_all(0);
  other.join();
  out.names = kRacedNames;
  for (uint32_t i = 0; i < kRacedNames; ++i) {
    for (const auto& each : created) {
      if (!each[i].ok() && out.failed.ok()) out.failed = each[i].status();
    }
    if (!out.failed.ok()) return out;
    const int creators = (*created[0][i] ? 1 : 0) + (*created[1][i] ? 1 : 0);
    out.without_creator += creators == 0 ? 1 : 0;
    out.with_two_creators += creators == 2 ? 1 : 0;
  }
  return out;
}

Status measure_rate(storage::Storage& storage, RootFacts::Rate* out) {
  using Seconds = std::chrono::duration<double>;
  const Bytes data(kTrialBytes, std::byte{0x5a});
  auto begun = std::chrono::steady_clock::now();
  SHOAL_ASSIGN_OR_RETURN(auto file, storage.create("rate", random_128(), kTrialBytes));
  SHOAL_RETURN_IF_ERROR(file->append(data));
  SHOAL_RETURN_IF_ERROR(file->publish().status());
  out->write_seconds = Seconds(std::chrono::steady_clock::now() - begun).count();
  begun = std::chrono::steady_clock::now();
  SHOAL_ASSIGN_OR_RETURN(const Bytes read, storage.read("rate", kTrialBytes));
  out->read_seconds = Seconds(std::chrono::steady_clock::now() - begun).count();
  if (read != data) return Status(Code::corrupt, "a file that was just written reads differently");
  out->bytes = kTrialBytes;
  return ok_status();
}

void measure_server_clock(storage::Storage& storage, const std::string& folder, RootFacts* facts) {
  const int64_t before_ns = coarse_now_ns();
  const auto created = storage.create_exclusive("clock", Bytes(1));
  const int64_t after_ns = base::unix_now_ns();
  struct stat info {};
  if (!created.ok() || ::stat((folder + "/clock").c_str(), &info) != 0) return;
  const int64_t file_ns = nanoseconds_of(info.st_mtim);
  facts->creation_ns = after_ns - before_ns;
  facts->clock_ahead_ns =
      file_ns < before_ns ? file_ns - before_ns : std::max<int64_t>(file_ns - after_ns, 0);
}

// The checks that make files, in the folder that is made for them.
void try_storage(const std::string& folder, storage::FileSystem& disk,
                 const std::function<bool()>& is_stopped, RootFacts* facts) {
  auto opened = storage::LocalStorage::open(disk, folder, random_128());
  if (!opened.ok()) {
    facts->probe = opened.status();
    return;
  }
  storage::Storage& storage = **opened;
  facts->probe = storage::probe_storage(storage, random_128());
  if (!facts->probe.ok() || is_stopped()) return;
  facts->race = race(disk, folder);
  if (is_stopped()) return;
  measure_server_clock(storage, folder, facts);
  if (is_stopped()) return;
  facts->rate.failed = measure_rate(storage, &facts->rate);
}

}  // namespace

RootFacts measure_root(const std::string& root, storage::FileSystem& disk,
                       const std::function<bool()>& is_stopped) {
  RootFacts facts;
  facts.root = root;
  std::error_code error;
  const fs::path whole = fs::absolute(root, error).lexically_normal();
  const fs::path path = whole.has_filename() ? whole : whole.parent_path();
  struct stat info {};
  const int missing = ::stat(path.c_str(), &info) == 0 ? 0 : errno;
  facts.exists = missing == 0;
  facts.tried_in = facts.exists ? path.string() : path.parent_path().string();
  if (missing != 0 && missing != ENOENT) {
    facts.usable = cannot("use", root, missing);
    return facts;
  }
  if (facts.exists && !S_ISDIR(info.st_mode)) {
    facts.usable = cannot("use", root, ENOTDIR);
    return facts;
  }
  facts.mount = mount_of(facts.tried_in);
  facts.space = space_of(facts.tried_in);
  facts.leftovers = leftovers_in(facts.tried_in);
  if (facts.exists) {
    read_identity(path.string(), disk, &facts);
    facts.closed_folders = closed_folders_of(path.string());
  }
  const std::string trial = facts.tried_in + "/" + kTrialPrefix + random_128().short_hex();
  if (::mkdir(trial.c_str(), 0700) != 0) {
    facts.usable = cannot(facts.exists ? "create a folder in" : "create a root in", facts.tried_in, errno);
    return facts;
  }
  try_storage(trial, disk, is_stopped, &facts);
  fs::remove_all(trial, error);
  if (error) facts.cleaned = Status(Code::io, fmt::format("cannot remove {}: {}", trial, error.message()));
  return facts;
}

}  // namespace shoal::cli
