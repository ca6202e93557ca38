// shoal sim: its output, and the arguments that it rejects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/cli/text_of_file.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::HasSubstr;

TEST(Sim, ReportsEverySaveAsJson) {
  ProcessEnd end = run_shoal({"sim", "--ranks", "16", "--model", "gpt2", "--saves", "3", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  auto report = nlohmann::json::parse(end.out).at("simulations").at(0);
  EXPECT_EQ(report.at("scenario").at("mesh"), "dp=16,tp=1,pp=1");
  ASSERT_EQ(report.at("saves").size(), 3u);
  for (const auto& save : report.at("saves")) {
    EXPECT_EQ(save.at("outcome"), "committed");
    EXPECT_GT(save.at("committed_ns").at("min"), save.at("written_ns").at("min"));
    EXPECT_EQ(save.at("bytes_staged"), 124'439'808u * 14);
  }
}

TEST(Sim, SweepsOverModesInTheOrderGiven) {
  ProcessEnd end =
      run_shoal({"sim", "--model", "gpt2", "--sweep", "ranks=8,16", "--sweep", "mode=all", "--csv"});
  ASSERT_EQ(end.status, 0) << end.err;
  std::vector<std::string> rows;
  for (size_t at = end.out.find("\ngpt2,"); at != std::string::npos; at = end.out.find("\ngpt2,", at + 1)) {
    const size_t mesh = end.out.find('"', at), mode = end.out.find("\",", mesh + 1) + 2;
    rows.push_back(end.out.substr(at + 6, end.out.find(',', at + 6) - at - 6) + " " +
                   end.out.substr(mode, end.out.find(',', mode) - mode));
  }
  EXPECT_THAT(rows, ::testing::ElementsAre("8 collective", "8 collective", "8 rank-local", "8 rank-local",
                                           "8 collective-free", "8 collective-free", "16 collective",
                                           "16 collective", "16 rank-local", "16 rank-local",
                                           "16 collective-free", "16 collective-free"));
}

TEST(Sim, DrawsASweepOverRanks) {
  TemporaryFolder folder;
  const std::string svg = folder.path() + "/costs.svg", html = folder.path() + "/costs.html";
  const std::vector<std::string> sweep = {"sim",        "--model", "gpt2",    "--sweep",
                                          "ranks=8,16", "--sweep", "mode=all"};
  for (const std::string& path : {svg, html}) {
    std::vector<std::string> arguments = sweep;
    arguments.insert(arguments.end(), {"--plot", path});
    const ProcessEnd end = run_shoal(arguments);
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_THAT(end.out, HasSubstr("collective-free")) << "the table is printed, too";
  }
  EXPECT_THAT(text_of_file(svg), ::testing::StartsWith("<svg "));
  EXPECT_THAT(text_of_file(svg), HasSubstr("model gpt2, profile lustre"));
  for (const char* mode : {">collective ", ">rank-local ", ">collective-free "}) {
    EXPECT_THAT(text_of_file(svg), HasSubstr(mode));
  }
  EXPECT_THAT(text_of_file(html), HasSubstr("Bytes that the coordinator receives and sends"));
}

TEST(Sim, RanksAssumedNumbersByTheirEffect) {
  ProcessEnd end = run_shoal({"sim", "--ranks", "8", "--model", "gpt2", "--sensitivity", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  const auto report = nlohmann::json::parse(end.out);
  uint64_t before = UINT64_MAX;
  for (const auto& number : report.at("assumed_numbers")) {
    const uint64_t committed = number.at("committed_permille"), blocked = number.at("blocked_permille");
    EXPECT_LE(std::max(committed, blocked), before);
    before = std::max(committed, blocked);
    EXPECT_NE(number.at("source"), "");
  }
  EXPECT_GT(report.at("assumed_numbers").size(), 5u);
  EXPECT_EQ(report.at("job").at("scenario").at("ranks"), 8);
  end = run_shoal({"sim", "--ranks", "8", "--model", "gpt2", "--sensitivity", "--progress"});
  EXPECT_THAT(end.out, HasSubstr("COMMIT x1/2"));
  uint64_t runs = 1;  // of the job itself
  for (const auto& number : report.at("assumed_numbers")) {
    for (const char* run : {"halved", "doubled"}) runs += number.at(run).at("has_run") ? 1 : 0;
  }
  EXPECT_THAT(end.err, HasSubstr("sim: " + std::to_string(runs) + " of " + std::to_string(runs) + " runs, "));
  EXPECT_EQ(run_shoal({"sim", "--sensitivity", "--sweep", "ranks=8,16"}).status, 2);
}

TEST(Sim, StoresFullPayloadsWithTheTraceOfACountedRun) {
  TemporaryFolder folder;
  const std::string header =
      R"({"a.weight": {"dtype": "BF16", "shape": [64, 32], "data_offsets": [0, 4096]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  std::ofstream(folder.path() + "/model.safetensors", std::ios::binary)
      << bytes + header + std::string(4096, '\0');
  nlohmann::json reports;
  for (const char* payload : {"full", "counted"}) {
    const ProcessEnd end =
        run_shoal({"sim", "--model", folder.path(), "--ranks", "16", "--load", "--load-ranks", "8",
                   "--profile", "nvme", "--payload", payload, "--json"});
    ASSERT_EQ(end.status, 0) << end.err;
    reports.push_back(nlohmann::json::parse(end.out).at("simulations").at(0));
    EXPECT_EQ(reports.back()["payload"], payload);
  }
  const uint64_t tensors = 64 * 32 * 14;
  EXPECT_GT(reports[0]["bytes_stored"], 2 * tensors);
  EXPECT_GE(reports[0]["bytes_read_back"], tensors);
  for (const char* same : {"trace", "saves", "loads", "before_the_first_save", "virtual_ns"}) {
    ASSERT_TRUE(reports[0].contains(same)) << same;
    EXPECT_EQ(reports[0][same], reports[1][same]) << same;
  }
  const ProcessEnd refused = run_shoal({"sim", "--model", "gpt2", "--ranks", "8192", "--payload", "full"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("8192 ranks, but at most 4096 may have true bytes"));
}

TEST(Sim, SweepsOverMeshesApartBySemicolons) {
  const ProcessEnd end = run_shoal(
      {"sim", "--model", "llama3-8b", "--ranks", "16", "--sweep", "mesh=dp=8,tp=2;tp=4;pp=2,tp=8", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  std::vector<std::string> meshes;
  const auto out = nlohmann::json::parse(end.out);
  for (const auto& report : out["simulations"]) meshes.push_back(report["scenario"]["mesh"]);
  EXPECT_THAT(meshes, ::testing::ElementsAre("dp=8,tp=2,pp=1", "dp=4,tp=4,pp=1", "dp=1,tp=8,pp=2"));
}

TEST(Sim, LoadsTheLastSaveOnOtherRanks) {
  const ProcessEnd end =
      run_shoal({"sim", "--model", "gpt2", "--ranks", "16", "--load", "--load-ranks", "8", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  const auto load = nlohmann::json::parse(end.out).at("simulations").at(0).at("loads").at(0);
  EXPECT_EQ(load.at("ranks"), 8);
  EXPECT_EQ(load.at("bytes_wanted"), 124'439'808u * 14);
  EXPECT_GE(load.at("storage").at("bytes_read"), load.at("bytes_wanted"));
  EXPECT_GT(load.at("loaded_ns").at("min"), load.at("found_ns").at("min"));
  EXPECT_THAT(run_shoal({"sim", "--model", "gpt2", "--ranks", "16", "--load"}).out,
              HasSubstr("bytes loaded"));
}

TEST(Sim, ReportsWhatARestartCosts) {
  TemporaryFolder folder;
  const std::string table = folder.path() + "/restarts.csv";
  const ProcessEnd end = run_shoal({"sim", "--scenario", "restart-64", "--restarts-csv", table, "--json"});
  ASSERT_EQ(end.status, 0) << end.err << ": the save that the failure cut short does not count";
  const auto report = nlohmann::json::parse(end.out).at("simulations").at(0);
  ASSERT_EQ(report.at("restarts").size(), 1u);
  const auto& restart = report.at("restarts").at(0);
  EXPECT_EQ(restart.at("failure"), "host 3 dies at 121000 ms");
  EXPECT_EQ(restart.at("began_after_ns"), 150'000'000'000);
  const char* before = "ended_after_ns";
  for (const char* next : {"began_after_ns", "claimed_after_ns", "connected_after_ns", "chosen_after_ns",
                           "found_after_ns", "resumed_after_ns", "saved_after_ns"}) {
    EXPECT_GT(restart.at(next), restart.at(before)) << next;
    before = next;
  }
  EXPECT_EQ(restart.at("checkpoint").at("step"), 1);
  EXPECT_EQ(restart.at("newer").at(0).at("state"), "aborted");
  EXPECT_EQ(report.at("saves").at(2).at("generation"), 2);
  EXPECT_EQ(report.at("has_given_up"), false);
  const std::string rows = text_of_file(table);
  EXPECT_THAT(rows, HasSubstr("resumed_after_ns"));
  EXPECT_THAT(rows, HasSubstr(restart.at("resumed_after_ns").dump()));
}

TEST(Sim, SaysWhyAJobHasEnded) {
  const ProcessEnd end = run_shoal({"sim", "--scenario", "restart-256-slow-load", "--model", "tiny", "--mesh",
                                    "dp=256", "--max-restarts", "1"});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, HasSubstr("the job has ended: no restart is left"));
}

TEST(Sim, WritesWhatTheCoordinatorHeldOverTime) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/timeline.csv";
  const ProcessEnd end = run_shoal({"sim", "--model", "gpt2", "--ranks", "64", "--timeline", path, "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_THAT(line, ::testing::EndsWith("begin_ns,end_ns,queue,memory_bytes,descriptors"));
  size_t rows = 0;
  while (std::getline(file, line)) ++rows;
  EXPECT_EQ(rows, nlohmann::json::parse(end.out).at("simulations").at(0).at("coordinator_over_time").size());
  EXPECT_GT(rows, 0u);
}

// Waits until the last line of progress says something else than `not_this`.
void wait_for_progress(Process& process, const std::string& of, const std::string& not_this) {
  for (int lines = 1; lines <= 60; ++lines) {
    ASSERT_TRUE(process.wait_for_errors(of, lines)) << process.errors();
    const std::string& written = process.errors();
    if (written.find(not_this, written.rfind("sim: ")) == std::string::npos) return;
  }
  FAIL() << process.errors();
}

TEST(Sim, PrintsTheSavesThatWereDecidedWhenInterrupted) {
  Process process({SHOAL_PROGRAM, "sim", "--model", "gpt2", "--ranks", "1024", "--saves", "1000", "--json",
                   "--progress"});
  wait_for_progress(process, " of 1000, ", "save 1 of 1000, ");
  process.send_signal(SIGINT);
  const ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 130) << end.err;
  EXPECT_THAT(end.err, ::testing::ContainsRegex("save [0-9]+ of 1000, .* of virtual time, .* events, .*/s"));
  const auto report = nlohmann::json::parse(end.out).at("simulations").at(0);
  EXPECT_EQ(report.at("stopped_early"), true);
  EXPECT_GT(report.at("saves").size(), 0u);
  EXPECT_LT(report.at("saves").size(), 1000u);
  for (const auto& save : report.at("saves")) EXPECT_EQ(save.at("outcome"), "committed");
}

TEST(Sim, PrintsTheSimulationsOfASweepThatEndedWhenTerminated) {
  TemporaryFolder folder;
  const std::string svg = folder.path() + "/costs.svg";
  Process process({SHOAL_PROGRAM, "sim", "--model", "gpt2", "--sweep", "ranks=8,16,2048", "--saves", "1000",
                   "--jobs", "1", "--csv", "--progress", "--plot", svg});
  wait_for_progress(process, " of 3 jobs done", "0 of 3 jobs done");
  process.send_signal(SIGTERM);
  const ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 143) << end.err;
  EXPECT_THAT(end.err, HasSubstr("of 3 simulations ended"));
  const auto rows_of = [&](const std::string& start) {
    size_t rows = 0;
    for (size_t at = end.out.find(start); at != std::string::npos; at = end.out.find(start, at + 1)) ++rows;
    return rows;
  };
  EXPECT_EQ(rows_of("\ngpt2,8,"), 1000u);
  EXPECT_LT(rows_of("\ngpt2,2048,"), 1000u);
  EXPECT_THAT(text_of_file(svg), ::testing::EndsWith("</svg>\n"));
}

TEST(Sim, SaysWhereEachNumberComesFrom) {
  ProcessEnd end = run_shoal({"sim", "--profile", "object-store", "--show-profile"});
  EXPECT_EQ(end.status, 0);
  EXPECT_THAT(end.out, HasSubstr("3,500 PUT/s a prefix"));
}

TEST(Sim, PrintsAProfileThatItLoads) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/ours.toml";
  const ProcessEnd shown =
      run_shoal({"sim", "--profile", "nvme", "--set", "storage.sync_ns=1_234", "--show-profile"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  std::ofstream(file) << shown.out;
  EXPECT_THAT(shown.out,
              HasSubstr("sync_ns = { value = 1234, kind = \"assumed\", source = \"stated by --set\" }"));
  const ProcessEnd again = run_shoal({"sim", "--profile", file, "--show-profile"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out, shown.out);
}

// A commit waits for the sync of each file.
TEST(Sim, RunsWithOtherNumbersOfItsProfile) {
  const auto committed = [](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"sim", "--ranks", "8", "--model", "gpt2", "--profile", "nvme", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const ProcessEnd end = run_shoal(all);
    EXPECT_EQ(end.status, 0) << end.err;
    const auto job = nlohmann::json::parse(end.out)["simulations"].back();
    EXPECT_EQ(job["scenario"]["set"]["storage.sync_ns"], 20'000'000'000);
    return job["saves"].back()["committed_ns"]["min"].get<int64_t>();
  };
  EXPECT_GT(committed({"--set", "storage.sync_ns=20_000_000_000"}), 10'000'000'000);
  EXPECT_GT(committed({"--sweep", "storage.sync_ns=0,20000000000", "--jobs", "1"}), 10'000'000'000);
}

TEST(Sim, NamesTheNumberThatWasMeant) {
  const ProcessEnd end = run_shoal({"sim", "--set", "storage.total_byte_per_s=5"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("'storage.total_byte_per_s' is no number of a profile: did you mean "
                                 "'storage.total_bytes_per_s'?"));
}

TEST(Sim, SaysThatStandardOutputIsFull) {
  for (const std::string form : {"", "--json", "--csv", "--sensitivity --json", "--show-profile"}) {
    const ProcessEnd end =
        run_process({"/bin/sh", "-c",
                     SHOAL_PROGRAM " sim --ranks 8 --model gpt2 --profile nvme " + form + " > /dev/full"});
    EXPECT_EQ(end.status, 2) << form;
    EXPECT_THAT(end.err, HasSubstr("shoal: standard output: No space left on device")) << form;
  }
}

TEST(Sim, SaysThatARunCouldNotBeRecorded) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/run.toml";
  std::filesystem::create_symlink("/dev/full", file);
  const ProcessEnd end = run_shoal({"sim", "--ranks", "8", "--model", "gpt2", "--record", file});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("cannot write " + file + ": No space left on device"));
  EXPECT_THAT(end.err, ::testing::Not(HasSubstr("recorded; ")));
}

TEST(Sim, SaysThatNothingIsRecordedOfWhatIsInterrupted) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/run.toml";
  Process process({SHOAL_PROGRAM, "sim", "--model", "gpt2", "--ranks", "1024", "--saves", "1000",
                   "--progress", "--record", file});
  wait_for_progress(process, " of 1000, ", "save 1 of 1000, ");
  process.send_signal(SIGINT);
  const ProcessEnd end = process.wait();
  EXPECT_EQ(end.status, 130) << end.err;
  EXPECT_THAT(end.err, HasSubstr("did not write " + file + ": the simulation has not ended"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Sim, RefusesBeforeAnythingRuns) {
  auto refusal = [](const std::vector<std::string>& arguments) {
    ProcessEnd end = run_shoal(arguments);
    EXPECT_EQ(end.status, 2);
    EXPECT_EQ(end.out, "");
    return end.err;
  };
  EXPECT_THAT(refusal({"sim", "--ranks", "100", "--mesh", "tp=8"}), HasSubstr("has 8 ranks, not 100"));
  EXPECT_THAT(refusal({"sim", "--profile", "tape"}),
              HasSubstr("no profile 'tape'; built-in profiles are lustre, nvme, obj"));
  EXPECT_THAT(refusal({"sim", "--model", "gpt7"}), HasSubstr("no model 'gpt7'"));
  EXPECT_THAT(refusal({"sim", "--sweep", "mesh=1"}), HasSubstr("'1' must begin with dp="));
  EXPECT_THAT(refusal({"sim", "--sweep", "ranks"}), HasSubstr("write KEY=VALUE,VALUE..."));
  EXPECT_THAT(refusal({"sim", "--load", "--load-ranks", "7", "--load-mesh", "dp=2"}), HasSubstr("not 7"));
  EXPECT_THAT(refusal({"sim", "--timeline", "/nowhere/t.csv"}), HasSubstr("/nowhere/t.csv"));
  EXPECT_THAT(refusal({"sim", "--sweep", "ranks=8,16", "--plot", "/nowhere/costs.svg"}),
              HasSubstr("/nowhere/costs.svg"));
  EXPECT_THAT(refusal({"sim", "--record", "/nowhere/run.toml"}), HasSubstr("/nowhere/run.toml"));
  EXPECT_THAT(refusal({"sim", "--model", ""}), HasSubstr("no model ''"));
  EXPECT_THAT(refusal({"sim", "--scenario", "/nowhere.toml"}), HasSubstr("/nowhere.toml"));
  EXPECT_THAT(refusal({"sim", "--sweep", "ranks=8,16", "--plot", "costs.png"}), HasSubstr(".svg or .html"));
  EXPECT_THAT(refusal({"sim", "--sweep", "mode=all", "--plot", "costs.svg"}), HasSubstr("--sweep ranks="));
}

}  // namespace
}  // namespace shoal::cli
