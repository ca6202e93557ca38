#include "base/rank_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::base {

std::string name_ranks(std::span<const uint32_t> ranks) {
  if (ranks.empty()) return "no rank";
  const size_t named = std::min(ranks.size(), kRanksNamed);
  std::string out =
      fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s",
                  fmt::join(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(named), ", "));
  if (ranks.size() > named) out += fmt::format(" and {} more", ranks.size() - named);
  return out;
}

}  // namespace shoal::base
