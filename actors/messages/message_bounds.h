// What fits into one message to another node.
#pragma once

#include <vector>

#include "actors/messages/messages.h"

namespace shoal::actors {

// Of a message besides the roster and layouts in it, and for each of these; generous.
inline constexpr size_t kMessageOverheadBytes = 4096;
inline constexpr size_t kItemOverheadBytes = 32;

// The layouts in as few messages as their order allows, each of at most `bytes_max`. One that fits into none
// is left out, and named in `*refused` (Code::too_large; else untouched).
std::vector<wire::Layouts> split_layouts(const std::vector<LayoutPtr>& layouts, size_t bytes_max,
                                         Status* refused);

// Planners' plans in as few messages as their order allows, likewise.
std::vector<wire::PlanExchange> split_plans(wire::PlanExchange whole, size_t bytes_max, Status* refused);

// Code::too_large, naming size and bound, where RosterIs with this world would not fit.
Status check_roster_fits(const World& world, size_t bytes_max);

}  // namespace shoal::actors
