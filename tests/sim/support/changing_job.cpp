#include "tests/sim/support/changing_job.h"

#include <algorithm>
#include <utility>

namespace shoal::sim {
namespace {

constexpr const char* kLazy = "lazy.rank";

std::string lazy_name(Rank rank) {
  return kLazy + std::to_string(rank);
}

}  // namespace

LayoutPtr layout_of(Rank rank, const Holding& holding) {
  const Mesh all = Mesh::contiguous({ChangingJob::kRanks});
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {42, 10}, all, {Placement::shard(0)});
  builder.add_tensor("n", DType::f32, {50}, all, {Placement::replicate()});
  builder.add_rank_objects("rng");
  if (holding.momentum) builder.add_tensor("w.momentum", DType::f32, {42, 10}, all, {Placement::shard(1)});
  if (holding.lazy) builder.add_value(lazy_name(rank), DType::f32, {5}, Mesh::single(rank));
  if (holding.shared) builder.add_value("shared", DType::f32, {9}, all, true);
  return std::move(builder).build().value();
}

actors::NodeConfig ChangingJob::facts(uint32_t generation) const {
  actors::NodeConfig facts;
  facts.generation = generation;
  facts.epoch = 1;
  facts.job_id = std::string("job-") + std::to_string(generation);
  facts.timeouts.attempt_deadline_ms = 60'000;
  facts.timeouts.node_deadline_ms = 90'000;
  return facts;
}

ChangingJob::ChangingJob(const std::array<Holding, kRanks>& holdings, uint32_t declaring)
    : holding_(holdings) {
  start_coordinator();
  for (uint32_t of_host : {0u, 1u}) nodes_[of_host] = add_node(of_host);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    trainers_[rank] = std::make_unique<VirtualTrainer>(host, nodes_[rank / 2], rank, kRanks,
                                                       layout_of(rank, holding_[rank]));
    has_declared_[rank] = rank < declaring;
    if (has_declared_[rank]) trainers_[rank]->declare();
  }
  run_for(kPatience);
}

void ChangingJob::start_coordinator() {
  actors::NodeConfig here = facts(1);
  here.host = "coordinator";
  coordinator_ = host.add_node(here, true);
}

size_t ChangingJob::add_node(uint32_t of_host) {
  actors::NodeConfig here = facts(1);
  here.host = std::string("host") + std::to_string(of_host);
  here.expected_ranks = {2 * of_host, 2 * of_host + 1};
  return host.add_node(here, false);
}

void ChangingJob::kill_node_of(Rank rank) {
  const uint32_t of_host = rank / 2;
  for (auto& trainer : trainers_) trainer->listen();
  host.kill_node(nodes_[of_host]);
  nodes_[of_host] = add_node(of_host);
  for (Rank each : {2 * of_host, 2 * of_host + 1}) {
    trainers_[each]->trainers_return(nodes_[of_host], kRanks);
    host.run_for(kBetweenReturnsNs);
  }
}

void ChangingJob::save(Rank rank, uint64_t step, const Holding& holding) {
  VirtualTrainer& trainer = *trainers_[rank];
  trainer.listen();
  if (!std::exchange(has_declared_[rank], true)) trainer.declare();
  if (!(holding_[rank] == holding)) trainer.change(layout_of(rank, holding));
  holding_[rank] = saved_[step][rank] = holding;
  trainer.save(step);
}

void ChangingJob::save_all(uint64_t step, const Holding& holding) {
  for (Rank rank = 0; rank < kRanks; ++rank) save(rank, step, holding);
}

void ChangingJob::save_all(uint64_t step, const std::array<Holding, kRanks>& holdings) {
  for (Rank rank = 0; rank < kRanks; ++rank) save(rank, step, holdings[rank]);
}

void ChangingJob::run_for(actors::TimeNs duration) {
  constexpr actors::TimeNs kStep = 50 * actors::kMillisecond;
  for (actors::TimeNs passed = 0; passed < duration; passed += kStep) {
    host.run_for(std::min(kStep, duration - passed));
    for (auto& trainer : trainers_) trainer->listen();
  }
}

Code ChangingJob::outcome(uint64_t step) const {
  std::optional<Code> all;
  for (const auto& trainer : trainers_) {
    auto decided = trainer->decided().find({step, 1});
    if (decided == trainer->decided().end()) return Code::unavailable;
    const Code code = decided->second.outcome.code();
    EXPECT_TRUE(!all || *all == code) << "ranks heard different outcomes of step " << step;
    all = code;
  }
  return *all;
}

std::string ChangingJob::cause(uint64_t step) const {
  auto decided = trainers_[0]->decided().find({step, 1});
  return decided == trainers_[0]->decided().end() ? "undecided" : decided->second.outcome.to_string();
}

void ChangingJob::expect_loadable(uint64_t step) {
  constexpr uint32_t kReaders = 3;
  const Mesh all = Mesh::contiguous({kReaders});
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {42, 10}, all, {Placement::shard(1)});
  builder.add_tensor("n", DType::f32, {50}, all, {Placement::replicate()});
  builder.add_object(rank_fqn("rng", 2), all, true);
  const std::array<Holding, kRanks>& saved = saved_.at(step);
  size_t keys = 2 + kRanks;
  auto any = [&](auto member) {
    return std::any_of(saved.begin(), saved.end(), [&](const Holding& each) { return each.*member; });
  };
  if (any(&Holding::momentum)) {
    ++keys;
    builder.add_tensor("w.momentum", DType::f32, {42, 10}, all, {Placement::shard(0)});
  }
  if (any(&Holding::shared)) {
    ++keys;
    builder.add_value("shared", DType::f32, {9}, all, true);
  }
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (!saved[rank].lazy) continue;
    ++keys;
    builder.add_value(lazy_name(rank), DType::f32, {5}, all, true);
  }
  const std::vector<LayoutPtr> wanted(kReaders, std::move(builder).build().value());
  VirtualJob next = VirtualJob::start(host, facts(++generation_), 1, kReaders, wanted);
  for (auto& trainer : next.trainers) trainer->load(step);
  next.run(kPatience);
  for (auto& trainer : next.trainers) {
    ASSERT_TRUE(trainer->load_done().has_value()) << step;
    EXPECT_EQ(trainer->load_done()->outcome, ok_status()) << step;
    EXPECT_EQ(trainer->found()->checkpoint.state_dict_metadata.size(), keys) << step;
    EXPECT_EQ(trainer->check_loaded(step), "") << step;
  }
}

size_t ChangingJob::later_rosters() {
  const auto listed = host.storage().list("generations");
  return static_cast<size_t>(std::count_if(
      listed->begin(), listed->end(),
      [](const storage::ObjectInfo& object) { return object.name.rfind("1.roster-", 0) == 0; }));
}

}  // namespace shoal::sim
