// HardJob: jobs whose saves fail with a planner that trusts one rank's layout for all ranks. Ranks hold
// different keys, copies may differ, and layouts change while the job runs.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/sim/support/virtual_trainer.h"

namespace shoal::sim {

struct HardJob {
  std::string name;  // as a test's
  uint32_t ranks = 8, nodes = 2;
  std::vector<uint64_t> steps;  // that are saved, in this order
  // What a rank holds at the n-th of them.
  std::function<LayoutPtr(Rank rank, size_t save)> layout;
  // Which bytes it has of values that ranks differ in.
  std::function<Copies(Rank rank)> copies = [](Rank) { return Copies{}; };
  // Its first node is replaced before the third of them, its second before the second, with all trainers.
  bool nodes_are_replaced = false;
};
inline void PrintTo(const HardJob& job, std::ostream* out) {
  *out << job.name;
}

std::vector<HardJob> hard_jobs();

}  // namespace shoal::sim
