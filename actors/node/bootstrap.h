// What a node does before it serves: it opens the root, and takes its place in the run. Each step says what
// it refuses.
#pragma once

#include <memory>
#include <string>

#include "actors/node/node.h"
#include "base/status.h"
#include "storage/file_system.h"
#include "storage/local_storage.h"
#include "transport/transport.h"

namespace shoal {

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

std::string own_host_name();

}  // namespace shoal
