// What an attempt lacks when its coordinator gives it up, in words. Part of the Coordinator.
#pragma once

#include <string>
#include <vector>

#include "actors/ids.h"
#include "shoal/mesh.h"

namespace shoal::actors {

struct Missing {
  std::vector<Rank> ranks;  // that have sent nothing; none if something else is missing
  std::string what;         // "nothing came from rank 2 (host b)"
  std::string detail;       // "": none

  // `when`: "within 2 min 00 s of the last report".
  std::string cause(const std::string& when) const {
    return what + " " + when + (detail.empty() ? "" : "; " + detail);
  }
};

}  // namespace shoal::actors
