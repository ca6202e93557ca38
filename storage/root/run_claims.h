// What a running node knows about its run's records in the root, so that it can restore them.
//
// Someone may remove or damage ROOT_ID, epochs/ or generations/ while a job runs. No reader would then find
// what the job saves. So a node checks the records before each commit and restores them.
// docs/reference/format.md, "Root".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/root/run_root.h"

namespace shoal::storage {

struct RunClaims {
  RootId root_id;
  std::optional<GenerationRecord> generation;  // of this run; nullopt: this node never read the record
  std::optional<EpochRecord> epoch;            // nullopt: this node is not the coordinator
};

// Compares the root's records with `claims`. Creates a missing record exclusively and replaces a damaged one.
// Returns the paths of the restored records. Code::refused names a record that holds another run's id or
// claim; the caller must then commit nothing. A higher epoch or generation is not an error, with one
// exception: if our epoch is missing and a later run has claimed a generation, restoring our epoch would end
// that run's coordinator, so the call returns Code::refused.
Result<std::vector<std::string>> restore_claims(Storage& storage, const RunClaims& claims);

// Ensures that the root holds a roster that can prove a checkpoint complete without its manifest. `*seen_at`
// is the path where an earlier call found the roster, or ""; the call updates it.
Status keep_roster(Storage& storage, uint32_t generation, const RosterRecord& record, const Nonce& nonce,
                   std::string* seen_at);

// Code::not_found if there is no record.
Result<GenerationRecord> read_generation_record(Storage& storage, uint32_t generation);

// Whether an entry of this name directly in a folder shows that the folder once was a root.
bool shows_a_run(std::string_view name);

}  // namespace shoal::storage
