// Random layout changes: ranks change at different times or not at all, run ahead, and lose their node or the
// coordinator. Every save is decided, and every committed save is whole.
#include <gtest/gtest.h>

#include <random>

#include "sim/lifetime/failure_times.h"
#include "tests/sim/support/changing_job.h"

namespace shoal::sim {
namespace {

using Holdings = std::array<Holding, ChangingJob::kRanks>;

struct Seed {
  explicit Seed(uint64_t seed) : random(seed) {}
  bool one_in(uint64_t n) { return random() % n == 0; }
  std::mt19937_64 random;
};

// Each rank calls save for all steps in order, at its own random times.
void save_in_any_order(ChangingJob& job, Seed& seed, uint64_t first, const std::vector<Holdings>& steps) {
  std::array<size_t, ChangingJob::kRanks> done{};
  const actors::TimeNs pause = (seed.one_in(2) ? 50 : 3'000) * actors::kMillisecond;
  for (size_t left = steps.size() * done.size(); left != 0;) {
    const Rank rank = static_cast<Rank>(seed.random() % done.size());
    if (done[rank] == steps.size()) continue;
    job.save(rank, first + done[rank], steps[done[rank]][rank]);
    ++done[rank];
    --left;
    if (seed.one_in(2))
      job.run_for(static_cast<actors::TimeNs>(seed.random() % static_cast<uint64_t>(pause)));
  }
}

// No assignment depends on what another rank gains or loses: nothing at all may be lost.
TEST(JobsWhoseRanksChangeOnTheirOwn, CommitEverySave) {
  for (uint64_t number = 1; number <= 15; ++number) {
    SCOPED_TRACE("seed " + std::to_string(number));
    Seed seed(number);
    ChangingJob job;
    Holdings now{};
    std::vector<Holdings> steps;
    for (int i = 0; i < 5; ++i) {
      if (seed.one_in(2)) {
        for (Holding& each : now) each.momentum = !each.momentum;
      }
      for (Holding& each : now) {
        if (seed.one_in(4)) each.lazy = !each.lazy;
      }
      steps.push_back(now);
    }
    save_in_any_order(job, seed, 1, steps);
    job.run_for(3 * kSecond);
    for (uint64_t step = 1; step <= steps.size(); ++step) {
      ASSERT_EQ(job.outcome(step), Code::ok) << step << ": " << job.cause(step);
    }
    for (uint64_t step = 1; step <= steps.size(); ++step) job.expect_loadable(step);
  }
}

TEST(JobsWhoseReplicasChange, DecideEverySaveAndGoOn) {
  size_t committed = 0;
  for (uint64_t number = 1; number <= 15; ++number) {
    SCOPED_TRACE("seed " + std::to_string(number));
    Seed seed(number);
    ChangingJob job;
    Holdings now{};
    std::vector<Holdings> steps;
    for (int i = 0; i < 4; ++i) {
      for (Holding& each : now) {
        if (seed.one_in(3)) each.shared = !each.shared;
        if (seed.one_in(3)) each.lazy = !each.lazy;
      }
      steps.push_back(now);
    }
    save_in_any_order(job, seed, 1, steps);
    if (seed.one_in(3)) {
      job.kill_coordinator();
      job.run_for(kSecond);
      job.start_coordinator();
    }
    if (seed.one_in(3)) job.kill_node_of(static_cast<Rank>(seed.random() % ChangingJob::kRanks));
    job.run_for(100 * kSecond);
    std::vector<uint64_t> whole = {101};
    for (uint64_t step = 1; step <= steps.size(); ++step) {
      ASSERT_NE(job.outcome(step), Code::unavailable) << step;
      if (job.outcome(step) == Code::ok) whole.push_back(step);
    }
    job.save_all(100, now);  // may still be the one that is lost
    job.run_for(kSecond);
    job.save_all(101, now);
    job.run_for(kSecond);
    ASSERT_EQ(job.outcome(101), Code::ok) << job.cause(101);
    for (uint64_t step : whole) job.expect_loadable(step);
    committed += whole.size();
  }
  EXPECT_GT(committed, 15u * 3);
}

}  // namespace
}  // namespace shoal::sim
