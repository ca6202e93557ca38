// shoal sim with failures, and shoal replay of the recorded run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/cli/text_of_file.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> sim_with(std::vector<std::string> more) {
  std::vector<std::string> all = {"sim",
                                  "--ranks",
                                  "16",
                                  "--ranks-per-host",
                                  "4",
                                  "--model",
                                  "gpt2",
                                  "--profile",
                                  "nvme",
                                  "--interval-ms",
                                  "2000",
                                  "--failures",
                                  "mixed:count=4,kinds=restarts/stalls/loses"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Replay, DoesARecordedRunAgainWithItsLog) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/run.toml";
  const ProcessEnd recorded = run_shoal(sim_with({"--seed", "3", "--record", file}));
  EXPECT_THAT(recorded.err, HasSubstr("recorded; run it again with: shoal replay " + file));
  const ProcessEnd again = run_shoal({"replay", file});
  ASSERT_EQ(again.status, 0) << again.err << again.out;
  EXPECT_THAT(again.out, HasSubstr(" node0.coordinator: Received from node1: JoinRanks"));
  EXPECT_THAT(again.out, HasSubstr(" failure: "));
  EXPECT_THAT(again.out, HasSubstr("same result: trace "));
  const ProcessEnd part = run_shoal({"replay", file, "--until", "0.5", "--node", "1"});
  EXPECT_THAT(part.out, HasSubstr("node0.coordinator: Received from node1: JoinRanks"));
  EXPECT_THAT(part.out, Not(HasSubstr("node0.coordinator: Received from node2")));
  EXPECT_THAT(part.out, Not(HasSubstr("ShardsWritten")));
}

TEST(Replay, SaysWhereARunIsNotTheSameOrOfAnotherVersion) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/run.toml";
  run_shoal(sim_with({"--seed", "3", "--record", file}));
  std::string text = text_of_file(file);
  const size_t hash = text.find("trace = \"") + 9;
  text[hash] = text[hash] == '1' ? '2' : '1';
  std::ofstream(file) << text;
  const ProcessEnd other = run_shoal({"replay", file, "--quiet"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.out, HasSubstr("different result: the trace was "));
  EXPECT_THAT(other.out, Not(HasSubstr("another build")));
  const size_t build = text.find("build = \"") + 9;
  const char first = text[build];
  text[build] = first == '1' ? '2' : '1';
  std::ofstream(file) << text;
  EXPECT_THAT(run_shoal({"replay", file, "--quiet"}).out,
              ::testing::ContainsRegex(
                  "different result: the trace was .*; another build of version [^ ]* recorded"));
  const size_t version = text.find("version = \"") + 11;
  text.insert(version, "9");
  std::ofstream(file) << text;
  const ProcessEnd refused = run_shoal({"replay", file, "--quiet"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("it was recorded by version 9"));
  EXPECT_EQ(run_shoal({"replay", file, "--quiet", "--any-version"}).status, 1);
}

TEST(Replay, RunsAScenarioWhoseDrawnFailuresWereShown) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/listed.toml";
  const ProcessEnd shown = run_shoal(sim_with({"--show-failures"}));
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("[[failure]]"));
  std::ofstream(file) << shown.out;
  auto trace = [](const ProcessEnd& end) { return end.out.substr(end.out.rfind("trace ")); };
  EXPECT_EQ(trace(run_shoal({"sim", "--scenario", file})), trace(run_shoal(sim_with({}))));
}

TEST(Sim, ListsItsFailuresAsJson) {
  const ProcessEnd end = run_shoal(sim_with({"--json"}));
  auto report = nlohmann::json::parse(end.out).at("simulations").at(0);
  const auto& failures = report.at("scenario").at("failures");
  ASSERT_EQ(failures.size(), 4u);
  for (const auto& failure : failures) {
    EXPECT_THAT(failure.at("kind"), ::testing::AnyOf("restarts", "stalls", "loses"));
    EXPECT_GT(failure.at("for_ms"), 0);
  }
  EXPECT_FALSE(report.contains("violation"));
}

TEST(Sim, RunsManySeedsAndRefusesWhatIsNoRange) {
  const ProcessEnd end = run_shoal(sim_with({"--seeds", "1..12"}));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("12 seeds: 48 failures, 24 saves"));
  for (const char* range : {"7..3", "x", "1..", "1-4"}) {
    EXPECT_EQ(run_shoal(sim_with({"--seeds", range})).status, 2) << range;
  }
  EXPECT_EQ(run_shoal({"sim", "--failures", "often"}).status, 2);
}

TEST(Sim, RunsManySeedsAtEachPointOfASweep) {
  const ProcessEnd end = run_shoal(
      sim_with({"--seeds", "1..5", "--sweep", "ranks=16,32", "--sweep", "saves=1,3", "--progress"}));
  EXPECT_EQ(end.status, 0) << end.err;
  for (const char* point :
       {"ranks=16 saves=1: 5 seeds: 20 failures, 5 saves", "ranks=16 saves=3: 5 seeds: 20 failures, 15 saves",
        "ranks=32 saves=1: 5 seeds: 20 failures, 5 saves",
        "ranks=32 saves=3: 5 seeds: 20 failures, 15 saves"}) {
    EXPECT_THAT(end.out, HasSubstr(point));
  }
  EXPECT_THAT(end.err, HasSubstr("sim: 20 of 20 seeds at 4 points, "));
  for (const char* output : {"--json", "--csv", "--sensitivity"}) {
    const ProcessEnd refused = run_shoal(sim_with({"--seeds", "1..5", output}));
    EXPECT_EQ(refused.status, 2) << output;
    EXPECT_THAT(refused.err, HasSubstr("seeds"));
  }
}

}  // namespace
}  // namespace shoal::cli
