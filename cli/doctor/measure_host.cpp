// Measures this host: clock, memory, the runtime folder, versions, devices.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "actors/node/bootstrap.h"
#include "base/owned_fd.h"
#include "cli/doctor/measure_facts.h"
#include "cli/installed_files.h"
#include "cli/program_build.h"
#include "gpu/build_info.h"
#include "gpu/device_stager.h"
#include "local/job/job_token.h"
#include "local/socket/peer.h"
#include "local/socket/socket.h"
#include "local/status/node_query.h"
#include "shoal/bytes.h"
#include "transport/live/network_options.h"

namespace shoal::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDoctorJobId = "shoal-doctor";
constexpr int kNodeHereTimeoutMs = 2'000;

// Removes the runtime folder at the end if it did not exist before, and no node has begun to use it.
class RuntimeFolderAsBefore {
 public:
  RuntimeFolderAsBefore() : folder_(local::runtime_folder()) {
    std::error_code error;
    existed_ = fs::exists(fs::symlink_status(folder_, error));
  }
  ~RuntimeFolderAsBefore() {
    if (!existed_) ::rmdir(folder_.c_str());
  }
  RuntimeFolderAsBefore(const RuntimeFolderAsBefore&) = delete;

 private:
  std::string folder_;
  bool existed_ = false;
};
// As long as the longest name of a node's socket: "/<16 hex digits>-reader-<16 hex digits>.sock".
constexpr const char* kLongestSocketName = "/0123456789abcdef-reader-0123456789abcdef.sock";

// Makes what a client stages into, and checks it as a node does.
Status try_slab() {
  const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  base::OwnedFd slab(::memfd_create("shoal-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!slab.valid() || ::ftruncate(slab.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(slab.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status(Code::refused,
                  fmt::format("cannot make a sealed anonymous memory file: {}", std::strerror(errno)));
  }
  return local::check_slab(slab.get(), bytes);
}

// The number of KiB after a key of /proc/meminfo, in bytes; 0: it is not there.
uint64_t meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    uint64_t kib = 0;
    if (word == key && file >> kib) return kib << 10;
  }
  return 0;
}

uint64_t bytes_free_in(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return 0;
  return uint64_t{info.f_bavail} * info.f_frsize;
}

uint64_t bytes_below(const fs::path& folder) {
  uint64_t out = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    const uint64_t bytes = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) out += bytes;
  }
  return out;
}

void count_files_of_nodes(RuntimeFolderFacts* facts) {
  for (const std::string& socket : local::list_node_sockets()) {
    const bool runs = local::LocalSocket::connect(socket).ok();
    ++(runs ? facts->running_nodes : facts->stale_sockets);
  }
  std::error_code error;
  for (fs::directory_iterator at(facts->folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() != ".catalog") continue;
    ++facts->catalogs;
    facts->catalog_bytes += bytes_below(at->path());
  }
}

// The version in the name of the client library that is installed with this program.
std::string library_version() {
  constexpr std::string_view kName = "libshoal_client.so.";
  const fs::path prefix = fs::path(own_program()).parent_path().parent_path();
  std::string newest;
  for (const char* folder : {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}) {
    std::error_code error;
    for (fs::directory_iterator at(prefix / folder, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      // The file has three numbers in its name, and the link to it two.
      if (name.starts_with(kName) && name.size() > newest.size() + kName.size())
        newest = name.substr(kName.size());
    }
  }
  return newest;
}

// The output of a command, without the last newline; "" if it fails.
std::string output_of(const char* command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command, "r"), ::pclose);
  if (!pipe) return "";
  std::array<char, 256> line{};
  if (std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return "";
  std::string out = line.data();
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace

ClockFacts measure_clock() {
  ClockFacts facts;
  struct timex state {};
  const int answer = ::adjtimex(&state);
  if (answer < 0) {
    facts.readable = Status(Code::refused, fmt::format("adjtimex: {}", std::strerror(errno)));
    return facts;
  }
  facts.is_synchronised = (state.status & STA_UNSYNC) == 0;
  facts.error_us = static_cast<uint64_t>(std::max<decltype(state.maxerror)>(state.maxerror, 0));
  return facts;
}

MemoryFacts measure_memory() {
  MemoryFacts facts;
  facts.headroom = base::memory_headroom();
  facts.slab = try_slab();
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) facts.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  std::ifstream("/proc/sys/vm/overcommit_memory") >> facts.overcommit;
  facts.commit_limit_bytes = meminfo_bytes("CommitLimit:");
  facts.committed_bytes = meminfo_bytes("Committed_AS:");
  struct rlimit memlock {};
  if (::getrlimit(RLIMIT_MEMLOCK, &memlock) == 0) {
    facts.memlock_bytes = memlock.rlim_cur == RLIM_INFINITY ? UINT64_MAX : memlock.rlim_cur;
  }
  facts.has_rdma_device = transport::has_active_rdma_device();
  return facts;
}

RuntimeFolderFacts measure_runtime_folder() {
  const RuntimeFolderAsBefore as_before;
  RuntimeFolderFacts facts;
  facts.folder = local::runtime_folder();
  facts.usable = local::make_runtime_folder();
  if (!facts.usable.ok()) return facts;
  if (::access(facts.folder.c_str(), W_OK | X_OK) != 0) {
    facts.usable = Status(Code::refused, fmt::format("cannot write to the runtime folder {}: {}",
                                                     facts.folder, std::strerror(errno)));
    return facts;
  }
  facts.socket_path = local::socket_address(facts.folder + kLongestSocketName).status();
  facts.bytes_free = bytes_free_in(facts.folder);
  count_files_of_nodes(&facts);
  return facts;
}

UseFacts measure_use(const std::string& root, const std::string& token_file) {
  const RuntimeFolderAsBefore as_before;
  UseFacts facts;
  if (const auto paths = local::node_paths(root); paths.ok()) {
    const auto node = local::ask_node(paths->socket_file, kNodeHereTimeoutMs);
    if (node.ok()) facts.job_here = node->job_id;
  }
  // A coordinator logs each connection that it rejects, so it gets none without need.
  if (!facts.job_here.empty()) return facts;
  auto opened = actors::open_root_to_read(root, random_128(), [](const std::string&) {});
  facts.holds_run = opened.ok();
  if (!opened.ok()) return facts;
  transport::Identity self;
  self.root_id = opened->root_id;
  self.job_id = kDoctorJobId;
  self.name = actors::own_host_name();
  // A coordinator answers a wrong token too.
  auto token = local::find_token(token_file);
  const std::string other = local::mint_token();
  const bool has_token = token.ok() && !token->empty();
  const Bytes bytes = has_token ? *token : Bytes(as_view(other).begin(), as_view(other).end());
  facts.other_run = actors::check_no_other_run(opened->storage(), self, bytes, std::nullopt);
  return facts;
}

VersionFacts measure_versions() {
  VersionFacts facts;
  facts.version = SHOAL_VERSION;
  facts.program = fmt::format("{} (build {})", SHOAL_VERSION, program_build());
  facts.library = library_version();
  facts.python = output_of(
      "timeout 20 python3 -c 'import importlib.metadata as m; print(m.version(\"shoal\"))' 2>/dev/null");
  return facts;
}

GpuFacts measure_gpu() {
  GpuFacts facts;
  facts.build = gpu::cuda_build();
  std::ifstream driver("/proc/driver/nvidia/version");
  std::getline(driver, facts.driver);
  facts.usable = gpu::make_device_stager().status();
  return facts;
}

}  // namespace shoal::cli
