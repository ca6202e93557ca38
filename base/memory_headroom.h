// How much more memory this host has for a process: what its cgroup's limit and the machine leave.
#pragma once

#include <cstdint>
#include <string>

namespace shoal::base {

// Where the kernel says it; tests put files of their own there.
struct MemoryFiles {
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string own_cgroups = "/proc/self/cgroup";
  std::string meminfo = "/proc/meminfo";
};

struct MemoryHeadroom {
  uint64_t bytes = UINT64_MAX;  // UINT64_MAX: nothing sets a limit
  std::string because;          // "memory.max of /job is 8.0 GiB, of which 7.5 GiB are used"
};

// The least that any of these leaves: memory.max less memory.current for the process's cgroup and every one
// above it (cgroup v2), memory.limit_in_bytes less memory.usage_in_bytes (v1), MemAvailable. File cache that
// the kernel would drop first (inactive_file) counts as free. Files that are not there set no limit.
MemoryHeadroom memory_headroom(const MemoryFiles& files = {});

}  // namespace shoal::base
