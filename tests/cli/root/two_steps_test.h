// TwoStepsTest: a root with steps 1 and 2 of two ranks, about 15 MiB a file. It is saved once for a suite.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/cli/process.h"
#include "tests/golden_copy.h"

namespace shoal::cli {

class TwoStepsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    saved_ = new TemporaryFolder();
    ProcessEnd end = run_process({SHOAL_PROGRAM, "launch", "--root", saved_root(), "--create", "-n", "2",
                                  "--", SHOAL_TRAINER, "--save-steps", "1-2", "--wait"},
                                 {.environment = {{"SHOAL_RUNTIME_DIR", saved_->path() + "/runtime"}}});
    ASSERT_EQ(end.status, 0) << end.err;
  }
  static void TearDownTestSuite() { delete saved_; }

  static std::string saved_root() { return saved_->path() + "/root"; }

 private:
  static inline TemporaryFolder* saved_ = nullptr;
};

}  // namespace shoal::cli
