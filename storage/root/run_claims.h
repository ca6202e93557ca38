// What a running node knows of its run's records in the root, so that it can put them back.
//
// ROOT_ID, epochs/ and generations/ may be removed or damaged under a live job. What is saved then would be
// found by nobody. So a node looks before each commit, and restores what it knows. docs/reference/format.md,
// "Root".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/root/run_root.h"

namespace shoal::storage {

struct RunClaims {
  RootId root_id;
  std::optional<GenerationRecord> generation;  // of this run; none: its record was never read here
  std::optional<EpochRecord> epoch;            // none: no coordinator is here
};

// Compares the root's records with these. Creates a missing one exclusively, and replaces a damaged one, with
// what is known of it. Returns the paths of those restored. Code::refused names a record that holds another
// run's id or claim: nothing may be committed then. A higher number than ours is no error here, unless our
// epoch is gone and a later run has its generation: our epoch would end its coordinator.
Result<std::vector<std::string>> restore_claims(Storage& storage, const RunClaims& claims);

// Makes sure that a roster is in the root by which a checkpoint could be proven complete without its
// manifest. *seen_at: the path where an earlier call found it, or ""; changed to where it is now.
Status keep_roster(Storage& storage, uint32_t generation, const RosterRecord& record, const Nonce& nonce,
                   std::string* seen_at);

// The record of a generation. Code::not_found.
Result<GenerationRecord> read_generation_record(Storage& storage, uint32_t generation);

// Whether an entry of that name, directly below a folder, shows that the folder was a root before.
bool shows_a_run(std::string_view name);

}  // namespace shoal::storage
