#include "admin/tensor_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shoal/hash.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "tests/temporary_folder.h"

namespace shoal::admin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TensorMetadata tensor(std::string fqn, DType dtype, Dims shape) {
  return {std::move(fqn), LayoutEntry::Kind::tensor, dtype, std::move(shape)};
}

TensorMetadata object(std::string fqn) {
  return {std::move(fqn), LayoutEntry::Kind::object, DType::u8, {}};
}

// The byte at a position of a stored tensor.
std::byte byte_of(const std::string& fqn, uint64_t at) {
  return static_cast<std::byte>(at * 31 + at / 251 + fqn.size());
}

// Tensors whose bytes follow from name and position. Fails at one tensor if told to.
class FakeTensors final : public TensorReader {
 public:
  std::string damaged;
  uint64_t most_bytes = 0;

  Status read(const ExportedTensor& tensor, uint64_t begin, uint64_t end, MutableByteView out) override {
    if (tensor.fqn == damaged) return Status(Code::corrupt, "rank-00000.safetensors: '" + damaged + "'");
    const uint64_t element_bytes = dtype_bits(tensor.stored) / 8;
    EXPECT_EQ(out.size(), (end - begin) * element_bytes);
    EXPECT_LE(end, tensor.elements);
    most_bytes = std::max<uint64_t>(most_bytes, out.size());
    for (uint64_t i = 0; i < out.size(); ++i) out[i] = byte_of(tensor.fqn, begin * element_bytes + i);
    return ok_status();
  }
};

class TensorExport : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = storage::LocalStorage::open(file_system_, folder_.path(), random_128());
    ASSERT_TRUE(opened.ok());
    storage_ = std::move(*opened);
  }

  Status run(const std::vector<TensorMetadata>& values, const ExportOptions& options, bool force = false) {
    auto plan = plan_export(values, options);
    if (!plan.ok()) return plan.status();
    plan_ = *plan;
    bytes_done_ = 0;
    return write_export(*plan, tensors_, *storage_, force, &bytes_done_);
  }

  std::string text(const std::string& name) const {
    std::ifstream stream(folder_.path() + "/" + name, std::ios::binary);
    std::ostringstream out;
    out << stream.rdbuf();
    return out.str();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_.path())) out.push_back(entry.path().filename());
    std::ranges::sort(out);
    return out;
  }

  struct Read {
    json header;
    std::string data;
    std::string of(const std::string& name) const {
      const auto& at = header.at(name).at("data_offsets");
      return data.substr(at[0], at[1].get<uint64_t>() - at[0].get<uint64_t>());
    }
  };
  Read read(const std::string& name) const {
    const std::string all = text(name);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, all.data(), 8);
    EXPECT_EQ(header_bytes % 8, 0u);
    return {json::parse(all.substr(8, header_bytes)), all.substr(8 + header_bytes)};
  }
  static std::string bytes_of(const std::string& fqn, uint64_t bytes) {
    std::string out;
    for (uint64_t i = 0; i < bytes; ++i) out += static_cast<char>(byte_of(fqn, i));
    return out;
  }

  TemporaryFolder folder_;
  storage::PosixFileSystem file_system_;
  std::unique_ptr<storage::LocalStorage> storage_;
  FakeTensors tensors_;
  ExportPlan plan_;
  std::atomic<uint64_t> bytes_done_{0};
};

TEST_F(TensorExport, OneFileHasEveryTensorAlignedAndNoObject) {
  const std::vector<TensorMetadata> values{tensor("a", DType::i8, {3}), tensor("b", DType::f32, {2, 2}),
                                           tensor("empty", DType::i64, {0, 4}), object("o"),
                                           tensor("scalar", DType::i64, {})};
  ASSERT_TRUE(run(values, {.is_sharded = false}).ok());
  EXPECT_THAT(names(), ElementsAre("model.safetensors"));
  const Read file = read("model.safetensors");
  EXPECT_EQ(file.header["__metadata__"], (json{{"format", "pt"}}));
  EXPECT_EQ(file.header.size(), 5u);
  EXPECT_EQ(file.header["scalar"]["shape"], json::array());
  EXPECT_EQ(file.header["empty"]["shape"], json({0, 4}));
  EXPECT_EQ(file.header["b"]["dtype"], "F32");
  EXPECT_EQ(file.of("a"), bytes_of("a", 3));
  EXPECT_EQ(file.of("b"), bytes_of("b", 16));
  EXPECT_EQ(file.of("scalar"), bytes_of("scalar", 8));
  EXPECT_EQ(file.header["b"]["data_offsets"], json({8, 24}));  // behind the larger type
  EXPECT_EQ(file.data.size(), 27u);
  EXPECT_EQ(plan_.objects_left_out, 1u);
  EXPECT_EQ(bytes_done_, 27u);
}

TEST_F(TensorExport, ShardsHaveAtMostTheShardSizeUnlessOneTensorIsLarger) {
  std::vector<TensorMetadata> values;
  for (const char* name : {"a", "b", "c", "e"}) values.push_back(tensor(name, DType::u8, {40}));
  values.push_back(tensor("d", DType::u8, {200}));
  values.push_back(tensor("f", DType::u8, {0}));
  ASSERT_TRUE(run(values, {.shard_bytes_max = 100}).ok());
  EXPECT_THAT(names(), ElementsAre("model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                                   "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                                   "model.safetensors.index.json"));
  const json index = json::parse(text("model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 360);
  EXPECT_EQ(index["weight_map"].size(), 6u);
  for (const auto& [name, file] : index["weight_map"].items()) {
    EXPECT_EQ(read(file).of(name), bytes_of(name, name == "d" ? 200 : name == "f" ? 0 : 40)) << name;
  }
  EXPECT_EQ(index["weight_map"]["b"], "model-00001-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"]["d"], "model-00003-of-00004.safetensors");
}

TEST_F(TensorExport, ALargeTensorIsReadInWindowsOfWholeRows) {
  ASSERT_TRUE(run({tensor("a", DType::u8, {9, 10 * kMiB})}, {}).ok());
  EXPECT_EQ(tensors_.most_bytes, 60 * kMiB);
  const std::string data = read("model-00001-of-00001.safetensors").data;
  ASSERT_EQ(data.size(), 90 * kMiB);
  for (uint64_t at = 0; at < data.size(); at += 4093) {
    ASSERT_EQ(static_cast<std::byte>(data[at]), byte_of("a", at)) << at;
  }
}

TEST_F(TensorExport, NamesAreSelectedByTreeAndRenamedByPrefix) {
  const std::vector<TensorMetadata> values{
      tensor("model.a.w", DType::u8, {1}), tensor("model.b", DType::u8, {1}),
      tensor("model_ema", DType::u8, {1}), tensor("optim.x", DType::u8, {1})};
  ExportOptions options{.is_sharded = false};
  options.only = {"model"};
  options.renames = {{"model.a.", "x."}, {"model.", ""}};
  ASSERT_TRUE(run(values, options).ok());
  const json header = read("model.safetensors").header;
  EXPECT_TRUE(header.contains("x.w") && header.contains("b"));
  EXPECT_EQ(header.size(), 3u);
}

TEST_F(TensorExport, OptionsThatCannotBeMeantAreRejected) {
  const std::vector<TensorMetadata> values{tensor("a", DType::u8, {1}), tensor("b", DType::u8, {1}),
                                           object("o")};
  const auto rejected = [&](const ExportOptions& options, Code code, const std::string& text) {
    const auto plan = plan_export(values, options);
    EXPECT_EQ(plan.status().code(), code);
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(text));
  };
  rejected({.only = {"c"}}, Code::not_found, "'c'");
  rejected({.only = {"o"}}, Code::not_found, "'o'");
  rejected({.renames = {{"c", "d"}}}, Code::invalid_argument, "c=d");
  rejected({.renames = {{"a", "b"}}}, Code::invalid_argument, "'a' and 'b' would both have the name 'b'");
  rejected({.renames = {{"a", ""}}}, Code::invalid_argument, "'a'");
  rejected({.renames = {{"a", "__metadata__"}}}, Code::invalid_argument, "'a'");
  EXPECT_EQ(plan_export({object("o")}, {}).status().code(), Code::not_found);
}

TEST_F(TensorExport, FloatsAreConvertedAndOtherTypesAreNot) {
  const std::vector<TensorMetadata> values{tensor("f", DType::f32, {5}), tensor("i", DType::i32, {5}),
                                           tensor("d", DType::f64, {5})};
  ExportOptions options{.is_sharded = false};
  options.dtype = DType::bf16;
  ASSERT_TRUE(run(values, options).ok());
  const Read file = read("model.safetensors");
  EXPECT_EQ(file.header["f"]["dtype"], "BF16");
  EXPECT_EQ(file.header["i"]["dtype"], "I32");
  EXPECT_EQ(file.header["d"]["dtype"], "F64");
  EXPECT_EQ(file.of("f").size(), 10u);
  EXPECT_EQ(file.of("i"), bytes_of("i", 20));
}

TEST_F(TensorExport, AnEarlierExportIsReplacedOnlyByForce) {
  std::vector<TensorMetadata> values{tensor("a", DType::u8, {60}), tensor("b", DType::u8, {60})};
  ASSERT_TRUE(run(values, {.shard_bytes_max = 100}).ok());
  std::ofstream(folder_.path() + "/config.json") << "{}";
  const Status again = run(values, {.shard_bytes_max = 100});
  EXPECT_EQ(again.code(), Code::already_exists);
  EXPECT_THAT(std::string(again.message()), HasSubstr("model-00001-of-00002.safetensors"));
  const std::string left = storage::partial_name("model-00001-of-00009.safetensors", random_128());
  const std::string other = storage::partial_name("vae.safetensors", random_128());
  for (const std::string& name : {left, other}) std::ofstream(folder_.path() + "/" + name) << "x";
  ASSERT_TRUE(run(values, {.is_sharded = false}, true).ok());
  EXPECT_THAT(names(), ElementsAre("config.json", "model.safetensors", other));
}

TEST_F(TensorExport, AFailureLeavesNoneOfItsFiles) {
  tensors_.damaged = "b";
  const Status failed =
      run({tensor("a", DType::u8, {60}), tensor("b", DType::u8, {60})}, {.shard_bytes_max = 100});
  EXPECT_EQ(failed.code(), Code::corrupt);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("'b'"));
  EXPECT_THAT(names(), ElementsAre());
}

}  // namespace
}  // namespace shoal::admin
