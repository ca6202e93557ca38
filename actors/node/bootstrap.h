// What a node does before it serves: it opens the root, and takes its place in the run. Each step says what
// it refuses.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/node/node.h"
#include "base/status.h"
#include "storage/catalog.h"
#include "storage/file_system.h"
#include "storage/local_storage.h"
#include "transport/transport.h"

namespace shoal {

inline constexpr uint32_t kFindCoordinatorTimeoutMs = 60'000;
inline constexpr uint32_t kProbeCoordinatorTimeoutMs = 3'000;  // of an earlier epoch, which is mostly dead
inline constexpr int kMaxEpochClaims = 64;                     // lost races for the next epoch

struct OpenedRoot {
  std::unique_ptr<FileSystem> file_system;
  std::unique_ptr<Storage> storage;
  RootId root_id;
};
// Makes the folder a root if it is none yet, and proves that it can do what commits rest on.
Result<OpenedRoot> open_node_root(const std::string& root, const Nonce& process);

// Refuses where a live coordinator of another job answers at the address of the root's last epoch, naming job
// and address. Blocks at most kProbeCoordinatorTimeoutMs.
Status check_no_other_job(Storage& storage, const Identity& self, const Bytes& token);

// The epoch claimed by a coordinator that listens at `address` already.
Result<uint32_t> claim_next_epoch(Storage& storage, const std::string& address, const std::string& job_id,
                                  const Nonce& process);

// The catalog at `path`, caught up with the root. A damaged one is moved aside, and so is one of another run
// where `may_replace_others`; a line says so. It holds nothing that the root does not.
Result<std::unique_ptr<Catalog>> open_node_catalog(const std::string& path, bool may_replace_others,
                                                   const RootId& root_id, Storage& storage,
                                                   const std::function<void(const std::string&)>& log);

std::string own_host_name();

}  // namespace shoal
