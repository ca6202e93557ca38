// Options of saves, and in which of them two saves differ, in words.
#pragma once

#include <string>
#include <string_view>

#include "shoal/save_plan.h"

namespace shoal::plan {

inline std::string_view dedupe_name(Dedupe dedupe) {
  switch (dedupe) {
    case Dedupe::balanced:
      return "balanced";
    case Dedupe::lowest_rank:
      return "lowest-rank";
    case Dedupe::none:
      break;
  }
  return "none";
}

// The first option that differs, with both values: "mode: rank-local and collective". Precondition: a != b.
inline std::string options_difference(const SaveOptions& a, const SaveOptions& b) {
  if (a.mode != b.mode) {
    return "mode: " + std::string(mode_name(a.mode)) + " and " + std::string(mode_name(b.mode));
  }
  if (a.dedupe != b.dedupe) {
    return "dedupe: " + std::string(dedupe_name(a.dedupe)) + " and " + std::string(dedupe_name(b.dedupe));
  }
  return "unit_bytes: " + std::to_string(a.unit_bytes) + " and " + std::to_string(b.unit_bytes);
}

}  // namespace shoal::plan
