// Units: how a replica group divides what it holds among its members. Rule version 1;
// docs/explanation/planning.md states it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/geometry/rank_set.h"
#include "shoal/box.h"
#include "shoal/roster.h"

namespace shoal::plan {

// A box of the group, in its place in the canonical order.
struct SharedBox {
  const Box* box = nullptr;  // not empty
  uint64_t element_bytes = 0;
};

// A member writes elements [begin, end), row-major, of a box.
struct Share {
  uint32_t box = 0;     // into the boxes given
  uint32_t member = 0;  // into first_members
  uint64_t begin = 0, end = 0;
};

// Shares by ascending (box, begin); they tile every box, and a member has at most one share of a box. Units
// go one by one to the least loaded of `members` members, the first of them on a tie, so that only the first
// few get any where there are fewer units than members; then the units of one box are dealt anew, as
// contiguous runs of the same sizes. No member gets more than the mean and one unit.
std::vector<Share> divide(std::span<const SharedBox> boxes, uint64_t members, uint64_t unit_bytes);

// How many units the boxes make: no more members than that get any.
uint64_t count_units(std::span<const SharedBox> boxes, uint64_t unit_bytes);

// The first `count` members of a group in the order in which they are served: the first member of every host
// by ascending rank, then the second of every host, and so on; rotated by the hash of the group.
std::vector<Rank> first_members(const RankSet& group, const Roster& roster, uint64_t count);

}  // namespace shoal::plan
