// Slurm's compressed lists of hosts, as in SLURM_STEP_NODELIST.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/status.h"

namespace shoal::client {

inline constexpr size_t kMaxNodelistHosts = size_t{1} << 20;
inline constexpr size_t kMaxNodelistBytes = size_t{1} << 20;
inline constexpr size_t kMaxHostNameBytes = 255;

// Expands a list as Slurm does, in the same order and with the same width of numbers:
// "n[08-10,12],login,r[1-2]n[0-1]" gives n08 n09 n10 n12 login r1n0 r1n1 r2n0 r2n1. Returns at most `most`
// hosts. Code::invalid_argument names the malformed part.
Result<std::vector<std::string>> expand_nodelist(std::string_view text, size_t most = kMaxNodelistHosts);

// The number of tasks of host `node` (from 0), by a list as in SLURM_STEP_TASKS_PER_NODE. In "2(x3),1" the
// hosts 0 to 2 have two tasks, host 3 has one. nullopt: the list is malformed or shorter.
std::optional<uint32_t> tasks_on_node(std::string_view text, uint32_t node);

}  // namespace shoal::client
