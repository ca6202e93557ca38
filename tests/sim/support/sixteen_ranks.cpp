#include "tests/sim/support/sixteen_ranks.h"

#include <gmock/gmock.h>

#include "tests/sim/support/job_layouts.h"

namespace shoal::sim {

using ::testing::HasSubstr;

SaveOptions in_mode(SaveMode mode) {
  SaveOptions options;
  options.mode = mode;
  if (mode == SaveMode::rank_local) options.dedupe = Dedupe::none;
  return options;
}

SaveOptions in_small_units(SaveMode mode) {
  SaveOptions options = in_mode(mode);
  options.unit_bytes = 1024;
  return options;
}

SixteenRanks::SixteenRanks(SaveMode mode, NodeEngineFactory engines, VirtualDelays delays)
    : host_(delays, std::move(engines)),
      job_(VirtualJob::start(host_, facts_of(1), kHosts, kRanks, pipeline_job(kRanks, 2, 2))) {
  for (auto& trainer : job_.trainers) trainer->declare(in_mode(mode));
}

void SixteenRanks::save_all(uint64_t step) {
  for (auto& trainer : job_.trainers) trainer->save(step);
}

void SixteenRanks::expect_committed(uint64_t step) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    const auto& decided = job_.trainers[rank]->decided();
    auto found = decided.find({step, 1});
    ASSERT_NE(found, decided.end()) << "rank " << rank << " was told nothing about step " << step;
    EXPECT_TRUE(found->second.outcome.ok()) << found->second.outcome.to_string();
    EXPECT_EQ(found->second.checkpoint->world_size, kRanks);
  }
}

void SixteenRanks::expect_aborted(uint64_t step, const std::vector<Rank>& ranks, const std::string& cause) {
  for (Rank rank : ranks) {
    const auto& decided = job_.trainers[rank]->decided();
    auto found = decided.find({step, 1});
    ASSERT_NE(found, decided.end()) << "rank " << rank << " was told nothing about step " << step;
    EXPECT_EQ(found->second.outcome.code(), Code::aborted);
    EXPECT_THAT(found->second.outcome.message(), HasSubstr(cause));
  }
}

void SixteenRanks::kill_all() {
  for (size_t node = 0; node < nodes_; ++node) host_.kill_node(node);
}

void SixteenRanks::expect_loads(std::optional<uint64_t> wanted, uint64_t step) {
  kill_all();
  VirtualJob next = VirtualJob::start(host_, facts_of(2), 2, 5, flat_job(5, kRanks - 1));
  for (auto& trainer : next.trainers) trainer->load(wanted);
  host_.run_for(20'000 * actors::kMillisecond);
  next.run(kPatience);
  for (auto& trainer : next.trainers) {
    ASSERT_TRUE(trainer->found().has_value());
    ASSERT_TRUE(trainer->found()->outcome.ok()) << trainer->found()->outcome.to_string();
    EXPECT_EQ(trainer->found()->checkpoint.key, (AttemptKey{1, step, 1}));
    EXPECT_EQ(trainer->check_loaded(step), "");
  }
}

void SixteenRanks::replace_node(uint32_t host, bool coordinates) {
  actors::NodeConfig facts = facts_of(1);
  facts.host = "host" + std::to_string(host);
  for (Rank rank = host * kRanksAHost; rank < (host + 1) * kRanksAHost; ++rank)
    facts.expected_ranks.push_back(rank);
  const size_t node = host_.add_node(facts, coordinates);
  nodes_ = node + 1;
  for (Rank rank : facts.expected_ranks) {
    job_.trainers[rank]->trainers_return(node, kRanks);
    host_.run_for(kBetweenReturnsNs);
  }
}

}  // namespace shoal::sim
