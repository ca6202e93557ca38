// shoal diff of checkpoints that two ranks have saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/cli/root/two_steps_test.h"
#include "tests/golden_copy.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DiffTest : public TwoStepsTest {
 protected:
  static ProcessEnd diff(std::vector<std::string> options) {
    options.insert(options.begin(), "diff");
    return run_shoal(options);
  }
  std::string other() const { return folder_.path() + "/other"; }

  TemporaryFolder folder_;
};

TEST_F(DiffTest, CountsWhatTwoStepsDifferIn) {
  ProcessEnd end = diff({saved_root(), "--step", "1", "--step", "2", "--json"});
  ASSERT_EQ(end.status, 1) << end.err;
  const json report = json::parse(end.out);
  EXPECT_EQ(report["same"], false);
  EXPECT_EQ(report["a"]["step"], 1);
  EXPECT_EQ(report["b"]["step"], 2);
  ASSERT_THAT(report["differences"], Not(IsEmpty()));
  for (const json& found : report["differences"]) {
    EXPECT_EQ(found["what"], "bytes") << found;
    EXPECT_GT(found["different_elements"], 0) << found;
    EXPECT_LE(found["different_elements"], found["elements"]) << found;
    if (found["a"]["kind"] == "tensor") {
      EXPECT_GT(found["largest_difference"], 0) << found;
      EXPECT_EQ(found["first_index"].size(), found["a"]["shape"].size()) << found;
    }
  }
  end = diff({saved_root(), "--step", "1", "--step", "2"});
  EXPECT_THAT(end.out,
              AllOf(HasSubstr(" elements differ, the first at ["), HasSubstr("largest difference ")));
  EXPECT_EQ(diff({saved_root(), "--step", "1", "--step", "1"}).status, 0);
}

// The trainer's state follows from step and place alone.
TEST_F(DiffTest, ComparesTheSameStateOfOtherShardings) {
  ASSERT_EQ(run_trainers(other(), 3, {"--save-steps", "1-1", "--wait", "--sharding", "tp"}).status, 0);
  ProcessEnd end = diff({saved_root(), other(), "--step", "1", "--json"});
  const json report = json::parse(end.out);
  EXPECT_GT(report["bytes_read"], 0);
  for (const json& found : report["differences"]) {
    EXPECT_NE(found["fqn"].get<std::string>().find("@rank"), std::string::npos)
        << "only what belongs to a rank differs: " << found;
  }
}

TEST_F(DiffTest, RejectsWhatItCannotCompare) {
  EXPECT_EQ(diff({saved_root()}).status, 2);
  EXPECT_THAT(diff({saved_root()}).err, HasSubstr("name two checkpoints"));
  EXPECT_EQ(diff({saved_root(), "--step", "1", "--step", "9"}).status, 2);
  EXPECT_THAT(diff({saved_root(), "--step", "1", "--step", "9"}).err, HasSubstr("B: "));
  EXPECT_EQ(diff({saved_root(), other()}).status, 2);
  EXPECT_EQ(diff({saved_root(), "--step", "1", "--step", "2", "--step", "3"}).status, 2);
}

TEST_F(DiffTest, ReportsDamageAsTrouble) {
  const std::string damaged = folder_.path() + "/damaged";
  fs::copy(saved_root(), damaged, fs::copy_options::recursive);
  for (const char* rank : {"/rank-00000.safetensors", "/rank-00001.safetensors"}) {
    flip_bit_at(damaged + "/step-00000002/g1a1" + rank, -1, std::ios::end);
  }
  ProcessEnd end = diff({damaged, "--step", "1", "--step", "2"});
  EXPECT_EQ(end.status, 2) << end.out;
  EXPECT_THAT(end.err, AllOf(HasSubstr("/step-00000002/g1a1/rank-0000"), HasSubstr(" of the file")));
}

}  // namespace
}  // namespace shoal::cli
