// shoal verify on checkpoints with several blocks per file, whole and damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/cli/root/two_steps_test.h"
#include "tests/golden_copy.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A piece of more than a block: its key, and its first byte in the file.
std::pair<std::string, uint64_t> piece_of_two_blocks(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  uint64_t header_bytes = 0;
  stream.read(reinterpret_cast<char*>(&header_bytes), 8);
  std::string text(header_bytes, ' ');
  stream.read(text.data(), static_cast<std::streamsize>(header_bytes));
  const json header = json::parse(text);
  for (const auto& [key, piece] : header.items()) {
    if (key.find("model.transformer.wte") == std::string::npos) continue;
    return {key, 8 + header_bytes + piece["data_offsets"][0].get<uint64_t>()};
  }
  return {};
}

class VerifyTest : public TwoStepsTest {
 protected:
  void SetUp() override { fs::copy(saved_root(), root(), fs::copy_options::recursive); }
  std::string root() const { return folder_.path() + "/root"; }
  std::string file(int rank) const {
    return root() + "/step-00000002/g1a1/rank-0000" + std::to_string(rank) + ".safetensors";
  }
  uint64_t bytes_of_root() const {
    uint64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
    }
    return bytes;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(VerifyTest, ReadsEveryByteWhateverTheNumberOfJobs) {
  for (const char* jobs : {"1", "2", "7", "64"}) {
    ProcessEnd end = run_shoal({"verify", root(), "--all", "--jobs", jobs, "--json"});
    ASSERT_EQ(end.status, 0) << end.err;
    json out = json::parse(end.out);
    uint64_t bytes = 0;
    for (const json& one : out["checkpoints"]) bytes += one["bytes"].get<uint64_t>();
    EXPECT_EQ(bytes, bytes_of_root()) << jobs;
  }
}

TEST_F(VerifyTest, NamesTheBytesAndElementsOfADamagedBlock) {
  auto [key, begin] = piece_of_two_blocks(file(1));
  flip_bit_at(file(1), static_cast<int64_t>(begin + kMiB + 12345));  // in its second block
  for (const char* jobs : {"1", "5"}) {
    ProcessEnd end = run_shoal({"verify", root(), "--jobs", jobs, "--json"});
    EXPECT_EQ(end.status, 1);
    json out = json::parse(end.out)["checkpoints"][0];
    ASSERT_EQ(out["damage"].size(), 1u) << out.dump(2);
    json damage = out["damage"][0];
    EXPECT_EQ(damage["file"], "rank-00001.safetensors");
    EXPECT_EQ(damage["block"], 1);
    EXPECT_EQ(damage["file_bytes"][0], begin + kMiB);
    EXPECT_EQ(damage["piece_elements"][0], kMiB / 4) << "f32";
    EXPECT_EQ(damage["key"], key);
    EXPECT_EQ(damage["tensor"], key);
    // wte is 4096 rows of 256, and rank 1 holds the second half.
    EXPECT_EQ(damage["first_index"], json::parse("[3072, 0]"));
  }
  ProcessEnd text = run_shoal({"verify", root()});
  EXPECT_THAT(text.out, HasSubstr("(bytes " + std::to_string(begin + kMiB) + " to "));
  EXPECT_THAT(text.out, HasSubstr("elements 262144 to "));
}

TEST_F(VerifyTest, NamesSeveralDamagesInTheOrderOfTheFiles) {
  uint64_t size = fs::file_size(file(0));
  for (uint64_t at = kMiB; at + kMiB < size; at += kMiB) flip_bit_at(file(0), static_cast<int64_t>(at));
  flip_bit_at(file(1), -1, std::ios::end);
  json reports[2];
  for (int i = 0; i < 2; ++i) {
    ProcessEnd end = run_shoal({"verify", root(), "--jobs", i == 0 ? "1" : "8", "--json"});
    EXPECT_EQ(end.status, 1);
    reports[i] = json::parse(end.out)["checkpoints"][0];
  }
  EXPECT_EQ(reports[0]["damage"], reports[1]["damage"]) << "the same with any number of jobs";
  uint64_t count = reports[0]["damage_count"];
  EXPECT_EQ(count, reports[0]["damage"].size());
  EXPECT_GE(count, size / kMiB - 2);
  EXPECT_EQ(reports[0]["damage"][count - 1]["file"], "rank-00001.safetensors");
  EXPECT_EQ(reports[0]["bytes"], fs::file_size(file(0)) + fs::file_size(file(1))) << "and reads on";
}

TEST_F(VerifyTest, KeepsBelowARate) {
  auto start = std::chrono::steady_clock::now();
  ProcessEnd end = run_shoal({"verify", root(), "--rate", "60MB/s", "--jobs", "4"});
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(end.status, 0);
  double bytes = static_cast<double>(fs::file_size(file(0)) + fs::file_size(file(1)));
  EXPECT_GE(seconds, bytes / (60.0 * kMiB) * 0.95);
  for (const char* rate : {"0", "fast", "-3MB/s", "MB/s"}) {
    end = run_shoal({"verify", root(), std::string("--rate=") + rate});
    EXPECT_EQ(end.status, 2) << rate;
  }
}

// Its files are opened one after the other, and the first takes some seconds.
TEST_F(VerifyTest, DoesNotCallDeletedWhatWasRemovedByHandWhileItRead) {
  const std::string rate = std::to_string(fs::file_size(file(0)) / 4) + "/s";
  Process verify({SHOAL_PROGRAM, "verify", root(), "--rate", rate, "--jobs", "1", "--progress", "--json"});
  ASSERT_TRUE(verify.wait_for_errors("verify: "));
  fs::remove_all(fs::path(file(0)).parent_path());
  const ProcessEnd end = verify.wait();
  EXPECT_EQ(end.status, 2) << end.out;
  const json one = json::parse(end.out)["checkpoints"][0];
  EXPECT_EQ(one["ok"], false);
  EXPECT_EQ(one["gone_meanwhile"], true);
  EXPECT_FALSE(one.contains("deleted_meanwhile")) << "no tombstone says so";
}

// Regression: a store that did not answer for a while took the mark from an intact checkpoint, which
// retention could then delete.
TEST_F(VerifyTest, DoesNotCallDamagedWhatItCannotRead) {
  ASSERT_EQ(run_shoal({"verify", root()}).status, 0);
  const std::string mark = root() + "/verified/step-00000002.g1a1", away = file(1) + ".away";
  ASSERT_TRUE(fs::exists(mark));
  fs::rename(file(1), away);
  fs::create_symlink(away, file(1));  // which is not followed
  ProcessEnd end = run_shoal({"verify", root()});
  EXPECT_EQ(end.status, 2) << end.out;
  EXPECT_THAT(end.out, HasSubstr("NOT CHECKED: 1 place could not be read"));
  EXPECT_THAT(end.out, Not(HasSubstr("damaged")));
  EXPECT_TRUE(fs::exists(mark));
  json one = json::parse(run_shoal({"verify", root(), "--json"}).out)["checkpoints"][0];
  EXPECT_EQ(one["ok"], false);
  EXPECT_EQ(one["damage_count"], 1);
  EXPECT_EQ(one["unread_count"], 1);
  flip_bit_at(file(0), -1, std::ios::end);
  end = run_shoal({"verify", root()});
  EXPECT_EQ(end.status, 1) << end.out;
  EXPECT_THAT(end.out, HasSubstr("DAMAGED in 1 place, and 1 place could not be read"));
  EXPECT_FALSE(fs::exists(mark));
}

TEST_F(VerifyTest, ShowsProgressWhereAskedTo) {
  ProcessEnd end = run_shoal({"verify", root(), "--all", "--progress"});
  EXPECT_EQ(end.status, 0);
  EXPECT_THAT(end.err, MatchesRegex("(verify: [^\n]*/s[^\n]*\n)+"));
  EXPECT_THAT(end.err, HasSubstr("(100 %)"));
  EXPECT_THAT(end.err, Not(HasSubstr("\x1b"))) << "that is for terminals";
}

}  // namespace
}  // namespace shoal::cli
