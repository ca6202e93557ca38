// SixteenRanks: shared by the tests of single modes. A job of two pipeline stages of FSDP x TP on four hosts
// saves in one mode, and five ranks of another job load the result.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/sim/support/virtual_trainer.h"

namespace shoal::sim {

// The default options of a mode.
SaveOptions in_mode(SaveMode mode);
SaveOptions in_small_units(SaveMode mode);  // of 1 KiB, so that ranks share the writing of small tensors

class SixteenRanks : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 16;
  static constexpr uint32_t kHosts = 4;
  static constexpr uint32_t kRanksAHost = kRanks / kHosts;
  static constexpr actors::TimeNs kPatience = 1000 * actors::kMillisecond;

  explicit SixteenRanks(SaveMode mode, NodeEngineFactory engines = make_direct_engine,
                        VirtualDelays delays = {});

  void save_all(uint64_t step);
  void expect_committed(uint64_t step);
  void expect_aborted(uint64_t step, const std::vector<Rank>& ranks, const std::string& cause);
  void kill_all();  // kills all nodes
  // Five ranks of another job load `wanted`, or the latest, over a flat mesh, and check that it is `step`.
  void expect_loads(std::optional<uint64_t> wanted, uint64_t step);
  // A new node replaces the killed node of this host, and its trainers connect to it.
  void replace_node(uint32_t host, bool coordinates);

  VirtualHost host_;
  VirtualJob job_;

 private:
  size_t nodes_ = kHosts;
};

}  // namespace shoal::sim
