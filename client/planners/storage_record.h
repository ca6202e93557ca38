// The results of a rank's custom storage, encoded as an object of the checkpoint. docs/reference/format.md,
// "Custom storage".
#pragma once

#include <string>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/dcp/storage.h"

namespace shoal::dcp::internal {

inline constexpr std::string_view kRecordFqn = "shoal.storage_record";  // "...@rank7" for rank 7
inline constexpr uint8_t kRecordVersion = 1;

// One rank's items, under their names in the metadata ("x@rank7"), and the result of each.
struct StorageRecord {
  SavePlan plan;                     // planner_data, and index, type and tensor_data of the items
  std::vector<WriteResult> results;  // results[i] belongs to plan.items[i]; indices as write_data gave them
};

// Code::invalid_argument names an item without exactly one result, or a result without an item.
Result<StorageRecord> make_record(const SavePlan& plan, std::vector<WriteResult> results, Rank rank);
std::string encode_record(const StorageRecord& record);
// Needs memory in proportion to `bytes`. Code::corrupt, or Code::version.
Result<StorageRecord> decode_record(ByteView bytes);
// Merges the records of all ranks, given by rank. Code::invalid_argument names a value on which ranks
// disagree, or which their chunks do not tile.
Result<Metadata> join_records(const std::vector<StorageRecord>& records, const AttemptKey& key);

}  // namespace shoal::dcp::internal
