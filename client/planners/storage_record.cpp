#include <fmt/format.h>

#include <map>

#include "client/planners/item_codec.h"
#include "client/planners/storage_record.h"
#include "shoal/dcp/global_plan.h"

namespace shoal::dcp::internal {

namespace {

Status corrupt() {
  return Status(Code::corrupt, "the record of a storage is damaged");
}

}  // namespace

Result<StorageRecord> make_record(const SavePlan& plan, std::vector<WriteResult> results, Rank rank) {
  auto bad = [](const MetadataIndex& index, std::string_view what) {
    return Status(Code::invalid_argument, fmt::format("write_data: {}: {}", to_string(index), what));
  };
  std::map<MetadataIndex, WriteResult> by_index;
  for (WriteResult& result : results) {
    const MetadataIndex index = result.index;
    if (!by_index.emplace(index, std::move(result)).second) return bad(index, "it returned two results");
  }
  StorageRecord record;
  record.plan.planner_data = plan.planner_data;
  for (const WriteItem& item : plan.items) {
    auto result = by_index.find(item.index);
    if (result == by_index.end()) return bad(item.index, "it returned no result");
    WriteItem recorded{item.index, item.type, item.tensor_data};
    if (item.per_rank) recorded.index.fqn = rank_fqn(item.index.fqn, rank);
    record.plan.items.push_back(std::move(recorded));
    record.results.push_back(std::move(result->second));
    by_index.erase(result);
  }
  if (!by_index.empty()) return bad(by_index.begin()->first, "it returned a result for an unknown item");
  return record;
}

std::string encode_record(const StorageRecord& record) {
  ByteWriter writer;
  writer.u8(kRecordVersion);
  writer.text(record.plan.planner_data);
  writer.u64(record.plan.items.size());
  for (size_t i = 0; i < record.plan.items.size(); ++i) {
    const WriteItem& item = record.plan.items[i];
    writer.item(item);
    writer.index(record.results[i].index);
    writer.u64(record.results[i].size_in_bytes);
    writer.text(record.results[i].storage_data);
  }
  return writer.take();
}

Result<StorageRecord> decode_record(ByteView bytes) {
  ByteReader reader(bytes);
  const uint8_t version = reader.u8();
  if (reader.ok() && version > kRecordVersion) {
    return Status(Code::version,
                  fmt::format("the record of a storage has version {}, and this program reads {}", version,
                              kRecordVersion));
  }
  if (version == 0) return corrupt();
  StorageRecord record;
  record.plan.planner_data = reader.text();
  const uint64_t items = reader.u64();
  for (uint64_t i = 0; i < items && reader.ok(); ++i) {
    record.plan.items.push_back(reader.item());
    WriteResult result;
    result.index = reader.index();
    result.size_in_bytes = reader.u64();
    result.storage_data = reader.text();
    record.results.push_back(std::move(result));
  }
  if (!reader.at_end()) return corrupt();
  return record;
}

Result<Metadata> join_records(const std::vector<StorageRecord>& records, const AttemptKey& key) {
  std::vector<SavePlan> plans;
  for (const StorageRecord& record : records) plans.push_back(record.plan);
  SHOAL_ASSIGN_OR_RETURN(GlobalSavePlan global, default_global_plan(plans, GlobalDedupe::lowest_rank));
  Metadata out = std::move(global.metadata);
  out.storage_meta = {key, checkpoint_id_of(key)};
  for (const StorageRecord& record : records) {
    if (out.planner_data.empty()) out.planner_data = record.plan.planner_data;
    for (size_t i = 0; i < record.results.size(); ++i) {
      const WriteItem& item = record.plan.items[i];
      // An item without elements is no chunk, unless the whole tensor has none.
      if (item.tensor_data && item.tensor_data->chunk.empty() && !whole(item.tensor_data->size).empty())
        continue;
      out.storage_data.emplace(item.index, record.results[i]);  // keeps the result of the lowest rank
    }
  }
  return out;
}

}  // namespace shoal::dcp::internal
