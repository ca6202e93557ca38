#include "client/planners/item_codec.h"

namespace shoal::dcp::internal {

namespace {

constexpr uint8_t kPerRank = 1, kReplicated = 2;

Status malformed() {
  return Status(Code::corrupt, "the bytes of a planner's plan are damaged");
}

}  // namespace

void ByteWriter::u32(uint32_t value) {
  std::byte bytes[4];
  store_le32(bytes, value);
  out_.append(as_text(bytes));
}

void ByteWriter::u64(uint64_t value) {
  std::byte bytes[8];
  store_le64(bytes, value);
  out_.append(as_text(bytes));
}

void ByteWriter::text(std::string_view text) {
  u64(text.size());
  out_.append(text);
}

void ByteWriter::dims(const Dims& dims) {
  u32(static_cast<uint32_t>(dims.size()));
  for (uint64_t each : dims) u64(each);
}

void ByteWriter::index(const MetadataIndex& index) {
  text(index.fqn);
  u8(index.offset ? 1 : 0);
  if (index.offset) dims(*index.offset);
}

void ByteWriter::item(const WriteItem& item) {
  index(item.index);
  u8(static_cast<uint8_t>(item.type));
  if (!item.tensor_data) return;
  u8(static_cast<uint8_t>(item.tensor_data->properties.dtype));
  dims(item.tensor_data->size);
  dims(item.tensor_data->chunk.offsets);
  dims(item.tensor_data->chunk.sizes);
}

ByteView ByteReader::take(uint64_t count) {
  if (!ok_ || count > rest_.size()) {
    fail();
    return {};
  }
  const ByteView out = rest_.first(count);
  rest_ = rest_.subspan(count);
  return out;
}

uint8_t ByteReader::u8() {
  const ByteView bytes = take(1);
  return bytes.empty() ? 0 : static_cast<uint8_t>(bytes[0]);
}

uint32_t ByteReader::u32() {
  const ByteView bytes = take(4);
  return bytes.empty() ? 0 : load_le32(bytes.data());
}

uint64_t ByteReader::u64() {
  const ByteView bytes = take(8);
  return bytes.empty() ? 0 : load_le64(bytes.data());
}

std::string ByteReader::text() {
  return std::string(as_text(take(u64())));
}

Dims ByteReader::dims() {
  const uint32_t count = u32();
  if (count > kMaxDims) fail();
  Dims out;
  for (uint32_t i = 0; ok_ && i < count; ++i) out.push_back(u64());
  return out;
}

MetadataIndex ByteReader::index() {
  MetadataIndex out;
  out.fqn = text();
  if (u8() != 0) out.offset = dims();
  return out;
}

WriteItem ByteReader::item() {
  WriteItem item;
  item.index = index();
  const uint8_t type = u8();
  if (type < 1 || type > 3) {
    fail();
    return item;
  }
  item.type = static_cast<WriteItemType>(type);
  if (item.type == WriteItemType::byte_io) return item;
  TensorWriteData data;
  const Result<DType> dtype = dtype_from_number(u8());
  if (dtype.ok()) data.properties.dtype = *dtype;
  data.size = dims();
  data.chunk.offsets = dims();
  data.chunk.sizes = dims();
  const size_t dimensions = data.size.size();
  if (!dtype.ok() || data.chunk.offsets.size() != dimensions || data.chunk.sizes.size() != dimensions) fail();
  item.tensor_data = std::move(data);
  return item;
}

std::string encode_local_plan(const SavePlan& plan) {
  ByteWriter writer;
  writer.text(plan.storage_data);
  writer.text(plan.planner_data);
  writer.u64(plan.items.size());
  for (const WriteItem& item : plan.items) {
    writer.item(item);
    writer.u8(static_cast<uint8_t>((item.per_rank ? kPerRank : 0) | (item.replicated ? kReplicated : 0)));
  }
  return writer.take();
}

Result<SavePlan> decode_local_plan(ByteView bytes) {
  ByteReader reader(bytes);
  SavePlan plan;
  plan.storage_data = reader.text();
  plan.planner_data = reader.text();
  const uint64_t items = reader.u64();
  for (uint64_t i = 0; i < items && reader.ok(); ++i) {
    plan.items.push_back(reader.item());
    const uint8_t flags = reader.u8();
    plan.items.back().per_rank = (flags & kPerRank) != 0;
    plan.items.back().replicated = (flags & kReplicated) != 0;
  }
  if (!reader.at_end()) return malformed();
  return plan;
}

std::string encode_part(const PartOfPlan& part) {
  ByteWriter writer;
  writer.text(part.storage_data);
  writer.text(part.planner_data);
  writer.u64(part.items.size());
  for (uint32_t number : part.items) writer.u32(number);
  return writer.take();
}

Result<PartOfPlan> decode_part(ByteView bytes) {
  ByteReader reader(bytes);
  PartOfPlan part;
  part.storage_data = reader.text();
  part.planner_data = reader.text();
  const uint64_t items = reader.u64();
  for (uint64_t i = 0; i < items && reader.ok(); ++i) part.items.push_back(reader.u32());
  if (!reader.at_end()) return malformed();
  return part;
}

}  // namespace shoal::dcp::internal
