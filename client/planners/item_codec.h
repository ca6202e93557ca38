// Encodes items of plans, to store or send them. Numbers are little-endian; a length precedes what it counts.
// docs/reference/format.md, "Custom storage".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/dcp/types.h"

namespace shoal::dcp::internal {

class ByteWriter {
 public:
  void u8(uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void u32(uint32_t value);
  void u64(uint64_t value);
  void text(std::string_view text);
  void dims(const Dims& dims);
  void index(const MetadataIndex& index);  // without MetadataIndex::index
  void item(const WriteItem& item);        // index, type and tensor_data
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// After the first invalid byte, every read returns 0 or an empty value, and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : rest_(bytes) {}
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }
  uint8_t u8();
  uint32_t u32();
  uint64_t u64();
  std::string text();
  Dims dims();
  MetadataIndex index();
  WriteItem item();

 private:
  ByteView take(uint64_t count);
  void fail() { ok_ = false; }
  ByteView rest_;
  bool ok_ = true;
};

// A whole local plan without the shardings of its items, for the planner of coordinator_rank.
std::string encode_local_plan(const SavePlan& plan);
Result<SavePlan> decode_local_plan(ByteView bytes);

// The items of its local plan that a rank keeps.
struct PartOfPlan {
  std::vector<uint32_t> items;  // indices in the local plan, in the order of the final plan
  std::string storage_data, planner_data;
};
std::string encode_part(const PartOfPlan& part);
Result<PartOfPlan> decode_part(ByteView bytes);

}  // namespace shoal::dcp::internal
