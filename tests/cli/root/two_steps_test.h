// TwoStepsTest: a root with steps 1 and 2 of two ranks, about 15 MiB a file. It is saved once for a suite.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/golden_copy.h"

namespace shoal::cli {

class TwoStepsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    saved_ = new TemporaryFolder();
    ProcessEnd end = run_trainers(saved_root(), 2, {"--save-steps", "1-2", "--wait"});
    ASSERT_EQ(end.status, 0) << end.err;
  }
  static void TearDownTestSuite() { delete saved_; }

  static std::string saved_root() { return saved_->path() + "/root"; }
  // Creates the root if it does not exist.
  static ProcessEnd run_trainers(const std::string& root, int ranks,
                                 const std::vector<std::string>& options) {
    std::vector<std::string> all{SHOAL_PROGRAM,         "launch", "--root",     root, "--create", "-n",
                                 std::to_string(ranks), "--",     SHOAL_TRAINER};
    all.insert(all.end(), options.begin(), options.end());
    return run_process(all, {.environment = {{"SHOAL_RUNTIME_DIR", saved_->path() + "/runtime"}}});
  }

 private:
  static inline TemporaryFolder* saved_ = nullptr;
};

}  // namespace shoal::cli
