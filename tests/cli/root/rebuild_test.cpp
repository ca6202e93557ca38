// shoal rebuild on the golden root, on damaged copies of it, and beside a running node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/golden_copy.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

TEST(Rebuild, SaysWhatItFound) {
  GoldenCopy copy;
  ProcessEnd end = run_shoal({"rebuild", copy.root(), "--catalog", copy.beside("catalog"), "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  json out = json::parse(end.out);
  EXPECT_EQ(out["attempts"], 5);
  EXPECT_EQ(out["checkpoints"], 2);
  EXPECT_EQ(out["deleted"], 1);
  EXPECT_EQ(out["catalog_before"], "absent");
  ASSERT_EQ(out["aborted"].size(), 1u);
  EXPECT_EQ(out["aborted"][0]["cause"], "rank 2: host-2 was not heard for 60 s");
  ASSERT_EQ(out["undecided"].size(), 1u);
  EXPECT_EQ(out["undecided"][0]["step"], 5);
  EXPECT_TRUE(out["damaged"].empty());
  EXPECT_TRUE(fs::exists(copy.beside("catalog/CURRENT")));

  end = run_shoal({"rebuild", copy.root(), "--catalog", copy.beside("catalog")});
  EXPECT_EQ(end.status, 0);
  EXPECT_THAT(end.out, HasSubstr("5 attempts: 2 checkpoints with "));
  EXPECT_THAT(end.out, HasSubstr("1 aborted, 1 deleted, 1 undecided, 0 damaged"));
  EXPECT_THAT(end.out, HasSubstr("the one before was sound"));
}

TEST(Rebuild, NamesDamagedDecisionsAndGoesOn) {
  GoldenCopy copy;
  copy.flip_bit_from_end("step-00000004/g2a1/manifest.shoal", 40);  // in its body
  std::ofstream(copy.path("step-00000001/g1a1/manifest.shoal"), std::ios::trunc) << "short";
  ProcessEnd end = run_shoal({"rebuild", copy.root(), "--catalog", copy.beside("catalog"), "--json"});
  EXPECT_EQ(end.status, 1) << end.err;
  json out = json::parse(end.out);
  ASSERT_EQ(out["damaged"].size(), 2u);
  EXPECT_EQ(out["damaged"][0]["step"], 1);
  EXPECT_EQ(out["damaged"][1]["step"], 4);
  EXPECT_THAT(out["damaged"][1]["what"].get<std::string>(), HasSubstr("step-00000004/g2a1/manifest.shoal"));
  EXPECT_EQ(out["checkpoints"], 0);
}

TEST(Rebuild, UsesTheCatalogOfThisHostByDefaultAndReplacesADamagedOne) {
  GoldenCopy copy;
  ProcessOptions options{.environment = {{"SHOAL_RUNTIME_DIR", copy.beside("runtime")}}};
  ASSERT_EQ(run_shoal({"rebuild", copy.root()}, options).status, 0);
  std::string catalog;
  for (const auto& entry : fs::directory_iterator(copy.beside("runtime"))) catalog = entry.path();
  ASSERT_TRUE(catalog.ends_with(".catalog")) << catalog;
  std::ofstream(catalog + "/CURRENT", std::ios::trunc) << "nonsense";
  ProcessEnd end = run_shoal({"rebuild", copy.root()}, options);
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("the one before was damaged: "));
}

TEST(Rebuild, LeavesTheCatalogOfARunningNodeAndForeignFoldersAlone) {
  GoldenCopy copy;
  ProcessOptions options{.environment = {{"SHOAL_RUNTIME_DIR", copy.beside("runtime")}}};
  std::vector<std::string> command = {
      SHOAL_PROGRAM, "launch", "--root",  copy.root(), "-n",
      "1",           "--",     "/bin/sh", "-c",        "echo up; exec sleep 60"};
  {
    Process job(command, options);
    ASSERT_TRUE(job.wait_for_output("up"));
    ProcessEnd end = run_shoal({"rebuild", copy.root()}, options);
    EXPECT_EQ(end.status, 2);
    EXPECT_THAT(end.err, HasSubstr("another process has it open"));
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1);
    job.send_signal(SIGTERM);
    job.wait();
  }
  fs::create_directory(copy.beside("home"));
  std::ofstream(copy.beside("home/thesis.txt")) << "the only copy";
  ProcessEnd end = run_shoal({"rebuild", copy.root(), "--catalog", copy.beside("home")});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("thesis.txt"));
  EXPECT_TRUE(fs::exists(copy.beside("home/thesis.txt")));
  end = run_shoal({"rebuild", copy.root(), "--catalog", ""});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("--catalog: it is empty"));
  end = run_shoal({"rebuild", copy.beside("none")});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("none does not exist"));
}

}  // namespace
}  // namespace shoal::cli
