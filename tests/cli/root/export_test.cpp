// shoal export of checkpoints that two ranks have saved, and of the golden root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/process.h"
#include "tests/cli/root/two_steps_test.h"
#include "tests/golden_copy.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string content_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream out;
  out << stream.rdbuf();
  return out.str();
}

struct Shard {
  json header;
  std::string data;
  std::string of(const std::string& key) const {
    const json& at = header.at(key).at("data_offsets");
    return data.substr(at[0], at[1].get<uint64_t>() - at[0].get<uint64_t>());
  }
};

Shard read_shard(const fs::path& path) {
  const std::string all = content_of(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, all.data(), 8);
  return {json::parse(all.substr(8, header_bytes)), all.substr(8 + header_bytes)};
}

// The tensors of a checkpoint whose pieces are cut along the first dimension alone, put together by what the
// headers of its shards say.
std::map<std::string, std::string> assembled(const fs::path& folder) {
  std::map<std::string, std::map<uint64_t, std::string>> pieces;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const Shard shard = read_shard(entry.path());
    const json info = json::parse(shard.header["__metadata__"]["DCP_SHARDING_INFO"].get<std::string>());
    const json own = json::parse(shard.header["__metadata__"]["shoal"].get<std::string>());
    for (const auto& [key, about] : shard.header.items()) {
      if (key == "__metadata__") continue;
      if (std::ranges::find(own["objects"], json(key)) != own["objects"].end()) continue;
      const json& at = info[key]["saved_offsets"];
      const std::string fqn = info[key].value("logical_fqn", key);
      pieces[fqn][at.empty() ? 0 : at[0].get<uint64_t>()] = shard.of(key);
    }
  }
  std::map<std::string, std::string> out;
  for (const auto& [fqn, parts] : pieces) {
    for (const auto& [at, bytes] : parts) out[fqn] += bytes;
  }
  return out;
}

// Each tensor is cut by rows.
class ExportTest : public TwoStepsTest {
 protected:
  std::string root() const { return saved_root(); }
  std::string to() const { return folder_.path() + "/out"; }
  ProcessEnd run(std::vector<std::string> options) const {
    options.insert(options.begin(), {"export", root(), "--to", to()});
    return run_shoal(options);
  }

  TemporaryFolder folder_;
};

TEST_F(ExportTest, HasTheBytesOfEveryShard) {
  ProcessEnd end = run({"--step", "2", "--shard-size", "4MB", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json report = json::parse(end.out);
  EXPECT_EQ(report["step"], 2);
  EXPECT_GT(report["files"].size(), 2u);
  const json index = json::parse(content_of(to() + "/model.safetensors.index.json"));
  const auto expected = assembled(root() + "/step-00000002/g1a1");
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(index["weight_map"].size(), expected.size());
  EXPECT_EQ(report["tensors"], expected.size());
  uint64_t bytes = 0;
  for (const auto& [fqn, content] : expected) {
    const Shard shard = read_shard(to() + "/" + index["weight_map"].at(fqn).get<std::string>());
    EXPECT_TRUE(shard.of(fqn) == content) << fqn;
    bytes += content.size();
  }
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
  EXPECT_EQ(report["bytes"], bytes);
}

TEST_F(ExportTest, IsOneFileOfTheLatestCheckpointIfAskedFor) {
  ProcessEnd end = run({"--format", "safetensors"});
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("step 2 (g1a1): "));
  const auto expected = assembled(root() + "/step-00000002/g1a1");
  const Shard shard = read_shard(to() + "/model.safetensors");
  EXPECT_EQ(shard.header.size(), expected.size() + 1);
  for (const auto& [fqn, content] : expected) EXPECT_TRUE(shard.of(fqn) == content) << fqn;
}

TEST_F(ExportTest, ReplacesAnExportOnlyWithForce) {
  ASSERT_EQ(run({"--step", "1"}).status, 0);
  ProcessEnd end = run({"--step", "2"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("model-00001-of-00001.safetensors exists"));
  EXPECT_EQ(run({"--step", "2", "--format", "safetensors", "--force"}).status, 0);
  EXPECT_FALSE(fs::exists(to() + "/model.safetensors.index.json"));
  EXPECT_TRUE(fs::exists(to() + "/model.safetensors"));
}

TEST_F(ExportTest, RejectsWhatItCannotDo) {
  EXPECT_THAT(run({"--step", "9"}).err, HasSubstr("9"));
  EXPECT_EQ(run({"--step", "9"}).status, 2);
  EXPECT_THAT(run({"--only", "nothing"}).err, HasSubstr("no tensor 'nothing'"));
  EXPECT_THAT(run({"--dtype", "i8"}).err, HasSubstr("bf16"));
  EXPECT_THAT(run({"--rename", "=x"}).err, HasSubstr("OLD=NEW"));
  EXPECT_THAT(run({"--shard-size", "0"}).err, HasSubstr("--shard-size"));
  EXPECT_THAT(run({"--format", "gguf"}).err, HasSubstr("--format"));
  EXPECT_THAT(run({"--only", ""}).err, HasSubstr("--only: it is empty"));
  EXPECT_EQ(run({"--only", ""}).status, 2);
  EXPECT_THAT(run_shoal({"export", root(), "--to", ""}).err, HasSubstr("--to: it is empty"));
  EXPECT_FALSE(fs::exists(to() + "/model.safetensors.index.json"));
}

// Regression: it wrote beside the checkpoints.
TEST_F(ExportTest, RejectsAFolderInTheRoot) {
  fs::create_directory_symlink(root(), folder_.path() + "/link");
  for (const std::string& inside : {root(), root() + "/export", root() + "/step-00000002/g1a1",
                                    folder_.path() + "/link/export", root() + "/../root/export"}) {
    const ProcessEnd end = run_shoal({"export", root(), "--to", inside});
    EXPECT_EQ(end.status, 2) << inside;
    EXPECT_THAT(end.err, HasSubstr("is in the root " + root() + ": name a folder outside of it")) << inside;
  }
  EXPECT_FALSE(fs::exists(root() + "/export"));
  EXPECT_EQ(run_shoal({"export", root(), "--to", root() + "-export"}).status, 0)
      << "a name that only begins alike";
}

// It wrote into ./s3:/bucket.
TEST_F(ExportTest, RejectsAnAddressAsTheFolderToWriteTo) {
  for (const char* address : {"s3://bucket/out", "s3:/bucket/out", "gs://bucket/out"}) {
    ProcessEnd end = run_shoal({"export", root(), "--to", address});
    EXPECT_EQ(end.status, 2) << address;
    EXPECT_THAT(end.err, HasSubstr(std::string(address) +
                                   " is no local path: shoal export writes to folders of this machine"));
  }
  EXPECT_FALSE(fs::exists("s3:"));
  EXPECT_FALSE(fs::exists("gs:"));
}

TEST(ExportOfGoldenRoot, NamesTheDamagedFileAndTensor) {
  GoldenCopy golden;
  const std::string to = golden.beside("out");
  ASSERT_EQ(run_shoal({"export", golden.root(), "--to", to, "--step", "1"}).status, 0);
  for (const auto& entry : fs::recursive_directory_iterator(golden.root() + "/step-00000001")) {
    if (entry.path().extension() == ".safetensors") flip_bit_at(entry.path(), -1, std::ios::end);
  }
  ProcessEnd end = run_shoal({"export", golden.root(), "--to", to, "--step", "1", "--force"});
  EXPECT_EQ(end.status, 1) << end.out;
  EXPECT_THAT(end.err, HasSubstr(".safetensors"));
  EXPECT_THAT(end.err, HasSubstr("'"));
  EXPECT_FALSE(fs::exists(to + "/model.safetensors.index.json"));
}

}  // namespace
}  // namespace shoal::cli
