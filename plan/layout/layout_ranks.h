// The ranks that have a layout, for messages.
#pragma once

#include <string>
#include <vector>

#include "base/rank_names.h"
#include "shoal/roster.h"

namespace shoal::plan {

// `layout`: an index into the layouts of the world. Takes time in proportion to the world: for errors.
inline std::string name_ranks_of(const World& world, uint32_t layout) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < world.roster.world_size(); ++rank) {
    if (world.roster.layout_of(rank) == layout) ranks.push_back(rank);
  }
  return base::name_ranks(ranks);
}

}  // namespace shoal::plan
