// The cases that break a planner which trusts one rank's layout for all ranks, in each mode. Every save
// commits, has exactly the values that some rank holds, and loads bit for bit on other ranks. A value whose
// copies differ comes from one rank, or one mesh, as a whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "storage/root/run_root.h"
#include "tests/sim/simulated.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/sixteen_ranks.h"
#include "tests/sim/support/unequal_jobs.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

// The expected contents of a save, from the values of each rank.
struct Value {
  LayoutEntry::Kind kind = LayoutEntry::Kind::tensor;
  DType dtype = DType::u8;
  Dims shape;
  std::set<std::string> copies;  // whose bytes it may have
};
using Values = std::map<std::string, Value>;

class AJobInAMode {
 public:
  AJobInAMode(const UnequalJob& job, SaveMode mode) : of_(job), mode_(mode) {
    std::vector<LayoutPtr> layouts;
    for (Rank rank = 0; rank < of_.ranks; ++rank) layouts.push_back(of_.layout(rank, 0));
    job_.emplace(VirtualJob::start(host_, facts_of(1), of_.nodes, of_.ranks, layouts));
    held_ = layouts;
    nodes_ = of_.nodes;
    options_ = in_mode(mode);
    options_.unit_bytes = 1024;
    for (Rank rank = 0; rank < of_.ranks; ++rank) {
      job_->trainers[rank]->hold(of_.copies(rank));
      job_->trainers[rank]->declare(options_);
    }
    job_->run(kPatience);
  }

  // All ranks save what they hold at the n-th save. `waits`: until it is decided.
  void save(size_t n, uint64_t step, bool waits = true) {
    if (of_.nodes_are_replaced && (n == 1 || n == 2)) replace_node(n == 1 ? 1 : 0, n);
    for (Rank rank = 0; rank < of_.ranks; ++rank) {
      VirtualTrainer& trainer = *job_->trainers[rank];
      trainer.listen();
      hold(rank, n);
      trainer.save(step);
    }
    if (waits) {
      host_.run_for(10'000 * actors::kMillisecond);
      job_->run(kPatience);
    }
    Values& values = saved_[step];
    for (Rank rank = 0; rank < of_.ranks; ++rank) {
      const Copies copies = of_.copies(rank);
      for (const LayoutEntry& entry : held_[rank]->entries()) {
        if (!is_per_rank(entry) && !held_[rank]->holds(entry, rank)) continue;
        const std::string fqn = value_fqn(entry, rank);
        Value& value = values[fqn];
        value.kind = entry.kind, value.dtype = entry.dtype, value.shape = entry.shape;
        value.copies.insert(copies.contains(fqn) ? copies.at(fqn) : fqn);
      }
    }
  }

  // The outcome that all ranks received for a save.
  Status outcome(uint64_t step) const {
    Status all(Code::unavailable, "nothing was heard");
    for (Rank rank = 0; rank < of_.ranks; ++rank) {
      const auto& decided = job_->trainers[rank]->decided();
      auto found = decided.find({step, 1});
      if (found == decided.end())
        return Status(Code::unavailable, "rank " + std::to_string(rank) + " heard nothing");
      EXPECT_TRUE(rank == 0 || found->second.outcome == all) << "rank " << rank << " heard otherwise";
      all = found->second.outcome;
    }
    return all;
  }

  void expect_keys(uint64_t step) const {
    const Metadata& metadata = *job_->trainers[0]->decided().at({step, 1}).checkpoint;
    const Values& values = saved_.at(step);
    uint64_t bytes = 0;
    ASSERT_EQ(metadata.state_dict_metadata.size(), values.size());
    for (const TensorMetadata& found : metadata.state_dict_metadata) {
      ASSERT_TRUE(values.contains(found.fqn)) << found.fqn;
      const Value& value = values.at(found.fqn);
      EXPECT_EQ(found.kind, value.kind) << found.fqn;
      EXPECT_EQ(found.dtype, value.dtype) << found.fqn;
      EXPECT_EQ(found.shape, value.shape) << found.fqn;
      bytes += value.kind == LayoutEntry::Kind::object
                   ? object_value(*value.copies.begin(), step).size()
                   : *element_count(value.shape) * *dtype_bytes(value.dtype);
    }
    // Each byte once, unless ranks know of no other rank.
    if (mode_ == SaveMode::rank_local) {
      EXPECT_GE(metadata.payload_bytes, bytes);
    } else {
      EXPECT_EQ(metadata.payload_bytes, bytes);
    }
  }

  // Loads on the ranks of another job. It takes the root over, so call this after the last save.
  void expect_loads(uint64_t step, uint32_t readers, Placement placement) {
    for (; first_alive_ < nodes_; ++first_alive_) host_.kill_node(first_alive_);
    const Metadata& metadata = *job_->trainers[0]->decided().at({step, 1}).checkpoint;
    VirtualJob next = VirtualJob::start(host_, facts_of(++generation_), 1, readers,
                                        flat_job_of(metadata.state_dict_metadata, readers, placement));
    ++nodes_;
    for (auto& trainer : next.trainers) trainer->load(step);
    host_.run_for(5'000 * actors::kMillisecond);
    next.run(kPatience);
    for (auto& trainer : next.trainers) {
      ASSERT_TRUE(trainer->load_done().has_value());
      ASSERT_TRUE(trainer->load_done()->outcome.ok()) << trainer->load_done()->outcome.to_string();
    }
    Copies found;
    for (const auto& [name, value] : saved_.at(step)) {
      const std::string& fqn = name;  // C++20: a lambda of clang 14 captures no structured binding
      const auto copy = std::find_if(value.copies.begin(), value.copies.end(), [&](const std::string& each) {
        return std::all_of(next.trainers.begin(), next.trainers.end(), [&](const auto& trainer) {
          return trainer->check_value(fqn, step, {{fqn, each}}).empty();
        });
      });
      ASSERT_NE(copy, value.copies.end()) << fqn << " is not what any of those who differ has";
      found[fqn] = *copy;
    }
    for (auto& trainer : next.trainers) EXPECT_EQ(trainer->check_loaded(step, found), "");
  }

  // Another process comes in the place of a rank's, to the node where that was.
  void start_trainer_again(Rank rank, size_t n) {
    job_->trainers[rank]->listen();
    job_->trainers[rank]->end();
    held_[rank] = of_.layout(rank, n);
    const size_t node = rank / (of_.ranks / of_.nodes);
    job_->trainers[rank] = std::make_unique<VirtualTrainer>(host_, node, rank, of_.ranks, held_[rank]);
    job_->trainers[rank]->declare(options_);
  }

  uint64_t outcome_bytes(uint64_t step) const {
    return job_->trainers[0]->decided().at({step, 1}).checkpoint->payload_bytes;
  }
  LayoutPtr held(Rank rank) const { return held_[rank]; }
  VirtualTrainer& trainer(Rank rank) { return *job_->trainers[rank]; }
  size_t later_rosters() {
    const auto listed = host_.storage().list("generations");
    if (!listed.ok()) return 0;  // the folder does not exist
    return static_cast<size_t>(std::count_if(
        listed->begin(), listed->end(),
        [](const storage::ObjectInfo& object) { return object.name.rfind("1.roster-", 0) == 0; }));
  }

 private:
  void hold(Rank rank, size_t n) {
    LayoutPtr layout = of_.layout(rank, n);
    if (layout->id() == held_[rank]->id()) return;
    held_[rank] = layout;
    job_->trainers[rank]->change(layout);
  }
  // Its trainers connect to the next node with their values of the n-th save.
  void replace_node(uint32_t host, size_t n) {
    for (auto& trainer : job_->trainers) trainer->listen();
    host_.kill_node(host);
    actors::NodeConfig config = facts_of(1);
    config.host = "host" + std::to_string(host);
    const uint32_t ranks_a_host = of_.ranks / of_.nodes;
    for (Rank rank = host * ranks_a_host; rank < (host + 1) * ranks_a_host; ++rank) {
      config.expected_ranks.push_back(rank);
    }
    const size_t node = host_.add_node(config, host == 0);
    nodes_ = node + 1;
    for (Rank rank : config.expected_ranks) {
      hold(rank, n);
      job_->trainers[rank]->trainers_return(node, of_.ranks);
      host_.run_for(kBetweenReturnsNs);
    }
  }

  const UnequalJob of_;
  const SaveMode mode_;
  SaveOptions options_;
  VirtualHost host_;
  std::optional<VirtualJob> job_;
  std::vector<LayoutPtr> held_;  // by rank
  std::map<uint64_t, Values> saved_;
  size_t nodes_ = 0, first_alive_ = 0;
  uint32_t generation_ = 1;
};

std::string name_in_mode(const std::string& name, SaveMode mode) {
  return name + (mode == SaveMode::collective   ? "Collective"
                 : mode == SaveMode::rank_local ? "RankLocal"
                                                : "CollectiveFree");
}

class UnequalRanks : public ::testing::TestWithParam<std::tuple<UnequalJob, SaveMode>> {};

INSTANTIATE_TEST_SUITE_P(Of, UnequalRanks,
                         ::testing::Combine(::testing::ValuesIn(unequal_jobs()), ::testing::ValuesIn(kModes)),
                         [](const auto& test) {
                           return name_in_mode(std::get<0>(test.param).name + "In", std::get<1>(test.param));
                         });

TEST_P(UnequalRanks, AreSavedAndLoadedOnOtherRanksBitForBit) {
  const auto& [of, mode] = GetParam();
  AJobInAMode job(of, mode);
  for (size_t n = 0; n < of.steps.size(); ++n) {
    SCOPED_TRACE("step " + std::to_string(of.steps[n]));
    job.save(n, of.steps[n]);
    ASSERT_TRUE(job.outcome(of.steps[n]).ok()) << job.outcome(of.steps[n]).to_string();
    job.expect_keys(of.steps[n]);
  }
  for (uint64_t step : of.steps) {
    SCOPED_TRACE("step " + std::to_string(step));
    job.expect_loads(step, 3, Placement::shard(0));
    job.expect_loads(step, 2, Placement::replicate());
  }
}

class InEachMode : public ::testing::TestWithParam<SaveMode> {};
INSTANTIATE_TEST_SUITE_P(Mode, InEachMode, ::testing::ValuesIn(kModes),
                         [](const auto& test) { return name_in_mode("", test.param); });

TEST_P(InEachMode, AStateOfAnotherLengthAtEachStepKeepsLayoutRosterAndPlan) {
  const std::vector<UnequalJob> jobs = unequal_jobs();
  const UnequalJob& of = *std::find_if(jobs.begin(), jobs.end(), [](const UnequalJob& job) {
    return job.name == "ALoaderStateWhoseLengthChanges";
  });
  AJobInAMode job(of, GetParam());
  const LayoutId first = job.held(0)->id();
  std::set<size_t> lengths;
  for (size_t n = 0; n < of.steps.size(); ++n) {
    job.save(n, of.steps[n]);
    ASSERT_TRUE(job.outcome(of.steps[n]).ok()) << job.outcome(of.steps[n]).to_string();
    lengths.insert(job.outcome_bytes(of.steps[n]));
    for (Rank rank = 0; rank < of.ranks; ++rank) EXPECT_EQ(job.held(rank)->id(), first);
  }
  EXPECT_EQ(lengths.size(), of.steps.size()) << "the checkpoints' sizes tell";
  EXPECT_EQ(job.later_rosters(), 0u);
  if (GetParam() != SaveMode::collective) return;
  for (Rank rank = 0; rank < of.ranks; ++rank) EXPECT_EQ(job.trainer(rank).plans_sent(), 1u);
}

// The assignment of each replica changes as soon as one more rank has the value. In mode collective-free a
// rank that does not know this writes its old assignment. That save is aborted with a cause that names the
// value, and the next one commits.
TEST_P(InEachMode, OptimizerStateOfSomeReplicasOnlyCommitsOrNamesTheAssignmentThatChanged) {
  UnequalJob of;
  of.ranks = 4;
  of.layout = [](Rank rank, size_t save) {
    static constexpr size_t kSince[] = {5, 3, 1, 5};  // the save at which a rank makes its state
    const Mesh all = Mesh::contiguous({4});
    LayoutBuilder builder;
    builder.add_tensor("weight", DType::f32, {900}, all, {Placement::replicate()});
    if (save >= kSince[rank]) {
      builder.add_tensor("weight.exp_avg", DType::f32, {900}, all, {Placement::replicate()});
      builder.add_value("weight.step", DType::i64, {}, std::nullopt, true);
    }
    return std::move(builder).build().value();
  };
  AJobInAMode job(of, GetParam());
  std::vector<uint64_t> committed;
  size_t aborted = 0;
  for (size_t n = 0; n < 7; ++n) {
    job.save(n, n + 1);
    const Status outcome = job.outcome(n + 1);
    if (outcome.ok()) {
      job.expect_keys(n + 1);
      committed.push_back(n + 1);
      continue;
    }
    ++aborted;
    EXPECT_EQ(outcome.code(), Code::aborted);
    EXPECT_THAT(outcome.message(), HasSubstr("which assigns it other pieces"));
    EXPECT_TRUE(n == 3 || n == 5) << "nobody's layout changed: " << outcome.to_string();
  }
  EXPECT_EQ(aborted > 0, GetParam() == SaveMode::collective_free);
  for (uint64_t step : committed) job.expect_loads(step, 3, Placement::shard(0));
}

// Not only its layout is another: it is another process, attached where the first one was.
TEST_P(InEachMode, ATrainerThatIsStartedAgainWithAnotherLayoutTakesPartInTheNextSave) {
  UnequalJob of;
  of.ranks = 4;
  of.layout = [](Rank rank, size_t save) {
    LayoutBuilder builder;
    builder.add_tensor("weight", DType::f32, {50, 6}, Mesh::contiguous({4}), {Placement::shard(0)});
    if (rank == 1 && save > 0) builder.add_value("adapter", DType::f32, {700}, Mesh::single(1));
    return std::move(builder).build().value();
  };
  AJobInAMode job(of, GetParam());
  for (size_t n = 0; n < 3; ++n) {
    if (n == 1) job.start_trainer_again(1, n);
    job.save(n, n + 1);
    ASSERT_TRUE(job.outcome(n + 1).ok()) << job.outcome(n + 1).to_string();
    job.expect_keys(n + 1);
  }
  for (uint64_t step = 1; step <= 3; ++step) job.expect_loads(step, 3, Placement::shard(0));
}

// No mode can save two values under one name. All ranks receive the name before the deadline.
TEST_P(InEachMode, ANameOfTwoShapesIsRefusedByName) {
  UnequalJob of;
  of.ranks = 4;
  of.layout = [](Rank rank, size_t save) {
    LayoutBuilder builder;
    const uint64_t rows = save > 0 && rank >= 2 ? 20 : 10;
    builder.add_tensor("bias", DType::f32, {rows}, Mesh::contiguous({2}, rank / 2 * 2),
                       {Placement::shard(0)});
    return std::move(builder).build().value();
  };
  AJobInAMode job(of, GetParam());
  job.save(0, 1);
  ASSERT_TRUE(job.outcome(1).ok()) << job.outcome(1).to_string();
  job.save(1, 2);
  EXPECT_EQ(job.outcome(2).code(), Code::aborted);
  EXPECT_THAT(job.outcome(2).message(), HasSubstr("'bias' has different shapes on different ranks: "));
}

// --- drawn at random ---

// What a rank holds without some of its values, each of which is left out one time in `of`.
LayoutPtr part_of(std::mt19937_64& random, const Layout& layout, uint64_t of) {
  std::vector<LayoutEntry> kept;
  for (const LayoutEntry& entry : layout.entries()) {
    if (random() % of != 0) kept.push_back(entry);
  }
  return make_layout(layout.meshes(), kept).value();
}

// Ranks differ in all that nothing proves equal: of a group that does not declare it, and of two meshes.
Copies drawn_copies(const Layout& layout, Rank rank) {
  Copies copies;
  for (const LayoutEntry& entry : layout.entries()) {
    const auto mesh = mesh_of(entry);
    if (std::holds_alternative<GroupSharding>(entry.sharding) && !entry.replicated) {
      copies[entry.fqn] = entry.fqn + " of rank " + std::to_string(rank);
    } else if (entry.fqn.rfind("shared.", 0) == 0 && mesh) {
      copies[entry.fqn] = entry.fqn + " of the mesh from " + std::to_string(layout.meshes()[*mesh].base());
    }
  }
  return copies;
}

World world_of(const std::vector<LayoutPtr>& layouts, uint32_t nodes) {
  std::vector<LayoutId> ids;
  std::vector<uint32_t> hosts;
  std::map<LayoutId, LayoutPtr> by_id;
  for (size_t rank = 0; rank < layouts.size(); ++rank) {
    ids.push_back(layouts[rank]->id());
    hosts.push_back(static_cast<uint32_t>(rank / (layouts.size() / nodes)));
    by_id[ids.back()] = layouts[rank];
  }
  World world;
  world.roster = Roster::make(ids, hosts).value();
  for (const LayoutId& id : world.roster.layout_ids()) world.layouts.push_back(by_id.at(id));
  return world;
}

// Values are added and removed on some ranks or on all. If all ranks together lack a part of a value, the
// abort names it, in each mode. Everything else commits, at the first or the second save with the same
// layouts.
TEST_P(InEachMode, WhateverRanksHoldIsCommittedOrNamed) {
  constexpr size_t kJobs = 16, kSaves = 12;
  size_t committed = 0, uncovered = 0, other_assignment = 0;
  for (size_t seed = 0; seed < kJobs; ++seed) {
    std::mt19937_64 random(seed);
    const bool overlaps = seed % 2 == 1;
    UnequalJob of;
    of.nodes = static_cast<uint32_t>(1 + random() % 2);
    of.ranks = of.nodes * static_cast<uint32_t>(1 + random() % 4);
    const std::vector<LayoutPtr> whole_job = drawn_job(random, of.ranks);
    std::vector<std::vector<LayoutPtr>> held;  // by save, then by rank
    for (size_t n = 0; n < kSaves; ++n) {
      held.push_back(n % 3 == 0 ? whole_job : held.back());
      const uint64_t rarity = 3 + random() % 60;
      if (n == 0 || n % 3 != 0) continue;
      for (LayoutPtr& layout : held.back()) layout = part_of(random, *layout, rarity);
    }
    of.layout = [&](Rank rank, size_t n) { return held[n][rank]; };
    of.copies = [&](Rank rank) { return drawn_copies(*whole_job[rank], rank); };
    AJobInAMode job(of, GetParam());
    for (size_t n = 0; n < kSaves; ++n) job.save(n, n + 1, n % 3 != 0 || !overlaps);
    std::vector<uint64_t> loadable;
    for (size_t n = 0; n < kSaves; ++n) {
      const uint64_t step = n + 1;
      SCOPED_TRACE("job " + std::to_string(seed) + ", step " + std::to_string(step));
      const Status outcome = job.outcome(step);
      const Status covered = check_coverage(world_of(held[n], of.nodes), {});
      if (outcome.ok()) {
        EXPECT_TRUE(covered.ok()) << covered.to_string();
        job.expect_keys(step);
        loadable.push_back(step);
      } else if (covered.ok()) {
        EXPECT_THAT(outcome.message(), HasSubstr("which assigns it other pieces"));
        EXPECT_EQ(GetParam(), SaveMode::collective_free);
        EXPECT_TRUE(n % 3 == 0 || (n % 3 == 1 && overlaps));
        ++other_assignment;
      } else {
        EXPECT_EQ(outcome.code(), Code::aborted);
        EXPECT_THAT(outcome.message(), HasSubstr(covered.message()));
        ++uncovered;
      }
      if (HasFailure()) return;
    }
    committed += loadable.size();
    for (uint64_t step : loadable) {
      SCOPED_TRACE("job " + std::to_string(seed) + ", step " + std::to_string(step));
      job.expect_loads(step, 3, Placement::shard(0));
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(committed, 50u);
  EXPECT_GT(uncovered, 10u);
  EXPECT_EQ(other_assignment > 0, GetParam() == SaveMode::collective_free);
}

}  // namespace
}  // namespace shoal::sim
