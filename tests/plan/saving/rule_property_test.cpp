// Random worlds, compared with definitions that go element by element and rank by rank.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "plan/layout/codec.h"
#include "plan/reading/locate.h"
#include "shoal/save_plan.h"
#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

constexpr int kWorlds = 1200;

const LayoutEntry* entry_of(const World& world, Rank rank, const std::string& fqn) {
  for (const LayoutEntry& entry : world.layout_of(rank).entries()) {
    if (value_fqn(entry, rank) == fqn) return &entry;
  }
  return nullptr;
}

std::set<std::string> fqns_of(const World& world) {
  std::set<std::string> fqns;
  for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
    for (const LayoutEntry& entry : world.layout_of(rank).entries()) fqns.insert(value_fqn(entry, rank));
  }
  return fqns;
}

struct Written {
  std::string fqn;
  const LayoutEntry* entry;
  StoredPiece piece;
  bool canonical;
};

class RuleWorlds : public ::testing::Test {
 protected:
  template <class Body>
  void for_each_world(uint64_t seed, Dedupe dedupe, Body&& body) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < kWorlds; ++i) {
      SCOPED_TRACE("world " + std::to_string(i));
      auto world = std::make_shared<World>(random_world(random));
      SaveOptions options{dedupe, uint64_t{1024} << (random() % 2)};
      plans_.clear();
      written_.clear();
      for (Rank rank = 0; rank < world->roster.world_size(); ++rank) {
        plans_.push_back(*plan_save(*world, rank, options));
        for (const WriteItem& item : plans_.back().items) {
          const LayoutEntry& entry = world->layout_of(rank).entries()[item.entry];
          written_.push_back({value_fqn(entry, rank), &entry, {rank, item.file, item.box}, item.canonical});
        }
      }
      body(random, world, options);
      if (HasFatalFailure()) return;
    }
  }

  std::vector<SavePlan> plans_;   // by rank
  std::vector<Written> written_;  // by all ranks
};

class RuleProperty : public RuleWorlds, public testing::WithParamInterface<Dedupe> {};
class BalancedRule : public RuleWorlds {};
class RuleWithoutDedupe : public RuleWorlds {};

std::string mode_name(const ::testing::TestParamInfo<Dedupe>& mode) {
  static const char* const names[] = {"Balanced", "LowestRank", "None"};
  return names[static_cast<size_t>(mode.param)];
}

INSTANTIATE_TEST_SUITE_P(Modes, RuleProperty,
                         ::testing::Values(Dedupe::balanced, Dedupe::lowest_rank, Dedupe::none), mode_name);

TEST_P(RuleProperty, CanonicalPiecesTileEveryValueExactlyWhereCoverageSaysSo) {
  int covered = 0;
  for_each_world(11, GetParam(), [&](auto&, const auto& world, const SaveOptions& options) {
    bool all_tiled = true;
    for (const std::string& fqn : fqns_of(*world)) {
      const LayoutEntry* entry = nullptr;
      for (Rank rank = 0; !entry; ++rank) entry = entry_of(*world, rank, fqn);
      const uint64_t count = *element_count(entry->shape);
      std::vector<int> times(count, 0);
      int pieces = 0;
      for (const Written& written : written_) {
        if (written.fqn != fqn || !written.canonical) continue;
        ++pieces;
        for (uint64_t number : element_numbers(written.piece.box, entry->shape)) ++times[number];
      }
      all_tiled = all_tiled && std::all_of(times.begin(), times.end(), [](int t) { return t == 1; });
      all_tiled = all_tiled && (count != 0 || pieces == 1);
    }
    Status status = check_coverage(*world, options);
    ASSERT_EQ(status.ok(), all_tiled) << status.to_string();
    covered += all_tiled;
  });
  EXPECT_GT(covered, kWorlds / 3);
  EXPECT_LT(covered, kWorlds);
}

TEST_P(RuleProperty, EveryItemLiesInOneRunOfABoxThatItsRankHolds) {
  for_each_world(12, GetParam(), [&](auto&, const auto& world, const SaveOptions&) {
    for (const SavePlan& plan : plans_) {
      const Layout& layout = world->layout_of(plan.rank);
      uint64_t bytes = 0;
      for (const WriteItem& item : plan.items) {
        const LayoutEntry& entry = layout.entries()[item.entry];
        ASSERT_LT(item.file, plan.files);
        if (entry.kind == LayoutEntry::Kind::object || *element_count(entry.shape) == 0) {
          ASSERT_TRUE(layout.holds(entry, plan.rank));
          ASSERT_EQ(item.bytes, 0u);
          continue;
        }
        ASSERT_FALSE(item.box.empty());
        std::vector<Box> boxes = layout.shards_of(entry, plan.rank).boxes;
        ASSERT_LT(item.local_box, boxes.size());
        ASSERT_TRUE(contains(boxes[item.local_box], item.box));
        const uint64_t element_bytes = *dtype_bytes(entry.dtype);
        ASSERT_EQ(*contiguous_offset(boxes[item.local_box], item.box) * element_bytes, item.local_offset);
        ASSERT_EQ(item.box.elements() * element_bytes, item.bytes);
        bytes += item.bytes;
      }
      ASSERT_EQ(bytes, plan.tensor_bytes);
    }
  });
}

TEST_P(RuleProperty, FilesFillInOrderAndKeysAreUniqueInEach) {
  for_each_world(13, GetParam(), [&](auto&, const auto& world, const SaveOptions&) {
    for (const SavePlan& plan : plans_) {
      const Layout& layout = world->layout_of(plan.rank);
      std::map<uint32_t, std::map<Box, uint32_t>> files;  // by entry
      std::set<std::pair<uint32_t, std::string>> keys;
      std::vector<std::string> names = item_keys(layout, plan);
      for (size_t i = 0; i < plan.items.size(); ++i) {
        files[plan.items[i].entry][plan.items[i].box] = plan.items[i].file;
        ASSERT_TRUE(keys.emplace(plan.items[i].file, names[i]).second);
        ASSERT_EQ(i > 0 && plan.items[i].file < plan.items[i - 1].file, false);
      }
      for (const auto& [entry, by_box] : files) {
        uint32_t n = 0;
        for (const auto& [box, file] : by_box) ASSERT_EQ(file, std::min(n++, kMaxFilesPerRank - 1));
      }
    }
  });
}

TEST_P(RuleProperty, TheLocatorFindsExactlyThePiecesThatRanksWrite) {
  size_t found = 0;
  for_each_world(14, GetParam(), [&](auto& random, const auto& world, const SaveOptions& options) {
    Locator locator(world, options);
    for (const std::string& fqn : fqns_of(*world)) {
      const Locator::Value value = *locator.value(fqn);
      for (int round = 0; round < 4; ++round) {
        const Box target = round == 0 ? whole(value.shape) : random_box(random, value.shape);
        const bool all = value.kind == LayoutEntry::Kind::object || *element_count(value.shape) == 0;
        std::vector<StoredPiece> expected;
        for (const Written& written : written_) {
          if (written.fqn != fqn || !written.canonical) continue;
          if (all || intersect(written.piece.box, target)) expected.push_back(written.piece);
        }
        std::vector<StoredPiece> pieces = *locator.pieces(fqn, target);
        ASSERT_TRUE(std::is_sorted(pieces.begin(), pieces.end(),
                                   [](const StoredPiece& a, const StoredPiece& b) { return a.box < b.box; }));
        found += pieces.size();
        ASSERT_THAT(pieces, ::testing::UnorderedElementsAreArray(expected))
            << fqn << " " << to_string(target);
      }
    }
    for (const SavePlan& plan : plans_) ASSERT_EQ((*locator.plan_of(plan.rank))->id, plan.id);
  });
  EXPECT_GT(found, 1000u);
}

TEST_F(RuleWithoutDedupe, EveryRankWritesAllThatItHolds) {
  for_each_world(15, Dedupe::none, [&](auto&, const auto& world, const SaveOptions&) {
    for (const SavePlan& plan : plans_) {
      SavePlan held = plan_all_held(world->layout_of(plan.rank), plan.rank);
      std::multiset<std::pair<uint32_t, Box>> wrote, holds;
      for (const WriteItem& item : plan.items) wrote.emplace(item.entry, item.box);
      for (const WriteItem& item : held.items) holds.emplace(item.entry, item.box);
      ASSERT_EQ(wrote, holds);
      ASSERT_EQ(held.tensor_bytes, plan.tensor_bytes);
    }
  });
}

// Who provably holds the same bytes of `entry` as `rank`, by looking at every rank.
std::set<Rank> replicas_by_hand(const World& world, const LayoutEntry& entry, Rank rank, const Box& box) {
  std::set<Rank> group;
  const Layout& layout = world.layout_of(rank);
  if (const auto* devices = std::get_if<DeviceSharding>(&entry.sharding)) {
    for (Rank other = 0; other < world.roster.world_size(); ++other) {
      const Layout& theirs = world.layout_of(other);
      const LayoutEntry* same = entry_of(world, other, entry.fqn);
      const auto* sharding = same ? std::get_if<DeviceSharding>(&same->sharding) : nullptr;
      if (!sharding || sharding->devices_per_rank != devices->devices_per_rank) continue;
      if (theirs.meshes()[sharding->mesh] != layout.meshes()[devices->mesh]) continue;
      std::vector<Box> boxes = theirs.shards_of(*same, other).boxes;
      if (std::find(boxes.begin(), boxes.end(), box) != boxes.end()) group.insert(other);
    }
    return group;
  }
  const Mesh* mesh = nullptr;
  const auto* sharding = std::get_if<MeshSharding>(&entry.sharding);
  if (sharding) mesh = &layout.meshes()[sharding->mesh];
  if (const auto* g = std::get_if<GroupSharding>(&entry.sharding)) mesh = &layout.meshes()[g->mesh];
  bool all_declare = true;
  for (Rank other = 0; other < world.roster.world_size(); ++other) {
    const LayoutEntry* theirs = entry_of(world, other, entry.fqn);
    if (!theirs) continue;
    if (!mesh) {
      std::vector<Box> boxes = world.layout_of(other).shards_of(*theirs, other).boxes;
      if (std::find(boxes.begin(), boxes.end(), box) == boxes.end()) continue;
      all_declare = all_declare && theirs->replicated;
      group.insert(other);
      continue;
    }
    if (theirs->sharding.index() != entry.sharding.index() || theirs->replicated != entry.replicated)
      continue;
    const auto* their_sharding = std::get_if<MeshSharding>(&theirs->sharding);
    const Mesh& their_mesh =
        world.layout_of(other)
            .meshes()[their_sharding ? their_sharding->mesh : std::get<GroupSharding>(theirs->sharding).mesh];
    if (their_mesh != *mesh || !mesh->contains(other)) continue;
    if (their_sharding && their_sharding->placements != sharding->placements) continue;
    bool same = true;
    for (size_t i = 0; sharding && i < mesh->dims(); ++i) {
      same = same && (sharding->placements[i].kind == Placement::Kind::replicate ||
                      (*mesh->coordinate_of(rank))[i] == (*mesh->coordinate_of(other))[i]);
    }
    if (same) group.insert(other);
  }
  const bool proven = sharding || (mesh ? entry.replicated : all_declare);
  return proven ? group : std::set<Rank>{};
}

TEST_F(BalancedRule, NoMemberOfAReplicaGroupWritesMoreThanTheMeanAndOneUnit) {
  size_t groups_of_several = 0, divided_tiles = 0;
  for_each_world(16, Dedupe::balanced, [&](auto&, const auto& world, const SaveOptions& options) {
    std::map<std::set<Rank>, std::map<Rank, uint64_t>> loads;
    for (const SavePlan& plan : plans_) {
      const Layout& layout = world->layout_of(plan.rank);
      for (const WriteItem& item : plan.items) {
        const LayoutEntry& entry = layout.entries()[item.entry];
        if (item.bytes == 0) continue;
        const Box held = layout.shards_of(entry, plan.rank).boxes[item.local_box];
        std::set<Rank> group = replicas_by_hand(*world, entry, plan.rank, held);
        if (!group.empty()) loads[group][plan.rank] += item.bytes;
        divided_tiles += group.size() > 1 && std::holds_alternative<DeviceSharding>(entry.sharding);
      }
    }
    for (const auto& [group, by_rank] : loads) {
      uint64_t total = 0, most = 0;
      for (const auto& [rank, bytes] : by_rank) {
        ASSERT_TRUE(group.contains(rank));
        total += bytes;
        most = std::max(most, bytes);
      }
      ASSERT_LE(most * group.size(), total + options.unit_bytes * group.size());
      groups_of_several += by_rank.size() > 1;
    }
  });
  EXPECT_GT(groups_of_several, 100u);
  EXPECT_GT(divided_tiles, 100u);
}

// Copies that a load may read instead: all that ranks write of a box of which they provably hold the same.
TEST_F(RuleWithoutDedupe, TheLocatorFindsTheCopiesThatProvablyAreSome) {
  size_t copies = 0, unproven = 0;
  for_each_world(19, Dedupe::none, [&](auto&, const auto& world, const SaveOptions& options) {
    Locator locator(world, options);
    for (const Written& canonical : written_) {
      if (!canonical.canonical) continue;
      const bool is_object = canonical.entry->kind == LayoutEntry::Kind::object;
      if (!is_object && canonical.piece.box.empty()) continue;
      const std::set<Rank> equal =
          replicas_by_hand(*world, *canonical.entry, canonical.piece.rank, canonical.piece.box);
      std::vector<StoredPiece> expected;
      for (const Written& other : written_) {
        if (other.fqn != canonical.fqn || other.piece.rank == canonical.piece.rank) continue;
        if (other.piece.box != canonical.piece.box) continue;
        (equal.contains(other.piece.rank) ? copies : unproven) += 1;
        if (equal.contains(other.piece.rank)) expected.push_back(other.piece);
      }
      auto found = locator.copies(canonical.fqn, canonical.piece, 1000);
      ASSERT_THAT(*found, ::testing::UnorderedElementsAreArray(expected)) << canonical.fqn;
      auto one = locator.copies(canonical.fqn, canonical.piece, 1);
      ASSERT_EQ(one->size(), std::min<size_t>(expected.size(), 1));
      if (one->empty()) continue;
      const Roster& roster = world->roster;
      const uint32_t host = roster.host_of(canonical.piece.rank);
      const bool some_elsewhere = std::any_of(expected.begin(), expected.end(), [&](const StoredPiece& copy) {
        return roster.host_of(copy.rank) != host;
      });
      ASSERT_EQ(roster.host_of(one->front().rank) != host, some_elsewhere);
    }
  });
  EXPECT_GT(copies, 1000u);
  EXPECT_GT(unproven, 100u);
}

TEST_P(RuleProperty, WhereRanksDivideWhatTheyHoldThereAreNoCopies) {
  if (GetParam() == Dedupe::none) return;
  for_each_world(20, GetParam(), [&](auto&, const auto& world, const SaveOptions& options) {
    Locator locator(world, options);
    for (const Written& written : written_)
      ASSERT_TRUE(locator.copies(written.fqn, written.piece, 1000)->empty());
  });
}

// The same layout in other forms: meshes as lists of ranks, twice, unused, in any order; entries and explicit
// boxes in any order; or decoded from its encoding.
LayoutPtr made_again(std::mt19937_64& random, const Layout& layout) {
  if (random() % 4 == 0) return *decode_layout(encode_layout(layout));
  std::vector<Mesh> meshes;
  std::vector<uint32_t> kept_at(layout.meshes().size());
  for (uint32_t copies = 2; copies > 0; --copies) {
    for (uint32_t m = 0; m < layout.meshes().size(); ++m) {
      const Mesh& mesh = layout.meshes()[m];
      kept_at[m] = static_cast<uint32_t>(meshes.size());
      meshes.push_back(*Mesh::from_ranks(mesh.shape(), mesh.ranks()));
    }
  }
  meshes.push_back(Mesh::single(static_cast<Rank>(random() % 4)));
  std::vector<uint32_t> order(meshes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Mesh> shuffled;
  for (uint32_t from : order) shuffled.push_back(meshes[from]);
  auto place_of = [&](uint32_t mesh) {
    return static_cast<uint32_t>(std::find(order.begin(), order.end(), kept_at[mesh]) - order.begin());
  };
  std::vector<LayoutEntry> entries = layout.entries();
  for (LayoutEntry& entry : entries) {
    if (auto* sharding = std::get_if<MeshSharding>(&entry.sharding))
      sharding->mesh = place_of(sharding->mesh);
    if (auto* sharding = std::get_if<GroupSharding>(&entry.sharding))
      sharding->mesh = place_of(sharding->mesh);
    if (auto* sharding = std::get_if<DeviceSharding>(&entry.sharding))
      sharding->mesh = place_of(sharding->mesh);
    if (auto* boxes = std::get_if<BoxSharding>(&entry.sharding)) {
      std::shuffle(boxes->ranks.begin(), boxes->ranks.end(), random);
    }
  }
  std::shuffle(entries.begin(), entries.end(), random);
  return *make_layout(std::move(shuffled), std::move(entries));
}

// The world likewise, each rank having said its layout by itself, and hosts being called otherwise.
World made_again(std::mt19937_64& random, const World& world) {
  std::vector<LayoutId> ids;
  std::vector<uint32_t> hosts;
  std::map<LayoutId, LayoutPtr> layouts;
  for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
    const LayoutPtr layout = made_again(random, world.layout_of(rank));
    layouts[layout->id()] = layout;
    ids.push_back(layout->id());
    hosts.push_back(1000 - 7 * world.roster.host_of(rank));
  }
  World fresh;
  fresh.roster = *Roster::make(ids, hosts);
  for (const LayoutId& id : fresh.roster.layout_ids()) fresh.layouts.push_back(layouts.at(id));
  return fresh;
}

// Each rank computes the parts of all ranks from a world that it made itself.
TEST(RuleProperties, IdsAndPlansOfAllRanksAreTheSameOnEveryRank) {
  std::mt19937_64 random(18);
  size_t items = 0;
  for (int i = 0; i < kWorlds / 4; ++i) {
    SCOPED_TRACE("world " + std::to_string(i));
    const World world = random_world(random);
    SaveOptions options{static_cast<Dedupe>(random() % 3), uint64_t{1024} << (random() % 3)};
    options.mode = static_cast<SaveMode>(random() % 3);
    if (options.mode == SaveMode::rank_local) options.dedupe = Dedupe::none;
    std::vector<SavePlan> plans;
    for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
      plans.push_back(*plan_save(world, rank, options));
      items += plans.back().items.size();
    }
    for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
      const auto own = std::make_shared<World>(made_again(random, world));
      ASSERT_TRUE(validate_world(*own).ok());
      ASSERT_EQ(own->roster.layout_ids(), world.roster.layout_ids());
      ASSERT_EQ(own->roster.id(), world.roster.id());
      Locator locator(own, options);
      for (const SavePlan& plan : plans) {
        const SavePlan same = *plan_save(*own, plan.rank, options);
        ASSERT_EQ(same.items, plan.items);
        ASSERT_EQ(same.id, plan.id);
        ASSERT_EQ(plan_id_of(plan), plan.id);
        ASSERT_EQ((*locator.plan_of(plan.rank))->items, plan.items);
      }
    }
  }
  EXPECT_GT(items, 3000u);
}

TEST(RuleProperties, LayoutsAndRostersOfAllWorldsSurviveTheirEncoding) {
  std::mt19937_64 random(17);
  for (int i = 0; i < kWorlds; ++i) {
    World world = random_world(random);
    ASSERT_EQ(decode_roster(encode_roster(world.roster))->id(), world.roster.id());
    for (const LayoutPtr& layout : world.layouts) {
      Result<LayoutPtr> again = decode_layout(encode_layout(*layout));
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      ASSERT_EQ((*again)->entries(), layout->entries());
      ASSERT_EQ((*again)->meshes(), layout->meshes());
    }
  }
}

}  // namespace
}  // namespace shoal::plan
