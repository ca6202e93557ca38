// Staged records: each states that a rank has staged an attempt in which it has nothing to write.
// docs/reference/format.md, "Staged records".
//
// Such a rank has no shard. So no other file of the root shows that the rank staged the attempt, nor with
// which layout. Its node writes the record before it reports the rank, and the proof that the attempt is
// complete needs the record (storage/decisions/completion.h). A rank that writes a shard has no record. Any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shoal/save_plan.h"
#include "storage/decisions/decision.h"
#include "storage/storage.h"

namespace shoal::storage {

struct StagedRecord {
  AttemptKey key;
  Rank rank = 0;
  LayoutId layout_id;
  PlanId
      assignment_id;  // assignment_id_of its plan; the same under every roster that gives this layout no file
  UserMetadata user = {};
  friend bool operator==(const StagedRecord&, const StagedRecord&) = default;
};

std::string staged_record_name(Rank rank);  // "rank-00007.staged"
std::optional<Rank> parse_staged_record_name(std::string_view name);
std::string staged_record_path(const AttemptKey& key, Rank rank);  // under the root

// Creates the record durably. An existing record with the same content counts as success;
// Code::already_exists if it differs.
Status write_staged_record(Storage& storage, const StagedRecord& record);
// Code::corrupt if the file contains another attempt or rank than its name.
Result<StagedRecord> read_staged_record(Storage& storage, const AttemptKey& key, Rank rank);

}  // namespace shoal::storage
