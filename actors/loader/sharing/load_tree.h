// LoadTree: which member of a shared load reads a chunk, and who sends it to whom. Computed alike by all
// members.
//
// The members of a group, in a fixed order, form a tree whose root reads the chunk from storage. The root
// depends on the ordinal of the chunk, so that reads are divided evenly. At most kReadersMost members read,
// so that a member of a large group connects to few others. In a group of up to kStarMembers all members get
// the chunk from the root; in a larger one each member sends it to kTreeFan others.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace shoal::actors {

inline constexpr uint32_t kReadersMost = 8;  // of one group
inline constexpr uint32_t kStarMembers = 8;
inline constexpr uint32_t kTreeFan = 2;

class LoadTree {
 public:
  // Members are named by their place in the group's order; `own` is one of them. `dead`: places that get no
  // requests.
  LoadTree(uint32_t members, uint32_t own, const std::set<uint32_t>& dead)
      : members_(members), own_(own), dead_(dead) {}

  // The member from which this one requests the chunk; nullopt: it reads the chunk itself. The parent is
  // always nearer to the root, so requests form no cycle, even if members disagree on which ones are dead.
  std::optional<uint32_t> parent(uint64_t ordinal) const;
  // How many members request the chunk from this one.
  uint32_t children(uint64_t ordinal) const;

 private:
  uint32_t root_of(uint64_t ordinal) const;
  uint32_t position_of(uint32_t place, uint32_t root) const { return (place + members_ - root) % members_; }
  uint32_t place_at(uint32_t position, uint32_t root) const { return (position + root) % members_; }
  uint32_t fan() const { return members_ <= kStarMembers ? members_ : kTreeFan; }
  std::optional<uint32_t> parent_of(uint32_t position, uint32_t root) const;  // positions

  const uint32_t members_;
  const uint32_t own_;
  const std::set<uint32_t>& dead_;
};

}  // namespace shoal::actors
