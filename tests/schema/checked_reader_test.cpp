#include <capnp/message.h>
#include <gmock/gmock.h>

#include <random>

#include "schema/checked_reader_internal.h"
#include "schema/layout.capnp.h"
#include "schema/manifest.capnp.h"

namespace shoal::schema {
namespace {

using ::testing::HasSubstr;

constexpr ReadLimits kLimits = {1 << 20, kMaxSegments};

Bytes sample() {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::Decision>();
  root.setStep(7);
  root.getBody().initTombstone().setCause("a cause");
  return framed_bytes(message);
}

// Everything that a message holds, as far as it can be read.
Status read_all(ByteView bytes, const ReadLimits& limits = kLimits) {
  return read_checked<schema::Decision>(bytes, limits, [](schema::Decision::Reader root) {
    std::string text = root.toString().flatten().cStr();
    return text.empty() ? Status(Code::internal, "no text") : ok_status();
  });
}

TEST(CheckedReader, ReadsWhatWasWrittenAtAnyAlignment) {
  Bytes message = sample();
  Bytes shifted(message.size() + 8);
  for (size_t shift = 0; shift < 8; ++shift) {
    std::copy(message.begin(), message.end(), shifted.begin() + static_cast<ptrdiff_t>(shift));
    auto step = read_checked<schema::Decision>(
        ByteView(shifted).subspan(shift, message.size()), kLimits,
        [](schema::Decision::Reader root) -> Result<uint64_t> { return root.getStep(); });
    ASSERT_TRUE(step.ok()) << step.status().to_string();
    EXPECT_EQ(*step, 7u);
  }
}

TEST(CheckedReader, ReadsMessagesOfSeveralSegments) {
  capnp::MallocMessageBuilder message(1, capnp::AllocationStrategy::FIXED_SIZE);
  auto root = message.initRoot<schema::Decision>();
  root.getBody().initTombstone().setCause(std::string(1000, 'x').c_str());
  ASSERT_GT(message.getSegmentsForOutput().size(), 1u);
  Bytes bytes = framed_bytes(message);
  EXPECT_TRUE(read_all(bytes).ok());
  EXPECT_THAT(read_all(bytes, {1 << 20, 1}).message(), HasSubstr("segments are announced"));
}

TEST(PagedMessageBuilder, GivesTheMessageInPartsAsItIsInOne) {
  PagedMessageBuilder message;
  auto files = message.initRoot<schema::Decision>().getBody().initManifest().initFiles(5000);
  for (uint32_t i = 0; i < files.size(); ++i) files[i].setName(std::to_string(i).c_str());
  const FramedParts parts = framed_parts(message);
  ASSERT_GT(parts.segments.size(), 1u);
  Bytes joined = parts.table;
  for (const ByteView segment : parts.segments) joined.insert(joined.end(), segment.begin(), segment.end());
  EXPECT_EQ(joined.size(), parts.bytes);
  EXPECT_EQ(joined, framed_bytes(message));
  auto read = read_checked<schema::Decision>(joined, kLimits, [](schema::Decision::Reader root) {
    uint32_t in_order = 0;
    for (auto file : root.getBody().getManifest().getFiles()) {
      if (view_of(file.getName()) == std::to_string(in_order)) ++in_order;
    }
    return Result<uint32_t>(in_order);
  });
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, 5000u);
}

TEST(CheckedReader, RefusesAbsurdSegmentTables) {
  Bytes message = sample();
  for (uint32_t count : {0xffffffffu, 0x7fffffffu, 1000u, 511u, 1u}) {
    Bytes absurd = message;
    store_le32(absurd.data(), count);
    EXPECT_EQ(read_all(absurd).code(), Code::corrupt) << count;
  }
  for (uint32_t words : {0xffffffffu, 0u, static_cast<uint32_t>(message.size() / 8)}) {
    Bytes absurd = message;
    store_le32(absurd.data() + 4, words);
    EXPECT_THAT(read_all(absurd).message(), HasSubstr("the segments announce")) << words;
  }
}

TEST(CheckedReader, RefusesMessagesCutAnywhere) {
  Bytes message = sample();
  for (size_t size = 0; size < message.size(); ++size) {
    EXPECT_EQ(read_all(ByteView(message).first(size)).code(), Code::corrupt) << size;
  }
  message.resize(message.size() + 8);
  EXPECT_EQ(read_all(message).code(), Code::corrupt);
}

TEST(CheckedReader, RefusesMessagesBeyondTheBound) {
  Bytes message = sample();
  EXPECT_EQ(read_all(message, {message.size() - 1, kMaxSegments}).code(), Code::too_large);
  EXPECT_TRUE(read_all(message, {message.size(), kMaxSegments}).ok());
}

TEST(CheckedReader, TurnsExceptionsIntoOneLine) {
  Bytes message = sample();
  std::mt19937_64 random(1);
  size_t refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    Bytes changed = message;
    for (uint64_t changes = random() % 3 + 1; changes > 0; --changes) {
      changed[8 + random() % (changed.size() - 8)] = static_cast<std::byte>(random());
    }
    Status status = read_all(changed);
    ASSERT_TRUE(status.ok() || status.code() == Code::corrupt) << status.to_string();
    ASSERT_EQ(status.message().find('\n'), std::string::npos);
    refused += !status.ok();
  }
  EXPECT_GT(refused, 1000u);
}

// Pointers may share what they point to, so that a small message can be read for ever.
TEST(CheckedReader, StopsWhenTheSameWordsAreVisitedOverAndOver) {
  capnp::MallocMessageBuilder message;
  auto layouts = message.initRoot<schema::Manifest>().initLayouts(100);
  std::string big(4000, 'x');
  layouts.set(0, data_of(as_view(big)));
  Bytes bytes = framed_bytes(message);
  Status status = read_checked<schema::Manifest>(bytes, kLimits, [](schema::Manifest::Reader root) {
    uint64_t sum = 0;
    for (int i = 0; i < 1'000; ++i) sum += root.getLayouts()[0].size();
    return sum == 0 ? Status(Code::internal, "nothing read") : ok_status();
  });
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("malformed message"));
}

TEST(BoundedSize, NamesWhatIsTooLong) {
  std::string text(11, 'x');
  EXPECT_EQ(*bounded_size(text, 11, "name"), 11u);
  Status status = bounded_size(text, 10, "name").status();
  EXPECT_EQ(status.code(), Code::too_large);
  EXPECT_EQ(status.message(), "name: 11 items are too many: at most 10 are allowed");
}

TEST(CanonicalFraming, GivesEqualBytesForEqualValues) {
  auto build = [](bool detour) {
    capnp::MallocMessageBuilder message;
    auto root = message.initRoot<schema::Decision>();
    if (detour) root.getBody().initManifest().initFiles(50);  // leaves a hole behind
    root.setStep(7);
    root.getBody().initTombstone().setCause("a cause");
    const Bytes framed = canonical_framed_bytes(root);
    const kj::Array<capnp::word> canonical = capnp::canonicalize(root.asReader());
    const auto bytes = canonical.asBytes();
    EXPECT_TRUE(std::ranges::equal(ByteView(framed).subspan(8),
                                   std::as_bytes(std::span(bytes.begin(), bytes.size()))));
    return framed;
  };
  EXPECT_EQ(build(false), build(true));
  EXPECT_TRUE(read_all(build(true), {1 << 20, 1}).ok());
}

}  // namespace
}  // namespace shoal::schema
