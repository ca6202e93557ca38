// Lists of ranks in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace shoal::base {

inline constexpr size_t kRanksNamed = 8;  // further ranks are only counted

// "rank 3", "ranks 3, 9", or "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 5 more". "no rank" if there is none.
std::string name_ranks(std::span<const uint32_t> ranks);

}  // namespace shoal::base
