// Units: how a replica group divides its boxes among its members. Rule version 1, which
// docs/explanation/planning.md defines.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/geometry/rank_set.h"
#include "shoal/box.h"
#include "shoal/roster.h"

namespace shoal::plan {

// A box of the group, at its position in the canonical order.
struct SharedBox {
  const Box* box = nullptr;  // not empty
  uint64_t element_bytes = 0;
};

// One member writes the elements [begin, end), row-major, of one box.
struct Assignment {
  uint32_t box = 0;     // index in the given boxes
  uint32_t member = 0;  // index in first_members
  uint64_t begin = 0, end = 0;
};

// Returns assignments by ascending (box, begin). They tile every box, and a member has at most one per box.
//
// Each unit goes to the least loaded of `members` members, or to the first of these on a tie. If there are
// fewer units than members, only the first members get one. Then each box's units are dealt again as
// contiguous runs of the same sizes. No member gets more than the mean plus one unit.
std::vector<Assignment> divide(std::span<const SharedBox> boxes, uint64_t members, uint64_t unit_bytes);

// The number of units that the boxes make. At most so many members get one.
uint64_t count_units(std::span<const SharedBox> boxes, uint64_t unit_bytes);

// The first `count` members of a group in the order in which they get units: the first member of every host
// by ascending rank, then the second of every host, and so on, rotated by the hash of the group.
std::vector<Rank> first_members(const RankSet& group, const Roster& roster, uint64_t count);

}  // namespace shoal::plan
