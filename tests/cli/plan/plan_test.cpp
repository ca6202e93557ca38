// shoal plan: its output, and the arguments that it rejects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> small_plan(std::vector<std::string> more) {
  std::vector<std::string> all = {"plan", "--ranks", "16", "--model", "gpt2", "--mtbf-host-hours",
                                  "50",   "--days",  "10", "--seeds", "8"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Plan, SaysFirstWhatToDo) {
  const ProcessEnd end = run_shoal(small_plan({}));
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, StartsWith("Save every "));
  EXPECT_THAT(end.out, HasSubstr("WHERE THE TIME GOES"));
  EXPECT_THAT(end.out, HasSubstr("a synchronous saver"));
  EXPECT_THAT(end.out, HasSubstr("DCP async_save"));
  EXPECT_THAT(end.out, HasSubstr("mtbf-host-hours"));
  EXPECT_THAT(end.out, HasSubstr("given"));
}

TEST(Plan, IsTheSameForTheSameSeed) {
  const std::vector<std::string> plan = small_plan({"--json", "--no-sensitivity", "--no-baselines"});
  std::vector<std::string> with_one_job = plan;
  with_one_job.insert(with_one_job.end(), {"--jobs", "1"});
  EXPECT_EQ(run_shoal(plan).out, run_shoal(with_one_job).out);
}

TEST(Plan, IsJsonWhosePartsAddUp) {
  const ProcessEnd end =
      run_shoal(small_plan({"--json", "--compare", "modes", "--interval", "60s,10min,1h"}));
  ASSERT_EQ(end.status, 0) << end.err;
  const auto plan = nlohmann::json::parse(end.out);
  EXPECT_EQ(plan.at("json_version"), 1);
  EXPECT_EQ(plan.at("job").at("ranks"), 16);
  const int64_t lasts = plan.at("job").at("lasts_ns");
  std::vector<std::string> savers;
  for (const auto& each : plan.at("cases")) {
    savers.push_back(each.at("saver"));
    ASSERT_EQ(each.at("intervals").size(), 3u) << savers.back();
    for (const auto& point : each.at("intervals")) {
      int64_t sum = 0;
      for (const auto& part : point.at("mean_parts_ns")) sum += part.get<int64_t>();
      EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(lasts), 10);
      EXPECT_LE(point.at("ettr").at("p10"), point.at("ettr").at("p50"));
    }
  }
  EXPECT_THAT(savers,
              ::testing::ElementsAre("collective-free", "a synchronous saver", "rank-local", "collective",
                                     "DCP save", "DCP async_save", "DCP async_save, cached plans"));
  EXPECT_FALSE(plan.at("sensitivity").empty());
  EXPECT_EQ(plan.at("cases")[0].at("measured").at("loads").size(), 1u);
}

TEST(Plan, TakesRecordedFailures) {
  const TemporaryFolder folder;
  const std::string record = folder.path() + "/past.csv";
  std::ofstream(record) << "hours,what\n1,gpu\n3,nic\n";
  const ProcessEnd end = run_shoal(small_plan(
      {"--csv", "--no-sensitivity", "--no-baselines", "--failures", record, "--interval", "10min"}));
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, StartsWith("profile,saver,interval_s,chosen,ettr_p10"));
  EXPECT_THAT(end.out, HasSubstr("\nlustre,collective-free,600,1,"));
  EXPECT_THAT(end.out, HasSubstr(",119.00,")) << "ten days have 119 failures two hours apart";
}

TEST(Plan, WritesAPageWithoutLinks) {
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/plan.html";
  ASSERT_EQ(run_shoal(small_plan({"--html", page})).status, 0);
  std::ifstream file(page);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, StartsWith("<!doctype html>"));
  EXPECT_THAT(text, HasSubstr("Save every "));
  EXPECT_THAT(text, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(text, HasSubstr("chosen: "));
  EXPECT_THAT(text, Not(HasSubstr("http")));
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '<'), std::count(text.begin(), text.end(), '>'));
}

TEST(Plan, RefusesBadOptionsInOneLine) {
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--interval", "soon"},
                                             {"--failures", "normal"},
                                             {"--failures", "/nowhere/past.csv"},
                                             {"--step-s", "0"},
                                             {"--days", "100000"},
                                             {"--seeds", "0"},
                                             {"--hosts-min", "9"},
                                             {"--mtbf-host-hours", "-1"},
                                             {"--mtbf-host-hours", "0.000001"},
                                             {"--compare", "planets"},
                                             {"--profile", "abacus"},
                                             {"--html", "/nowhere/plan.html"}}) {
    const ProcessEnd end = run_shoal(small_plan(options));
    EXPECT_EQ(end.status, 2) << options[0] << " " << options[1] << ": " << end.err;
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
    EXPECT_EQ(end.out, "");
  }
}

}  // namespace
}  // namespace shoal::cli
