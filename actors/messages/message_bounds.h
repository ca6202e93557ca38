// Splits and checks messages to other nodes by the bound of one message.
#pragma once

#include <vector>

#include "actors/messages/messages.h"

namespace shoal::actors {

// Bytes of a message besides its roster and layouts, and bytes around each of these. Both are upper
// estimates.
inline constexpr size_t kMessageOverheadBytes = 4096;
inline constexpr size_t kItemOverheadBytes = 32;

// Splits the layouts, in their order, into as few messages as possible, each of at most `bytes_max`. Leaves
// out a layout that fits into no message, and names it in `*refused` (Code::too_large). Otherwise leaves
// `*refused` unchanged.
std::vector<wire::Layouts> split_layouts(const std::vector<LayoutPtr>& layouts, size_t bytes_max,
                                         Status* refused);

// Likewise for the plans of planners.
std::vector<wire::PlanGathering> split_plans(wire::PlanGathering whole, size_t bytes_max, Status* refused);

// Code::too_large, with size and bound, if a RosterUpdate with this world would not fit.
Status check_roster_fits(const World& world, size_t bytes_max);

}  // namespace shoal::actors
