// What a node does before it serves: it opens the root, and takes its place in the run. Each step says what
// it refuses.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "actors/node/node.h"
#include "shoal/status.h"
#include "storage/files/call_watch.h"
#include "storage/files/file_system.h"
#include "storage/files/local_storage.h"
#include "storage/retention/readers.h"
#include "transport/transport.h"

namespace shoal::actors {

inline constexpr uint32_t kProbeCoordinatorTimeoutMs = 3'000;  // of an earlier epoch, which is mostly dead
inline constexpr int kMaxEpochClaims = 64;                     // lost races for the next epoch

struct OpenedRoot {
  std::unique_ptr<storage::CallWatch> watch;
  std::unique_ptr<storage::FileSystem> disk,
      file_system;  // the latter shows the watch each call on the former
  std::unique_ptr<storage::Storage> storage;
  RootId root_id;
};
// Proves that the root can do what commits rest on. `may_create`: makes the folder a root if it is none yet;
// else that is Code::not_found, and nothing is written. `log` hears of calls that take long (CallWatch), from
// any thread, until the root is destroyed.
Result<OpenedRoot> open_node_root(const std::string& root, const Nonce& process, bool may_create,
                                  storage::CallWatch::Log log);

// Of a job that only reads: Code::not_found where it is no root.
Result<OpenedRoot> open_root_to_read(const std::string& root, const Nonce& process,
                                     storage::CallWatch::Log log);
// The number of such a job, by its coordinator; `rejoin`: as in NodeOptions. It also shows that the job may
// create what it has to.
Result<storage::ReaderRecord> take_reader(storage::Storage& storage, const transport::Identity& self,
                                          std::optional<uint32_t> rejoin);

// Refuses where a live coordinator of another run answers at the address of the root's last epoch, naming its
// job and address. `rejoin`: as in NodeOptions; a run that starts has no coordinator yet, so that one of its
// own job id is another's. Blocks at most kProbeCoordinatorTimeoutMs.
Status check_no_other_run(storage::Storage& storage, const transport::Identity& self, const Bytes& token,
                          std::optional<uint32_t> rejoin);

// The epoch claimed by a coordinator that listens at `address` already.
Result<uint32_t> claim_next_epoch(storage::Storage& storage, const std::string& address,
                                  const transport::Identity& self);

std::string own_host_name();

}  // namespace shoal::actors
