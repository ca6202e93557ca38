// What a rank's storage answered for its items, as bytes of a checkpoint. docs/reference/format.md, "Custom
// storage".
#pragma once

#include <string>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/dcp/storage.h"

namespace shoal::dcp::internal {

inline constexpr std::string_view kRecordFqn = "shoal.storage_record";  // "...@rank7" of rank 7
inline constexpr uint8_t kRecordVersion = 1;

// One rank's items, as the metadata call them ("x@rank7"), and the results of each.
struct StorageRecord {
  SavePlan plan;                     // of items: index, type and tensor_data; and planner_data
  std::vector<WriteResult> results;  // parallel to plan.items; their index as write_data gave it
};

// Code::invalid_argument names an item without exactly one result, or a result without an item.
Result<StorageRecord> make_record(const SavePlan& plan, std::vector<WriteResult> results, Rank rank);
std::string encode_record(const StorageRecord& record);
// Bounded by the bytes given. Code::corrupt, or Code::version.
Result<StorageRecord> decode_record(ByteView bytes);
// What the records of all ranks, by rank, say together. Code::invalid_argument names a value that ranks
// disagree on, or that their chunks do not tile.
Result<Metadata> join_records(const std::vector<StorageRecord>& records, const AttemptKey& key);

}  // namespace shoal::dcp::internal
