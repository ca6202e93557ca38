#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plan/layout/holdings.h"
#include "shoal/metadata.h"

namespace shoal::plan {
namespace {

using SitesByName = std::map<std::string, std::vector<std::pair<uint32_t, uint32_t>>>;

LayoutPtr layout_of(const std::vector<uint32_t>& names, Rank rank) {
  LayoutBuilder builder;
  for (uint32_t name : names) {
    builder.add_tensor("layers." + std::to_string(name), DType::f32, {name % 7, 2}, Mesh::single(rank),
                       {Placement::shard(0)});
  }
  return std::move(builder).build().value();
}

World world_on_one_host(const std::vector<LayoutPtr>& layouts) {
  std::vector<LayoutId> ids;
  for (const LayoutPtr& layout : layouts) ids.push_back(layout->id());
  return {Roster::make(ids, std::vector<uint32_t>(ids.size())).value(), layouts};
}

SitesByName sites_of(const World& world) {
  SitesByName sites;
  for (uint32_t layout = 0; layout < world.layouts.size(); ++layout) {
    const std::vector<LayoutEntry>& entries = world.layouts[layout]->entries();
    for (uint32_t entry = 0; entry < entries.size(); ++entry) {
      sites[entries[entry].fqn].emplace_back(layout, entry);
    }
  }
  return sites;
}

// Ranks share all names, hardly any, or none; by stages or by turns.
TEST(FqnIndex, KnowsEveryNameOnceAndAllItsSites) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 60; ++round) {
    const uint32_t ranks = 1 + random() % 9;
    const uint64_t kind = random() % 4;
    std::vector<LayoutPtr> layouts;
    for (Rank rank = 0; rank < ranks; ++rank) {
      std::vector<uint32_t> names;
      for (uint32_t name = 0; name < 120; ++name) {
        const bool is_held = kind == 0   ? true
                             : kind == 1 ? name % ranks == rank
                             : kind == 2 ? name * ranks / 120 == rank
                                         : random() % 3 == 0;
        if (is_held) names.push_back(name);
      }
      layouts.push_back(layout_of(names, rank));
    }
    const World world = world_on_one_host(layouts);
    const SitesByName expected = sites_of(world);
    const FqnIndex index = FqnIndex::of_world(world);
    const std::vector<TensorMetadata> values = list_values(world);
    ASSERT_EQ(index.size(), expected.size());
    ASSERT_EQ(values.size(), expected.size());
    uint32_t value = 0;
    for (const auto& [name, sites] : expected) {
      EXPECT_EQ(index.fqn(value), name);
      EXPECT_EQ(values[value].fqn, name);
      std::vector<std::pair<uint32_t, uint32_t>> found;
      for (const Site site : index.sites(value)) found.emplace_back(site.layout, site.entry);
      EXPECT_EQ(found, sites) << name;
      ++value;
    }
  }
}

}  // namespace
}  // namespace shoal::plan
