#include <algorithm>
#include <cstring>

#include "schema/checked_reader_internal.h"

namespace shoal::schema {

namespace {
constexpr size_t kWordBytes = sizeof(capnp::word);
constexpr uint64_t kLeastTraversalWords = 1024;
constexpr size_t kLeastSegmentBytes = size_t{8} << 10;

Status bad_frame(const std::string& what) {
  return Status(Code::corrupt, "malformed message: " + what);
}
}  // namespace

Result<std::unique_ptr<CheckedMessage>> CheckedMessage::open(ByteView bytes, const ReadLimits& limits) {
  if (bytes.size() > limits.bytes_max) {
    return Status(Code::too_large, "a message of " + std::to_string(bytes.size()) +
                                       " bytes is too large: at most " + std::to_string(limits.bytes_max) +
                                       " are allowed");
  }
  if (bytes.size() % kWordBytes != 0 || bytes.size() < kWordBytes) {
    return bad_frame(std::to_string(bytes.size()) + " bytes are not a whole number of words");
  }
  uint64_t segments = uint64_t{load_le32(bytes.data())} + 1;
  if (segments > limits.segments_max)
    return bad_frame(std::to_string(segments) + " segments are announced, which is too many");
  uint64_t table_bytes = (4 * (segments + 1) + kWordBytes - 1) / kWordBytes * kWordBytes;
  if (table_bytes > bytes.size()) return bad_frame("the segment table is cut short");
  uint64_t words = (bytes.size() - table_bytes) / kWordBytes;
  uint64_t claimed = 0;
  for (uint64_t i = 0; i < segments; ++i) claimed += load_le32(bytes.data() + 4 * (i + 1));
  if (claimed != words) {
    return bad_frame("the segments announce " + std::to_string(claimed) + " words, but " +
                     std::to_string(words) + " came");
  }

  std::unique_ptr<CheckedMessage> message(new CheckedMessage());
  ByteView body = bytes.subspan(table_bytes);
  const capnp::word* first = reinterpret_cast<const capnp::word*>(body.data());
  if (reinterpret_cast<uintptr_t>(body.data()) % alignof(uint64_t) != 0) {
    message->copy_.resize(words);
    if (words != 0) std::memcpy(message->copy_.data(), body.data(), body.size());
    first = reinterpret_cast<const capnp::word*>(message->copy_.data());
  }
  message->segments_.reserve(segments);
  for (uint64_t i = 0; i < segments; ++i) {
    size_t size = load_le32(bytes.data() + 4 * (i + 1));
    message->segments_.emplace_back(first, size);
    first += size;
  }
  capnp::ReaderOptions options;
  options.traversalLimitInWords = std::max(words * kTraversalPerWord, kLeastTraversalWords);
  options.nestingLimit = kMaxNesting;
  message->reader_ = std::make_unique<capnp::SegmentArrayMessageReader>(
      kj::arrayPtr(message->segments_.data(), message->segments_.size()), options);
  return message;
}

Status status_of(const kj::Exception& exception) {
  std::string description(exception.getDescription().cStr());
  std::replace(description.begin(), description.end(), '\n', ' ');
  return bad_frame(description);
}

// Each segment is as large as all before it together. Untouched pages of the last one take no memory.
kj::ArrayPtr<capnp::word> PagedMessageBuilder::allocateSegment(unsigned words_min) {
  const size_t bytes = std::max({kLeastSegmentBytes, size_t{words_min} * kWordBytes, total_bytes_});
  const PageBuffer& segment = segments_.emplace_back(bytes);
  total_bytes_ += bytes;
  return kj::arrayPtr(reinterpret_cast<capnp::word*>(segment.data()), bytes / kWordBytes);
}

FramedParts framed_parts(capnp::MessageBuilder& message) {
  const auto segments = message.getSegmentsForOutput();
  FramedParts out;
  out.table.resize((sizeof(uint32_t) * (1 + segments.size()) + kWordBytes - 1) / kWordBytes * kWordBytes);
  store_le32(out.table.data(), static_cast<uint32_t>(segments.size() - 1));
  out.bytes = out.table.size();
  for (size_t i = 0; i < segments.size(); ++i) {
    store_le32(out.table.data() + sizeof(uint32_t) * (1 + i), static_cast<uint32_t>(segments[i].size()));
    const auto bytes = segments[i].asBytes();
    out.segments.emplace_back(reinterpret_cast<const std::byte*>(bytes.begin()), bytes.size());
    out.bytes += bytes.size();
  }
  return out;
}

// Like capnp::messageToFlatArray, but writes into the returned bytes, because a message may have megabytes.
Bytes framed_bytes(capnp::MessageBuilder& message) {
  FramedParts parts = framed_parts(message);
  Bytes out = std::move(parts.table);
  out.reserve(parts.bytes);
  for (const ByteView segment : parts.segments) out.insert(out.end(), segment.begin(), segment.end());
  return out;
}

// Like capnp::canonicalize, but writes into the returned bytes.
Bytes framed_segment(size_t words_max, const std::function<void(capnp::AnyPointer::Builder)>& write_root) {
  Bytes out((1 + words_max) * kWordBytes);
  auto* words = reinterpret_cast<capnp::word*>(out.data() + kWordBytes);
  capnp::FlatMessageBuilder message(kj::arrayPtr(words, words_max));
  write_root(message.getRoot<capnp::AnyPointer>());
  const size_t written = message.getSegmentsForOutput()[0].size();
  store_le32(out.data() + 4, static_cast<uint32_t>(written));  // the number of segments minus one is 0
  out.resize((1 + written) * kWordBytes);
  return out;
}

}  // namespace shoal::schema
