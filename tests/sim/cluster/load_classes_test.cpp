// Hosts that load alike stand for each other in a counted run, and nothing that the run shows changes.
#include "sim/cluster/load_classes.h"

#include <gtest/gtest.h>

#include "sim/cluster/counted_loads.h"
#include "sim/cluster/counted_trainers.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

constexpr uint32_t kClassRanks = 32, kClassHostRanks = 4;

std::vector<std::vector<Rank>> class_hosts() {
  std::vector<std::vector<Rank>> nodes(kClassRanks / kClassHostRanks);
  for (Rank rank = 0; rank < kClassRanks; ++rank) nodes[rank / kClassHostRanks].push_back(rank);
  return nodes;
}

// `tp` ranks hold the same norms. Rows do not divide evenly over the ranks.
LayoutPtr sharded_layout(uint64_t tp, bool has_object = false) {
  const Mesh mesh = Mesh::contiguous({kClassRanks / tp, tp});
  LayoutBuilder builder;
  for (int layer = 0; layer < 6; ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    builder.add_tensor(name + ".w", DType::f32, {96, 40}, mesh, {Placement::shard(0), Placement::shard(1)});
    builder.add_tensor(name + ".norm", DType::bf16, {kClassRanks * 8}, mesh,
                       {Placement::shard(0), Placement::replicate()});
  }
  builder.add_tensor("embed", DType::f32, {61, 16}, mesh, {Placement::shard(0), Placement::shard(1)});
  if (has_object) builder.add_object("rng", mesh);
  auto layout = std::move(builder).build();
  EXPECT_TRUE(layout.ok()) << layout.status().to_string();
  return *layout;
}

// Two saves, then a start of all ranks that load the last one.
class SavedAndLoaded {
 public:
  SavedAndLoaded(SaveMode mode, const LayoutPtr& saved, const LayoutPtr& loaded, bool has_classes = true)
      : profile_(profile_named("nvme")),
        saving_(events_, profile_, 1, job_of(mode, 1)),
        loading_(later_, profile_, 2, job_of(mode, 2)) {
    save(mode, saved);
    loading_.counted_root().will_be_loaded();
    loading_.counted_root().continue_from(saving_.counted_root());
    job_.layouts = {loaded};
    job_.ranks = kClassRanks;
    job_.ranks_per_host = kClassHostRanks;
    job_.has_classes = has_classes;
  }

  LoadClasses classes() {
    return {loading_.counted_root(), std::vector<LayoutPtr>(kClassRanks, job_.layouts[0]), kClassHostRanks};
  }
  void load() {
    loading_.on_message([this](size_t from, size_t to, const actors::WireMessage& message, uint64_t bytes) {
      transcript.push_back(std::to_string(from) + " -> " + std::to_string(to) + ": " +
                           actors::describe(*message.body) + ", " + std::to_string(bytes));
    });
    CountedLoads loads(later_, loading_, profile_, job_);
    loads.start();
    while (!loads.done() && loads.failure().ok() && !later_.empty()) later_.run_next();
    EXPECT_TRUE(loads.done()) << loads.failure().to_string();
    times = {loads.found(), loads.loaded()};
    const StorageCounts storage = loading_.storage();
    counts = {loads.bytes_wanted(), loads.bytes_passed(), storage.changes,
              storage.looks,        storage.bytes_read,   loading_.trace_hash()};
  }

  std::vector<std::string> transcript;
  std::vector<std::vector<actors::TimeNs>> times;
  std::vector<uint64_t> counts;

 private:
  static VirtualCluster::Job job_of(SaveMode mode, uint32_t generation) {
    return {
        .mode = mode, .ranks_of_node = class_hosts(), .world_size = kClassRanks, .generation = generation};
  }
  void save(SaveMode mode, const LayoutPtr& layout) {
    saving_.counted_root().will_be_loaded();
    CountedTrainers::Job job;
    job.layouts = {layout};
    job.ranks = kClassRanks;
    job.ranks_per_host = kClassHostRanks;
    job.options.mode = mode;
    if (mode == SaveMode::rank_local) job.options.dedupe = Dedupe::none;
    job.saves = 2;
    job.interval_ns = 1000 * actors::kMillisecond;
    CountedTrainers trainers(events_, saving_, profile_, job, [](uint32_t) {});
    trainers.start();
    while (!trainers.done() && trainers.failure().ok() && !events_.empty()) events_.run_next();
    EXPECT_TRUE(trainers.failure().ok()) << trainers.failure().to_string();
  }

  const Profile profile_;
  EventHeap events_, later_;
  VirtualCluster saving_, loading_;
  CountedLoads::Job job_;
};

TEST(HostsThatLoadAlike, ShowWhatTheyShowWithoutClasses) {
  for (SaveMode mode : kModes) {
    for (uint64_t tp : {1u, 2u, 4u, 8u}) {
      SCOPED_TRACE(std::string(mode_name(mode)) + ", tp " + std::to_string(tp));
      const LayoutPtr layout = sharded_layout(tp);
      SavedAndLoaded each(mode, layout, layout, false), alike(mode, layout, layout);
      each.load();
      alike.load();
      EXPECT_EQ(each.transcript, alike.transcript);
      EXPECT_EQ(each.times, alike.times);
      EXPECT_EQ(each.counts, alike.counts);
    }
  }
}

TEST(HostsThatLoadAlike, StandForEachOther) {
  const LayoutPtr layout = sharded_layout(4);
  SavedAndLoaded job(SaveMode::rank_local, layout, layout);
  LoadClasses classes = job.classes();
  uint32_t stand_for_others = 0;
  for (Rank rank = 0; rank < kClassRanks; ++rank) {
    const Rank like = classes.like(rank);
    EXPECT_LE(like, rank);
    EXPECT_EQ(like % kClassHostRanks, rank % kClassHostRanks) << "each has the place that it has on its host";
    EXPECT_EQ(classes.like(like), like);
    if (like != rank) ++stand_for_others;
  }
  EXPECT_GE(stand_for_others, kClassRanks / 2);
}

TEST(HostsThatLoadAlike, AreNotKnownWhereOthersHoldTheSame) {
  const LayoutPtr layout = sharded_layout(8);  // two hosts hold the same norms
  SavedAndLoaded job(SaveMode::collective_free, layout, layout);
  LoadClasses classes = job.classes();
  for (Rank rank = 0; rank < kClassRanks; ++rank) EXPECT_EQ(classes.like(rank), rank);
}

TEST(HostsThatLoadAlike, AreNotKnownWhereRanksLoadWhatOthersHaveSaved) {
  SavedAndLoaded job(SaveMode::collective_free, sharded_layout(4), sharded_layout(2));
  LoadClasses classes = job.classes();
  for (Rank rank = 0; rank < kClassRanks; ++rank) EXPECT_EQ(classes.like(rank), rank);
}

TEST(HostsThatLoadAlike, AreNotKnownWhereOneRankWritesAWholeValue) {
  const LayoutPtr layout = sharded_layout(4, true);
  SavedAndLoaded job(SaveMode::collective_free, layout, layout);
  LoadClasses classes = job.classes();
  for (Rank rank = 0; rank < kClassRanks; ++rank) EXPECT_EQ(classes.like(rank), rank);
}

}  // namespace
}  // namespace shoal::sim
