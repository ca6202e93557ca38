// Reads Cap'n Proto from an untrusted source: a frame, a file or another process.
//
// Cap'n Proto 0.9 accepts absurd segment tables, throws, and needs aligned bytes. read_checked checks the
// table first, aligns the bytes, limits traversal and nesting, and lets no exception pass. Callers must still
// bound the size of a list before they reserve memory for its elements (bounded_size). Third-party types:
// include this header only in .cpp files and *_internal.h headers.
#pragma once

#include <capnp/any.h>
#include <capnp/common.h>
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "shoal/page_buffer.h"
#include "shoal/status.h"

namespace shoal::schema {

inline constexpr uint32_t kMaxSegments = 512;  // of one message; Shoal writes one
inline constexpr int kMaxNesting = 32;
inline constexpr uint64_t kTraversalPerWord = 8;  // how often each word of a message may be visited

struct ReadLimits {
  size_t bytes_max = 0;  // Code::too_large above it
  uint32_t segments_max = kMaxSegments;
};

// One message in standard framing whose segments fill the bytes exactly. Borrows the bytes if they are
// aligned.
class CheckedMessage {
 public:
  static Result<std::unique_ptr<CheckedMessage>> open(ByteView bytes, const ReadLimits& limits);
  capnp::MessageReader& reader() { return *reader_; }

 private:
  CheckedMessage() = default;
  std::vector<uint64_t> copy_;  // words, if the given bytes were not aligned
  std::vector<kj::ArrayPtr<const capnp::word>> segments_;
  std::unique_ptr<capnp::SegmentArrayMessageReader> reader_;
};

Status status_of(const kj::Exception& exception);  // Code::corrupt, one line

// Calls body(Root::Reader), which returns a Status or a Result. A kj::Exception from `body` becomes
// Code::corrupt. The reader is valid only during the call.
template <class Root, class Body>
auto read_checked(ByteView bytes, const ReadLimits& limits, Body&& body)
    -> decltype(body(std::declval<typename Root::Reader>())) {
  auto message = CheckedMessage::open(bytes, limits);
  if (!message.ok()) return message.status();
  try {
    return body((*message)->reader().template getRoot<Root>());
  } catch (const kj::Exception& exception) {
    return status_of(exception);
  }
}

// The size of a list, Text or Data. Code::too_large, naming `what`, if it exceeds `most`.
template <class List>
Result<size_t> bounded_size(const List& list, size_t most, std::string_view what) {
  size_t size = list.size();
  if (size > most) {
    return Status(Code::too_large, std::string(what) + ": " + std::to_string(size) +
                                       " items are too many: at most " + std::to_string(most) +
                                       " are allowed");
  }
  return size;
}

inline ByteView view_of(capnp::Data::Reader data) {
  return {reinterpret_cast<const std::byte*>(data.begin()), data.size()};
}
inline std::string_view view_of(capnp::Text::Reader text) {
  return {text.begin(), text.size()};
}
inline capnp::Data::Reader data_of(ByteView bytes) {
  return {reinterpret_cast<const capnp::byte*>(bytes.data()), bytes.size()};
}
inline capnp::Data::Reader data_of(const Hash128& hash) {
  return data_of(ByteView(hash.bytes));
}
inline capnp::Text::Reader text_of(const std::string& text) {
  return {text.c_str(), text.size()};
}

// A builder that returns its memory to the system when it is destroyed, so that large messages leave no
// memory behind.
class PagedMessageBuilder final : public capnp::MessageBuilder {
 public:
  kj::ArrayPtr<capnp::word> allocateSegment(unsigned words_min) override;

 private:
  std::vector<PageBuffer> segments_;
  size_t total_bytes_ = 0;
};

// Standard framing: the segment table, then the segments, which are borrowed.
struct FramedParts {
  Bytes table;
  std::vector<ByteView> segments;
  size_t bytes = 0;  // of the whole message
};
FramedParts framed_parts(capnp::MessageBuilder& message);
Bytes framed_bytes(capnp::MessageBuilder& message);  // framed_parts in one buffer

// Standard framing of one segment of at most `words_max` words. Its first word points to the root.
Bytes framed_segment(size_t words_max, const std::function<void(capnp::AnyPointer::Builder)>& write_root);
// Frames the value in canonical form: equal values give equal bytes.
template <class Builder>
Bytes canonical_framed_bytes(Builder builder) {
  return framed_segment(1 + builder.totalSize().wordCount, [&builder](capnp::AnyPointer::Builder root) {
    root.setCanonicalAs<capnp::FromBuilder<Builder>>(builder.asReader());
  });
}

}  // namespace shoal::schema
