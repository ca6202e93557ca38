// RootAudit: reads a root as a program that knows only docs/reference/format.md would, after a run. It shares
// no code with the roles and with storage/. Every committed attempt must hold, under the names, sizes and
// digests of its manifest, each element of each tensor that the ranks held when they saved, with the bytes of
// that attempt: so it can be loaded, under any sharding, as the state of that step.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "shoal/layout.h"
#include "shoal/metadata.h"
#include "shoal/status.h"
#include "storage/files/file_system.h"

namespace shoal::sim {

struct AuditedRun {
  uint32_t generation = 0;
  std::vector<LayoutPtr> layouts;  // what its ranks hold
};

// The committed attempts. Code::corrupt names the first attempt that is not as it must be, and why. The bytes
// that are expected are those of fill_with_known_bytes (sim/cluster/stored_payload.h). A checkpoint that
// `is_damaged`, because the simulator has flipped a bit of it, counts as committed and is not read.
Result<std::set<AttemptKey>> audit_root(storage::FileSystem& file_system, const std::string& root,
                                        const std::vector<AuditedRun>& runs,
                                        const std::function<bool(const AttemptKey&)>& is_damaged = nullptr);

}  // namespace shoal::sim
