// Judges what was measured of this host.
#include <fmt/format.h>

#include <algorithm>

#include "actors/node/clients/staging_budget.h"
#include "actors/node/descriptors.h"
#include "cli/doctor/checks.h"
#include "shoal/bytes.h"
#include "transport/transport.h"

namespace shoal::cli {

namespace {

constexpr uint64_t kLeastRuntimeBytes = uint64_t{1} << 20;   // the catalog and the log of a node
constexpr uint64_t kShortRuntimeBytes = uint64_t{64} << 20;  // warned about below
constexpr int kNeverOvercommit = 2;                          // of vm.overcommit_memory

std::string limit_text(uint64_t bytes) {
  return bytes == UINT64_MAX ? "no limit" : human_bytes(bytes);
}

Finding check_staging(const MemoryFacts& facts, const JobShape& job, uint64_t staging_bytes_max) {
  constexpr const char* kCheck = "memory";
  const bool is_set = staging_bytes_max != 0 && staging_bytes_max < facts.headroom.bytes;
  const uint64_t bytes = is_set ? staging_bytes_max : facts.headroom.bytes;
  if (bytes == UINT64_MAX) return found_skipped(kCheck, "the kernel states no limit");
  const std::string because =
      is_set ? fmt::format("setting staging-memory is {}", human_bytes(bytes)) : facts.headroom.because;
  const char* const remedy = is_set ? "raise the setting staging-memory"
                                    : "free memory of this host, or raise the limit of the container or job";
  if (bytes < actors::kLeastStagingBytes) {
    return found_error(kCheck,
                       fmt::format("{} are left for staging, and a host needs at least {}: {}",
                                   human_bytes(bytes), human_bytes(actors::kLeastStagingBytes), because),
                       remedy);
  }
  if (job.staged_bytes == 0) {
    return found_ok(kCheck,
                    fmt::format("{} are left for staging ({}); --staged SIZE compares this with a save",
                                human_bytes(bytes), because));
  }
  if (bytes < job.staged_bytes) {
    return found_warning(kCheck,
                         fmt::format("{} are left for staging, but one save stages {}: {}. Saves are then "
                                     "staged in parts, and a save holds its trainer until the last part",
                                     human_bytes(bytes), human_bytes(job.staged_bytes), because),
                         remedy);
  }
  return found_ok(kCheck,
                  fmt::format("{} are left for staging, room for {} saves of {} ({})", human_bytes(bytes),
                              bytes / job.staged_bytes, human_bytes(job.staged_bytes), because));
}

Finding check_slab_memory(const MemoryFacts& facts) {
  constexpr const char* kCheck = "shared-memory";
  if (!facts.slab.ok()) {
    return found_error(kCheck, facts.slab.message(),
                       "allow memfd_create and its seals, for example in the container's seccomp profile");
  }
  return found_ok(kCheck,
                  fmt::format("sealed anonymous memory files work; Shoal does not use /dev/shm ({})",
                              facts.shm_bytes ? human_bytes(*facts.shm_bytes) + " here" : "none here"));
}

Finding check_overcommit(const MemoryFacts& facts, uint64_t staged_bytes) {
  constexpr const char* kCheck = "overcommit";
  if (facts.overcommit != kNeverOvercommit) {
    return found_ok(kCheck, fmt::format("vm.overcommit_memory is {}", facts.overcommit));
  }
  const uint64_t left = facts.commit_limit_bytes - std::min(facts.commit_limit_bytes, facts.committed_bytes);
  const std::string measured = fmt::format("vm.overcommit_memory is 2, and {} of {} can still be committed",
                                           human_bytes(left), human_bytes(facts.commit_limit_bytes));
  if (left >= std::max(staged_bytes, actors::kLeastStagingBytes)) return found_ok(kCheck, measured);
  return found_warning(kCheck, measured + ", so that staging may fail while memory is free",
                       "raise vm.overcommit_ratio, or set vm.overcommit_memory to 0");
}

Finding check_memlock(const MemoryFacts& facts) {
  constexpr const char* kCheck = "memlock";
  const std::string measured = fmt::format("locked memory: {}", limit_text(facts.memlock_bytes));
  if (!facts.has_rdma_device)
    return found_ok(kCheck, measured + "; only RDMA needs it, and no device is active");
  if (facts.memlock_bytes >= transport::kMaxInboundBytes) return found_ok(kCheck, measured);
  return found_warning(
      kCheck, fmt::format("{}, but RDMA may lock {}", measured, human_bytes(transport::kMaxInboundBytes)),
      "ulimit -l unlimited, or LimitMEMLOCK=infinity of a systemd unit");
}

}  // namespace

Finding check_clock(const ClockFacts& facts) {
  constexpr const char* kCheck = "clock";
  if (!facts.readable.ok()) return found_skipped(kCheck, facts.readable.message());
  if (facts.is_synchronised) {
    return found_ok(kCheck, fmt::format("the kernel's clock is synchronised, within {:.1f} ms",
                                        static_cast<double>(facts.error_us) / 1000));
  }
  return found_warning(
      kCheck, "nothing synchronises the kernel's clock",
      "run chrony or systemd-timesyncd; else times of checkpoints, and --keep-for, may be wrong");
}

Findings check_memory(const MemoryFacts& facts, const JobShape& job, uint64_t staging_bytes_max) {
  return {check_slab_memory(facts), check_staging(facts, job, staging_bytes_max),
          check_overcommit(facts, job.staged_bytes), check_memlock(facts)};
}

Finding check_descriptors(const base::DescriptorLimit& limit, const JobShape& job,
                          uint32_t max_direct_nodes) {
  constexpr const char* kCheck = "descriptors";
  const bool coordinates = job.coordinates_here.value_or(true);
  const actors::NodeDescriptors node =
      actors::descriptors_of_node(coordinates, job.ranks_here, job.hosts, max_direct_nodes);
  const Result<uint64_t> peers = actors::peers_within(node.demand, node.peers_max, limit.hard);
  if (!peers.ok()) {
    return found_error(kCheck, peers.status().message(), "raise the hard limit (ulimit -Hn)");
  }
  const uint64_t others = job.hosts - std::min<uint64_t>(job.hosts, 1);
  const uint64_t direct = actors::direct_nodes_within(max_direct_nodes, *peers);
  if (coordinates && others > actors::nodes_within(direct)) {
    return found_error(
        kCheck,
        fmt::format("a coordinator with {} direct nodes reaches {} other hosts, and the job has {}", direct,
                    actors::nodes_within(direct), others),
        direct < max_direct_nodes ? base::kDescriptorRemedy : "raise --max-direct-nodes");
  }
  const std::string raised =
      limit.soft < limit.hard ? fmt::format(" (now {}, which the node raises)", limit.soft) : "";
  return found_ok(kCheck, fmt::format("a node needs {} (hosts: {}, ranks here: {}), and may have {}{}",
                                      actors::descriptors_needed(node.demand), job.hosts, job.ranks_here,
                                      limit.hard, raised));
}

Finding check_runtime_folder(const RuntimeFolderFacts& facts) {
  constexpr const char* kCheck = "runtime-folder";
  if (!facts.usable.ok()) {
    return found_error(kCheck, facts.usable.message(), "set SHOAL_RUNTIME_DIR to a folder of this user");
  }
  if (!facts.socket_path.ok()) {
    return found_error(kCheck, facts.socket_path.message(), "set SHOAL_RUNTIME_DIR to a shorter path");
  }
  std::string measured =
      fmt::format("{} belongs to this user, with {} free", facts.folder, human_bytes(facts.bytes_free));
  if (facts.running_nodes != 0) measured += fmt::format("; {} nodes run", facts.running_nodes);
  if (facts.stale_sockets != 0) {
    measured += fmt::format("; {} sockets of nodes that were killed, which the next node replaces",
                            facts.stale_sockets);
  }
  if (facts.catalogs != 0) {
    measured += fmt::format("; {} catalogs with {}", facts.catalogs, human_bytes(facts.catalog_bytes));
  }
  const char* const remedy =
      "free space there (catalogs of runs that ended can be removed), or set "
      "SHOAL_RUNTIME_DIR to another folder of this user";
  if (facts.bytes_free < kLeastRuntimeBytes) return found_error(kCheck, measured, remedy);
  if (facts.bytes_free < kShortRuntimeBytes) return found_warning(kCheck, measured, remedy);
  return found_ok(kCheck, measured);
}

Finding check_use(const UseFacts& facts) {
  constexpr const char* kCheck = "root-in-use";
  constexpr const char* kRemedy =
      "wait for it or end it; a job that only loads may run beside it with --read-only";
  if (!facts.job_here.empty()) {
    return found_error(kCheck, fmt::format("job '{}' uses this root on this host", facts.job_here), kRemedy);
  }
  if (!facts.holds_run) return found_skipped(kCheck, "no run has used this root");
  if (facts.other_run.code() == Code::refused) {
    return found_error(kCheck, facts.other_run.message(), kRemedy);
  }
  if (!facts.other_run.ok()) return found_skipped(kCheck, facts.other_run.message());
  return found_ok(kCheck, "no job answers at the address that the root names");
}

Finding check_versions(const VersionFacts& facts) {
  constexpr const char* kCheck = "versions";
  const std::string measured = fmt::format("shoal {}; client library {}; Python package {}", facts.program,
                                           facts.library.empty() ? "not installed beside it" : facts.library,
                                           facts.python.empty() ? "not found by python3" : facts.python);
  for (const std::string& other : {facts.library, facts.python}) {
    if (!other.empty() && other != facts.version) {
      return found_warning(kCheck, measured, "install one version of all of them, on every host");
    }
  }
  return found_ok(kCheck, measured);
}

Finding check_gpu(const GpuFacts& facts) {
  constexpr const char* kCheck = "gpu";
  const std::string driver = facts.driver.empty() ? "no NVIDIA driver" : facts.driver;
  if (facts.usable.ok())
    return found_ok(kCheck, fmt::format("{}; {}; devices can be used", facts.build, driver));
  if (facts.driver.empty()) return found_skipped(kCheck, fmt::format("support: {}; {}", facts.build, driver));
  return found_warning(
      kCheck, fmt::format("support: {}; {}; {}", facts.build, driver, facts.usable.message()),
      "install a build of Shoal with CUDA, or the driver that it needs; this does not concern "
      "jobs that save host memory only");
}

}  // namespace shoal::cli
