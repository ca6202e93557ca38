// How much more memory this process can use: what its cgroup's limit and the machine leave.
#pragma once

#include <cstdint>
#include <string>

namespace shoal::base {

// Files from which the kernel's numbers are read. Tests provide other files.
struct MemoryFiles {
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string own_cgroups = "/proc/self/cgroup";
  std::string meminfo = "/proc/meminfo";
};

struct MemoryHeadroom {
  uint64_t bytes = UINT64_MAX;  // UINT64_MAX: there is no limit
  std::string because;          // "memory.max of /job is 8.0 GiB, of which 7.5 GiB are used"
};

// The minimum of these: memory.max less memory.current of the process's cgroup and of every cgroup above it
// (cgroup v2), memory.limit_in_bytes less memory.usage_in_bytes (v1), MemAvailable. File cache that the
// kernel would drop first (inactive_file) counts as free. A file that does not exist sets no limit.
MemoryHeadroom memory_headroom(const MemoryFiles& files = {});

}  // namespace shoal::base
