// shoal fuzz.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Fuzz, RunsSeedsAndFindsNothing) {
  const ProcessEnd end = run_shoal({"fuzz", "--seeds", "1..200", "--coverage"});
  ASSERT_EQ(end.status, 0) << end.err << end.out;
  EXPECT_THAT(end.out, HasSubstr("200 seeds: "));
  EXPECT_THAT(end.out, HasSubstr("; 0 found"));
  EXPECT_THAT(end.out, HasSubstr("coordinator: Received ShardsWritten"));
}

TEST(Fuzz, StatesItsResultsAsJson) {
  const ProcessEnd end = run_shoal({"fuzz", "--seeds", "1..50", "--mode", "rank-local", "--json"});
  ASSERT_EQ(end.status, 0) << end.err << end.out;
  const auto out = nlohmann::json::parse(end.out);
  EXPECT_EQ(out["seeds"], 50);
  EXPECT_GT(out["failures"], 50);
  EXPECT_GT(out["saves_committed"], 50);
  EXPECT_TRUE(out["found"].empty());
  uint64_t aimed = 0;
  for (const auto& cell : out["aimed"]) aimed += cell["times"].get<uint64_t>();
  EXPECT_GT(aimed, 50u);
  // The same seeds give the same results, however many processors share them.
  const auto again = nlohmann::json::parse(
      run_shoal({"fuzz", "--seeds", "1..50", "--mode", "rank-local", "--json", "--jobs", "3"}).out);
  EXPECT_EQ(again["events"], out["events"]);
  EXPECT_EQ(again["aimed"], out["aimed"]);
}

TEST(Fuzz, RunsEachSeedInEachMode) {
  const ProcessEnd end = run_shoal({"fuzz", "--seeds", "1..20", "--every-mode", "--json"});
  ASSERT_EQ(end.status, 0) << end.err << end.out;
  const auto out = nlohmann::json::parse(end.out);
  EXPECT_EQ(out["seeds"], 60);
  EXPECT_FALSE(out["never_taken"].empty());
}

TEST(Fuzz, SteersFurtherSeedsToWhatNeverMet) {
  const auto cells_after = [](const std::vector<std::string>& more) {
    std::vector<std::string> options = {"fuzz", "--seeds", "1..4", "--mode", "collective-free", "--json"};
    options.insert(options.end(), more.begin(), more.end());
    const ProcessEnd end = run_shoal(options);
    EXPECT_EQ(end.status, 0) << end.err << end.out;
    return nlohmann::json::parse(end.out);
  };
  const auto plain = cells_after({});
  const auto steered = cells_after({"--until-covered", "--most-more", "20"});
  EXPECT_EQ(plain["seeds"], 4);
  EXPECT_EQ(steered["seeds"], 24);
  EXPECT_GT(steered["aimed"].size(), plain["aimed"].size() + 10);
  EXPECT_FALSE(steered["empty_cells"].empty());
}

TEST(Fuzz, AimsAFailureOfAKindAtAnEvent) {
  const ProcessEnd end = run_shoal(
      {"fuzz", "--seeds", "1..5", "--aim", "dies@node: WriteShard", "--most-failures", "0", "--json"});
  ASSERT_EQ(end.status, 0) << end.err << end.out;
  const auto out = nlohmann::json::parse(end.out);
  EXPECT_EQ(out["failures"], 5);
  ASSERT_EQ(out["aimed"].size(), 1u);
  EXPECT_EQ(out["aimed"][0]["moment"], "node: WriteShard");
  EXPECT_EQ(out["aimed"][0]["failure"], "dies");
}

TEST(Fuzz, RecordsACampaign) {
  const TemporaryFolder folder;
  const ProcessEnd end = run_shoal({"fuzz", "--seeds", "1..10", "--every-mode", "--record", folder.path()});
  ASSERT_EQ(end.status, 0) << end.err << end.out;
  const auto lines = [&](const std::string& name) {
    std::ifstream file(folder.path() + "/" + name);
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  };
  EXPECT_EQ(lines("runs.csv").size(), 1 + 30u);
  EXPECT_THAT(lines("paths.csv"), Contains("rank-local,shard_writer event: Started,10,10"));
  EXPECT_THAT(lines("figures.csv"), Contains(StartsWith("collective,any,aborted,nvme,")));
  EXPECT_EQ(lines("rare.csv").front(), "mode,path,seeds");
}

TEST(Fuzz, RefusesBadOptionsInOneLine) {
  for (const std::vector<std::string>& options : {std::vector<std::string>{"--seeds", "7..3"},
                                                  {"--mode", "fast"},
                                                  {"--most-failures", "101"},
                                                  {"--record", "/nowhere/at/all"},
                                                  {"--aim", "dies"},
                                                  {"--aim", "melts@node: WriteShard"},
                                                  {"--mode", "collective", "--every-mode"}}) {
    std::vector<std::string> all = {"fuzz"};
    all.insert(all.end(), options.begin(), options.end());
    const ProcessEnd end = run_shoal(all);
    EXPECT_EQ(end.status, 2) << end.err;
    EXPECT_THAT(end.err, HasSubstr(options[0]));
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  }
}

}  // namespace
}  // namespace shoal::cli
