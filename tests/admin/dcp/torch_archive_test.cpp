#include "admin/dcp/torch_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/admin/dcp/zip_bytes.h"

namespace shoal::admin {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

std::string number(int64_t value) {
  std::string out = "J";
  append_le(&out, static_cast<uint64_t>(value), 4);
  return out;
}

std::string dims(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const int64_t value : values) out += number(value);
  return out + "t";
}

// As torch.save pickles a tensor in a storage of int16.
std::string tensor_pickle(int64_t offset, const std::vector<int64_t>& shape,
                          const std::vector<int64_t>& strides, const std::string& flags = "") {
  return "\x80\x02"
         "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nShortStorage\nX\1\0\0\0"
         "0X\3\0\0\0cpuK\x0ctQ"s +
         number(offset) + dims(shape) + dims(strides) +
         "\x89"
         "ccollections\nOrderedDict\n)R" +
         flags + "tR.";
}

std::string storage_of(size_t elements) {
  std::string out;
  for (size_t i = 0; i < elements; ++i) append_le(&out, i, 2);
  return out;
}

std::string archive_of(const std::string& pickle, size_t elements) {
  return zip_of({{"a/data.pkl", pickle}, {"a/byteorder", "little"}, {"a/data/0", storage_of(elements)}});
}

Result<ArchivedTensor> read_tensor(const std::string& bytes) {
  return read_tensor_archive(as_view(bytes), "item");
}

TEST(TorchArchive, TensorsInOrderAreUsedWhereTheyLie) {
  const std::string bytes = archive_of(tensor_pickle(2, {2, 3}, {3, 1}), 12);
  auto tensor = read_tensor(bytes);
  ASSERT_TRUE(tensor.ok()) << tensor.status().to_string();
  EXPECT_EQ(tensor->dtype, DType::i16);
  EXPECT_EQ(tensor->shape, (Dims{2, 3}));
  ASSERT_TRUE(tensor->in_order());
  EXPECT_EQ(as_text(*tensor->in_order()), storage_of(12).substr(4, 12));
}

TEST(TorchArchive, TensorsWithOtherStridesAreGathered) {
  const std::string bytes = archive_of(tensor_pickle(1, {3, 2}, {1, 4}), 12);
  auto tensor = read_tensor(bytes);
  ASSERT_TRUE(tensor.ok()) << tensor.status().to_string();
  ASSERT_FALSE(tensor->in_order());
  std::string out(tensor->bytes(), '\0'), expected;
  tensor->gather(std::as_writable_bytes(std::span(out)));
  for (const uint64_t value : {1, 5, 2, 6, 3, 7}) append_le(&expected, value, 2);
  EXPECT_EQ(out, expected);
}

TEST(TorchArchive, TensorsBeyondTheirStorageAreRejected) {
  for (const auto& pickle :
       {tensor_pickle(0, {13}, {1}), tensor_pickle(12, {1}, {1}), tensor_pickle(-1, {1}, {1}),
        tensor_pickle(0, {2, 2}, {11, 1}), tensor_pickle(0, {2}, {0x7fffffff}), tensor_pickle(0, {-1}, {1}),
        tensor_pickle(0, {2}, {1, 1})}) {
    EXPECT_EQ(read_tensor(archive_of(pickle, 12)).status().code(), Code::corrupt);
  }
  const std::string huge = tensor_pickle(0, {0x7fffffff}, {0});
  EXPECT_EQ(read_tensor(archive_of(huge, 12)).status().code(), Code::too_large);
  EXPECT_TRUE(read_tensor(archive_of(tensor_pickle(0, {0, 5}, {5, 1}), 0)).ok());
}

TEST(TorchArchive, ConjugatedViewsAndOtherMachinesAreRejected) {
  const std::string flagged = archive_of(tensor_pickle(0, {1}, {1}, "}X\4\0\0\0conj\x88s"s), 12);
  EXPECT_THAT(read_tensor(flagged).status().message(), HasSubstr("import_dcp"));
  EXPECT_TRUE(read_tensor(archive_of(tensor_pickle(0, {1}, {1}, "}"), 12)).ok());
  const std::string big = zip_of({{"a/data.pkl", tensor_pickle(0, {1}, {1})}, {"a/byteorder", "big"}});
  EXPECT_THAT(read_tensor(big).status().message(), HasSubstr("big-endian"));
}

TEST(TorchArchive, ObjectsArePlainValuesOrKeptOrRejected) {
  auto object = [](const std::string& body, bool allow_pickle = false) {
    const std::string bytes = zip_of({{"a/data.pkl", "\x80\x02" + body + "."}});
    auto read = read_object_archive(as_view(bytes), "'a' in file", allow_pickle);
    if (read.ok() && read->front() == '\3') {
      EXPECT_EQ(read->substr(1), bytes);
      return "kept"s;
    }
    return read.ok() ? *read : read.status().to_string();
  };
  EXPECT_EQ(object("](K\1K\2e"), "[1,2]");
  EXPECT_EQ(object("c__builtin__\nset\n](K\1K\2e\x85R"), "kept");
  EXPECT_EQ(object("ccollections\nOrderedDict\n)R"), "kept");
  EXPECT_THAT(object("cposix\nsystem\n)R"), HasSubstr("'a' in file names posix.system"));
  EXPECT_EQ(object("cposix\nsystem\n)R", true), "kept");
  EXPECT_THAT(object("(", true), HasSubstr("cannot be unpickled"));
}

}  // namespace
}  // namespace shoal::admin
