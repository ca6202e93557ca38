#include "admin/dcp/zip_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/admin/dcp/zip_bytes.h"

namespace shoal::admin {
namespace {

using ::testing::HasSubstr;

Result<ZipArchive> open_zip(const std::string& bytes) {
  return ZipArchive::open(as_view(bytes), "item");
}

const std::vector<std::pair<std::string, std::string>> kRecords = {
    {"archive/data.pkl", "pickle"}, {"archive/data/0", std::string(1000, 'x')}, {"archive/empty", ""}};

TEST(ZipArchive, GivesEachRecordByItsNameWithoutTheFolder) {
  for (const bool has_large_fields : {false, true}) {
    for (const std::string& comment : {std::string(), std::string("PK\5\6 is no end")}) {
      const std::string bytes = zip_of(kRecords, {has_large_fields, 0, comment});
      auto archive = open_zip(bytes);
      ASSERT_TRUE(archive.ok()) << archive.status().to_string();
      ASSERT_EQ(archive->records().size(), 3u);
      EXPECT_EQ(as_text(archive->read("data.pkl").value()), "pickle");
      EXPECT_EQ(as_text(archive->read("data/0").value()), std::string(1000, 'x'));
      EXPECT_EQ(archive->read("empty").value().size(), 0u);
      EXPECT_EQ(archive->read("data/1").status().code(), Code::corrupt);
    }
  }
}

TEST(ZipArchive, EveryTruncationIsCorrupt) {
  for (const bool has_large_fields : {false, true}) {
    const std::string bytes = zip_of(kRecords, {has_large_fields, 0, ""});
    for (size_t size = 0; size < bytes.size(); ++size) {
      auto archive = open_zip(bytes.substr(0, size));
      ASSERT_FALSE(archive.ok()) << size;
      EXPECT_EQ(archive.status().code(), Code::corrupt);
    }
  }
}

TEST(ZipArchive, BytesOfAnotherFormatOfDcpAreSuspected) {
  const auto archive = open_zip(std::string(80, '\x3f'));  // a tensor without an archive around it
  EXPECT_THAT(archive.status().to_string(), HasSubstr("was not saved in DCP's format 'torch_save'"));
}

TEST(ZipArchive, EveryFlippedBitIsFoundOrChangesNothing) {
  const std::string good = zip_of(kRecords);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    auto archive = open_zip(bytes);
    if (!archive.ok()) continue;
    for (const auto& [name, content] : kRecords) {
      auto record = archive->read(name.substr(name.find('/') + 1));
      // 0 as CRC-32 says that there is none: no flip of one bit makes it so here.
      if (!record.ok()) continue;
      EXPECT_EQ(as_text(*record), content) << bit;
    }
  }
}

TEST(ZipArchive, CompressedRecordsAndRepeatedNamesAreRejected) {
  const std::string compressed = zip_of(kRecords, {false, 8, ""});
  EXPECT_THAT(open_zip(compressed)->read("data.pkl").status().message(), HasSubstr("compressed"));
  const std::string repeated = zip_of({{"a/x", "1"}, {"b/x", "2"}});
  EXPECT_EQ(open_zip(repeated)->read("x").status().code(), Code::corrupt);
}

TEST(ZipArchive, AHugeCountOfRecordsIsRejectedBeforeAnythingIsReserved) {
  std::string bytes = zip_of(kRecords, {true, 0, ""});
  const size_t large = bytes.find("PK\6\6");
  bytes.replace(large + 32, 8, std::string(8, '\xff'));
  EXPECT_EQ(open_zip(bytes).status().code(), Code::corrupt);
  std::string many(46 * 20'000, '\0');
  append_le(&many, 0x06054b50, 4);
  append_le(&many, 0, 4);
  append_le(&many, 20'000, 2);
  append_le(&many, 20'000, 2);
  append_le(&many, 46 * 20'000, 4);
  append_le(&many, 0, 4);
  append_le(&many, 0, 2);
  EXPECT_EQ(open_zip(many).status().code(), Code::too_large);
}

TEST(ZipArchive, RecordsThatOverlapAreRejected) {
  std::string bytes = zip_of({{"a/x", std::string(100, 'x')}, {"a/y", std::string(100, 'y')}});
  for (size_t at = bytes.find("PK\1\2"); at != std::string::npos; at = bytes.find("PK\1\2", at + 1)) {
    std::string whole;
    append_le(&whole, bytes.size() - 50, 4);
    bytes.replace(at + 20, 4, whole);
    bytes.replace(at + 24, 4, whole);
  }
  EXPECT_THAT(open_zip(bytes).status().message(), HasSubstr("overlap"));
}

}  // namespace
}  // namespace shoal::admin
