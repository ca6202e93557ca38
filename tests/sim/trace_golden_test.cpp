// The scenarios in the tree give the same traces everywhere: with every compiler, optimized or not, in every
// run. tools/fuzz builds this test a second time with clang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/basics/toml_tree.h"
#include "sim/simulation.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

TEST(Scenarios, GiveTheTracesOfTheTreeOnEveryRun) {
  const std::string golden = std::string(kSource) + "/tests/sim/golden/traces.txt";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(kSource) + "/sim/scenarios")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  std::string traces;
  for (const auto& file : files) {
    auto scenario = parse_scenario(*read_text(file), file.filename());
    ASSERT_TRUE(scenario.ok()) << scenario.status().to_string();
    const SimulationReport report = simulated(*scenario);
    EXPECT_EQ(simulated(*scenario).trace_hash, report.trace_hash) << file;
    const bool has_failures = !scenario->failures.empty() || !scenario->failure_draws.empty();
    EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
    for (const SaveReport& save : report.saves) {
      EXPECT_TRUE(save.aborted_ranks == 0 || has_failures) << save.cause;
    }
    std::ostringstream line;
    line << file.stem().string() << " " << std::hex << report.trace_hash << std::dec << " " << report.events
         << " events " << report.ended << " ns\n";
    traces += line.str();
  }
  if (std::getenv("SHOAL_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(golden) << traces;
  } else {
    EXPECT_EQ(traces, *read_text(golden)) << "SHOAL_UPDATE_GOLDEN=1 writes these";
  }
}

}  // namespace
}  // namespace shoal::sim
