#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/planners/storage_record.h"

namespace shoal::dcp::internal {
namespace {

using ::testing::HasSubstr;

SavePlan plan_of_rank(Rank rank) {
  const Box mine{{rank * 4ul, 0}, {4, 3}};
  SavePlan plan{{{{"x", mine.offsets}, WriteItemType::shard, TensorWriteData{mine, {DType::bf16}, {8, 3}}},
                 {{"b", Dims{0}}, WriteItemType::tensor, TensorWriteData{whole(Dims{5}), {DType::f32}, {5}}},
                 {{"rng"}, WriteItemType::byte_io}},
                "",
                "the planner's"};
  plan.items[2].per_rank = true;
  return plan;
}

std::vector<WriteResult> results_of(const SavePlan& plan, const std::string& where) {
  std::vector<WriteResult> results;
  for (const WriteItem& item : plan.items) results.push_back({item.index, item.chunk_bytes(), where});
  return results;
}

StorageRecord record_of(Rank rank) {
  const SavePlan plan = plan_of_rank(rank);
  return make_record(plan, results_of(plan, "file " + std::to_string(rank)), rank).value();
}

TEST(AStoragesRecord, SaysWhereEachChunkIs) {
  const Metadata metadata = join_records({record_of(0), record_of(1)}, {3, 10, 1}).value();
  EXPECT_EQ(metadata.planner_data, "the planner's");
  EXPECT_EQ(metadata.storage_meta.checkpoint_id, "step-00000010/g3a1");
  EXPECT_EQ(metadata.state_dict_metadata.size(), 4u);
  EXPECT_EQ(metadata.storage_data.at({"x", Dims{4, 0}}).storage_data, "file 1");
  EXPECT_EQ(metadata.storage_data.at({"b", Dims{0}}).storage_data, "file 0") << "of the lowest rank";
  EXPECT_EQ(metadata.storage_data.at({"rng@rank1", std::nullopt}).storage_data, "file 1");
  EXPECT_EQ(metadata.storage_data.at({"rng@rank1", std::nullopt}).index.fqn, "rng")
      << "as the writer called it";
}

TEST(AStoragesRecord, OfRanksThatDoNotCoverATensorIsRefused) {
  EXPECT_EQ(join_records({record_of(0)}, {3, 10, 1}).status().message(), "'x': no box covers [4:8, 0:3]");
}

TEST(AStoragesRecord, HasOneResultForEachItem) {
  const SavePlan plan = plan_of_rank(0);
  auto message = [&](auto change) {
    std::vector<WriteResult> results = results_of(plan, "");
    change(results);
    return make_record(plan, std::move(results), 0).status().message();
  };
  EXPECT_EQ(message([](auto& results) { results.pop_back(); }), "write_data: 'rng': it returned no result");
  EXPECT_EQ(message([](auto& results) { results.push_back(results[0]); }),
            "write_data: 'x' at [0, 0]: it returned two results");
  EXPECT_EQ(message([](auto& results) {
              results.push_back({{"y"}, 1, ""});
            }),
            "write_data: 'y': it returned a result for an unknown item");
}

TEST(AStoragesRecord, IsTheSameAfterItWasWritten) {
  const StorageRecord record = record_of(1);
  const std::string bytes = encode_record(record);
  const StorageRecord read = decode_record(as_view(bytes)).value();
  EXPECT_EQ(read.plan, record.plan);
  EXPECT_EQ(read.results, record.results);
}

// No cut, and no changed byte, makes it more than an error.
TEST(AStoragesRecord, ThatIsDamagedIsAnError) {
  const std::string bytes = encode_record(record_of(0));
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decode_record(as_view(std::string_view(bytes).substr(0, length))).status().code(),
              Code::corrupt);
  }
  EXPECT_EQ(decode_record(as_view(bytes + "x")).status().code(), Code::corrupt);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (char mask : {'\x01', '\x80', '\xff'}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ mask);
      const Result<StorageRecord> read = decode_record(as_view(changed));
      if (read.ok()) (void)join_records({*read, record_of(1)}, {3, 10, 1}).ok();
    }
  }
  std::string newer = bytes;
  newer[0] = 2;
  EXPECT_THAT(decode_record(as_view(newer)).status().to_string(), HasSubstr("version 2"));
}

}  // namespace
}  // namespace shoal::dcp::internal
