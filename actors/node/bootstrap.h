// The steps of a node before it serves: it opens the root and takes its place in the run. Each comment states
// what the step rejects.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "actors/node/node.h"
#include "shoal/status.h"
#include "storage/files/call_watch.h"
#include "storage/open_storage.h"
#include "storage/retention/readers.h"
#include "transport/transport.h"

namespace shoal::actors {

// For the coordinator of an earlier epoch, which is usually dead.
inline constexpr uint32_t kProbeCoordinatorTimeoutMs = 3'000;
inline constexpr int kMaxEpochClaims = 64;  // tries for the next epoch if other coordinators claim it first

struct OpenedRoot {
  std::unique_ptr<storage::CallWatch> watch;
  storage::OpenedStorage opened;
  RootId root_id;
  storage::Storage& storage() const { return *opened.storage; }
};
// Proves that the root supports what commits rely on. `may_create`: makes the folder a root if it is none
// yet; otherwise that is Code::not_found, and nothing is written. `log` receives calls that take long
// (CallWatch), on any thread, until the root is destroyed.
Result<OpenedRoot> open_node_root(const std::string& root, const Nonce& process, bool may_create,
                                  storage::CallWatch::Log log);

// For a job that only reads. Code::not_found: it is no root.
Result<OpenedRoot> open_root_to_read(const std::string& root, const Nonce& process,
                                     storage::CallWatch::Log log);
// For the coordinator of such a job: claims its number under readers/, which also proves that the job may
// create files. `rejoin`: as in NodeOptions.
Result<storage::ReaderRecord> take_reader(storage::Storage& storage, const transport::Identity& self,
                                          std::optional<uint32_t> rejoin);

// Code::refused, with job and address: a live coordinator of another run answers at the address of the root's
// last epoch. `rejoin`: as in NodeOptions. A run that starts has no coordinator yet, so a live one with its
// own job id belongs to another run. Blocks at most kProbeCoordinatorTimeoutMs.
Status check_no_other_run(storage::Storage& storage, const transport::Identity& self, const Bytes& token,
                          std::optional<uint32_t> rejoin);

// Claims the next epoch for a coordinator that already listens at `address`, and returns it.
Result<uint32_t> claim_next_epoch(storage::Storage& storage, const std::string& address,
                                  const transport::Identity& self);

std::string own_host_name();

}  // namespace shoal::actors
