// Writes of saves in parts on simulated time, and whole jobs whose trainers stage so.
#include "sim/cluster/part_writes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "actors/node/clients/staged_parts.h"
#include "sim/simulation.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kNode = 3;
constexpr actors::ClientId kClient = 7;

class InParts : public ::testing::Test {
 protected:
  void SetUp() override { writes_.client_attached(kNode, kClient); }

  void write(uint64_t bytes, uint32_t file = 0) {
    actors::operation::WriteShard write;
    write.key = {1, 5, 1};
    write.file = file;
    write.data = std::vector<actors::SlabRange>{{kClient, 2, 0, bytes}};
    writes_.begin(
        kNode, write,
        [this](uint64_t stored, std::function<void()> then) {
          stored_.push_back(stored);
          stores_.push_back(std::move(then));
        },
        [this, file](const PartsCopied& copied) { ended_.emplace_back(file, copied); });
  }
  void answer(size_t request, Status outcome = {}) {
    writes_.answered(kNode, kClient, {2, asked_.at(request).number, std::move(outcome)});
  }
  void store(size_t part) { std::exchange(stores_.at(part), nullptr)(); }

  EventHeap events_;
  std::vector<local::PartRequest> asked_;
  std::vector<uint64_t> stored_;
  std::vector<std::function<void()>> stores_;
  std::vector<std::pair<uint32_t, PartsCopied>> ended_;
  std::vector<std::function<void()>> stalled_;
  bool is_stalled_ = false;
  PartWrites writes_{events_, 2 * kMiB,
                     [this](actors::ClientId client, local::PartRequest wanted) {
                       EXPECT_EQ(client, kClient);
                       asked_.push_back(std::move(wanted));
                     },
                     [this](size_t, std::function<void()> act) {
                       is_stalled_ ? stalled_.push_back(std::move(act)) : act();
                     }};
};

TEST_F(InParts, OneHalfIsStoredWhileTheTrainerFillsTheOther) {
  write(3 * kMiB + 5);
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_EQ(asked_[0].ranges.front().slab_offset, 0u);
  EXPECT_EQ(asked_[1].ranges.front().slab_offset, kMiB);
  answer(1);  // not its turn
  EXPECT_THAT(stored_, IsEmpty());
  answer(0);
  EXPECT_THAT(stored_, ElementsAre(kMiB));
  store(0);
  ASSERT_EQ(asked_.size(), 3u) << "the first half is free";
  EXPECT_EQ(asked_[2].ranges.front().from, 2 * kMiB);
  EXPECT_EQ(asked_[2].ranges.front().slab_offset, 0u);
  store(1);
  answer(2), store(2);
  EXPECT_THAT(ended_, IsEmpty());
  answer(3), store(3);
  EXPECT_THAT(stored_, ElementsAre(kMiB, kMiB, kMiB, 5));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].second.why.ok());
  EXPECT_EQ(ended_[0].second.copied, 4u);
}

TEST_F(InParts, ASlabServesOneWriteAtATime) {
  write(8, 0);
  write(8, 1);
  EXPECT_EQ(asked_.size(), 1u);
  answer(0), store(0);
  ASSERT_EQ(ended_.size(), 1u);
  ASSERT_EQ(asked_.size(), 2u);
  answer(1), store(1);
  EXPECT_EQ(ended_.back().first, 1u);
}

TEST_F(InParts, AWriteEndsWithTheConnectionUnlessThePartIsThere) {
  write(2 * kMiB, 0);
  write(8, 1);
  answer(0);
  writes_.client_lost(kNode, kClient);
  ASSERT_EQ(ended_.size(), 1u) << "the one that waits for the slab";
  store(0);
  ASSERT_EQ(ended_.size(), 2u);
  EXPECT_EQ(ended_[1].second.end, PartsCopied::End::gone);
  EXPECT_EQ(ended_[1].second.copied, 1u);
  EXPECT_THAT(ended_[1].second.why.message(), HasSubstr("disconnected while it staged in parts"));
  write(8, 2);
  EXPECT_EQ(ended_.back().second.end, PartsCopied::End::gone);
}

TEST_F(InParts, AWriteEndsWhereTheTrainerRefusesOrIsSilent) {
  write(8, 0);
  answer(0, Status(Code::aborted, "given up"));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].second.why.message(), "given up");
  write(8, 1);
  while (!events_.empty()) events_.run_next();
  ASSERT_EQ(ended_.size(), 2u);
  EXPECT_EQ(ended_[1].second.why.code(), Code::deadline_exceeded);
  EXPECT_EQ(events_.now() / actors::kMillisecond, actors::kPartPatience.count());
}

TEST_F(InParts, ANodeThatIsStalledHearsAnswersLater) {
  write(8);
  is_stalled_ = true;
  answer(0);
  EXPECT_THAT(stored_, IsEmpty());
  is_stalled_ = false;
  stalled_.at(0)();
  EXPECT_THAT(stored_, ElementsAre(8));
}

TEST_F(InParts, AProcessThatEndsRequestsNothingMore) {
  write(8, 0);
  write(8, 1);
  writes_.process_ended(kNode);
  EXPECT_EQ(ended_.size(), 2u);
  EXPECT_EQ(asked_.size(), 1u);
  EXPECT_EQ(ended_[0].second.end, PartsCopied::End::stopped);
}

// --- jobs ---

// Each file of the larger tensors has several parts.
Scenario job_in_parts(SaveMode mode, std::vector<Failure> failures = {}) {
  Scenario scenario;
  scenario.ranks = scenario.ranks_per_host = 2;
  scenario.model = "tiny-blocks";
  scenario.optimizer = Optimizer::none;
  scenario.profile = "nvme";
  scenario.mode = mode;
  scenario.payload = Payload::full;
  scenario.slab_bytes = 1;
  scenario.saves = 3;
  scenario.interval_ms = 5'000;
  scenario.failures = std::move(failures);
  return scenario;
}

Failure failure_of(Failure::Kind kind, uint64_t at_ms, uint64_t host, uint64_t rank, uint64_t for_ms = 0) {
  Failure failure{kind, at_ms};
  failure.host = host;
  failure.rank = rank;
  failure.for_ms = for_ms;
  return failure;
}

TEST(AJobInParts, IsSavedAndLoadedWithTheBytesOfAnyOther) {
  for (SaveMode mode : kModes) {
    Scenario scenario = job_in_parts(mode);
    scenario.loads = 1;
    scenario.load_ranks = 3;
    const SimulationReport report = simulated(scenario);
    EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
    scenario.slab_bytes = 0;
    const SimulationReport whole = simulated(scenario);
    ASSERT_EQ(report.saves.size(), whole.saves.size());
    for (size_t save = 0; save < report.saves.size(); ++save) {
      EXPECT_EQ(report.saves[save].aborted_ranks, 0u) << report.saves[save].cause;
      EXPECT_EQ(report.saves[save].bytes_staged, whole.saves[save].bytes_staged);
      EXPECT_GE(report.saves[save].blocked.greatest, report.saves[save].written.greatest)
          << "save waits for the node";
      EXPECT_LT(whole.saves[save].blocked.greatest, whole.saves[save].written.greatest);
    }
  }
}

// A rank stages its first save whole, and later only its part, which fits.
TEST(AJobInParts, StagesWholeWhatFitsIntoASlab) {
  Scenario scenario = job_in_parts(SaveMode::collective);
  scenario.slab_bytes = 16 * kMiB;
  const SimulationReport report = simulated(scenario);
  EXPECT_LT(report.saves.back().blocked.greatest, report.saves.back().written.greatest);
}

TEST(AJobInParts, IsSavedThoughItsNodeStartsAgainInBetween) {
  for (SaveMode mode : kModes) {
    Scenario scenario = job_in_parts(mode);
    const actors::TimeNs began = simulated(scenario).saves[1].began;
    for (uint64_t later_us = 1; later_us < 6'000; later_us += 800) {
      Failure restart = failure_of(Failure::Kind::restarts, 0, 0, 0, 100);
      restart.at_ns = static_cast<uint64_t>(began) + later_us * 1'000;
      scenario.failures = {restart};
      const SimulationReport report = simulated(scenario);
      EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
      for (const SaveReport& save : report.saves) EXPECT_EQ(save.aborted_ranks, 0u) << save.cause;
    }
  }
}

TEST(AJobInParts, LosesASaveWhoseTrainerEndsBeforeItHasCopiedAll) {
  for (SaveMode mode : kModes) {
    Scenario scenario = job_in_parts(mode);
    scenario.ranks_per_host = 1;
    const actors::TimeNs began = simulated(scenario).saves[1].began;
    bool was_in_parts = false;
    for (uint64_t later_us = 1; later_us < 6'000; later_us += 400) {
      Failure end = failure_of(Failure::Kind::ends, 0, 0, 1);
      end.at_ns = static_cast<uint64_t>(began) + later_us * 1'000;
      scenario.failures = {end};
      const SimulationReport report = simulated(scenario);
      EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
      was_in_parts =
          was_in_parts || report.saves[1].cause.find("while it staged in parts") != std::string::npos;
    }
    EXPECT_TRUE(was_in_parts);
  }
}

// --- saves in flight ---

TEST(AJobWithSeveralSlabs, KeepsAsManySavesInFlight) {
  for (uint32_t most : {1u, 2u, 4u}) {
    Scenario scenario = job_in_parts(SaveMode::collective_free);
    scenario.slab_bytes = 0;
    scenario.max_in_flight = most;
    scenario.saves = 8;
    scenario.interval_ms = 0;
    const SimulationReport report = simulated(scenario);
    EXPECT_FALSE(report.violation.has_value()) << report.violation->what;
    size_t in_flight = 0;
    for (const SaveReport& save : report.saves) {
      EXPECT_EQ(save.aborted_ranks, 0u) << save.cause;
      const auto until = [](const SaveReport& of) { return of.began + of.written.least; };
      const auto together =
          static_cast<size_t>(std::ranges::count_if(report.saves, [&](const SaveReport& other) {
            return other.began <= save.began && until(other) > save.began;
          }));
      in_flight = std::max(in_flight, together);
    }
    EXPECT_EQ(in_flight, most == 1 ? 2 : most + 1) << "one of them waits for a slab";
  }
}

}  // namespace
}  // namespace shoal::sim
