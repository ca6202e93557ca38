// In which option two SaveOptions differ, for messages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "shoal/save_plan.h"

namespace shoal::plan {

inline std::string_view dedupe_name(Dedupe dedupe) {
  switch (dedupe) {
    case Dedupe::lowest_rank:
      return "lowest_rank";
    case Dedupe::none:
      return "none";
    case Dedupe::balanced:
      break;
  }
  return "balanced";
}

// The first option that differs, with both values: "mode: rank-local and collective". Precondition: a != b.
inline std::string options_difference(const SaveOptions& a, const SaveOptions& b) {
  if (a.mode != b.mode) return fmt::format("mode: {} and {}", mode_name(a.mode), mode_name(b.mode));
  if (a.dedupe != b.dedupe) {
    return fmt::format("dedupe: {} and {}", dedupe_name(a.dedupe), dedupe_name(b.dedupe));
  }
  return fmt::format("unit_bytes: {} and {}", a.unit_bytes, b.unit_bytes);
}

}  // namespace shoal::plan
