// RankSet: a set of ranks in canonical form. Regular sets of a million ranks take little memory.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "shoal/mesh.h"

namespace shoal::plan {

// Immutable. Equal sets compare equal, however they were made. The form is affine if possible: base +
// sum(digit[i] * stride[i]) with nesting strides as in Mesh. The largest stride comes first, and neighbouring
// dimensions that form one progression are merged; this form is unique. Any other set is a list.
class RankSet {
 public:
  RankSet() = default;  // no rank
  static RankSet of_mesh(const Mesh& mesh);
  static RankSet from_ascending(std::vector<Rank> ranks);  // distinct

  uint64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Rank nth(uint64_t index) const;         // ascending; index < size()
  std::vector<Rank> ranks() const;        // ascending
  Rank lowest() const { return nth(0); }  // precondition: not empty
  Rank highest() const { return nth(size_ - 1); }
  uint64_t count_below(uint64_t rank) const;  // ranks less than `rank`; O(dims), or O(log size) for a list
  bool contains(Rank rank) const { return count_below(uint64_t{rank} + 1) != count_below(rank); }

  friend auto operator<=>(const RankSet&, const RankSet&) = default;

 private:
  struct Digit {
    uint64_t stride, size;
    friend auto operator<=>(const Digit&, const Digit&) = default;
  };
  uint64_t size_ = 0;
  Rank base_ = 0;
  std::vector<Digit> digits_;  // empty for a single rank
  std::vector<Rank> listed_;
};

}  // namespace shoal::plan
