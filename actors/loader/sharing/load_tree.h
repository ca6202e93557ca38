// Who reads a chunk of a load that is shared, and who passes it on to whom: by arithmetic, alike on all
// members.
//
// The members of a group, in a fixed order, form a tree whose root reads the chunk from storage. The root
// moves with the chunk's ordinal, so that the reading is divided evenly. Up to kReadersMost members read, so
// that a member of a large group speaks to few others; up to kStarMembers members get it from the root
// itself, in larger groups each passes it on to kTreeFan.
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
  // Members by their place in the group's order; `own` is one of them. `dead`: places that are asked no more.
  LoadTree(uint32_t members, uint32_t own, const std::set<uint32_t>& dead)
      : members_(members), own_(own), dead_(dead) {}

  // Whom this member asks for the chunk; nothing: it reads the chunk itself. Whoever is asked is nearer to
  // the root, whatever members take each other for dead: nobody waits in a circle.
  std::optional<uint32_t> parent(uint64_t ordinal) const;
  // How many members ask this one for it.
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
