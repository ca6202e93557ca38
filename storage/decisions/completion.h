// Completion: commits an undecided attempt whose files in the root prove that it is whole.
//
// A save may lose its manifest, or never get one: the coordinator dies after the last shard, or somebody
// removes the file. Its bytes are then as durable as those of any checkpoint. Whoever finds such an attempt
// commits it instead of aborting it. docs/reference/format.md, "Attempts without a decision", says what is a
// proof, and tests/model/completion_model.cpp why it is enough. Any thread.
#pragma once

#include "storage/decisions/decision.h"
#include "storage/decisions/rank_manifest.h"
#include "storage/storage.h"

namespace shoal::storage {

// The manifest of an undecided attempt, worked out from a roster of its generation and the headers of its
// shards; of a rank-local save, from the manifests of its ranks. It is the manifest that the coordinator
// would have published. Code::not_found names what is missing for a proof; Code::corrupt names a file that
// another plan wrote or that is damaged. With any other code the root could not be read, and nothing is
// known: so with Code::version, of a file that a newer program wrote.
Result<Manifest> prove_complete(Storage& storage, const AttemptKey& key);

// Returns the decision that stands. If none does and the attempt is proven complete, publishes its manifest
// first. Errors are those of prove_complete and of before_commit; then nothing was published. Precondition:
// the attempt's folder was seen. If it is gone, the attempt was completed and deleted meanwhile, and the
// answer is a tombstone.
Result<Decision> complete_attempt(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                  const BeforeCommit& before_commit = nullptr);
// The same for an attempt whose folder need not have been seen: without a folder it is unproven.
Result<Decision> complete_if_begun(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                   const BeforeCommit& before_commit);

// Whether `why` means that an attempt cannot be proven complete: it may be aborted then. With any other error
// of complete_attempt it may not, for it may be a checkpoint.
bool is_unproven(const Status& why);

}  // namespace shoal::storage
