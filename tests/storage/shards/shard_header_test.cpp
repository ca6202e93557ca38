// Untrusted headers: each is rejected with a one-line error and in bounded memory.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "storage/shards/shard_header.h"
#include "tests/storage/shards/shard_samples.h"

namespace shoal::storage {
namespace {

using ::testing::HasSubstr;

// A header with one U8 tensor "a" of 4 bytes, each part of which a test may replace.
struct Parts {
  std::string format = R"("format":"pt",)";
  std::string sharding = R"({\"a\":{\"saved_offsets\":[2],\"global_shape\":[8]}})";
  std::string shoal = R"({\"version\":1,\"objects\":[]})";
  std::string digests = "0123456789abcdef";
  std::string tensors = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  uint64_t data_bytes = 4;

  std::string text() const {
    return fmt::format(
        R"({{"__metadata__":{{{}"DCP_SHARDING_INFO":"{}","shoal":"{}","shoal_digests":"{}"}}{}{}}})", format,
        sharding, shoal, digests, tensors.empty() ? "" : ",", tensors);
  }
  Status status() const { return parse_shard_header(text(), data_bytes).status(); }
};

void expect_corrupt(const Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), Code::corrupt) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(part));
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  EXPECT_LT(status.message().size(), 10'000u);
}

TEST(ShardHeader, IsReadFieldByField) {
  auto header = parse_shard_header(Parts().text(), 4);
  ASSERT_OK(header.status());
  ASSERT_EQ(header->pieces.size(), 1u);
  EXPECT_EQ(header->pieces[0].key, "a");
  EXPECT_EQ(header->pieces[0].fqn, "a");
  EXPECT_EQ(header->pieces[0].global_shape, Dims{8});
  EXPECT_EQ(header->pieces[0].box, (Box{{2}, {4}}));
  EXPECT_EQ(header->digests, std::vector<uint64_t>{0x0123456789abcdef});
}

TEST(ShardHeader, MayBePaddedAndSpacedAndEscapedAsJsonAllows) {
  Parts parts;
  parts.format = "\"format\" :\t\"pt\" ,\n \"other\":\"tool\\u00e9\\ud83d\\ude00\", ";
  parts.tensors = R"( "\u0061" : { "shape" : [ 4 ] , "dtype" : "U8", "data_offsets" : [0 , 4 ] } )";
  EXPECT_OK(parse_shard_header(parts.text() + "      ", 4).status());
}

TEST(ShardHeader, ReadsAnotherFqnThanTheKey) {
  Parts parts;
  parts.sharding =
      R"({\"a\":{\"saved_offsets\":[2],\"global_shape\":[8],\"logical_fqn\":\"whole \\\"a\\\"\"}})";
  auto header = parse_shard_header(parts.text(), 4);
  ASSERT_OK(header.status());
  EXPECT_EQ(header->pieces[0].fqn, "whole \"a\"");
}

TEST(ShardHeader, IsRefusedWithoutShoalsKeys) {
  expect_corrupt(parse_shard_header("{}", 0).status(), "it has no '__metadata__': this is not a Shoal shard");
  expect_corrupt(parse_shard_header(R"({"__metadata__":{}})", 0).status(),
                 "its '__metadata__' has no 'shoal'");
  expect_corrupt(parse_shard_header(R"({"__metadata__":{"shoal":"","DCP_SHARDING_INFO":""}})", 0).status(),
                 "no 'shoal_digests'");
  expect_corrupt(parse_shard_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4).status(),
                 "no '__metadata__'");
}

TEST(ShardHeader, OfANewerFormatIsRefusedNamingBothVersions) {
  Parts parts;
  parts.shoal = R"({\"version\":2,\"news\":{}})";
  EXPECT_EQ(parts.status().code(), Code::version);
  EXPECT_EQ(parts.status().message(),
            "shoal: this file has format 2, but this program reads only formats up to 1");
  parts.shoal = R"({\"version\":0,\"objects\":[]})";
  expect_corrupt(parts.status(), "this version does not exist");
}

TEST(ShardHeader, IsRefusedWhenItIsNoJson) {
  for (std::string text : {"", " ", "[]", "{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":1}", "nul", "{}{}",
                           "{,}", "{\"__metadata__\":[]}", "\xef\xbb\xbf{}"}) {
    expect_corrupt(parse_shard_header(text, 0).status(), "");
  }
  expect_corrupt(parse_shard_header("{\"a\xff\":{}}", 0).status(), "not UTF-8");
  expect_corrupt(parse_shard_header("{\"\\ud800\":{}}", 0).status(), "surrogate");
  expect_corrupt(parse_shard_header("{\"\\x41\":{}}", 0).status(), "escape");
  expect_corrupt(parse_shard_header("{\"a\nb\":{}}", 0).status(), "control character");
}

TEST(ShardHeader, IsRefusedWhenNestedDeeply) {
  Parts parts;
  std::string deep(1'000'000, '[');
  parts.tensors = R"("a":{"dtype":"U8","shape":)" + deep;
  expect_corrupt(parts.status(), "an unsigned number expected");
  expect_corrupt(parse_shard_header(deep, 0).status(), "'{' expected");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  expect_corrupt(parse_shard_header(objects, 0).status(), "unknown field");
}

TEST(ShardHeader, NamesTheTensorThatIsWrong) {
  struct Case {
    std::string tensors, message;
  };
  for (
      const Case& c : std::vector<Case>{
          {R"("a":{"dtype":"U9","shape":[4],"data_offsets":[0,4]})", "'a': dtype 'U9' is not known"},
          {R"("a":{"dtype":"F4","shape":[4],"data_offsets":[0,4]})", "'a': dtype 'F4' is not known"},
          {R"("a":{"dtype":"U8","shape":[5],"data_offsets":[0,4]})", "'a': 4 bytes do not match its shape"},
          {R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]})", "'a': 4 bytes do not match its shape"},
          {R"("a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})",
           "'a': 0 bytes do not match"},
          {R"("a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})",
           "'a': 0 bytes do not match"},
          {R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,5]})", "'a': data_offsets are not a range"},
          {R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]})", "'a': data_offsets are not a range"},
          {R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0]})", "'a': data_offsets are not a range"},
          {R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551616]})",
           "a number beyond 64 bits"},
          {R"("a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]})", "an unsigned number expected"},
          {R"("a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})", "',' or ']' expected"},
          {R"("a":{"dtype":"U8","shape":[04],"data_offsets":[0,4]})", "leading zeros"},
          {R"("a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]})",
           "'a': data_offsets begin at 1, but the previous tensor"},
          {R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]})",
           "the tensors end at data byte 3, but the file ends at 4"},
          {R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]})",
           "'b': data_offsets begin at 2, but the previous tensor ends at 3"},
          {R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[0],"data_offsets":[4,4]})",
           "'a': is given twice"},
          {R"("a":{"dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4]})",
           "'a': 'shape' is given twice"},
          {R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":1})", "'a': unknown field 'more'"},
          {R"("a":{"dtype":"U8","shape":[4]})", "'a': dtype, shape or data_offsets is missing"},
          {R"("":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})", "a key is empty"},
          {R"("a\u0000b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})", "control characters"},
          {R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})",
           "a key does not name a tensor of this file"},
          {R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I8","shape":[3],"data_offsets":[1,4]})",
           "'b': is missing"},
          {R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I16","shape":[1],"data_offsets":[2,4]})",
           "'b': is missing"},
      }) {
    Parts parts;
    parts.tensors = c.tensors;
    SCOPED_TRACE(c.tensors);
    expect_corrupt(parts.status(), c.message);
  }
  Parts unaligned;
  unaligned.data_bytes = 3;
  unaligned.tensors =
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I16","shape":[1],"data_offsets":[1,3]})";
  expect_corrupt(unaligned.status(), "'b': the data is not aligned to its dtype");
  Parts dims;
  dims.tensors = R"("a":{"dtype":"U8","shape":[)";
  for (int i = 0; i < 40; ++i) dims.tensors += "1,";
  dims.tensors += R"(4],"data_offsets":[0,4]})";
  expect_corrupt(dims.status(), "more than 32 dimensions");
}

TEST(ShardHeader, NamesTheShardingThatIsWrong) {
  struct Case {
    std::string sharding, message;
  };
  for (const Case& c : std::vector<Case>{
           {"", "'{' expected"},
           {"{}", "DCP_SHARDING_INFO: 'a': is missing"},
           {R"({\"a\":{\"saved_offsets\":[2]}})", "'a': saved_offsets or global_shape is missing"},
           {R"({\"a\":{\"global_shape\":[8]}})", "'a': saved_offsets or global_shape is missing"},
           {R"({\"a\":{\"saved_offsets\":[5],\"global_shape\":[8]}})", "DCP_SHARDING_INFO: 'a': "},
           {R"({\"a\":{\"saved_offsets\":[18446744073709551615],\"global_shape\":[8]}})",
            "DCP_SHARDING_INFO: 'a': "},
           {R"({\"a\":{\"saved_offsets\":[2,0],\"global_shape\":[8,1]}})", "DCP_SHARDING_INFO: 'a': "},
           {R"({\"a\":{\"saved_offsets\":[2],\"global_shape\":[8],\"x\":1}})", "'a': unknown field 'x'"},
           {R"({\"a\":{\"saved_offsets\":[2],\"global_shape\":[8]},\"a\":{}})", "'a': is given twice"},
           {R"({\"b\":{\"saved_offsets\":[2],\"global_shape\":[8]}})",
            "a key does not name a tensor of this file"},
           {R"({\"a\":{\"saved_offsets\":[2],\"global_shape\":[8],\"logical_fqn\":\"\"}})",
            "'a': logical_fqn is not a valid name"},
           {R"({\"a\":{\"saved_offsets\":[2],\"global_shape\":[8]}} x)", "more text after the end"},
       }) {
    Parts parts;
    parts.sharding = c.sharding;
    SCOPED_TRACE(c.sharding);
    expect_corrupt(parts.status(), c.message);
  }
}

TEST(ShardHeader, NamesTheObjectThatIsWrong) {
  for (const char* objects :
       {R"({\"version\":1,\"objects\":[\"b\"]})", R"({\"version\":1,\"objects\":[\"a\",\"a\"]})"}) {
    Parts parts;
    parts.shoal = objects;
    expect_corrupt(parts.status(), "shoal: an object is not a U8 tensor");
  }
  Parts placed;
  placed.shoal = R"({\"version\":1,\"objects\":[\"a\"]})";
  expect_corrupt(placed.status(), "'a': an object must have no place in a tensor");
  placed.sharding = R"({\"a\":{\"saved_offsets\":[0]}})";
  EXPECT_OK(placed.status());
}

TEST(ShardHeader, CountsItsDigests) {
  for (std::string digests :
       {"", "0123456789abcde", "0123456789abcdef0", "0123456789abcdef0123456789abcdef"}) {
    Parts parts;
    parts.digests = digests;
    expect_corrupt(parts.status(), "1 digests of 16 are expected");
  }
  Parts parts;
  parts.digests = "0123456789ABCDEF";
  expect_corrupt(parts.status(), "lower-case hex");
}

TEST(ShardHeader, IsParsedInMemoryProportionalToItsText) {
  Parts parts;
  parts.digests.assign(16 << 20, '0');
  expect_corrupt(parts.status(), "shoal_digests has 16777216 hex digits");
}

// A file that claims what it has not: the length prefix is checked before anything is allocated.
TEST(ShardHeader, ThatClaimsMoreBytesThanTheFileHasIsRefused) {
  for (uint64_t claimed :
       {uint64_t{1} << 60, ~uint64_t{0}, kMaxShardHeaderBytes + 1, uint64_t{4097}, uint64_t{4089}}) {
    MemoryStorage memory;
    Bytes bytes(4096, std::byte{' '});
    store_le64(bytes.data(), claimed);
    ASSERT_OK(memory->create_exclusive("x", bytes).status());
    Status status = ShardReader::open(*memory, "x", nullptr, nullptr).status();
    expect_corrupt(
        status, "/root/x: it announces a header of " + std::to_string(claimed) + " bytes, but the file has");
  }
}

TEST(ShardHeader, WhoseDataIsNotAlignedIsRefused) {
  MemoryStorage memory;
  Bytes bytes(8 + 100, std::byte{' '});
  store_le64(bytes.data(), 100);
  ASSERT_OK(memory->create_exclusive("x", bytes).status());
  expect_corrupt(ShardReader::open(*memory, "x", nullptr, nullptr).status(),
                 "which is not a multiple of 4096");
}

void expect_same(const ParsedShardHeader& a, const ParsedShardHeader& b) {
  ASSERT_EQ(a.pieces.size(), b.pieces.size());
  EXPECT_EQ(a.digests, b.digests);
  for (size_t i = 0; i < a.pieces.size(); ++i) {
    expect_same_piece(a.pieces[i], b.pieces[i]);
    const std::string key = a.pieces[i].key;
    EXPECT_EQ(a.pieces.offset(i), b.pieces.offset(i));
    EXPECT_EQ(a.pieces.first_digest(i), b.pieces.first_digest(i));
    EXPECT_EQ(a.pieces.find(key), i);
    EXPECT_EQ(b.pieces.find(key), i);
  }
  EXPECT_EQ(a.pieces.find("no such key"), std::nullopt);
}

// Both are what write_shard makes of its pieces.
TEST(ShardHeader, IsReadTheQuickWayAsTheGeneralOne) {
  for (const std::string& name : {std::string("plain"), std::string("with \"quotes\" and \xc3\xa4")}) {
    SampleShard sample;
    sample.tensor("layers.0.weight", DType::f32, {8, 3}, {{2, 0}, {4, 3}}, 11)
        .whole_tensor("step", DType::i32, {}, 12)
        .whole_tensor("empty", DType::f16, {0, 4}, 14)
        .object("rng@rank7", random_bytes(5, 1))
        .tensor(name, DType::u8, {4, 4}, {{0, 0}, {4, 4}}, 3)
        .tensor("a.part", DType::u8, {9}, {{4}, {5}}, 4);
    sample.pieces.back().fqn = "a";
    auto built = build_shard_header(sample.pieces);
    ASSERT_OK(built.status());
    for (uint64_t i = 0; i < built->digests; ++i) put_digest(&*built, i, i * 0x9e3779b97f4a7c15);
    const std::string_view json = as_text(built->bytes).substr(8);
    auto plain = parse_plain_shard_header(json, built->payload_bytes);
    auto general = parse_general_shard_header(json, built->payload_bytes);
    ASSERT_OK(general.status());
    ASSERT_EQ(general->pieces.size(), sample.pieces.size());
    EXPECT_EQ(general->pieces[4].key, name);
    EXPECT_EQ(general->pieces[5].fqn, "a");
    EXPECT_EQ(plain.has_value(), name == "plain") << "what has an escape goes the general way";
    if (plain) expect_same(*plain, *general);
    EXPECT_FALSE(parse_plain_shard_header(json, built->payload_bytes + 1));
    EXPECT_FALSE(parse_plain_shard_header(std::string(json) + "x", built->payload_bytes));
  }
}

TEST(ShardHeader, CarriesTheMetadataOfTheSave) {
  const SampleShard sample = small_sample();
  SampleShard plain_names;
  plain_names.whole_tensor("step", DType::i32, {}, 12);
  const UserMetadata user = {{"run \"7\"", "line 1\nline 2\t\\"}, {"caf\xc3\xa9", ""}, {"plain", "text"}};
  for (const SampleShard* shard : {&sample, static_cast<const SampleShard*>(&plain_names)}) {
    auto built = build_shard_header(shard->pieces, std::make_shared<const UserMetadata>(user));
    ASSERT_OK(built.status());
    EXPECT_EQ(built->bytes.size() % kShardDataAlignment, 0u);
    for (uint64_t i = 0; i < built->digests; ++i) put_digest(&*built, i, i + 1);
    const std::string_view json = as_text(built->bytes).substr(8);
    auto general = parse_general_shard_header(json, built->payload_bytes);
    ASSERT_OK(general.status());
    EXPECT_EQ(general->user, user);
    EXPECT_EQ(general->digests.front(), 1u);
    auto plain = parse_plain_shard_header(json, built->payload_bytes);
    EXPECT_EQ(plain.has_value(), shard == &plain_names) << "what trainers say needs no slow way";
    if (plain) {
      EXPECT_EQ(plain->user, user);
    }
  }
  auto without = build_shard_header(sample.pieces, std::make_shared<const UserMetadata>());
  EXPECT_EQ(without->bytes, build_shard_header(sample.pieces)->bytes) << "byte for byte as before";
}

TEST(ShardHeader, WithMetadataOfASaveThatNoTrainerMayGiveIsRefused) {
  SampleShard sample;
  sample.whole_tensor("step", DType::i32, {}, 12);
  auto built =
      build_shard_header(sample.pieces, std::make_shared<const UserMetadata>(UserMetadata{{"k", "v"}}));
  const std::string good(as_text(built->bytes).substr(8));
  const std::string received = R"("shoal_user":"{\"k\":\"v\"}")";
  ASSERT_NE(good.find(received), std::string::npos);
  for (const char* bad : {R"({\"k\":\"v\",\"k\":\"w\"})", R"({\"\":\"v\"})", R"({\"k\":1})", R"([])",
                          R"({\"k\":\"v\"}x)", R"({\"k\":\"\\u0001\"})", ""}) {
    std::string json = good;
    json.replace(json.find(received), received.size(), std::string("\"shoal_user\":\"") + bad + "\"");
    auto parsed = parse_shard_header(json, built->payload_bytes);
    EXPECT_EQ(parsed.status().code(), Code::corrupt) << bad;
    EXPECT_THAT(parsed.status().message(), HasSubstr("shoal_user")) << bad;
  }
}

TEST(ShardHeader, SurvivesRandomChanges) {
  SampleShard sample = small_sample();
  auto built = build_shard_header(sample.pieces);
  ASSERT_OK(built.status());
  const std::string good(as_text(built->bytes).substr(8));
  ASSERT_OK(parse_shard_header(good, built->payload_bytes).status());
  std::mt19937_64 random(17);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good.substr(0, good.find_last_not_of(' ') + 1);
    for (uint64_t changes = random() % 3 + 1; changes > 0; --changes) {
      size_t at = random() % text.size(), length = random() % 8;
      static constexpr std::string_view pieces = "{}[]\",:\\0123456789abuU \x01\xff";
      switch (random() % 3) {
        case 0:
          text[at] = pieces[random() % pieces.size()];
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
      }
      if (text.empty()) text = "{";
    }
    Status status = parse_shard_header(text, built->payload_bytes).status();
    if (auto plain = parse_plain_shard_header(text, built->payload_bytes)) {
      auto general = parse_general_shard_header(text, built->payload_bytes);
      ASSERT_TRUE(general.ok()) << text;
      expect_same(*plain, *general);
    }
    ASSERT_TRUE(status.ok() || status.code() == Code::corrupt || status.code() == Code::version)
        << status.to_string();
  }
}

}  // namespace
}  // namespace shoal::storage
