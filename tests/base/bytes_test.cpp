#include "shoal/bytes.h"

#include <gmock/gmock.h>

#include <array>

namespace shoal::base {
namespace {

TEST(Bytes, AreStoredLittleEndian) {
  std::array<std::byte, 8> bytes{};
  store_le64(bytes.data(), 0x0102030405060708);
  EXPECT_EQ(bytes[0], std::byte{8});
  EXPECT_EQ(load_le64(bytes.data()), 0x0102030405060708u);
  EXPECT_EQ(load_le32(bytes.data()), 0x05060708u);
  store_le32(bytes.data(), 0xfffefdfc);
  EXPECT_EQ(load_le32(bytes.data()), 0xfffefdfcu);
}

TEST(Hex, ComesBackAndIsLowerCase) {
  std::string raw("\x00\x7f\xff\xa5", 4);
  EXPECT_EQ(hex_encode(as_view(raw)), "007fffa5");
  EXPECT_EQ(*hex_decode("007fFFa5"), raw);
  EXPECT_EQ(*hex_decode(""), "");
}

TEST(Hex, RefusesAnythingElse) {
  for (const char* text : {"0", "0g", "g0", " 0", "0x", "00\n"}) {
    EXPECT_EQ(hex_decode(text).status().code(), Code::corrupt) << text;
  }
}

TEST(HumanUnits, ReadWell) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(uint64_t{300} << 20), "300 MiB");
  EXPECT_EQ(human_bytes(~0ull), "16.0 EiB");
  EXPECT_EQ(human_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(human_seconds(1.5), "1.50 s");
  EXPECT_EQ(human_seconds(125), "2 min 05 s");
}

TEST(ParseBytes, KnowsPowersOf1024) {
  EXPECT_EQ(*parse_bytes("4096"), 4096u);
  EXPECT_EQ(*parse_bytes("0"), 0u);
  EXPECT_EQ(*parse_bytes("2k"), 2048u);
  EXPECT_EQ(*parse_bytes("64MiB"), uint64_t{64} << 20);
  EXPECT_EQ(*parse_bytes("1 GiB"), uint64_t{1} << 30);
  EXPECT_EQ(*parse_bytes("3 TB"), uint64_t{3} << 40);
  EXPECT_EQ(*parse_bytes("12 B"), 12u);
  EXPECT_EQ(*parse_bytes("15EiB"), uint64_t{15} << 60);
}

TEST(ParseBytes, RefusesWhatIsNoNumberOfBytes) {
  for (const char* text : {"", "-1", "1.5G", "MiB", "1 QiB", "1 MiBx", "1 M iB", "16EiB",
                           "99999999999999999999", "1MB2", "1e", "1E", "1e6"}) {
    EXPECT_EQ(parse_bytes(text).status().code(), Code::invalid_argument) << text;
  }
}

TEST(Utf8, CleanTextIsClean) {
  for (const char* text : {"", "plain", "größe", "名前", "\xf0\x9f\x90\x9f", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_clean_utf8(text)) << text;
  }
}

TEST(Utf8, ControlCharactersAndMalformedBytesAreNot) {
  EXPECT_FALSE(is_clean_utf8(std::string_view("a\0b", 3)));
  for (const char* text :
       {"a\nb", "\x7f", "\x1b[31m", "\xff", "\x80", "\xc3", "\xe5\x90", "\xf0\x9f\x90", "\xc0\xaf",
        "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(is_clean_utf8(text)) << hex_encode(as_view(text));
  }
}

// Encodes a code point without asking whether it may exist.
std::string encode(uint32_t point) {
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
  if (point < 0x10000) {
    return {static_cast<char>(0xe0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 63)),
            static_cast<char>(0x80 | (point & 63))};
  }
  return {static_cast<char>(0xf0 | point >> 18), static_cast<char>(0x80 | (point >> 12 & 63)),
          static_cast<char>(0x80 | (point >> 6 & 63)), static_cast<char>(0x80 | (point & 63))};
}

TEST(Utf8, TakesEveryCodePointButControlsAndSurrogates) {
  for (uint32_t point = 0; point < 0x110100; point += point < 0x10000 ? 1 : 37) {
    const bool exists =
        point >= 0x20 && point != 0x7f && (point < 0xd800 || point > 0xdfff) && point <= 0x10ffff;
    std::string text = "x";
    text += encode(point);
    text += 'y';
    ASSERT_EQ(is_clean_utf8(text), exists) << point;
  }
}

TEST(Utf8, CleanLinesAreCutBetweenCharacters) {
  EXPECT_EQ(clean_line("as it is", 100), "as it is");
  EXPECT_EQ(clean_line("two\nlines\t\x7f", 100), "two lines  ");
  EXPECT_EQ(clean_line("caf\xc3\xa9", 100), "caf\xc3\xa9");
  EXPECT_EQ(clean_line("caf\xc3\xa9", 4), "caf");
  EXPECT_EQ(clean_line("\xf0\x9f\x90\x9f", 3), "");
  EXPECT_EQ(clean_line("a\xff b", 100), "a? b");
  EXPECT_EQ(clean_line("a\xff b\xc3\xa9", 5), "a? b?");
  EXPECT_EQ(clean_line("", 0), "");
}

}  // namespace
}  // namespace shoal::base
