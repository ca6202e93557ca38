// Ranks in a line for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace shoal::base {

inline constexpr size_t kRanksNamed = 8;  // of many; the others are counted

// "rank 3", "ranks 3, 9"; of more than kRanksNamed the first, as in "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 5
// more". Of none "no rank".
std::string name_ranks(std::span<const uint32_t> ranks);

}  // namespace shoal::base
