// The checks of `shoal doctor`. Each is a function of facts and reads nothing else.
#pragma once

#include <string>
#include <vector>

#include "base/descriptors.h"
#include "cli/doctor/facts.h"
#include "cli/doctor/finding.h"
#include "local/settings/settings.h"

namespace shoal::cli {

Findings check_root(const RootFacts& facts, const JobShape& job);
Findings check_bucket(const BucketFacts& facts);
Finding check_file_system(const MountFacts& mount, uint64_t hosts);
Finding check_space(const SpaceFacts& space, const JobShape& job);
Finding check_server_clock(const RootFacts& facts);
Finding check_clock(const ClockFacts& facts);
// `staging_bytes_max`: setting staging-memory; 0: not set.
Findings check_memory(const MemoryFacts& facts, const JobShape& job, uint64_t staging_bytes_max);
Finding check_descriptors(const base::DescriptorLimit& limit, const JobShape& job, uint32_t max_direct_nodes);
Finding check_token(const TokenFacts& facts, uint64_t hosts);
Findings check_network(const NetworkFacts& facts, const JobShape& job);
Finding check_runtime_folder(const RuntimeFolderFacts& facts);
Finding check_use(const UseFacts& facts);
Finding check_versions(const VersionFacts& facts);
Finding check_gpu(const GpuFacts& facts);
// Every variable and each file is checked by itself, so that one mistake does not hide the next. `settings`
// gets what is valid. `unknown`: variables that Shoal does not know.
Findings check_settings(const std::string& root, const local::Settings::Variables& variables,
                        const std::vector<std::string>& unknown, local::Settings* settings);

// The mount that contains `path`, which is absolute and has no symbolic links. `mountinfo`: the text of
// /proc/self/mountinfo.
std::optional<MountFacts> find_mount(const std::string& mountinfo, const std::string& path);

}  // namespace shoal::cli
