// UnequalJob: jobs whose saves fail with a planner that trusts one rank's layout for all ranks. Ranks hold
// different keys, copies may differ, and layouts change while the job runs.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/sim/support/virtual_trainer.h"

namespace shoal::sim {

struct UnequalJob {
  std::string name;  // name of the job in a test's name
  uint32_t ranks = 8, nodes = 2;
  std::vector<uint64_t> steps;  // the steps that are saved, in this order
  // The values of a rank at the n-th of these steps.
  std::function<LayoutPtr(Rank rank, size_t save)> layout;
  // The bytes that a rank has of values that differ between ranks.
  std::function<Copies(Rank rank)> copies = [](Rank) { return Copies{}; };
  // Its first node is replaced before the third step, and its second node with all trainers before the second
  // step.
  bool nodes_are_replaced = false;
};
inline void PrintTo(const UnequalJob& job, std::ostream* out) {
  *out << job.name;
}

std::vector<UnequalJob> unequal_jobs();

}  // namespace shoal::sim
