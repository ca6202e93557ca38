// In which option two SaveOptions differ, for messages.
#pragma once

#include <string>

#include "shoal/save_plan.h"

namespace shoal::plan {

inline std::string dedupe_text(Dedupe dedupe) {
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
  if (a.mode != b.mode) {
    return "mode: " + std::string(mode_name(a.mode)) + " and " + std::string(mode_name(b.mode));
  }
  if (a.dedupe != b.dedupe) return "dedupe: " + dedupe_text(a.dedupe) + " and " + dedupe_text(b.dedupe);
  return "unit_bytes: " + std::to_string(a.unit_bytes) + " and " + std::to_string(b.unit_bytes);
}

}  // namespace shoal::plan
