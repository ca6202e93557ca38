// Completion: commits an undecided attempt whose files in the root prove that it is whole.
//
// A save may lack its manifest: the coordinator dies after the last shard, or someone removes the file. Its
// bytes are as durable as those of any checkpoint. A process that finds such an attempt commits it instead of
// aborting it. docs/reference/format.md, "Attempts without a decision", defines the proof;
// tests/model/completion_model.cpp shows that it is sufficient. Any thread.
#pragma once

#include "storage/decisions/decision.h"
#include "storage/decisions/rank_manifest.h"
#include "storage/storage.h"

namespace shoal::storage {

// Computes the manifest of an undecided attempt: the one that the coordinator would have published. The
// sources are a roster of the attempt's generation and the headers of its shards; for a rank-local save, the
// manifests of its ranks.
//
// Code::not_found names what is missing for a proof. Code::corrupt names a file that is damaged or that
// another plan wrote. Any other code means that the root could not be read and that nothing is known,
// including Code::version for a file that a newer program wrote.
Result<Manifest> prove_complete(Storage& storage, const AttemptKey& key);

// Returns the attempt's decision. If none exists and the attempt is proven complete, first publishes its
// manifest. Errors are those of prove_complete and of before_commit; after an error nothing was published.
// Precondition: the caller has seen the attempt's folder. If the folder no longer exists, the attempt was
// completed and deleted meanwhile, and the result is a tombstone.
Result<Decision> complete_attempt(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                  const BeforeCommit& before_commit = nullptr);
// Like complete_attempt, but the caller need not have seen the folder: an attempt without a folder is
// unproven.
Result<Decision> complete_if_begun(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                   const BeforeCommit& before_commit);

// Whether `why` means that the attempt cannot be proven complete, so that it may be aborted. After any other
// error of complete_attempt it must not be aborted, because it may be a checkpoint.
bool is_unproven(const Status& why);

}  // namespace shoal::storage
