// shoal plan: its output, and the arguments that it rejects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/process.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

bool has_option(const std::vector<std::string>& options, const std::string& flag) {
  return std::find(options.begin(), options.end(), flag) != options.end();
}
// An option of `more` replaces that of the plan, because an option that is given twice is an error.
std::vector<std::string> small_job(const std::vector<std::string>& more) {
  const std::vector<std::pair<std::string, std::string>> job = {
      {"--ranks", "16"}, {"--model", "gpt2"}, {"--days", "10"}, {"--seeds", "8"}};
  std::vector<std::string> all = {"plan"};
  for (const auto& [flag, value] : job) {
    if (has_option(more, flag)) continue;
    all.push_back(flag);
    all.push_back(value);
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::vector<std::string> small_plan(const std::vector<std::string>& more) {
  std::vector<std::string> all = small_job(more);
  if (has_option(more, "--mtbf-host-hours")) return all;
  all.push_back("--mtbf-host-hours");
  all.push_back("50");
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

// Other saves than DCP's make no lists of items, and DCP's processors are not those of Shoal's nodes.
TEST(Plan, TakesOtherNumbersOfItsProfileWhereTheyApply) {
  const auto planned = [](const std::vector<std::string>& more) {
    std::vector<std::string> all = small_plan({"--json", "--no-sensitivity", "--load-s", "5"});
    all.insert(all.end(), more.begin(), more.end());
    const ProcessEnd end = run_shoal(all);
    EXPECT_EQ(end.status, 0) << end.err;
    return nlohmann::json::parse(end.out);
  };
  const auto before = planned({});
  const auto after = planned({"--set", "storage.sync_ns=9_000_000_000", "--set", "items.kept=2"});
  const auto committed = [](const nlohmann::json& plan) {
    return plan["cases"][0]["measured"]["saves"][0]["committed_ns"].get<int64_t>();
  };
  EXPECT_LT(committed(before), 5'000'000'000);
  EXPECT_GT(committed(after), 5'000'000'000);
  EXPECT_THAT(after["numbers"].dump(), HasSubstr("storage.sync_ns"));
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
  const ProcessEnd end = run_shoal(small_job(
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
                                             {"--mtbf-host-hours", "0.000001", "--no-baselines"},
                                             {"--mtbf-host-hours", "1e-13", "--no-baselines"},
                                             {"--compare", "planets"},
                                             {"--profile", "abacus"},
                                             {"--html", "/nowhere/plan.html"}}) {
    const ProcessEnd end = run_shoal(small_plan(options));
    EXPECT_EQ(end.status, 2) << options[0] << " " << options[1] << ": " << end.err;
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
    EXPECT_EQ(end.out, "");
  }
}

// A division by zero ended the process.
TEST(Plan, RefusesHostsThatFailWithinANanosecond) {
  const ProcessEnd end =
      run_shoal(small_plan({"--mtbf-host-hours", "1e-12", "--ranks-per-host", "1", "--no-baselines"}));
  EXPECT_EQ(end.status, 2) << end.err;
  EXPECT_THAT(end.err, HasSubstr("raise the mean time between failures"));
}

TEST(Plan, RefusesAMeanOfHostsBesideTheirRecord) {
  const TemporaryFolder folder;
  const std::string record = folder.path() + "/past.csv";
  std::ofstream(record) << "hours\n1\n3\n";
  const ProcessEnd end = run_shoal(small_plan({"--failures", record}));
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("--mtbf-host-hours: --failures " + record));
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  EXPECT_EQ(end.out, "");
}

// A repair was refused after all measurements, and half of the longest one when the sensitivity doubled it.
TEST(Plan, TakesRepairsOfUpToTenYears) {
  const ProcessEnd refused = run_shoal(small_plan({"--repair-hours", "90000"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--repair-hours 90000"));
  for (const char* hours : {"50000", "87840"}) {
    const ProcessEnd end =
        run_shoal(small_plan({"--json", "--repair-hours", hours, "--no-baselines", "--interval", "10min"}));
    ASSERT_EQ(end.status, 0) << end.err;
    const auto plan = nlohmann::json::parse(end.out);
    bool has_repair = false;
    for (const auto& each : plan.at("sensitivity")) {
      if (each.at("number").get<std::string>() != "repair-hours") continue;
      has_repair = true;
      EXPECT_FALSE(each.at("halved").is_null());
      EXPECT_TRUE(each.at("doubled").is_null());
    }
    EXPECT_TRUE(has_repair);
  }
}

// Its months take seconds, so that the signal comes before their end.
TEST(Plan, IsAnErrorInJsonWhenInterrupted) {
  const std::vector<std::string> plan =
      small_plan({"--json", "--progress", "--no-baselines", "--jobs", "1", "--interval", "10min", "--days",
                  "365", "--seeds", "600"});
  std::vector<std::string> arguments = {SHOAL_PROGRAM};
  arguments.insert(arguments.end(), plan.begin(), plan.end());
  Process process(arguments);
  ASSERT_TRUE(process.wait_for_errors("plan: ")) << process.errors();
  process.send_signal(SIGINT);
  const ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 130) << end.err;
  EXPECT_THAT(end.err, HasSubstr("interrupted"));
  const auto report = nlohmann::json::parse(end.out, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << end.out;
  EXPECT_EQ(report.at("error").at("code"), "aborted");
  EXPECT_THAT(report.at("error").at("message").get<std::string>(), HasSubstr("interrupted"));
}

}  // namespace
}  // namespace shoal::cli
